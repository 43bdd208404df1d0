import asyncio
import json
import logging

import httpx
import msgspec
import pytest
from fastapi import FastAPI, Request

from tests.gateway.support import HeldBroker, unavailable
from tests.servers import open_stream, read_until, serve_app, wait_until
from tests.stream.driver import Exchange
from tidegate.errors import (
    BrokerUnavailable,
    ConfigError,
    InvalidChannelName,
    InvalidEvent,
    SnapshotAhead,
    StreamDenied,
    UnknownNamespace,
)
from tidegate.gateway import Gateway, GatewayEvent, GatewaySubscription, Namespace
from tidegate.gateway.brokers.sqlite import SqliteBroker
from tidegate.gateway.publishing import Publishable, Published
from tidegate.stream import Drain, EventStream


async def types_until(events, last):
    types = []
    async with asyncio.timeout(20):
        async for event in events:
            types.append(event.type)
            if event.type == last:
                return types
    return types


async def data_until(events, count):
    """Read so many events, or up to the end; return their data."""
    data = []
    async with asyncio.timeout(20):
        async for event in events:
            if event.id is not None:
                data.append(event.data)
            if len(data) == count:
                break
    return data


# -- life ----------------------------------------------------------------------------------


async def test_it_starts_and_stops_its_broker():
    broker = HeldBroker()
    async with Gateway(broker) as gateway:
        await gateway.publish("a", "m")
    with pytest.raises(RuntimeError, match="has been left"):
        await gateway.publish("a", "m")
    with pytest.raises(BrokerUnavailable):
        await broker.history("a")


@pytest.mark.parametrize(
    "call",
    [
        lambda gateway: gateway.publish("a", "m"),
        lambda gateway: gateway.history("a"),
        lambda gateway: gateway.channel("a"),
        lambda gateway: gateway.get_snapshot("a"),
    ],
)
async def test_before_it_is_entered_it_says_so(call):
    with pytest.raises(RuntimeError, match="enter the Gateway"):
        await call(Gateway())


def test_before_it_is_entered_it_has_no_streams():
    with pytest.raises(RuntimeError, match="enter the Gateway"):
        Gateway().subscribe("a")
    with pytest.raises(RuntimeError, match="enter the Gateway"):
        Gateway().channels()


async def test_it_is_entered_once():
    gateway = Gateway()
    async with gateway:
        with pytest.raises(RuntimeError, match="entered before"):
            await gateway.__aenter__()
    with pytest.raises(RuntimeError, match="entered before"):
        await gateway.__aenter__()


async def test_a_broker_that_cannot_start_is_an_error_that_leaves_nothing():
    stopped = []

    class Broken(HeldBroker):
        async def start(self, sink):
            raise unavailable()

        async def stop(self):
            stopped.append(True)
            await super().stop()

    before = len(asyncio.all_tasks())
    with pytest.raises(BrokerUnavailable, match="away"):
        async with Gateway(Broken()):
            raise AssertionError("entered")
    assert stopped
    assert len(asyncio.all_tasks()) == before


async def test_leaving_ends_all_that_it_has():
    before = len(asyncio.all_tasks())
    async with Gateway() as gateway:
        events = gateway.subscribe("a")
        await events.__aenter__()
        exchange = Exchange()
        task = exchange.start(EventStream(gateway.subscribe("a"), exchange.request))
        await exchange.until(b"stream_open")
    await asyncio.wait_for(task, 20)
    assert b'"errorKind":"draining"' in exchange.body
    assert exchange.complete
    assert (await types_until(events, "never"))[:1] in ([], ["stream_open"])
    assert len(asyncio.all_tasks()) == before


async def test_a_drain_that_was_given_is_its_owners():
    drain = Drain()
    async with Gateway(drain=drain) as gateway:
        assert gateway.drain is drain
    assert not drain.draining


async def test_it_is_drained_by_calling_its_drain():
    async with Gateway() as gateway:
        await gateway.drain()
        assert gateway.drain.draining
        exchange = Exchange(headers=[(b"Accept", b"*/*")])
        await exchange.start(EventStream(gateway.subscribe("a"), exchange.request))
        assert exchange.status == 503
        assert (await gateway.publish("a", "m")).id


