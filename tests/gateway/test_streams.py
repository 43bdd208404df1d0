import asyncio
import json

import pytest

from tests.gateway.support import HeldBroker, Namespace, hub, unavailable
from tests.servers import eventually
from tests.stream.driver import Exchange
from tidegate.errors import StreamDenied
from tidegate.gateway.streams import GatewayFeed, StreamSubscription, denial
from tidegate.gateway.subscription import StreamRequest
from tidegate.sse import Decoder
from tidegate.stream import Drain, EventStream, WireSource
from tidegate.stream.opening import OpeningDenied, OpeningRefused


class Wire:
    """One client's stream over a hand-driven exchange."""

    def __init__(self, h, *channels, request=None, extra=None, drain=None, **scope):
        asked = StreamRequest(channels=channels, **(request or {}))
        self.source = StreamSubscription(h.node, asked, drain=drain)
        self.exchange = Exchange(**scope)
        self.response = EventStream(self.source, self.exchange.request, **(extra or {}))

    async def __aenter__(self):
        self.task = self.exchange.start(self.response)
        return self

    async def __aexit__(self, *_):
        self.exchange.disconnect()
        await asyncio.wait_for(self.task, 20)

    @property
    def events(self):
        return Decoder().feed(self.exchange.body)

    @property
    def types(self):
        return [event.type for event in self.events]

    async def until(self, *types):
        await eventually(lambda: len(self.exchange.sent) > 1 and self.types == list(types))
        return self.events

    async def done(self):
        await eventually(lambda: self.exchange.complete)
        return self.exchange


def refused(answer):
    return json.loads(answer.body)["code"]


# -- the head ------------------------------------------------------------------------------


async def test_the_stream_opens_with_its_first_write():
    async with hub() as h, Wire(h, "a", "b") as wire:
        (opened,) = await wire.until("stream_open")
        assert len(wire.exchange.sent) == 2
        assert wire.exchange.body.startswith(b"retry: ")
        headers = wire.exchange.headers
        data = json.loads(opened.data)["data"]
        assert data["streamId"] == headers["tidegate-stream-id"] == wire.response.stream_id
        assert headers["last-event-id"] == opened.id
        assert "tidegate-epoch" not in headers
        assert list(data["channels"]) == ["a", "b"]


async def test_every_publish_after_stream_open_is_delivered():
    async with hub() as h, Wire(h, "a") as wire:
        await wire.until("stream_open")
        await h.publish("a", 1, 2)
        events = await wire.until("stream_open", "m", "m")
        assert [json.loads(event.data)["data"] for event in events[1:]] == [1, 2]
    assert h.node.statistics().streams == 0


async def test_a_cursor_that_is_honoured_is_the_heads_too():
    async with hub() as h:
        async with Wire(h, "a") as wire:
            (opened,) = await wire.until("stream_open")
        await h.publish("a", 1)
        headers = [(b"Last-Event-ID", opened.id.encode())]
        async with Wire(h, "a", headers=headers) as wire:
            await wire.until("stream_open", "m", "replay_complete")
            assert wire.exchange.headers["last-event-id"] == opened.id


async def test_the_clients_cursor_goes_before_the_subscriptions():
    async with hub() as h:
        async with Wire(h, "a") as wire:
            (opened,) = await wire.until("stream_open")
        await h.publish("a", 1)
        async with Wire(
            h, "a", request={"cursor": "rubbish"}, query=b"lastEventId=" + opened.id.encode()
        ) as wire:
            await wire.until("stream_open", "m", "replay_complete")
        async with Wire(h, "a", request={"cursor": opened.id}) as wire:
            await wire.until("stream_open", "m", "replay_complete")
            assert wire.exchange.headers["last-event-id"] == opened.id


async def test_for_a_cursor_that_is_none_the_head_says_where_the_stream_starts():
    async with hub() as h:
        await h.publish("a", 1)
        async with Wire(h, "a", query=b"lastEventId=rubbish") as wire:
            await eventually(lambda: "state_resync_required" in wire.types)
            opened, resync = wire.events[:2]
            assert wire.exchange.headers["last-event-id"] == opened.id != "rubbish"
            assert json.loads(resync.data)["data"]["reason"] == "cursor_invalid"


