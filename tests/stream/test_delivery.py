import asyncio
import json

import pytest

from tests.servers import eventually
from tests.stream.driver import Exchange
from tidegate.channel import Channel
from tidegate.sse import Decoder
from tidegate.stream.delivery import Delivery
from tidegate.stream.feed import Feed

START = {"type": "http.response.start", "status": 200, "headers": []}


class Stream:
    """A delivery of a channel over a hand-driven exchange."""

    def __init__(self, *, transport=False, heartbeat=60.0, write_timeout=60.0, **options):
        self.reports = []
        self.channel = Channel("c", on_diagnostic=lambda *r: self.reports.append(r), **options)
        self.exchange = Exchange(transport)
        self.subscription = self.channel.subscribe()
        self.delivery = Delivery(
            Feed(self.subscription),
            self.exchange.send,
            transport=self.exchange.scope.get("extensions", {}).get("tidegate.transport"),
            name="s",
            heartbeat=heartbeat,
            write_timeout=write_timeout,
            clock=lambda: 1.0,
        )
        self.task = asyncio.ensure_future(self.delivery.run(START, b": first\n\n"))

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        self.task.cancel()
        await asyncio.wait([self.task])
        self.subscription.abort()

    @property
    def types(self):
        return [event.type for event in Decoder().feed(self.exchange.body)]

    async def idle(self):
        """Wait until it has written all there is and waits for more."""
        await eventually(lambda: self.subscription._subscriber.backlog.waiting)

    async def block(self, **publish):
        """Fill the socket and see a write blocked."""
        await self.idle()
        self.exchange.open.clear()
        self.channel.publish("blocks")
        await eventually(lambda: self.exchange.blocked)

    async def ended(self):
        await asyncio.wait_for(self.task, 20)


async def test_the_head_and_the_first_bytes_go_out_at_once():
    async with Stream() as stream:
        await stream.idle()
        assert stream.exchange.sent[0] == START
        assert stream.exchange.body == b": first\n\n"


async def test_what_waits_already_goes_out_with_the_first_bytes():
    async with Stream() as stream:
        stream.channel.publish("a")
        await stream.idle()
        assert len(stream.exchange.sent) == 2
        assert stream.exchange.body.startswith(b": first\n\nid: 1\n")


async def test_events_that_queue_up_go_out_in_one_write():
    async with Stream() as stream:
        await stream.block()
        for _ in range(5):
            stream.channel.publish("b")
        stream.exchange.open.set()
        await stream.idle()
        assert stream.types == ["blocks", *"bbbbb"]
        assert len(stream.exchange.sent) == 4


async def test_no_write_starts_before_the_last_one_has_ended():
    async with Stream(heartbeat=0.01) as stream:
        await stream.block()
        stream.channel.publish("b")
        await asyncio.sleep(0.05)
        assert stream.exchange.blocked == 1


async def test_the_channels_end_is_a_clean_end_with_the_last_bytes():
    async with Stream() as stream:
        stream.channel.publish("a")
        stream.channel.close()
        await stream.ended()
        assert stream.types == ["a"]
        assert stream.exchange.complete
        assert len(stream.exchange.sent) == 2


async def test_an_idle_stream_ends_cleanly_too():
    async with Stream() as stream:
        await stream.idle()
        stream.channel.close()
        await stream.ended()
        assert stream.exchange.complete


async def test_silence_is_broken_by_a_comment_again_and_again():
    async with Stream(heartbeat=0.02) as stream:
        await eventually(lambda: stream.exchange.body.count(b": hb\n\n") >= 3)


async def test_there_is_no_heartbeat_while_events_flow():
    async with Stream(heartbeat=0.5) as stream:
        for _ in range(60):
            stream.channel.publish("a")
            await asyncio.sleep(0.01)
        assert stream.exchange.body.count(b": hb") == 0


async def test_a_heartbeat_that_is_due_when_an_event_comes_is_left_out():
    async with Stream() as stream:
        await stream.idle()
        stream.delivery._beat_due = True
        stream.channel.publish("a")
        await stream.idle()
        assert b": hb" not in stream.exchange.body


async def test_a_blocked_write_evicts_after_its_time_and_cuts():
    async with Stream(transport=True, write_timeout=0.05) as stream:
        await stream.block()
        await stream.ended()
        assert stream.exchange.resets == 1
        assert not stream.exchange.complete
        ((kind, data),) = stream.reports
        assert kind == "client_evicted"
        assert data["reason"] == "write_timeout"
        assert data["queueSize"] == 0
        assert stream.channel.statistics().subscribers == 0
        assert stream.channel.statistics().evicted == 1