@pytest.mark.parametrize("url", ["memory", "nothing:", "redis://localhost", ""])
def test_a_url_that_names_no_broker_is_refused(url):
    with pytest.raises(ConfigError):
        Gateway(url)


@pytest.mark.parametrize(
    "option",
    [
        {"max_body_bytes": 0},
        {"max_event_bytes": 0},
        {"max_channels": 0},
        {"max_channels": 201},
        {"heartbeat": 0},
        {"write_timeout": -1},
        {"namespaces": [Namespace(name="a"), Namespace(name="a")]},
    ],
)
def test_options_out_of_range_are_refused_at_once(option):
    with pytest.raises(ValueError):  # noqa: PT011 - several
        Gateway(**option)


async def test_a_durable_broker_goes_on_where_it_was(tmp_path):
    url = f"sqlite:///{tmp_path}/tidegate.db"
    async with Gateway(url) as gateway:
        first = await gateway.publish("a", "m", 1)
        async with gateway.subscribe("a") as events:
            cursor = (await anext(events)).cursor
    async with Gateway(url) as gateway:
        second = await gateway.publish("a", "m", 2)
        assert second.epoch == first.epoch
        async with gateway.subscribe("a", cursor=cursor) as events:
            assert await types_until(events, "replay_complete") == [
                "stream_open",
                "m",
                "replay_complete",
            ]


# -- by configuration ------------------------------------------------------------------------


async def test_it_is_made_of_a_file(tmp_path):
    file = tmp_path / "tidegate.toml"
    file.write_text(
        """
        [gateway]
        data = "history"
        node = "one"
        max_event_bytes = 2000
        max_channels = 2

        [namespaces.room]
        history_size = 2
        """
    )
    environ = {"TIDEGATE__GATEWAY__MAX_BODY_BYTES": "5000"}
    async with Gateway.from_config(file, environ=environ) as gateway:
        assert gateway.node.name == "one"
        for number in range(3):
            await gateway.publish("room:1", "m", number)
        assert len((await gateway.history("room:1")).publications) == 2
        with pytest.raises(UnknownNamespace):
            await gateway.publish("other:1", "m")
        with pytest.raises(InvalidEvent):
            await gateway.publish("room:1", "m", "x" * 2000)
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(gateway), base_url="http://gateway"
        ) as client:
            answer = await client.post("/v1/publish", content=b" " * 5001)
            assert answer.status_code == 413
            answer = await client.get("/v1/stream?channel=room:1&channel=room:2&channel=room:3")
            assert answer.json()["code"] == "too_many_channels"
    assert list((tmp_path / "history").iterdir())


async def test_an_option_goes_before_what_is_configured(tmp_path):
    file = tmp_path / "tidegate.toml"
    file.write_text('[gateway]\nnode = "one"\n')
    gateway = Gateway.from_config(file, environ={}, node="two", broker="memory:")
    assert gateway.node.name == "two"


def test_without_a_file_the_environment_is_the_configuration():
    gateway = Gateway.from_config(environ={"TIDEGATE__GATEWAY__NODE": "three"})
    assert gateway.node.name == "three"


def test_a_configuration_that_makes_no_sense_is_refused(tmp_path):
    with pytest.raises(ConfigError):
        Gateway.from_config(tmp_path / "missing.toml")
    with pytest.raises(ConfigError):
        Gateway.from_config(environ={"TIDEGATE__GATEWAY__BROKER": "nothing:x"})


# -- publishing ----------------------------------------------------------------------------


async def test_a_publish_says_where_the_event_is():
    async with Gateway(clock=lambda: 1.5) as gateway:
        result = await gateway.publish("a", "m", {"x": 1}, tags={"k": "v"}, meta={"by": 1})
        assert isinstance(result, Published)
        page = await gateway.history("a")
        (event,) = page.publications
        assert (event.position, event.epoch, event.prev) == (result.id, result.epoch, "")
        assert json.loads(event.payload) == {
            "data": {"x": 1},
            "_meta": {"by": 1, "serverTimestamp": 1500},
            "tags": {"k": "v"},
        }


