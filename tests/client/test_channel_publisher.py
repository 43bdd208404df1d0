"""Publishing to channels: once, however often it was tried."""

import json
from contextlib import asynccontextmanager

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from tests.client.support import scripted
from tests.servers import serve_app
from tidegate.client import Published, Publisher, PublishItem
from tidegate.errors import ClientError, InvalidEvent, ItemRefused, PublishRefused, UnknownNamespace
from tidegate.gateway import Gateway, Namespace
from tidegate.gateway.brokers.memory import MemoryBroker


def publisher(server, **options):
    url = server if isinstance(server, str) else server.url
    return Publisher(url, **{"random": lambda: 0.0, **options})


def in_turn(*scripts):
    scripts = list(scripts)

    def script(peer):
        (scripts.pop(0) if len(scripts) > 1 else scripts[0])(peer)

    return script


def stored(peer, **more):
    """Take what comes, and answer as a gateway does."""
    results = [
        {"channel": item["channel"], "id": f"p{n}", "epoch": "e1", "duplicate": False, **more}
        for n, item in enumerate(json.loads(peer.body))
    ]
    peer.answer(200, {"results": results})


def bodies(server):
    return [json.loads(peer.body) for peer in server.requests]


async def test_an_event_is_published_with_a_key_of_its_own():
    with scripted(stored) as server:
        async with publisher(f"{server.url}/live/", token="t", headers={"X": "1"}) as sender:
            assert await sender.publish("room:1", "message", {"n": 1}) == Published(
                "room:1", "p0", "e1"
            )
            await sender.publish("room:1", "message")
        (first,), (second,) = bodies(server)
        assert len(first.pop("idempotencyKey")) == 32
        assert first == {"channel": "room:1", "type": "message", "data": {"n": 1}}
        assert second["idempotencyKey"] != first
        for peer in server.requests:
            assert (peer.method, peer.target) == ("POST", "/live/v1/publish")
            assert peer.headers["authorization"] == "Bearer t"
            assert peer.headers["x"] == "1"


async def test_all_that_can_be_said_of_an_event_goes_out():
    with scripted(lambda peer: stored(peer, suppressed=True)) as server:
        async with publisher(server) as sender:
            result = await sender.publish(
                "a", "x", None, idempotency_key="k", version=0, tags={"t": "u"}, meta={"m": 1}
            )
        assert result.suppressed
        assert bodies(server) == [
            [
                {
                    "channel": "a",
                    "type": "x",
                    "idempotencyKey": "k",
                    "version": 0,
                    "tags": {"t": "u"},
                    "meta": {"m": 1},
                }
            ]
        ]


@pytest.mark.parametrize("failure", ["cut", "500", "503"])
async def test_a_call_that_is_repeated_has_the_same_key(failure):
    def fail(peer):
        peer.cut() if failure == "cut" else peer.answer(int(failure))

    with scripted(in_turn(fail, fail, stored)) as server:
        async with publisher(server) as sender:
            assert (await sender.publish("a", "x")).id == "p0"
        keys = {item["idempotencyKey"] for (item,) in bodies(server)}
        assert (len(server.requests), len(keys)) == (3, 1)


async def test_a_no_raises_and_is_not_repeated():
    with scripted(lambda peer: peer.answer(400, {"error": "no", "code": "bad"})) as server:
        async with publisher(server) as sender:
            with pytest.raises(PublishRefused, match="no") as raised:
                await sender.publish("a", "x")
        assert (raised.value.status, raised.value.code) == (400, "bad")
        assert len(server.requests) == 1


async def test_without_retries_and_within_its_deadline_a_call_ends():
    with scripted(lambda peer: peer.answer(503)) as server:
        async with publisher(server, retries=False) as sender:
            with pytest.raises(PublishRefused, match="503"):
                await sender.publish("a", "x")
    with scripted(lambda peer: peer.wait_gone()) as server:
        async with publisher(server, deadline=0.05) as sender:
            with pytest.raises(ClientError, match=r"within 0\.05 s|ReadTimeout"):
                await sender.publish("a", "x")
            with pytest.raises(ClientError, match=r"within 0\.06 s|ReadTimeout"):
                await sender.publish("a", "x", deadline=0.06)


