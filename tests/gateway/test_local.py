"""A channel on a node: gaps that heal, gaps that do not, and how often history is read."""

import asyncio
import itertools

import pytest

from tests.gateway.support import Namespace, Reader, hub, settled, unavailable
from tests.servers import eventually
from tidegate.errors import BrokerUnavailable
from tidegate.gateway.brokers.base import Head
from tidegate.gateway.cursor import CursorWriter
from tidegate.gateway.local import MAX_UNLINKED, READ_PAUSE
from tidegate.testing import ManualClock


async def live(h, *channels, **options):
    reader = Reader(await h.joined(*channels, **options))
    return reader.take()


async def test_a_lost_message_is_healed_from_history_and_nobody_notices():
    async with hub() as h:
        reader = await live(h, "a")
        h.broker.holding = True
        await h.publish("a", 1, 2, 3)
        h.broker.release(0, 2)
        await reader.events(1, 2, 3)
        assert reader.resyncs == []
        assert h.node.statistics().gaps_healed == 1
        assert h.broker.count("history") == 1


async def test_doubled_and_reordered_messages_are_put_in_order():
    async with hub() as h:
        reader = await live(h, "a")
        h.broker.holding = True
        await h.publish("a", *range(6))
        h.broker.release(0, 0, 3, 1, 2, 2, 5, 4, 4, 0)
        await reader.events(*range(6))
        assert reader.resyncs == []


async def test_a_late_message_of_long_ago_changes_nothing():
    async with hub() as h:
        reader = await live(h, "a", max_queued=1000)
        h.broker.holding = True
        await h.publish("a", *range(400))
        h.broker.release(*range(400))
        await reader.events(*range(400))
        reads = h.broker.count("history")
        h.broker.release(3)
        await eventually(lambda: h.broker.count("history") == reads + 1)
        await settled()
        h.broker.holding = False
        await h.publish("a", 400)
        await reader.events(*range(401))
        assert reader.resyncs == []


async def test_a_tail_that_was_never_sent_is_found_by_the_idle_check():
    async with hub() as h:
        reader = await live(h, "a")
        h.broker.holding = True
        await h.publish("a", 1)
        local = h.node.channels()[0]
        local.verified -= 60
        await reader.events(1)
        assert h.broker.count("heads") >= 1


async def test_the_idle_check_compares_with_what_was_held_when_it_was_sent():
    async with hub() as h:
        reader = await live(h, "a")
        h.broker.gates["heads"] = asyncio.Event()
        h.node.channels()[0].verified -= 60
        await eventually(lambda: h.broker.count("heads"))
        await h.publish("a", 1, 2)
        h.broker.gates["heads"].set()
        await reader.events(1, 2)
        await settled()
        assert h.broker.count("history") == 0


async def test_a_gap_that_history_cannot_bridge_is_a_resync_and_it_goes_on_at_the_head():
    async with hub(Namespace(history_size=2)) as h:
        reader = await live(h, "a")
        h.broker.holding = True
        positions = await h.publish("a", 1, 2, 3, 4, 5)
        h.broker.release(4)
        await reader.until_types("state_resync_required")
        h.broker.held.clear()
        h.broker.holding = False
        await h.publish("a", 6)
        await reader.events(6)
        resync = reader.of("state_resync_required")[0]
        assert resync.data["reason"] == "ring_evicted"
        assert resync.data["position"] == positions[4] == reader.frames[-1].prev
        assert h.node.statistics().resyncs == {"ring_evicted": 1}


async def test_a_history_that_is_dropped_is_told_at_once():
    async with hub() as h:
        reader = await live(h, "a")
        await h.publish("a", 1)
        head = await h.broker.remove_history("a")
        await reader.until_types("state_resync_required")
        resync = reader.frames[-1]
        assert resync.data["reason"] == "epoch_reset"
        assert (resync.data["epoch"], resync.data["position"]) == (head.epoch, "")
        await h.publish("a", 2)
        await reader.events(1, 2)
        assert reader.frames[-1].prev == ""


async def test_a_late_word_of_an_old_epoch_does_not_bring_it_back():
    async with hub() as h:
        reader = await live(h, "a")
        await h.publish("a", 1)
        await reader.events(1)
        old = (await h.broker.history("a")).publications[0]
        await h.broker.remove_history("a")
        await reader.until_types("state_resync_required")
        h.node.on_publication("a", old)
        h.node.on_reset("a", Head(old.epoch, old.position))
        await settled()
        await h.publish("a", 2)
        await reader.events(1, 2)
        assert reader.resyncs == ["epoch_reset"]


