"""Starts, resumes and resyncs of one channel, through a real node over a real store."""

import asyncio

import pytest

from tests.gateway.support import Namespace, Reader, hub, settled
from tests.servers import eventually
from tidegate.gateway.brokers.base import HistoryPolicy


async def read(h, *channels, **options):
    return Reader(await h.joined(*channels, **options))


async def cursor_after(h, channel, *data):
    """Publish, read all of it, and return the cursor behind the last and the stream's reader."""
    reader = await read(h, channel)
    await h.publish(channel, *data)
    await reader.events(*data)
    cursor = reader.cursor
    reader.stream.abort()
    return cursor


async def test_a_new_stream_is_live_only_and_has_no_replay_complete():
    async with hub() as h:
        await h.publish("a", 1, 2)
        reader = await read(h, "a")
        await h.publish("a", 3)
        await reader.events(3)
        assert reader.types == ["stream_open", "m"]


async def test_stream_open_says_where_each_channel_starts():
    async with hub() as h:
        (position,) = await h.publish("a", 1)
        reader = (await read(h, "a", "b")).take()
        opened = reader.frames[0]
        assert opened.data["streamId"] == reader.stream.stream_id
        assert opened.data["node"] == "n"
        assert opened.data["denied"] == {}
        head = (await h.broker.heads(["a"]))["a"]
        assert opened.data["channels"]["a"] == {
            "epoch": head.epoch,
            "position": position,
            "recovered": False,
            "linked": True,
        }
        assert opened.data["channels"]["b"]["position"] == ""
        assert opened.cursor == reader.stream.start_cursor


async def test_a_client_cut_before_its_first_event_misses_nothing():
    async with hub() as h:
        reader = (await read(h, "a")).take()
        cursor = reader.cursor
        reader.stream.abort()
        await h.publish("a", 1, 2)
        back = await read(h, "a", cursor=cursor)
        await back.events(1, 2)
        assert back.resyncs == []
        assert back.stream.honoured


async def test_a_resumed_stream_replays_from_the_ring_without_reading_history():
    async with hub() as h:
        holder = h.stream("a")
        cursor = await cursor_after(h, "a", 1)
        await h.publish("a", 2, 3)
        back = await read(h, "a", cursor=cursor)
        assert back.stream.honoured
        await back.until_types("m", "m", "replay_complete")
        assert back.data == [2, 3]
        assert back.of("replay_complete")[0].data["replayedCount"] == 2
        assert h.broker.count("history") == 0
        holder.abort()


async def test_a_resumed_stream_reads_pages_where_the_ring_does_not_reach_back():
    async with hub(Namespace(history_size=5000)) as h:
        cursor = await cursor_after(h, "a", 0)
        await h.publish("a", *range(1, 2501))
        back = await read(h, "a", cursor=cursor)
        await h.publish("a", "live")
        await back.events(*range(1, 2501), "live")
        assert back.resyncs == []
        assert back.of("replay_complete")[0].data["replayedCount"] in {2500, 2501}


async def test_nothing_missed_is_nothing_sent_also_when_history_has_expired():
    async with hub(Namespace(history_size=0)) as h:
        cursor = await cursor_after(h, "a", 1)
        back = await read(h, "a", cursor=cursor)
        await back.until_types("replay_complete")
        assert back.types == ["stream_open", "replay_complete"]
        assert back.of("stream_open")[0].data["channels"]["a"]["recovered"]


async def test_trimmed_history_is_a_resync_and_the_survivors_follow():
    async with hub(Namespace(history_size=5)) as h:
        cursor = await cursor_after(h, "a", 0)
        positions = await h.publish("a", *range(1, 8))
        back = await read(h, "a", cursor=cursor)
        assert not back.stream.honoured
        await back.until_types("replay_complete")
        assert back.types[:2] == ["stream_open", "state_resync_required"]
        assert back.data == [3, 4, 5, 6, 7]
        resync = back.frames[1]
        assert resync.data["reason"] == "ring_evicted"
        assert resync.data["position"] == positions[1] == back.frames[2].prev
        assert resync.data["earliestAvailableId"] == positions[2]


async def test_a_new_epoch_is_a_resync_and_the_whole_history_follows():
    async with hub() as h:
        cursor = await cursor_after(h, "a", 1)
        await h.broker.remove_history("a")
        await h.publish("a", 2, 3)
        back = await read(h, "a", cursor=cursor)
        await back.until_types("replay_complete")
        assert back.resyncs == ["epoch_reset"]
        assert back.data == [2, 3]
        assert back.of("state_resync_required")[0].data["detail"] == "epoch_mismatch"