async def test_a_blocked_heartbeat_evicts_as_well():
    async with Stream(transport=True, heartbeat=0.02, write_timeout=0.05) as stream:
        await stream.idle()
        stream.exchange.open.clear()
        await stream.ended()
        assert stream.exchange.resets == 1


async def test_a_blocked_head_evicts_as_well():
    async with Stream(transport=True, write_timeout=0.05) as stream:
        stream.exchange.open.clear()
        await stream.ended()
        assert stream.exchange.sent == []
        assert stream.exchange.resets == 1


async def test_where_nothing_can_cut_the_blocked_write_is_given_up():
    async with Stream(write_timeout=0.05) as stream:
        await stream.block()
        await stream.ended()
        assert stream.channel.statistics().subscribers == 0
        assert not stream.exchange.complete


async def test_where_nothing_can_cut_and_the_client_reads_again_the_response_is_completed():
    async with Stream(write_timeout=0.05) as stream:
        await stream.block()
        await eventually(lambda: stream.delivery._abandoned)
        stream.exchange.open.set()
        await stream.ended()
        assert stream.exchange.complete


async def test_a_write_that_ends_in_time_starts_the_clock_anew():
    async with Stream(transport=True, heartbeat=0.03, write_timeout=0.3) as stream:
        await stream.block()
        await asyncio.sleep(0.1)
        stream.exchange.open.set()
        await eventually(lambda: stream.exchange.body.count(b": hb") >= 2)
        assert stream.exchange.resets == 0


async def test_an_overflow_of_a_blocked_client_cuts_at_once():
    async with Stream(transport=True, max_queued=4) as stream:
        await stream.block()
        for _ in range(5):
            stream.channel.publish("b")
        assert stream.exchange.resets == 1
        await stream.ended()
        assert stream.types == []
        assert not stream.exchange.complete


async def test_an_overflow_while_nothing_is_written_lets_the_client_read_to_the_end():
    async with Stream(transport=True, max_queued=4) as stream:
        await stream.idle()
        for _ in range(6):
            stream.channel.publish("b")
        await stream.ended()
        assert stream.types == ["b", "b", "b", "b", "slow_client_warning", "b", "client_evicted"]
        assert stream.exchange.complete
        assert stream.exchange.resets == 0


async def test_an_overflow_while_a_middleware_hands_over_lets_the_client_read_on():
    async with Stream(transport=True, max_queued=4) as stream:
        stream.delivery._transport["buffered"] = lambda: 0
        await stream.block()
        for _ in range(5):
            stream.channel.publish("b")
        stream.exchange.open.set()
        await stream.ended()
        assert stream.types[-1] == "client_evicted"
        assert stream.exchange.complete


async def test_an_evicted_client_that_takes_too_long_is_cut(monkeypatch):
    monkeypatch.setattr("tidegate.stream.delivery._EVICTION_SECONDS", 0.05)
    async with Stream(transport=True, max_queued=4) as stream:
        await stream.idle()
        stream.exchange.open.clear()
        for _ in range(6):
            stream.channel.publish("b")
        await stream.ended()
        assert stream.exchange.resets == 1


async def test_without_a_transport_an_old_write_counts_as_blocked(monkeypatch):
    monkeypatch.setattr("tidegate.stream.delivery._BLOCKED_SECONDS", 0.0)
    async with Stream(max_queued=4) as stream:
        await stream.block()
        for _ in range(5):
            stream.channel.publish("b")
        await stream.ended()
        assert stream.delivery._abandoned


async def test_without_a_transport_a_young_write_does_not():
    async with Stream(max_queued=4) as stream:
        await stream.block()
        for _ in range(5):
            stream.channel.publish("b")
        stream.exchange.open.set()
        await stream.ended()
        assert stream.types[-1] == "client_evicted"


@pytest.mark.parametrize("blocked", [False, True])
async def test_a_client_that_has_gone_is_released_at_once(blocked):
    async with Stream(transport=True) as stream:
        await (stream.block() if blocked else stream.idle())
        stream.delivery.gone()
        assert stream.channel.statistics().subscribers == 0
        stream.delivery.gone()
        await stream.ended()
        assert stream.exchange.resets == 0
        assert not stream.exchange.complete


async def test_a_send_that_fails_with_an_oserror_means_that_the_client_has_gone():
    async with Stream() as stream:
        await stream.idle()
        stream.exchange.failure = ConnectionResetError()
        stream.channel.publish("a")
        await stream.ended()