async def test_a_lost_tail_is_a_resync():
    async with hub() as h:
        reader = await live(h, "a")
        await h.publish("a", 1, 2)
        await reader.events(1, 2)
        # What another store says that lost the second and goes on from the first.
        page = await h.broker.history("a")
        whole = type(h.broker).history

        async def rewound(channel, **options):
            found = await whole(h.broker, channel, **options)
            first = page.publications[0]
            left = [first] if options.get("after") is None else []
            return type(found)(
                publications=left, head=Head(first.epoch, first.position), complete=True
            )

        h.broker.history = rewound
        h.node.channels()[0].refresh()
        await reader.until_types("state_resync_required")
        assert reader.resyncs == ["history_rewound"]


async def test_unlinked_messages_are_bounded_and_history_answers_for_them():
    async with hub(Namespace(history_size=5000)) as h:
        h.broker.gates["history"] = asyncio.Event()
        reader = await live(h, "a")
        h.broker.holding = True
        await h.publish("a", *range(2 * MAX_UNLINKED + 5))
        h.broker.release(*range(1, 2 * MAX_UNLINKED + 5))
        local = h.node.channels()[0]
        await settled()
        assert len(local._unlinked) <= MAX_UNLINKED
        h.broker.gates["history"].set()
        await reader.events(*range(2 * MAX_UNLINKED + 5))
        assert reader.resyncs == []


async def test_history_is_read_at_most_once_in_a_tenth_of_a_second_and_shared():
    async with hub(Namespace(history_size=20_000)) as h:
        first = Reader(await h.joined("a"))
        await h.publish("a", 0)
        await first.events(0)
        cursor = first.cursor
        first.stream.abort()
        for start in range(1, 3001, 100):
            await h.publish("a", *range(start, start + 100))
        starts = []
        whole = type(h.broker).history
        clock = asyncio.get_running_loop().time

        async def timed(channel, **options):
            starts.append(clock())
            return await whole(h.broker, channel, **options)

        h.broker.history = timed
        readers = [Reader(h.stream("a", cursor=cursor)) for _ in range(50)]

        def all_have_all():
            return min([len(reader.take().data) for reader in readers]) == 3000

        await eventually(all_have_all)
        assert all(reader.data == list(range(1, 3001)) for reader in readers)
        # The clock's own grain and a loop that lags only ever widen the distance.
        assert all(b - a >= READ_PAUSE * 0.99 for a, b in itertools.pairwise(starts))
        assert len(starts) <= 12


async def test_a_broker_that_fails_is_asked_again_and_subscribers_wait_in_order():
    async with hub() as h:
        reader = await live(h, "a")
        h.broker.failures["history"] = unavailable()
        h.broker.holding = True
        await h.publish("a", 1, 2)
        h.broker.release(1)
        await eventually(lambda: h.broker.count("history") >= 2)
        assert reader.take().data == []
        del h.broker.failures["history"]
        await reader.events(1, 2)
        assert reader.resyncs == []


async def test_a_stored_snapshot_follows_the_resync_and_then_what_comes_after_it():
    async with hub(Namespace(history_size=3, snapshot="stored")) as h:
        reader = await live(h, "a")
        await h.publish("a", 0)
        await reader.events(0)
        cursor = reader.cursor
        reader.stream.abort()
        positions = await h.publish("a", 1, 2, 3, 4, 5)
        await h.broker.put_snapshot("a", b'{"sum":10}', positions[3])
        back = Reader(await h.joined("a", cursor=cursor))
        await back.until_types("replay_complete")
        assert back.types == [
            "stream_open",
            "state_resync_required",
            "channel_snapshot",
            "m",
            "replay_complete",
        ]
        snapshot = back.frames[2]
        assert snapshot.data["state"] == {"sum": 10}
        assert snapshot.data["position"] == positions[3] == back.frames[3].prev
        assert back.data == [5]