async def test_each_item_has_its_own_result_and_publish_raises_it():
    def answer(peer):
        refusals = [{"channel": "b", "error": "\x1bno", "code": "access_denied"}]
        results = [{"channel": "a", "id": "p1", "epoch": "e", "duplicate": True}, *refusals]
        peer.answer(200, {"results": results[-len(json.loads(peer.body)) :]})

    with scripted(answer) as server:
        async with publisher(server) as sender:
            first, second = await sender.publish_many(
                [PublishItem("a", "x"), {"channel": "b", "type": "y", "data": 1}]
            )
            assert first == Published("a", "p1", "e", duplicate=True)
            assert isinstance(second, ItemRefused)
            assert (second.channel, second.code, second.status) == ("b", "access_denied", 200)
            with pytest.raises(ItemRefused, match=r"to channel b \(access_denied\): \\x1bno"):
                await sender.publish("b", "y")


async def test_no_item_is_no_request():
    with scripted(stored) as server:
        async with publisher(server) as sender:
            assert await sender.publish_many([]) == []
        assert server.requests == []


async def test_an_answer_to_something_else_is_none():
    with scripted(lambda peer: peer.answer(200, {"results": []})) as server:
        async with publisher(server) as sender:
            with pytest.raises(ClientError, match="0 results to 1 events"):
                await sender.publish("a", "x")


async def test_what_is_no_event_is_refused_before_anything_is_sent():
    with scripted(stored) as server:
        async with publisher(server) as sender:
            with pytest.raises(ValueError, match="a channel name is"):
                await sender.publish("a b", "x")
            with pytest.raises(TypeError):
                await sender.publish("a", "x", object())
            with pytest.raises(TypeError):
                await sender.publish_many([{"channel": "a"}])
        assert server.requests == []


async def test_a_callers_client_is_used_and_left_open():
    with scripted(stored) as server:
        async with httpx.AsyncClient() as client:
            async with publisher(server, client=client) as sender:
                await sender.publish("a", "x")
            assert not client.is_closed


def test_a_publisher_has_one_way_to_publish():
    for options in ({}, {"url": "http://h", "broker": "memory:"}):
        with pytest.raises(TypeError, match="a url or a broker"):
            Publisher(**options)
    with pytest.raises(ValueError, match="http://HOST"):
        Publisher("h:1")
    with pytest.raises(ValueError, match="visible ASCII"):
        Publisher("http://h", token="a b")


async def test_a_real_gateway_takes_each_event_once():
    gateway = Gateway(
        namespaces=[Namespace(name="room"), Namespace(name="last", recovery="latest")]
    )

    @asynccontextmanager
    async def lifespan(_):
        async with gateway:
            yield

    with serve_app(Starlette(routes=[Mount("/live", gateway)], lifespan=lifespan)) as served:
        async with publisher(f"{served}/live") as sender:
            first = await sender.publish(
                "room:1", "x", {"n": 1}, idempotency_key="k", meta={"m": 1}
            )
            again = await sender.publish("room:1", "x", {"n": 2}, idempotency_key="k")
            assert (first.duplicate, again.duplicate) == (False, True)
            assert (again.id, again.epoch) == (first.id, first.epoch)
            results = await sender.publish_many(
                {"channel": "last:1", "type": "x", "version": version} for version in (5, 4, 6)
            )
            assert [result.suppressed for result in results] == [False, True, False]
            with pytest.raises(PublishRefused) as raised:
                await sender.publish("other:1", "x")
            assert (raised.value.status, raised.value.code) == (400, "unknown_namespace")
            with pytest.raises(PublishRefused) as raised:
                await sender.publish("room:1", "stream_open")
            assert raised.value.code == "reserved_event_type"
        page = served.call(lambda: gateway.history("room:1"))
        assert [publication.position for publication in page.publications] == [first.id]


async def test_straight_to_a_broker():
    broker = MemoryBroker()
    namespaces = [Namespace(name="room", history_size=2)]
    async with Publisher(broker=broker, namespaces=namespaces) as sender:
        results = [await sender.publish("room:1", "x", n, tags={"k": "v"}) for n in range(3)]
        assert len({result.id for result in results}) == 3
        again = await sender.publish("room:1", "x", idempotency_key="k")
        assert (await sender.publish("room:1", "y", idempotency_key="k")).id == again.id
        page = await broker.history("room:1")
        assert [one.position for one in page.publications] == [results[2].id, again.id]
        assert page.publications[0].tags == {"k": "v"}
        with pytest.raises(InvalidEvent):
            await sender.publish("room:1", "stream_open")
        with pytest.raises(UnknownNamespace):
            await sender.publish("other:1", "x")


async def test_straight_to_a_file_that_a_gateway_then_serves(tmp_path):
    url = f"sqlite:///{tmp_path}/history.db"
    async with Publisher(broker=url) as sender:
        result = await sender.publish("room:1", "x", {"n": 1})
    async with Gateway(url) as gateway:
        (publication,) = (await gateway.history("room:1")).publications
        assert (publication.position, publication.epoch) == (result.id, result.epoch)
