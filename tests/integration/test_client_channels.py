"""The client and a real gateway: restarts, cuts, resyncs, snapshots, several channels."""

import asyncio
import random
from contextlib import ExitStack, asynccontextmanager, contextmanager
from functools import partial

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount, Route

from tests.integration.proxy import proxy_to
from tests.servers import serve_app
from tidegate.client import (
    ChannelView,
    EventSchema,
    Publisher,
    StateResyncRequired,
    StreamOpen,
    connect,
    connect_sync,
    load_channel,
    load_channel_sync,
)
from tidegate.gateway import Gateway, Namespace
from tidegate.stream import EventStream


class Served:
    """A gateway, mounted below a path, in a server that runs in a thread."""

    def __init__(self, url, served, gateway):
        self.url, self.address, self.gateway, self.call = url, served.address, gateway, served.call

    def publish(self, channel, *data):
        """Publish events, in one call for each."""

        async def run():
            return [await self.gateway.publish(channel, "add", one) for one in data]

        return self.call(run)


@contextmanager
def serve_gateway(broker="memory:", **options):
    gateway = Gateway(broker, retry_ms=1, **options)

    @asynccontextmanager
    async def lifespan(_):
        async with gateway:
            yield

    async def own(request):
        return EventStream(gateway.subscribe("a", "b"), request, retry_ms=1)

    routes = [Route("/own", own), Mount("/live", gateway)]
    with serve_app(Starlette(routes=routes, lifespan=lifespan)) as served:
        yield Served(f"{served}/live", served, gateway)


def follow(url, **options):
    return connect(url, **{"retry": 0.0, "random": lambda: 0.0, **options})


def collect(state, event):
    return [*state, event.data]


def add(state, event):
    return {**state, event.channel: [*state.get(event.channel, []), event.data]}


def put(state, snapshot):
    return {**state, snapshot.channel: snapshot.state or []}


async def events_of(stream, count):
    """Return the next events, without the control frames."""
    got = []
    while len(got) < count:
        event = await anext(stream)
        if event.position is not None:
            got.append(event)
    return got


async def test_channels_are_followed_with_their_places():
    with serve_gateway() as served:
        first = served.publish("a", 1, 2)
        async with (
            asyncio.timeout(30),
            follow(served.url, channels=["a", "b"], from_beginning=True) as stream,
        ):
            opened = EventSchema().decode(await anext(stream))
            assert isinstance(opened.payload, StreamOpen)
            assert opened.payload.channels["a"].linked
            got = await events_of(stream, 2)
            served.publish("b", 3)
            got += await events_of(stream, 1)
        assert [(event.channel, event.data) for event in got] == [("a", 1), ("a", 2), ("b", 3)]
        assert [event.position for event in got[:2]] == [result.id for result in first]
        assert [event.prev for event in got] == ["", got[0].position, ""]
        assert got[0].epoch == first[0].epoch
        assert got[0].meta["serverTimestamp"] > 0


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"tail": 2}, [4, 5]),
        ({"tail": 0}, []),
        ({}, []),
        ({"from_beginning": True}, [1, 2, 3, 4, 5]),
    ],
)
async def test_a_new_stream_begins_where_it_is_asked_to(options, expected):
    with serve_gateway() as served:
        served.publish("a", 1, 2, 3, 4, 5)
        async with (
            asyncio.timeout(30),
            follow(served.url, channels=["a"], **options) as stream,
        ):
            assert (await anext(stream)).type == "stream_open"
            served.publish("a", "live")
            got = await events_of(stream, len(expected) + 1)
        assert [event.data for event in got] == [*expected, "live"]


async def test_tags_let_through_what_has_them_and_skips_move_the_cursor():
    with serve_gateway() as served:

        async def publish():
            for n in range(6):
                tags = {"kind": "x" if n % 2 else "y"}
                await served.gateway.publish("a", "add", n, tags=tags)

        async with (
            asyncio.timeout(30),
            follow(served.url, channels=["a"], tags={"kind": "x"}) as stream,
        ):
            assert (await anext(stream)).data["channels"]["a"]["linked"] is False
            served.call(publish)
            got = await events_of(stream, 3)
            assert [event.data for event in got] == [1, 3, 5]
            assert got[0].tags == {"kind": "x"}


async def test_many_channels_go_into_a_body():
    names = [f"room:{n:0>180}" for n in range(60)]
    with serve_gateway() as served:
        async with asyncio.timeout(30), follow(served.url, channels=names) as stream:
            opened = await anext(stream)
            assert len(opened.data["channels"]) == 60
            served.publish(names[59], "x")
            (event,) = await events_of(stream, 1)
            assert event.channel == names[59]