async def test_a_snapshot_that_does_not_link_to_the_survivors_is_not_told():
    async with hub(Namespace(history_size=3, snapshot="stored")) as h:
        positions = await h.publish("a", 0)
        await h.broker.put_snapshot("a", b"1", positions[0])
        reader = await live(h, "a")
        cursor = reader.cursor
        reader.stream.abort()
        # The ring would still reach back to it.
        await eventually(lambda: not h.node.channels())
        await h.publish("a", *range(1, 9))
        back = Reader(await h.joined("a", cursor=cursor))
        await back.until_types("replay_complete")
        assert back.types.count("channel_snapshot") == 0
        assert back.data == [6, 7, 8]


async def test_a_live_stream_that_lost_events_gets_the_snapshot_and_what_follows_it():
    calls = []

    async def provide(channel):
        calls.append(channel)
        return ({"n": len(calls)},)

    async with hub(Namespace(history_size=1, snapshot=provide)) as h:
        readers = [await live(h, "a") for _ in range(5)]
        h.broker.holding = True
        await h.publish("a", 1, 2, 3)
        h.broker.release(2)
        for reader in readers:
            await reader.until_types("channel_snapshot")
        assert calls == ["a"]
        h.broker.held.clear()
        h.broker.holding = False
        await h.publish("a", 4)
        for reader in readers:
            await reader.events(4)
            assert reader.types == [
                "stream_open",
                "state_resync_required",
                "channel_snapshot",
                "m",
            ]
            assert reader.frames[2].data["position"] == reader.frames[3].prev


async def test_a_provider_that_fails_leaves_the_resync_to_the_client():
    def provide(channel):
        raise ValueError("no state today")

    async with hub(Namespace(history_size=1, snapshot=provide)) as h:
        reader = await live(h, "a")
        cursor = reader.cursor
        reader.stream.abort()
        await h.publish("a", 1, 2, 3)
        back = Reader(await h.joined("a", cursor=cursor))
        await back.until_types("replay_complete")
        assert back.types == ["stream_open", "state_resync_required", "m", "replay_complete"]


async def test_events_behind_the_snapshots_position_come_from_history_page_by_page():
    async with hub(Namespace(history_size=2000, snapshot="stored")) as h:
        positions = await h.publish("a", *range(1500))
        await h.broker.put_snapshot("a", b'"s"', positions[1200])
        back = Reader(await h.joined("a", cursor="broken"))
        await back.until_types("replay_complete")
        assert back.data == list(range(1201, 1500))
        assert back.types[1:3] == ["state_resync_required", "channel_snapshot"]


async def test_a_gap_larger_than_a_backlog_heals_and_evicts_nobody():
    async with hub(Namespace(history_size=5000), Namespace(name="d", slow="drop_oldest")) as h:
        for channel in ("a", "d:1"):
            reader = await live(h, channel)
            h.broker.holding = True
            await h.publish(channel, *range(900))
            h.broker.release(899)
            await reader.events(*range(900))
            assert set(reader.types) == {"stream_open", "m"}
            h.broker.held.clear()
            h.broker.holding = False
            await h.publish(channel, 900)
            await reader.events(*range(901))