async def test_the_same_key_is_the_same_event():
    async with Gateway() as gateway:
        first = await gateway.publish("a", "m", idempotency_key="k")
        again = await gateway.publish("a", "m", idempotency_key="k")
        assert (again.id, again.duplicate, first.duplicate) == (first.id, True, False)
        other = await gateway.publish("b", "m", idempotency_key="k")
        assert not other.duplicate


async def test_a_version_that_is_not_newer_is_suppressed():
    async with Gateway() as gateway:
        await gateway.publish("a", "m", version=2)
        old = await gateway.publish("a", "m", version=1)
        assert old.suppressed
        assert len((await gateway.history("a")).publications) == 1


async def test_bad_input_is_refused_before_anything_is_published():
    async with Gateway(namespaces=[Namespace()], max_event_bytes=100) as gateway:
        for error, call in [
            (InvalidChannelName, gateway.publish("a b", "m")),
            (UnknownNamespace, gateway.publish("x:1", "m")),
            (InvalidEvent, gateway.publish("a", "stream_open")),
            (InvalidEvent, gateway.publish("a", "m", object())),
            (InvalidEvent, gateway.publish("a", "m", "x" * 100)),
        ]:
            with pytest.raises(error):
                await call
        good = Publishable(channel="a", type="m")
        with pytest.raises(InvalidEvent):
            await gateway.publish_many([good, Publishable(channel="a", type="")])
        assert (await gateway.channel("a")).position == ""


async def test_many_are_published_in_order():
    async with Gateway() as gateway:
        results = await gateway.publish_many(
            Publishable(channel="ab"[number % 2], type="m", data=number) for number in range(200)
        )
        assert [result.channel for result in results] == ["a", "b"] * 100
        page = await gateway.history("b", limit=1000)
        assert [json.loads(one.payload)["data"] for one in page.publications] == [*range(1, 200, 2)]
        assert await gateway.publish_many([]) == []


@pytest.mark.parametrize("url", ["memory:", "sqlite"])
async def test_concurrent_publishes_keep_the_order_of_the_calls(url, tmp_path):
    if url == "sqlite":
        url = f"sqlite:///{tmp_path}/tidegate.db"
    async with Gateway(url) as gateway:
        await asyncio.gather(*(gateway.publish("a", "m", number) for number in range(300)))
        page = await gateway.history("a", limit=1000)
        assert [json.loads(one.payload)["data"] for one in page.publications] == [*range(300)]


@pytest.mark.parametrize("gathered", [True, False])
async def test_a_burst_of_publishes_evicts_nobody_who_reads(gathered):
    async with Gateway() as gateway, gateway.subscribe("a") as events:
        reading = asyncio.create_task(types_until(events, "last"))
        if gathered:
            await asyncio.gather(*(gateway.publish("a", "m") for _ in range(1500)))
        else:
            for _ in range(1500):
                await gateway.publish("a", "m")
        await gateway.publish("a", "last")
        types = await reading
        assert "client_evicted" not in types
        assert types.count("m") == 1500


@pytest.mark.parametrize(("calls", "events"), [(2000, 1), (60, 10), (20, 30), (12, 50), (1, 1000)])
async def test_a_burst_through_a_file_evicts_nobody_who_reads(calls, events, tmp_path):
    async with (
        Gateway(f"sqlite:///{tmp_path}/tidegate.db") as gateway,
        gateway.subscribe("a") as stream,
    ):
        reading = asyncio.create_task(data_until(stream, calls * events))
        await asyncio.gather(
            *(
                gateway.publish_many(
                    [
                        Publishable(channel="a", type="m", data=call * events + number)
                        for number in range(events)
                    ]
                )
                for call in range(calls)
            )
        )
        assert await reading == list(range(calls * events))


async def test_a_burst_straight_to_the_broker_evicts_nobody_who_reads(tmp_path):
    broker = SqliteBroker(tmp_path / "tidegate.db")
    async with Gateway(broker) as gateway, gateway.subscribe("a") as stream:
        reading = asyncio.create_task(data_until(stream, 1000))
        requests = [
            request
            for number in range(1000)
            for request in gateway.encode(Publishable(channel="a", type="m", data=number))
        ]
        results = await broker.publish(requests)
        assert len({result.position for result in results}) == 1000
        assert await reading == list(range(1000))