async def test_a_route_of_ones_own_that_streams_channels_is_followed_too():
    with serve_gateway() as served:
        served.publish("a", 0)
        url = served.url.replace("/live", "/own")
        async with asyncio.timeout(30), follow(url) as stream:
            await anext(stream)
            served.publish("b", 1)
            (event,) = await events_of(stream, 1)
        assert (event.channel, event.data) == ("b", 1)
        served.publish("b", 2)
        served.publish("a", 3)
        async with asyncio.timeout(30), follow(url, last_event_id=event.cursor) as stream:
            got = await events_of(stream, 2)
        assert sorted(event.data for event in got) == [2, 3]


async def test_a_restart_with_a_durable_broker_loses_nothing_and_repeats_nothing(tmp_path):
    url = f"sqlite:///{tmp_path}/history.db"
    with ExitStack() as first_life, ExitStack() as rest:
        first = first_life.enter_context(serve_gateway(url))
        proxy = rest.enter_context(proxy_to(first.address))
        async with (
            asyncio.timeout(50),
            follow(f"{proxy.url}/live", channels=["a", "b"]) as stream,
        ):
            assert (await anext(stream)).type == "stream_open"
            first.publish("a", 1, 2)
            first.publish("b", 1)
            got = await events_of(stream, 3)
            proxy.down()
            first.publish("a", 3)
            await asyncio.to_thread(first_life.close)
            second = rest.enter_context(serve_gateway(url))
            second.publish("a", 4)
            second.publish("b", 2)
            proxy.target = second.address
            proxy.up()
            got += await events_of(stream, 3)
            second.publish("b", 3)
            got += await events_of(stream, 1)
            assert stream.statistics().connects == 2
        of = {name: [event.data for event in got if event.channel == name] for name in "ab"}
        assert of == {"a": [1, 2, 3, 4], "b": [1, 2, 3]}


@pytest.mark.parametrize("seed", range(3))
async def test_cut_anywhere_each_event_comes_exactly_once_in_order(seed):
    drawn = random.Random(seed)
    sizes = [drawn.randrange(200, 6000) for _ in range(40)]
    with serve_gateway() as served, proxy_to(served.address) as proxy:
        for name in ("a", "b", "c"):
            served.publish(name, *range(100))
        proxy.cut_streams(sizes)
        async with (
            asyncio.timeout(50),
            follow(f"{proxy.url}/live", channels=["a", "b", "c"], from_beginning=True) as stream,
        ):
            got = await events_of(stream, 300)
        assert proxy.cuts > 20
        for name in ("a", "b", "c"):
            assert [event.data for event in got if event.channel == name] == list(range(100))


async def test_a_new_stream_that_is_cut_before_its_first_event_misses_nothing():
    with serve_gateway() as served, proxy_to(served.address) as proxy:
        served.publish("a", "old")
        async with asyncio.timeout(30), follow(f"{proxy.url}/live", channels=["a"]) as stream:
            proxy.down()
            served.publish("a", 1, 2)
            proxy.up()
            assert [event.data for event in await events_of(stream, 2)] == [1, 2]


async def cut_now_and_then(proxy, sizes):
    """Cut the connection again and again, each time a little later."""
    for size in sizes:
        await asyncio.sleep(size / 100_000)
        await asyncio.to_thread(proxy.cut)
    await asyncio.Event().wait()


async def test_a_new_epoch_is_told_by_a_resync_and_the_chain_goes_on():
    with serve_gateway() as served:
        async with asyncio.timeout(30), follow(served.url, channels=["a"]) as stream:
            await anext(stream)
            served.publish("a", 1)
            await events_of(stream, 1)
            served.call(lambda: served.gateway.remove_history("a"))
            frame = await anext(stream)
            served.publish("a", 2, 3)
            told = EventSchema().decode(frame).payload
            assert isinstance(told, StateResyncRequired)
            assert (told.reason, told.channel) == ("epoch_reset", "a")
            assert [event.data for event in await events_of(stream, 2)] == [2, 3]


async def test_a_memory_brokers_restart_is_told_by_a_resync():
    with serve_gateway() as first, serve_gateway() as second:
        first.publish("a", 1)
        second.publish("a", "x", "y")
        with proxy_to(first.address) as proxy:
            async with (
                asyncio.timeout(30),
                follow(f"{proxy.url}/live", channels=["a"], from_beginning=True) as stream,
            ):
                assert [event.data for event in await events_of(stream, 1)] == [1]
                proxy.target = second.address
                proxy.cut()
                types = []
                while "state_resync_required" not in types:
                    types.append((await anext(stream)).type)
                assert [event.data for event in await events_of(stream, 2)] == ["x", "y"]


