"""One stream: warning, eviction, conflation, dropping, and what its wire takes."""

import msgspec

from tests.gateway.support import Namespace, Reader, hub, settled
from tests.servers import eventually
from tidegate.gateway.cursor import parse_cursor
from tidegate.sse import Decoder


async def slow(h, *channels, **options):
    """A stream that is live and does not read."""
    reader = Reader(await h.joined(*channels, **options)).take()
    assert not reader.stream._pulling
    return reader


async def test_a_slow_stream_is_warned_and_then_cut_and_comes_back_without_loss():
    async with hub() as h:
        reader = await slow(h, "a", max_queued=16)
        positions = await h.publish("a", *range(40))
        assert reader.stream.evicted
        reader.take()
        assert reader.stream.ended
        assert reader.types.count("slow_client_warning") == 1
        warning = reader.of("slow_client_warning")[0].data
        assert warning["queueSize"] == 12
        assert warning["threshold"] == "frames"
        assert warning["lastEventId"] == positions[11]
        evicted = reader.frames[-1]
        assert evicted.type == "client_evicted"
        assert evicted.data["reason"] == "queue_overflow"
        assert evicted.data["firstDroppedId"] == positions[16]
        assert evicted.data["channel"] == "a"
        assert h.node.statistics().evictions == {"queue_overflow": 1}
        back = Reader(await h.joined("a", cursor=reader.cursor))
        await back.until_types("replay_complete")
        assert reader.data + back.data == list(range(40))


async def test_too_many_bytes_cut_a_stream_too():
    async with hub() as h:
        reader = await slow(h, "a", max_queued_bytes=10_000)
        await h.publish("a", *("x" * 3000 for _ in range(5)))
        evicted = reader.take().frames[-1]
        assert evicted.data["reason"] == "queue_bytes_overflow"
        assert evicted.data["eventBytes"] > 3000


async def test_an_evicted_stream_touches_no_other():
    async with hub() as h:
        reader = await slow(h, "a", max_queued=4)
        other = await slow(h, "a")
        await h.publish("a", *range(20))
        await other.events(*range(20))
        assert reader.stream.evicted


async def test_a_conflating_channel_keeps_the_newest_that_waits():
    async with hub(Namespace(slow="conflate")) as h:
        reader = await slow(h, "a", "b")
        assert reader.frames[0].data["channels"]["a"]["linked"] is False
        await h.publish("a", *range(1000))
        await h.publish("b", "other")
        reader.take()
        assert reader.data == [999, "other"]
        assert reader.resyncs == []
        back = Reader(await h.joined("a", cursor=reader.cursor))
        await back.until_types("replay_complete")
        assert back.data == []


async def test_a_conflating_channel_drops_nothing_for_who_keeps_up():
    async with hub(Namespace(slow="conflate")) as h:
        reader = await slow(h, "a")
        for number in range(20):
            await h.publish("a", number)
            reader.take()
        assert reader.data == list(range(20))


async def test_drop_oldest_says_that_and_where_events_were_dropped():
    async with hub(Namespace(slow="drop_oldest")) as h:
        reader = await slow(h, "a", max_queued=10)
        positions = await h.publish("a", *range(500))
        assert not reader.stream.evicted
        reader.take()
        assert reader.data == list(range(490, 500))
        assert reader.resyncs == ["frames_dropped"]
        resync = reader.of("state_resync_required")[0]
        first = next(frame for frame in reader.frames if frame.id)
        assert reader.frames.index(resync) < reader.frames.index(first)
        assert resync.data["position"] == positions[489] == first.prev
        assert resync.data["lastDeliveredId"] == ""


async def test_drop_oldest_where_other_channels_take_the_room():
    async with hub(Namespace(name="d", slow="drop_oldest"), Namespace(name="e")) as h:
        reader = await slow(h, "d:1", "e:1", max_queued=8)
        await h.publish("e:1", *range(8))
        positions = await h.publish("d:1", "x", "y", "z")
        reader.take()
        await h.publish("d:1", "later")
        reader.take()
        assert reader.data == [*range(8), "later"]
        assert reader.resyncs == ["frames_dropped"]
        assert reader.frames[-1].prev == positions[-1]


async def test_drop_oldest_with_a_snapshot_goes_on_behind_it():
    def provide(channel):
        return ("state",)

    async with hub(Namespace(slow="drop_oldest", snapshot=provide)) as h:
        reader = await slow(h, "a", max_queued=10)
        await h.publish("a", *range(50))
        await reader.until_types("channel_snapshot")
        await h.publish("a", "next")
        await reader.events("next")
        types = [type_ for type_ in reader.types if type_ != "slow_client_warning"]
        assert types == ["stream_open", "state_resync_required", "channel_snapshot", "m"]
        snapshot = reader.of("channel_snapshot")[0]
        assert snapshot.data["position"] == reader.frames[-1].prev


