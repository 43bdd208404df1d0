"""The queue of one stream: caps, conflation, dropping and purging."""

import itertools
from types import SimpleNamespace

import msgspec

from tidegate.gateway.backlog import Entry, StreamBacklog
from tidegate.gateway.brokers.base import Publication
from tidegate.gateway.frames import EventFrame
from tidegate.gateway.position import make_position

numbers = itertools.count(1)


def member():
    return SimpleNamespace(queued=0, last_entry=None)


def event(data=""):
    publication = Publication(
        position=make_position(next(numbers), b"abcd"),
        prev="",
        epoch="e",
        type="m",
        payload=msgspec.json.encode({"data": data}),
    )
    return EventFrame("a", "0" * 8, publication)


SIZE = len(event().sse)


def drain(backlog):
    taken = []
    while (entry := backlog.pop()) is not None:
        taken.append(entry.frame)
    return taken


def counts(backlog):
    return backlog.live_count, backlog.live_bytes, len(backlog)


def test_events_count_until_they_are_taken_and_control_frames_never_do():
    backlog, one = StreamBacklog(4, 10_000), member()
    events = [event(), event()]
    assert [backlog.push(one, frame) for frame in events] == [None, None]
    backlog.force(Entry(one, "control", None))
    assert counts(backlog) == (2, 2 * SIZE, 3)
    assert one.queued == 3
    assert drain(backlog) == [*events, "control"]
    assert counts(backlog) == (0, 0, 0)
    assert (one.queued, one.last_entry) == (0, None)


def test_an_event_for_a_waiting_consumer_is_not_counted():
    backlog, one = StreamBacklog(1, 10), member()
    backlog.waiting = True
    assert backlog.push(one, event("x" * 1000)) is None
    assert not backlog.waiting
    assert counts(backlog) == (0, 0, 1)


def test_both_caps_say_why():
    backlog, one = StreamBacklog(2, SIZE * 2 - 1), member()
    assert backlog.push(one, event()) is None
    assert backlog.push(one, event()) == "queue_bytes_overflow"
    wide = StreamBacklog(1, 10_000)
    assert wide.push(one, event()) is None
    assert wide.push(one, event()) == "queue_overflow"


def test_the_newest_takes_the_place_of_the_one_that_waits():
    backlog, one, other = StreamBacklog(8, 10_000), member(), member()
    first, foreign, second = event(), event(), event("xxxx")
    assert not backlog.has_event(one)
    backlog.push(one, first)
    backlog.push(other, foreign)
    assert backlog.has_event(one)
    assert backlog.replace_last(one, second) is None
    assert backlog.live_bytes == 2 * SIZE + 4
    assert one.last_entry.place is second.place
    assert drain(backlog) == [second, foreign]
    assert counts(backlog) == (0, 0, 0)


def test_a_control_frame_is_not_replaced_by_an_event():
    backlog, one = StreamBacklog(8, 10_000), member()
    backlog.force(Entry(one, "control", None))
    assert not backlog.has_event(one)


def test_one_that_is_so_much_larger_does_not_take_another_ones_place():
    backlog, one, other = StreamBacklog(8, 1000), member(), member()
    backlog.push(other, event())
    backlog.push(one, event())
    assert backlog.replace_last(one, event("x" * 5000)) == "queue_bytes_overflow"
    alone = StreamBacklog(8, 1000)
    alone.push(one, event())
    assert alone.replace_last(one, event("x" * 5000)) is None


def test_a_mark_never_speaks_of_what_lies_behind_a_control_frame():
    backlog, one = StreamBacklog(2, 10_000), member()
    first, second, third = event(), event(), event()
    backlog.push(one, first)
    assert backlog.drop_oldest(one, second.place)
    backlog.force(Entry(one, "resync", None))
    backlog.push(one, second)
    backlog.push(one, third)
    assert backlog.drop_oldest(one, event().place)
    entries = [backlog.pop() for _ in range(4)]
    assert [entry.frame for entry in entries] == [None, "resync", None, third]
    assert [entry.place for entry in entries[::2]] == [first.place, second.place]


def test_dropping_leaves_one_mark_where_the_oldest_stood():
    backlog, one = StreamBacklog(4, 10_000), member()
    events = [event() for _ in range(4)]
    for frame in events:
        backlog.push(one, frame)
    assert backlog.drop_oldest(one, event().place)
    assert backlog.drop_oldest(one, event().place)
    assert counts(backlog) == (2, 2 * SIZE, 3)
    mark = backlog.pop()
    assert (mark.frame, mark.place) == (None, events[1].place)
    assert drain(backlog) == events[2:]
    assert one.queued == 0


def test_dropping_touches_only_its_own_channel():
    backlog, one, other = StreamBacklog(2, 10_000), member(), member()
    foreign = [event(), event()]
    for frame in foreign:
        backlog.push(other, frame)
    lost = [event(), event()]
    assert not backlog.drop_oldest(one, lost[0].place)
    assert not backlog.drop_oldest(one, lost[1].place)
    assert len(backlog) == 3
    assert drain(backlog) == [*foreign, None]


def test_dropping_for_ever_takes_no_memory():
    backlog, one = StreamBacklog(4, 10_000), member()
    for _ in range(10_000):
        frame = event()
        while backlog.push(one, frame) is not None:
            assert backlog.drop_oldest(one, frame.place)
    assert len(backlog._entries) <= 16
    assert counts(backlog)[0] == 4
    assert len(drain(backlog)) == 5


def test_a_purge_takes_one_channels_entries_out():
    backlog, one, other = StreamBacklog(9, 10_000), member(), member()
    mine, theirs = [event(), event()], [event(), event()]
    for pair in zip(mine, theirs, strict=True):
        backlog.push(one, pair[0])
        backlog.push(other, pair[1])
    backlog.purge(one)
    assert counts(backlog) == (2, 2 * SIZE, 2)
    assert one.queued == 0
    assert backlog.oldest_event() is theirs[0]
    assert drain(backlog) == theirs


def test_a_closed_backlog_takes_no_more_but_gives_what_it_has():
    backlog, one = StreamBacklog(9, 10_000), member()
    frame = event()
    backlog.push(one, frame)
    backlog.close()
    backlog.force(Entry(one, "late", None))
    assert drain(backlog) == [frame]
    backlog.abort()
    assert counts(backlog) == (0, 0, 0)