@pytest.mark.parametrize("size", [300, 40_000])
async def test_a_read_that_the_ring_has_overtaken_proves_nothing(size):
    async with hub(Namespace(history_size=5000)) as h:
        reader = await live(h, "a", max_queued=3000, max_queued_bytes=10**9)
        h.broker.gates["history_answer"] = asyncio.Event()
        whole = type(h.broker).history

        async def late(channel, **options):
            page = await whole(h.broker, channel, **options)
            await h.broker.gates["history_answer"].wait()
            return page

        h.broker.history = late
        h.node.channels()[0].refresh()
        await settled()
        data = ["x" * (size // 10) + str(number) for number in range(700)]
        await h.publish("a", *data)
        h.broker.gates["history_answer"].set()
        await reader.events(*data)
        await eventually(lambda: not h.node.channels()[0].stale)
        await h.publish("a", "last")
        await reader.events(*data, "last")
        assert reader.resyncs == []


async def test_a_reset_that_comes_while_the_node_subscribes_is_not_forgotten():
    async with hub() as h:
        await h.publish("a", 1)
        whole = type(h.broker).subscribe

        async def reset_meanwhile(channels):
            heads = await whole(h.broker, channels)
            await h.broker.remove_history("a")
            return heads

        h.broker.subscribe = reset_meanwhile
        reader = await live(h, "a")
        await reader.until_types("state_resync_required")
        assert reader.resyncs == ["epoch_reset"]


async def test_a_client_that_is_ahead_of_its_node_in_a_new_epoch_gets_no_resync():
    async with hub() as h:
        holder = await live(h, "a")
        h.broker.holding = True
        h.node.on_reset = lambda channel, head: None
        await h.publish("a", 1)
        await h.broker.remove_history("a")
        positions = await h.publish("a", 2, 3)
        epoch = (await h.broker.heads(["a"]))["a"].epoch
        place = h.node.channels()[0].place(positions[1], epoch)
        back = Reader(await h.joined("a", cursor=CursorWriter([place.slot]).text()))
        await back.until_types("replay_complete")
        assert back.data == []
        assert back.resyncs == []
        await holder.until_types("state_resync_required")


async def test_a_stored_snapshot_that_is_older_than_the_gap_is_told_if_history_reaches_it():
    async with hub(Namespace(history_size=50, snapshot="stored")) as h:
        reader = await live(h, "a")
        h.broker.holding = True
        positions = await h.publish("a", *range(100))
        await h.broker.put_snapshot("a", b'"state"', positions[79])
        h.broker.release(99)
        await reader.until(lambda r: r.data[-1:] == [99])
        assert reader.types[:3] == ["stream_open", "state_resync_required", "channel_snapshot"]
        assert reader.data == list(range(80, 100))
        assert reader.frames[3].prev == reader.frames[2].data["position"]


async def test_a_channel_that_is_refused_keeps_its_place_in_the_cursor():
    async with hub(Namespace(max_subscribers=1)) as h:
        first = await live(h, "a", "b")
        await h.publish("a", 1)
        await h.publish("b", 1)
        await first.events(1, 1)
        cursor = first.cursor
        first.stream.abort()
        other = await live(h, "b")
        back = await live(h, "a", "b", cursor=cursor)
        assert back.stream.denied == {"b": "subscriber_limit"}
        await h.publish("a", 2)
        await h.publish("b", 2)
        await back.events(2)
        other.stream.abort()
        back.stream.abort()
        again = Reader(await h.joined("a", "b", cursor=back.cursor))
        await again.events(2)
        assert again.frames[0].data["channels"]["b"]["recovered"]


async def test_a_channel_that_is_refused_to_a_damaged_cursor_is_a_resync_later():
    async with hub(Namespace(max_subscribers=1)) as h:
        other = await live(h, "b")
        back = await live(h, "a", "b", cursor="damaged")
        other.stream.abort()
        back.stream.abort()
        again = Reader(await h.joined("a", "b", cursor=back.frames[0].cursor))
        await again.until(lambda r: len(r.of("replay_complete")) == 2)
        assert "b" in {frame.channel for frame in again.of("state_resync_required")}


async def test_a_tail_of_more_than_a_page_is_whole():
    async with hub(Namespace(history_size=3000)) as h:
        await h.publish("a", *(f"{number:04}" + "x" * 10_000 for number in range(1500)))
        reader = Reader(await h.joined("a", tail=1000))
        await reader.until_types("replay_complete")
        assert [int(data[:4]) for data in reader.data] == list(range(500, 1500))


async def test_a_latest_channel_never_tells_a_slow_start_that_events_are_gone():
    async with hub(Namespace(recovery="latest")) as h:
        await h.publish("a", 0)
        reader = Reader(await h.joined("a", tail=1))
        reader.frames += reader.stream.take(1)
        await h.publish("a", *range(1, 400))
        await reader.until(lambda r: r.data[-1:] == [399])
        assert reader.resyncs == []
        await h.publish("a", 400)
        await reader.until(lambda r: r.data[-1:] == [400])


async def test_a_stream_whose_broker_is_away_ends_and_says_when_to_come_back():
    async with hub(monotonic=(clock := ManualClock(0.0))) as h:
        holder = await live(h, "a")
        await h.publish("a", *range(400))
        h.broker.failures["history"] = unavailable()
        stale = CursorWriter([h.node.channels()[0].place("0" * 15 + "1").slot]).text()
        stream = h.stream("a", cursor=stale)
        with pytest.raises(TimeoutError):
            await stream.joined(0.01)
        clock.advance(11)
        with pytest.raises(BrokerUnavailable):
            await stream.joined()
        last = stream.take_bytes().decode()
        retry, event = last.splitlines()[:2]
        assert 10_000 <= int(retry.removeprefix("retry: ")) <= 30_000
        assert event == "event: stream_error"
        assert stream.ended
        assert not holder.stream.ended