async def test_the_bytes_of_a_stream_are_frames_with_the_cursor_as_id():
    async with hub() as h:
        stream = await h.joined("a", "b")
        await h.publish("a", {"text": "h\u00e9 \U0001f30a"})
        await settled()
        raw = stream.take_bytes()
        frames = Decoder().feed(raw)
        assert [frame.type for frame in frames] == ["stream_open", "m"]
        for frame in frames:
            assert parse_cursor(frame.id) is not None
        envelope = msgspec.json.decode(frames[1].data)
        assert set(envelope) == {"id", "v", "type", "channel", "epoch", "prev", "data", "_meta"}
        assert envelope["data"] == {"text": "h\u00e9 \U0001f30a"}
        assert raw.endswith(b"\n\n")
        assert stream.statistics().delivered == 1


async def test_warnings_and_errors_carry_no_id():
    async with hub() as h:
        reader = await slow(h, "a", max_queued=2)
        await h.publish("a", *range(5))
        text = reader.stream.take_bytes().decode()
        blocks = {
            block.split("event: ")[1].split("\n")[0]: block for block in text.split("\n\n")[:-1]
        }
        assert not blocks["slow_client_warning"].startswith("id:")
        assert not blocks["client_evicted"].startswith("id:")


async def test_bytes_are_taken_in_bounded_pieces():
    async with hub() as h:
        stream = await h.joined("a", max_queued=2000)
        await h.publish("a", *("x" * 1000 for _ in range(200)))
        piece = stream.take_bytes(20_000)
        assert 20_000 <= len(piece) <= 22_000


async def test_an_ended_stream_has_a_last_word_and_takes_no_more():
    async with hub() as h:
        reader = await slow(h, "a")
        await h.publish("a", 1)
        reader.stream.fail("draining", "come back")
        reader.stream.fail("draining", "twice")
        await h.publish("a", 2)
        reader.take()
        assert reader.data == [1]
        assert reader.types[-1] == "stream_error"
        assert reader.frames[-1].data == {"error": "come back", "errorKind": "draining"}
        assert reader.stream.ended
        assert h.node.statistics().subscriptions == 0


async def test_a_wire_is_woken_when_there_is_something_and_at_the_end():
    async with hub() as h:
        reader = await slow(h, "a")
        woken = []
        reader.stream.on_ready = lambda: woken.append(1)
        assert reader.stream.arm()
        await h.publish("a", 1)
        assert woken == [1]
        assert not reader.stream.arm()
        reader.take()
        assert reader.stream.arm()
        reader.stream.disarm()
        await h.publish("a", 2)
        assert woken == [1]
        reader.stream.abort()
        assert len(woken) == 2
        assert reader.stream.ended


async def test_long_replays_and_busy_channels_take_turns():
    async with hub(Namespace(history_size=5000)) as h:
        await h.publish("old", *range(500))
        reader = Reader(await h.joined("new", "old", tail=400, max_queued=2000))
        reader.frames += reader.stream.take(20)
        await h.publish("new", *range(100))
        reader.frames += reader.stream.take(60)
        channels = [frame.channel for frame in reader.frames[-60:]]
        assert abs(channels.count("new") - channels.count("old")) <= 2
        await eventually(lambda: len(reader.take().data) == 500)


async def test_a_long_replay_does_not_cost_a_stream_its_busy_channel():
    async with hub(Namespace(history_size=10_000)) as h:
        await h.publish("old", *range(5000))
        reader = Reader(await h.joined("new", "old", from_beginning=True))
        reader.frames += reader.stream.take(10)
        for number in range(2000):
            await h.publish("new", number)
            reader.frames += reader.stream.take(2 if number % 2 else 1)
            if number % 50 == 0:
                await settled(3)
        await eventually(lambda: len(reader.take().data) == 7000)
        assert not reader.stream.evicted


async def test_conflation_of_large_events_is_bounded_in_bytes():
    async with hub(Namespace(slow="conflate")) as h:
        channels = [f"c{number}" for number in range(20)]
        reader = await slow(h, *channels)
        for channel in channels:
            await h.publish(channel, "small")
        for channel in channels:
            await h.publish(channel, "x" * 1_000_000)
        assert reader.stream.statistics().queued_bytes <= 2 * 1024 * 1024
        assert reader.stream.evicted