async def test_a_send_that_fails_otherwise_is_the_servers_to_hear_of():
    async with Stream() as stream:
        await stream.idle()
        stream.exchange.failure = RuntimeError("of the server")
        stream.channel.publish("a")
        with pytest.raises(RuntimeError, match="of the server"):
            await stream.ended()


async def test_a_failure_of_our_own_is_told_logged_and_ends_the_stream(caplog, monkeypatch):
    async with Stream() as stream:
        await stream.idle()
        monkeypatch.setattr(Feed, "chunk", lambda self: 1 / 0)
        stream.channel.publish("a")
        await stream.ended()
        (event,) = Decoder().feed(stream.exchange.body)
        assert event.type == "stream_error"
        assert json.loads(event.data)["data"]["errorKind"] == "internal"
        assert json.loads(event.data)["_meta"]["serverTimestamp"] == 1000
        assert stream.exchange.complete
    assert "ZeroDivisionError" in caplog.text


async def test_a_farewell_follows_what_waits_and_ends_the_stream():
    async with Stream() as stream:
        await stream.idle()
        stream.channel.publish("a")
        stream.delivery.farewell(b"event: bye\ndata\n\n", 5)
        stream.delivery.farewell(b"event: again\ndata\n\n", 5)
        stream.channel.publish("b")
        await stream.ended()
        assert stream.types == ["a", "b", "bye"]
        assert stream.exchange.complete
        stream.delivery.farewell(b"event: late\ndata\n\n", 5)


async def test_a_farewell_before_the_first_write_is_part_of_it():
    async with Stream() as stream:
        stream.delivery.farewell(b"event: bye\ndata\n\n", 5)
        await stream.ended()
        assert stream.exchange.body == b": first\n\nevent: bye\ndata\n\n"


async def test_a_blocked_client_gets_no_farewell():
    async with Stream(transport=True) as stream:
        await stream.block()
        stream.delivery.farewell(b"event: bye\ndata\n\n", 5)
        assert stream.exchange.resets == 1
        await stream.ended()


async def test_a_farewell_that_cannot_be_written_in_time_cuts():
    async with Stream(transport=True) as stream:
        await stream.idle()
        stream.exchange.open.clear()
        stream.delivery.farewell(b"event: bye\ndata\n\n", 0.05)
        await stream.ended()
        assert stream.exchange.resets == 1


async def test_the_earlier_of_two_deadlines_counts():
    async with Stream(transport=True, max_queued=4) as stream:
        await stream.idle()
        stream.exchange.open.clear()
        for _ in range(6):
            stream.channel.publish("b")
        stream.delivery.farewell(b"event: bye\ndata\n\n", 0.05)
        await stream.ended()
        assert stream.exchange.resets == 1


async def test_a_later_deadline_does_not_put_off_an_earlier_one():
    async with Stream(transport=True, max_queued=4, heartbeat=0.02) as stream:
        await stream.idle()
        stream.exchange.open.clear()
        stream.delivery.farewell(b"event: bye\ndata\n\n", 0.1)
        for _ in range(6):
            stream.channel.publish("b")
        await stream.ended()
        assert stream.exchange.resets == 1


async def test_the_end_waits_until_the_socket_took_the_last_bytes():
    async with Stream(transport=True) as stream:
        await stream.idle()
        stream.exchange.unflushed = 7
        stream.channel.close()
        await eventually(lambda: stream.exchange.complete)
        assert not stream.task.done()
        stream.exchange._flushed.set()
        await stream.ended()
        assert stream.exchange.resets == 0


async def test_a_client_that_does_not_read_the_last_bytes_is_cut():
    async with Stream(transport=True, write_timeout=0.05) as stream:
        await stream.idle()
        stream.exchange.unflushed = 7
        stream.channel.close()
        await stream.ended()
        assert stream.exchange.resets == 1


async def test_cutting_twice_is_cutting_once():
    async with Stream(transport=True) as stream:
        await stream.idle()
        stream.delivery.cut()
        stream.delivery.cut()
        await stream.ended()
        assert stream.exchange.resets == 1
        stream.delivery.cut()
        stream.delivery.gone()
        assert stream.exchange.resets == 1


async def test_cancellation_comes_through_and_leaves_no_timer():
    async with Stream() as stream:
        await stream.idle()
        stream.task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await stream.task
        assert stream.delivery._timer.cancelled()
        assert stream.subscription.on_ready is None
