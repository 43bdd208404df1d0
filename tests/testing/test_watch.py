"""The client that checks the chain: what it accepts, and what it calls a problem."""

import json

from tidegate.sse import encode
from tidegate.testing import At, Resync, StreamWatch


def frame(type_, data, cursor=None, **envelope):
    body = json.dumps({"v": 1, "type": type_, "data": data, **envelope})
    return encode(event=type_, data=body, id=cursor)


def opened(*, cursor="c0", linked=True, recovered=False, **places):
    channels = {
        name: {"epoch": epoch, "position": position, "recovered": recovered, "linked": linked}
        for name, (epoch, position) in places.items()
    }
    data = {"streamId": "s", "node": "n", "channels": channels, "denied": {}}
    return frame("stream_open", data, cursor)


def event(position, prev, *, channel="a", epoch="e", cursor=None):
    return frame(
        "m", {}, cursor or f"c{position}", channel=channel, epoch=epoch, id=position, prev=prev
    )


def resync(position, *, channel="a", epoch="e", reason="ring_evicted"):
    data = {"channel": channel, "reason": reason, "epoch": epoch, "position": position}
    return frame("state_resync_required", data, f"c{position}")


def watched(*chunks):
    watch = StreamWatch()
    for chunk in chunks:
        watch.feed(chunk)
    return watch


def test_a_chain_is_no_problem():
    watch = watched(opened(a=("e", "1")), event("2", "1"), event("3", "2"))
    assert watch.problems == []
    assert watch.events == {"a": 2}
    assert watch.held == {"a": At("e", "3")}
    assert watch.cursor == "c3"
    assert watch.last == "m"


def test_a_gap_a_repetition_and_another_epoch_are_problems():
    for wrong in (event("4", "3"), event("2", "1"), event("3", "2", epoch="f")):
        watch = watched(opened(a=("e", "1")), event("2", "1"), wrong)
        assert len(watch.problems) == 1
        assert "as the one before it" in watch.problems[0]


def test_what_follows_a_resync_links_to_its_place():
    watch = watched(opened(a=("e", "1")), resync("7"), event("8", "7"))
    assert watch.problems == []
    assert watch.resyncs == [Resync("a", "ring_evicted", At("e", "7"))]
    assert watched(opened(a=("e", "1")), resync("7"), event("9", "8")).problems


def test_a_snapshot_sets_the_place():
    snapshot = frame(
        "channel_snapshot", {"channel": "a", "state": 1, "epoch": "e", "position": "9"}, "c9"
    )
    watch = watched(opened(a=("e", "1")), resync("7"), snapshot, event("A", "9"))
    assert watch.problems == []


def test_its_place_lasts_from_stream_to_stream():
    watch = watched(opened(a=("e", "1")), event("2", "1"))
    assert watch.reopen() == "c2"
    watch.feed(opened(a=("e", "2"), recovered=True) + event("3", "2"))
    assert watch.problems == []
    watch.reopen()
    watch.feed(opened(a=("e", "9"), recovered=True))
    assert "recovered at" in watch.problems[0]


def test_a_stream_that_did_not_recover_has_to_say_what_is_lost():
    watch = watched(opened(a=("e", "1")))
    watch.reopen()
    watch.feed(opened(a=("e", "5")) + event("6", "5"))
    assert len(watch.problems) == 1
    told = watched(opened(a=("e", "1")))
    told.reopen()
    told.feed(opened(a=("e", "5")) + resync("5") + event("6", "5"))
    assert told.problems == []


def test_a_frame_that_was_cut_is_not_read():
    watch = watched(opened(a=("e", "1")), event("2", "1")[:-1])
    assert watch.held == {"a": At("e", "1")}
    assert watch.reopen() == "c0"
    watch.feed(opened(a=("e", "1"), recovered=True) + event("2", "1"))
    assert watch.problems == []


def test_a_channel_that_was_left_begins_anew():
    watch = watched(opened(a=("e", "1"), b=("e", "1")))
    watch.reopen()
    watch.feed(opened(a=("e", "1"), recovered=True))
    assert set(watch.held) == {"a"}
    watch.reopen()
    watch.feed(opened(a=("e", "1"), b=("e", "5")) + event("6", "5", channel="b"))
    assert watch.problems == []


def test_channels_that_skip_on_purpose_are_not_checked():
    watch = watched(opened(a=("e", "1"), linked=False), event("7", "6"))
    assert watch.problems == []
    watch.reopen()
    watch.feed(opened(a=("e", "9"), linked=False, recovered=True))
    assert watch.problems == []


def test_what_comes_before_stream_open_is_a_problem():
    assert watched(event("2", "1")).problems[0] == "an event came before stream_open"
    assert "before stream_open" in watched(resync("1")).problems[0]
    assert watched(opened(a=("e", "1")), opened(a=("e", "1"))).problems == [
        "a stream was opened twice"
    ]
    assert "was not opened" in watched(opened(), event("2", "1")).problems[0]


def test_replays_are_counted():
    done = frame("replay_complete", {"channel": "a", "replayedCount": 0}, "c1")
    assert watched(opened(a=("e", "1")), done).replays == 1