async def test_a_client_cut_behind_stream_open_gets_its_resync_when_it_comes_back():
    async with hub() as h:
        cursor = await cursor_after(h, "a", 1)
        await h.broker.remove_history("a")
        await h.publish("a", 2)
        for given in (cursor, "nonsense"):
            first = Reader(await h.joined("a", cursor=given))
            first.frames = first.stream.take(1)
            assert first.types == ["stream_open"]
            back = await read(h, "a", cursor=first.cursor)
            await back.until_types("replay_complete")
            assert len(back.resyncs) == 1
            assert back.data == [2]


async def test_a_cursor_that_fails_its_check_is_invalid_for_every_channel():
    async with hub() as h:
        cursor = await cursor_after(h, "a", 1)
        await h.publish("b", 5)
        broken = cursor[:-1] + ("0" if cursor[-1] != "0" else "1")
        back = await read(h, "a", "b", cursor=broken)
        await back.until(lambda r: len(r.of("replay_complete")) == 2)
        assert back.resyncs == ["cursor_invalid", "cursor_invalid"]
        assert sorted(back.data) == [1, 5]


async def test_a_channel_that_the_cursor_does_not_name_starts_as_on_a_new_stream():
    async with hub() as h:
        await h.publish("b", "old")
        cursor = await cursor_after(h, "a", 1)
        await h.publish("a", 2)
        back = await read(h, "b", "a", cursor=cursor)
        assert not back.stream.honoured
        await back.events(2)
        await h.publish("b", "new")
        await back.events(2, "new")
        assert back.resyncs == []
        opened = back.frames[0].data["channels"]
        assert (opened["a"]["recovered"], opened["b"]["recovered"]) == (True, False)


async def test_slots_of_channels_not_asked_for_are_ignored():
    async with hub() as h:
        both = await read(h, "a", "b")
        await h.publish("a", 1)
        await h.publish("b", 2)
        await both.events(1, 2)
        await h.publish("b", 3)
        back = await read(h, "b", cursor=both.frames[-1].cursor)
        await back.events(3)


async def test_a_tail_begins_with_the_newest_events():
    async with hub() as h:
        await h.publish("a", *range(10))
        reader = await read(h, "a", tail=3)
        await reader.until_types("replay_complete")
        assert reader.data == [7, 8, 9]
        assert reader.types[0] == "stream_open"
        more = await read(h, "a", tail=99)
        await more.until_types("replay_complete")
        assert more.data == list(range(10))
        none = await read(h, "a", tail=0)
        await none.until_types("replay_complete")
        assert none.data == []


async def test_from_the_beginning_all_there_is():
    async with hub(Namespace(history_size=4)) as h:
        await h.publish("a", *range(10))
        reader = await read(h, "a", from_beginning=True)
        await reader.until_types("replay_complete")
        assert reader.data == [6, 7, 8, 9]
        assert reader.resyncs == []


async def test_a_cursor_goes_before_a_tail():
    async with hub() as h:
        cursor = await cursor_after(h, "a", 1)
        await h.publish("a", 2)
        back = await read(h, "a", cursor=cursor, tail=50)
        await back.until_types("replay_complete")
        assert back.data == [2]


async def test_a_latest_channel_gives_the_newest_only_and_nothing_to_who_has_it():
    async with hub(Namespace(recovery="latest")) as h:
        cursor = await cursor_after(h, "a", 1)
        same = await read(h, "a", cursor=cursor)
        await same.until_types("replay_complete")
        assert same.data == []
        await h.publish("a", 2, 3, 4)
        back = await read(h, "a", cursor=cursor)
        await back.until_types("replay_complete")
        assert back.data == [4]
        assert back.resyncs == []
        opened = back.frames[0].data["channels"]["a"]
        assert (opened["recovered"], opened["linked"]) == (True, False)


async def test_a_latest_channel_whose_newest_is_gone_is_a_resync():
    async with hub(Namespace(recovery="latest")) as h:
        cursor = await cursor_after(h, "a", 1)
        await h.broker.remove_history("a")
        back = await read(h, "a", cursor=cursor)
        await back.until_types("replay_complete")
        assert back.resyncs == ["epoch_reset"]


async def test_tags_skip_events_and_the_cursor_moves_all_the_same():
    async with hub() as h:
        reader = await read(h, "a", tags={"k": "x"})
        opened = reader.take().frames[0]
        assert opened.data["channels"]["a"]["linked"] is False
        await h.publish("a", 1, tags={"k": "x"})
        await reader.events(1)
        await h.publish("a", 2, tags={"k": "y"})
        await h.publish("a", 3)
        await reader.until_types("stream_cursor")
        assert reader.data == [1]
        cursor = reader.cursor
        back = await read(h, "a", cursor=cursor)
        await back.until_types("replay_complete")
        assert back.data == []


async def test_tags_filter_a_replay_too():
    async with hub() as h:
        await h.publish("a", 1, 2, tags={"k": "x"})
        await h.publish("a", 3, tags={"k": "y"})
        await h.publish("a", 4, tags={"k": "x", "z": "1"})
        reader = await read(h, "a", from_beginning=True, tags={"k": "x"})
        await reader.until_types("replay_complete")
        assert reader.data == [1, 2, 4]