async def test_a_broker_that_goes_away_is_an_error_for_each():
    broker = HeldBroker()
    async with Gateway(broker) as gateway:
        await broker.stop()
        with pytest.raises(BrokerUnavailable):
            await gateway.publish("a", "m")
        results = await gateway.publish_many([Publishable(channel="a", type="m")] * 2)
        assert [type(result) for result in results] == [BrokerUnavailable] * 2


# -- subscribing ---------------------------------------------------------------------------


async def test_the_same_stream_inside_the_process():
    async with Gateway() as gateway:
        subscription = gateway.subscribe("a", "b", "a")
        assert isinstance(subscription, GatewaySubscription)
        async with subscription as events:
            await gateway.publish("a", "m", {"x": 1}, tags={"k": "v"}, version=1)
            opened = await anext(events)
            event = await anext(events)
            assert list(opened.data["channels"]) == ["a", "b"]
            assert isinstance(event, GatewayEvent)
            assert (event.channel, event.data, event.tags) == ("a", {"x": 1}, {"k": "v"})
        await gateway.publish("b", "m", 2)
        async with gateway.subscribe("a", "b", cursor=event.cursor) as events:
            opened = await anext(events)
            assert all(one["recovered"] for one in opened.data["channels"].values())
            event = await anext(events)
            while event.id is None:
                event = await anext(events)
            assert event.data == 2


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"tail": 1}, ["stream_open", "m", "replay_complete"]),
        ({"from_beginning": True}, ["stream_open", "m", "m", "replay_complete"]),
        ({"from_beginning": True, "tags": {"n": "2"}}, ["stream_open", "m", "replay_complete"]),
    ],
)
async def test_it_may_begin_in_the_past(options, expected):
    async with Gateway() as gateway:
        for number in "12":
            await gateway.publish("a", "m", tags={"n": number})
        async with gateway.subscribe("a", **options) as events:
            assert await types_until(events, "replay_complete") == expected


async def test_a_subscription_that_makes_no_sense_is_refused_at_once():
    async with Gateway() as gateway:
        for error, channels, options in [
            (ValueError, [], {}),
            (ValueError, [str(number) for number in range(201)], {}),
            (InvalidChannelName, ["a b"], {}),
            (ValueError, ["a"], {"tail": -1}),
            (TypeError, ["a"], {"tail": "1"}),
            (ValueError, ["a"], {"tail": 1, "from_beginning": True}),
            (InvalidEvent, ["a"], {"tags": {"a,b": "c"}}),
            (ValueError, ["a"], {"max_queued": 0}),
            (ValueError, ["a"], {"max_queued_bytes": 0}),
        ]:
            with pytest.raises(error):
                gateway.subscribe(*channels, **options)


async def test_a_stream_of_nothing_is_denied():
    async with Gateway(namespaces=[Namespace()]) as gateway:
        with pytest.raises(StreamDenied):
            await gateway.subscribe("x:1").__aenter__()
    async with (
        Gateway(namespaces=[Namespace()], open_to_all=True) as gateway,
        gateway.subscribe("x:1") as events,
    ):
        assert (await anext(events)).type == "stream_open"


def test_a_route_of_ones_own_may_return_it():
    gateway = Gateway(retry_ms=50)

    app = FastAPI(lifespan=gateway._lifespan)

    @app.get("/mine")
    async def mine(request: Request) -> EventStream:
        return EventStream(gateway.subscribe("a"), request)

    with serve_app(app) as url:
        with open_stream(url.address, "/mine") as client:
            received = read_until(client, b"\n\n\r\n")
            cursor = received.partition(b"\nid: ")[2].partition(b"\n")[0].decode()
            url.call(lambda: gateway.publish("a", "m", 1))
            read_until(client, b'"data":1')
        with open_stream(url.address, "/mine", f"Last-Event-ID: {cursor}") as client:
            read_until(client, b'"data":1')
            wait_until(lambda: gateway.drain.open_streams == 1)
            url.call(gateway.drain)
            read_until(client, b'"errorKind":"draining"')
        wait_until(lambda: gateway.node.statistics().streams == 0)