async def test_the_head_waits_for_the_broker():
    broker = HeldBroker()
    gate = broker.gates["subscribe"] = asyncio.Event()
    async with hub(broker=broker) as h, Wire(h, "a") as wire:
        await eventually(lambda: broker.count("subscribe"))
        assert wire.exchange.sent == []
        gate.set()
        (opened,) = await wire.until("stream_open")
        assert wire.exchange.headers["last-event-id"] == opened.id


async def test_the_head_does_not_wait_for_ever(monkeypatch):
    monkeypatch.setattr("tidegate.gateway.streams._HEAD_SECONDS", 0.01)
    broker = HeldBroker()
    gate = broker.gates["subscribe"] = asyncio.Event()
    async with hub(broker=broker) as h, Wire(h, "a") as wire:
        await eventually(lambda: len(wire.exchange.sent) > 1)
        assert wire.exchange.status == 200
        assert "last-event-id" not in wire.exchange.headers
        assert wire.types == []
        gate.set()
        await wire.until("stream_open")
        await h.publish("a", 1)
        await wire.until("stream_open", "m")


async def test_what_a_stream_may_queue_is_the_responses_choice():
    async with hub() as h, Wire(h, "a", extra={"max_queued": 4}) as wire:
        await wire.until("stream_open")
        wire.exchange.open.clear()
        await h.publish("a", *range(20))
        wire.exchange.open.set()
        await wire.done()
        assert wire.types[-1] == "client_evicted"
        assert json.loads(wire.events[-1].data)["data"]["maxQueued"] == 4


async def test_what_a_stream_may_queue_is_else_the_subscriptions_choice():
    async with hub() as h, Wire(h, "a", request={"max_queued": 1000}) as wire:
        await wire.until("stream_open")
        wire.exchange.open.clear()
        await h.publish("a", *range(600))
        wire.exchange.open.set()
        await eventually(lambda: wire.types.count("m") == 600)
        assert "client_evicted" not in wire.types
    async with hub() as h, Wire(h, "a") as wire:
        await wire.until("stream_open")
        wire.exchange.open.clear()
        await h.publish("a", *range(600))
        wire.exchange.open.set()
        await wire.done()
        assert json.loads(wire.events[-1].data)["data"]["maxQueued"] == 256


# -- refusals ------------------------------------------------------------------------------


@pytest.mark.parametrize(("accept", "status"), [(b"text/event-stream", 200), (b"*/*", 503)])
async def test_a_broker_that_is_away_is_a_refusal_for_now(accept, status):
    broker = HeldBroker()
    broker.failures["subscribe"] = unavailable()
    async with hub(broker=broker) as h:
        async with Wire(h, "a", headers=[(b"Accept", accept)]) as wire:
            answer = await wire.done()
            assert answer.status == status
            assert b"broker_unavailable" in answer.body
        assert h.node.statistics().streams == 0


async def test_a_broker_that_fails_behind_the_head_ends_the_stream(monkeypatch):
    monkeypatch.setattr("tidegate.gateway.streams._HEAD_SECONDS", 0.01)
    broker = HeldBroker()
    gate = broker.gates["subscribe"] = asyncio.Event()
    broker.failures["subscribe"] = unavailable()
    async with hub(broker=broker) as h, Wire(h, "a") as wire:
        await eventually(lambda: len(wire.exchange.sent) > 1)
        gate.set()
        await wire.done()
        (error,) = wire.events
        assert error.type == "stream_error"
        assert json.loads(error.data)["data"]["errorKind"] == "broker_unavailable"


@pytest.mark.parametrize(("accept", "status"), [(b"text/event-stream", 200), (b"*/*", 503)])
async def test_a_broker_that_does_not_come_back_is_a_refusal_also_for_who_resumes(
    monkeypatch, accept, status
):
    monkeypatch.setattr("tidegate.gateway.streams._HEAD_SECONDS", 0.05)
    broker = HeldBroker()
    async with hub(broker=broker) as h:
        holder = await h.joined("a")
        cursor = holder.cursor
        broker.holding = True
        await h.publish("a", *range(3))
        broker.gates["history"] = asyncio.Event()
        # The node asks now and then whether it is back.
        broker.failures["heads"] = unavailable()
        h.node.on_disconnected()
        async with Wire(h, "a", request={"tail": 2}, headers=[(b"Accept", accept)]) as wire:
            answer = await wire.done()
            assert answer.status == status
            assert b"broker_unavailable" in answer.body
        # Who needs nothing of it gets his stream.
        async with Wire(h, "a", request={"cursor": cursor}) as wire:
            await eventually(lambda: "stream_open" in wire.types)
        assert h.node.statistics().streams == 1
        broker.failures.clear()
        broker.gates.pop("history").set()
        h.node.on_reconnected()
        async with Wire(h, "a", request={"tail": 2}) as wire:
            await eventually(lambda: wire.types.count("m") == 2)