async def test_an_event_that_is_skipped_behind_one_that_waits_moves_the_cursor_in_order():
    async with hub() as h:
        reader = await read(h, "a", tags={"k": "x"})
        reader.take()
        (first,) = await h.publish("a", 1, tags={"k": "x"})
        (second,) = await h.publish("a", 2)
        (third,) = await h.publish("a", 3, tags={"k": "x"})
        taken = reader.stream.take(1)
        assert [one.id for one in taken] == [first]
        # Behind the first the second has been passed over as well.
        back = await read(h, "a", cursor=taken[0].cursor)
        await back.until_types("replay_complete")
        assert [one.id for one in back.frames if one.id] == [third]
        assert second < third


async def test_a_late_node_never_judges_a_cursor_before_it_is_at_the_head():
    async with hub() as h:
        holder = await read(h, "a")
        other = h.broker
        other.holding = True
        positions = await h.publish("a", 1, 2, 3)
        page = await other.history("a")
        # A client that another node has brought as far as 2: this one knows none of the three.
        local = h.node.channels()[0]
        from tidegate.gateway.cursor import CursorWriter

        cursor = CursorWriter([local.place(positions[1], page.epoch).slot]).text()
        back = await read(h, "a", cursor=cursor)
        assert back.stream.honoured
        await back.until_types("m", "replay_complete")
        assert back.data == [3]
        await holder.events(1, 2, 3)
        other.release()
        await h.publish("a", 4)
        other.release()
        await back.events(3, 4)
        assert back.resyncs == holder.resyncs == []


async def test_a_replay_whose_ring_has_moved_on_reads_another_page():
    async with hub(Namespace(history_size=3000)) as h:
        cursor = await cursor_after(h, "a", 0)
        await h.publish("a", *range(1, 11))
        back = await read(h, "a", cursor=cursor)
        await back.until(lambda r: True)
        slow = await read(h, "a", cursor=cursor)
        slow.frames += slow.stream.take(3)
        await h.publish("a", *range(11, 1011))
        await slow.events(*range(1, 1011))
        assert slow.resyncs == []


async def test_a_trim_in_the_middle_of_a_replay_is_a_resync():
    async with hub(Namespace(history_size=300)) as h:
        cursor = await cursor_after(h, "a", 0)
        await h.publish("a", *range(1, 301))
        slow = await read(h, "a", cursor=cursor)
        slow.frames += slow.stream.take(5)
        await h.publish("a", *range(301, 2001))
        await slow.until(lambda r: r.data[-1:] == [2000])
        assert slow.resyncs == ["ring_evicted"]
        at = slow.types.index("state_resync_required")
        before = [f.data for f in slow.frames[:at] if f.id]
        after = [f.data for f in slow.frames[at:] if f.id]
        assert before == list(range(1, len(before) + 1))
        assert after == list(range(1701, 2001))


async def test_streams_that_resume_while_events_are_published_get_each_once_in_order():
    async with hub(Namespace(history_size=5000)) as h:
        cursor = await cursor_after(h, "a", 0)
        total = 1500
        readers = []

        async def publish():
            for number in range(1, total + 1):
                await h.publish("a", number)
                if number % 10 == 0:
                    await asyncio.sleep(0)

        async def resume():
            for _ in range(30):
                readers.append(await read(h, "a", cursor=cursor, max_queued=2000))
                await asyncio.sleep(0.005)
                for reader in readers:
                    reader.take()

        await asyncio.gather(publish(), resume())
        for reader in readers:
            await reader.events(*range(1, total + 1))
            assert reader.resyncs == []


async def test_a_hole_in_the_history_itself_is_told():
    async with hub() as h:
        cursor = await cursor_after(h, "a", 0)
        await eventually(lambda: not h.node.channels(), 5)
        positions = await h.publish("a", 1, 2, 3, 4)
        whole = type(h.broker).history

        async def holed(channel, **options):
            page = await whole(h.broker, channel, **options)
            left = [p for p in page.publications if p.position != positions[1]]
            return type(page)(publications=left, head=page.head, complete=page.complete)

        h.broker.history = holed
        back = await read(h, "a", cursor=cursor)
        await back.until_types("replay_complete")
        assert back.data == [1, 3, 4]
        assert back.resyncs == ["ring_evicted"]
        assert back.types.index("state_resync_required") == 2


@pytest.mark.parametrize("size", [0, 1])
async def test_a_live_stream_needs_no_history(size):
    async with hub(Namespace(history_size=size)) as h:
        reader = await read(h, "a")
        reader.take()
        for number in range(600):
            await h.publish("a", number)
            reader.take()
        assert reader.data == list(range(600))
        assert reader.resyncs == []
        assert HistoryPolicy(size=size).size == size
        await settled()