async def test_a_view_loads_follows_and_comes_back_from_a_trimmed_history():
    namespaces = [Namespace(history_size=5)]
    with serve_gateway(namespaces=namespaces) as served, proxy_to(served.address) as proxy:
        (result,) = served.publish("a", 1)
        served.call(lambda: served.gateway.put_snapshot("a", [1], result.id))
        served.publish("a", 2)
        base = f"{proxy.url}/live"
        view = ChannelView(partial(load_channel, base), collect, initial=[])
        source = follow(base, channels=["a"], from_beginning=True)
        async with asyncio.timeout(30), view.follow(source) as states:
            assert await anext(states) == [1]
            assert await anext(states) == [1, 2]
            proxy.down()
            results = served.publish("a", *range(3, 13))
            served.call(lambda: served.gateway.put_snapshot("a", list(range(1, 11)), results[7].id))
            proxy.up()
            while (await anext(states))[-1] != 12:
                pass
            assert view.state == list(range(1, 13))
            served.publish("a", 13)
            assert (await anext(states))[-1] == 13
        assert (view.resyncs, view.complete) == (1, True)
        assert view.last_resync.data["reason"] == "ring_evicted"


async def test_a_snapshot_comes_in_the_stream_where_the_namespace_has_them():
    namespaces = [Namespace(history_size=5, snapshot="stored")]
    with serve_gateway(namespaces=namespaces) as served, proxy_to(served.address) as proxy:
        base = f"{proxy.url}/live"
        view = ChannelView(None, collect, initial=[])
        async with (
            asyncio.timeout(30),
            view.follow(follow(base, channels=["a"], from_beginning=True)) as states,
        ):
            served.publish("a", 1)
            assert await anext(states) == [1]
            proxy.down()
            results = served.publish("a", *range(2, 13))
            served.call(lambda: served.gateway.put_snapshot("a", list(range(1, 11)), results[8].id))
            proxy.up()
            while (await anext(states))[-1] != 12:
                pass
        assert view.state == list(range(1, 13))
        assert view.resyncs == 1


async def test_a_view_of_several_channels():
    with serve_gateway() as served, proxy_to(served.address) as proxy:
        base = f"{proxy.url}/live"
        results = served.publish("a", 1, 2, 3)
        served.call(lambda: served.gateway.put_snapshot("a", [1, 2], results[1].id))
        served.publish("b", "x")
        view = ChannelView(partial(load_channel, base), add, initial={}, merge=put)
        source = follow(base, channels=["a", "b"], from_beginning=True)
        async with asyncio.timeout(30), view.follow(source) as states:
            while await anext(states) != {"a": [1, 2, 3], "b": ["x"]}:
                pass
            proxy.cut()
            served.publish("b", "y")
            while await anext(states) != {"a": [1, 2, 3], "b": ["x", "y"]}:
                pass
            served.call(lambda: served.gateway.remove_history("a"))
            while await anext(states) != {"a": [], "b": ["x", "y"]}:
                pass
            served.publish("a", 9)
            while await anext(states) != {"a": [9], "b": ["x", "y"]}:
                pass
        assert view.complete


def test_the_same_without_a_loop():
    with serve_gateway() as served:
        served.publish("a", 1, 2)
        view = ChannelView(partial(load_channel_sync, served.url), collect, initial=[])
        with view.follow_sync(served.url, channels=["a"]) as states:
            assert next(states) == []
            assert [next(states), next(states)] == [[1], [1, 2]]
        place = view.place.text
        served.publish("a", 3)
        with connect_sync(served.url, channels=["a"], last_event_id=place) as stream:
            assert next(event for event in stream if event.position is not None).data == 3


async def test_what_a_publisher_publishes_a_view_sees_once_whatever_the_network_does():
    with serve_gateway() as served, proxy_to(served.address) as proxy:
        base = f"{proxy.url}/live"
        view = ChannelView(partial(load_channel, base), collect, initial=[])

        async def publish():
            async with Publisher(base, random=lambda: 0.0) as publisher:
                for n in range(60):
                    await publisher.publish("a", "add", n)

        source = follow(base, channels=["a"], from_beginning=True)
        async with asyncio.timeout(50), view.follow(source) as states:
            publishing = asyncio.create_task(publish())
            cutting = asyncio.create_task(cut_now_and_then(proxy, [2000] * 15))
            while (await anext(states))[-1:] != [59]:
                pass
            await publishing
            cutting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await cutting
        assert view.state == list(range(60))
        assert view.resyncs == 0