# -- channels ------------------------------------------------------------------------------


async def test_a_channel_is_told_of_with_who_has_it_here():
    async with Gateway() as gateway:
        assert gateway.channels() == []
        result = await gateway.publish("a", "m")
        state = await gateway.channel("a")
        assert (state.channel, state.position, state.subscribers) == ("a", result.id, 0)
        async with gateway.subscribe("a"):
            assert (await gateway.channel("a")).subscribers == 1
            assert [one.channel for one in gateway.channels()] == ["a"]


async def test_a_history_is_read_from_a_position_on():
    async with Gateway() as gateway:
        ids = [(await gateway.publish("a", "m", number)).id for number in range(3)]
        page = await gateway.history("a", after=ids[0], limit=1)
        assert [one.position for one in page.publications] == [ids[1]]
        assert not page.complete
        with pytest.raises(ValueError, match="limit"):
            await gateway.history("a", limit=-1)


async def test_a_history_that_is_removed_is_a_new_epoch():
    async with Gateway() as gateway:
        first = await gateway.publish("a", "m")
        head = await gateway.remove_history("a")
        assert head.epoch != first.epoch
        assert head.position == ""
        assert (await gateway.history("a")).publications == []


async def test_a_snapshot_is_stored_at_the_head_or_where_it_is_said():
    async with Gateway() as gateway:
        assert await gateway.get_snapshot("a") is None
        one = await gateway.publish("a", "m")
        two = await gateway.publish("a", "m")
        stored = await gateway.put_snapshot("a", {"x": [1]}, one.id)
        assert (stored.position, stored.epoch) == (one.id, one.epoch)
        assert (await gateway.get_snapshot("a")).decoded() == {"x": [1]}
        assert (await gateway.put_snapshot("a", 2)).position == two.id
        with pytest.raises(SnapshotAhead):
            await gateway.put_snapshot("a", 3, one.id)
        with pytest.raises(InvalidEvent):
            await gateway.put_snapshot("a", object())


async def test_a_snapshot_of_raw_json_stands_on_one_line():
    raw = msgspec.Raw(b'{"x":\n [1.10,\r\n 12345678901234567890123]}')
    async with Gateway(namespaces=[Namespace(snapshot="stored")]) as gateway:
        stored = await gateway.put_snapshot("a", {"of": raw})
        assert stored.state == b'{"of":{"x":[1.10,12345678901234567890123]}}'
        assert (await gateway.get_snapshot("a")).state == stored.state
        for bad in (b"[\n", b'"a\nb"', b"\r"):
            with pytest.raises(InvalidEvent) as caught:
                await gateway.put_snapshot("a", msgspec.Raw(bad))
            assert caught.value.code == "invalid_data"


async def test_a_snapshot_comes_from_where_its_namespace_says():
    namespaces = [Namespace(snapshot=lambda channel: ("computed",))]
    async with Gateway(namespaces=namespaces) as gateway:
        assert (await gateway.get_snapshot("a")).decoded() == "computed"


@pytest.mark.parametrize("name", ["a b", "x:1"])
async def test_a_channel_that_cannot_be_is_refused_everywhere(name):
    error = InvalidChannelName if name == "a b" else UnknownNamespace
    async with Gateway(namespaces=[Namespace()]) as gateway:
        for call in [
            gateway.channel(name),
            gateway.history(name),
            gateway.remove_history(name),
            gateway.put_snapshot(name, 1),
            gateway.get_snapshot(name),
        ]:
            with pytest.raises(error):
                await call


# -- served by itself ------------------------------------------------------------------------


def test_served_by_itself_it_enters_itself(caplog):
    caplog.set_level(logging.ERROR)
    gateway = Gateway()
    with (
        serve_app(gateway) as url,
        httpx.Client(base_url=str(url), trust_env=False) as client,
        open_stream(url.address, "/v1/stream?channel=a") as stream,
    ):
        read_until(stream, b"stream_open")
        assert client.get("/v1/channels").json()["channels"]
    assert caplog.records == []