@pytest.mark.parametrize(
    ("channels", "status", "code"),
    [
        (("x:1", "y:1"), 400, "unknown_namespace"),
        (("full:1",), 429, "subscriber_limit"),
        (("full:1", "x:1"), 403, "access_denied"),
    ],
)
async def test_a_stream_of_nothing_is_no_stream(channels, status, code):
    namespaces = [Namespace(name="full", max_subscribers=1), Namespace(name="a")]
    async with hub(*namespaces) as h:
        holder = await h.joined("full:1")
        async with Wire(h, *channels, headers=[(b"Accept", b"*/*")]) as wire:
            answer = await wire.done()
            assert (answer.status, refused(answer)) == (status, code)
        async with Wire(h, *channels, "a:1") as wire:
            (opened,) = await wire.until("stream_open")
            assert list(json.loads(opened.data)["data"]["denied"]) == list(channels)
        holder.abort()
        assert h.node.statistics().streams == 0


def test_a_reason_that_all_channels_have_is_the_one_that_is_told():
    one = denial(StreamDenied({"a": "nope", "b": "nope"}))
    assert isinstance(one, OpeningDenied)
    assert (one.status, one.code) == (403, "nope")
    assert isinstance(denial(StreamDenied({"a": "subscriber_limit"})), OpeningRefused)


# -- the end -------------------------------------------------------------------------------


async def test_cancellation_while_it_joins_leaves_nothing():
    broker = HeldBroker()
    gate = broker.gates["subscribe"] = asyncio.Event()
    async with hub(broker=broker) as h:
        wire = Wire(h, "a")
        task = wire.exchange.start(wire.response)
        await eventually(lambda: broker.count("subscribe"))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert h.node.statistics().streams == 0
        gate.set()


async def test_the_drain_of_the_source_ends_the_stream_behind_what_waits():
    drain = Drain()
    async with hub() as h, Wire(h, "a", drain=drain) as wire:
        await wire.until("stream_open")
        await h.publish("a", 1)
        await drain.drain()
        assert wire.types == ["stream_open", "m", "stream_error"]
        assert wire.exchange.complete
        assert drain.open_streams == 0


async def test_a_node_that_stops_ends_the_response():
    async with hub() as h:
        wire = Wire(h, "a")
        task = wire.exchange.start(wire.response)
        await wire.until("stream_open")
        await h.node.stop()
        await asyncio.wait_for(task, 20)
        assert wire.exchange.complete


# -- the same thing in this process ----------------------------------------------------------


async def test_it_is_also_an_iterator():
    async with hub() as h:
        source = StreamSubscription(h.node, StreamRequest(channels=("a",)), drain=None)
        assert isinstance(source, WireSource)
        async with source as events:
            await h.publish("a", 1)
            assert [(await anext(events)).type, (await anext(events)).data] == ["stream_open", 1]


async def test_a_feed_hands_out_whole_frames():
    async with hub() as h:
        stream = await h.joined("a")
        feed = GatewayFeed(stream)
        called = []
        feed.on_ready = lambda: called.append(True)
        assert [event.type for event in Decoder().feed(feed.chunk())] == ["stream_open"]
        assert feed.chunk() == b""
        assert feed.arm()
        assert feed.on_ready is not None
        await h.publish("a", 1, 2, 3)
        assert called
        feed.disarm()
        assert len(Decoder().feed(feed.rest())) == 3
        assert feed.statistics().delivered == 3
        assert not feed.evicted
        feed.evict("write_timeout")
        assert feed.evicted
        feed.abort()
        assert feed.done
