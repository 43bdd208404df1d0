import pytest

from tidegate.channel.event import ChannelEvent
from tidegate.channel.replay import plan_replay
from tidegate.channel.ring import Ring


def ring_of(count, capacity=100, data=None):
    ring = Ring(capacity)
    for i in range(1, count + 1):
        ring.append(ChannelEvent(i, "t", data, {"serverTimestamp": 0}))
    return ring


def plan(ring, last_event_id, theirs=None, budget=10**6):
    return plan_replay(
        ring, ours="e", theirs=theirs, last_event_id=last_event_id, budget=budget, now_ms=5
    )


def told(replay):
    return [
        frame.id if frame.id is not None else (frame.type, frame.data) for frame in replay.frames
    ]


def resync(reason, last, earliest, **detail):
    return (
        "state_resync_required",
        {"reason": reason, **detail, "lastDeliveredId": last, "earliestAvailableId": earliest},
    )


def complete(count, last=None):
    data = {"replayedCount": count}
    if last is not None:
        data["lastReplayedEventId"] = last
    return ("replay_complete", data)


TABLE = {
    "in the ring": (ring_of(5), 2, None, [3, 4, 5, complete(3, 5)]),
    "in the ring, right epoch": (ring_of(5), 2, "e", [3, 4, 5, complete(3, 5)]),
    "caught up": (ring_of(5), 5, None, [complete(0)]),
    "nought of nothing": (ring_of(0), 0, None, [complete(0)]),
    "nought is the beginning": (ring_of(2), 0, None, [1, 2, complete(2, 2)]),
    "future": (ring_of(3), 50, None, [resync("epoch_reset", 50, 1), 1, 2, 3, complete(3, 3)]),
    "head + 1": (ring_of(3), 4, None, [resync("epoch_reset", 4, 1), 1, 2, 3, complete(3, 3)]),
    "fresh channel": (ring_of(0), 5, None, [resync("epoch_reset", 5, 1), complete(0)]),
    "other epoch, low": (
        ring_of(3),
        1,
        "x",
        [resync("epoch_reset", 1, 1, detail="epoch_mismatch"), 1, 2, 3, complete(3, 3)],
    ),
    "other epoch, high": (
        ring_of(3),
        9,
        "x",
        [resync("epoch_reset", 9, 1, detail="epoch_mismatch"), 1, 2, 3, complete(3, 3)],
    ),
    "other epoch, trimmed": (
        ring_of(5, 2),
        4,
        "x",
        [resync("epoch_reset", 4, 4, detail="epoch_mismatch"), 4, 5, complete(2, 5)],
    ),
    "epoch given as an empty string": (
        ring_of(1),
        1,
        "",
        [resync("epoch_reset", 1, 1, detail="epoch_mismatch"), 1, complete(1, 1)],
    ),
    "trimmed": (ring_of(5, 3), 1, None, [resync("ring_evicted", 1, 3), 3, 4, 5, complete(3, 5)]),
    "boundary": (ring_of(5, 3), 2, None, [3, 4, 5, complete(3, 5)]),
    "no ring": (ring_of(5, 0), 2, None, [resync("ring_evicted", 2, 6), complete(0)]),
    "no ring, caught up": (ring_of(5, 0), 5, None, [complete(0)]),
}


@pytest.mark.parametrize(("ring", "last", "theirs", "expected"), TABLE.values(), ids=TABLE)
def test_the_table_of_resume(ring, last, theirs, expected):
    replay = plan(ring, last, theirs)
    assert told(replay) == expected
    assert not replay.budget_exceeded
    assert all(f.meta == {"serverTimestamp": 5} for f in replay.frames if f.id is None)


def test_replay_stops_before_the_event_that_passes_the_budget():
    ring = ring_of(5)
    size = next(ring.after(0)).size
    replay = plan(ring, 0, budget=3 * size)
    assert told(replay) == [1, 2, 3, resync("replay_budget_exceeded", 3, 4), complete(3, 3)]
    assert replay.budget_exceeded
    assert all(f.meta == {"serverTimestamp": 5} for f in replay.frames if f.id is None)
    assert not plan(ring, 0, budget=5 * size).budget_exceeded
    assert told(plan(ring, 0, budget=5 * size - 1))[-2] == resync("replay_budget_exceeded", 4, 5)


def test_the_first_event_always_goes_whatever_its_size():
    replay = plan(ring_of(2, data="x" * 500), 0, budget=1)
    assert told(replay) == [1, resync("replay_budget_exceeded", 1, 2), complete(1, 1)]


def test_the_budget_holds_after_a_resync_too():
    replay = plan(ring_of(5, 3), 0, budget=1)
    assert told(replay) == [
        resync("ring_evicted", 0, 3),
        3,
        resync("replay_budget_exceeded", 3, 4),
        complete(1, 3),
    ]


def test_unserializable_events_cost_no_budget():
    replay = plan(ring_of(3, data=object()), 0, budget=1)
    assert told(replay) == [1, 2, 3, complete(3, 3)]


def test_an_event_that_costs_nothing_fits_a_budget_that_is_spent_exactly():
    ring = ring_of(2)
    budget = sum(frame.size for frame in ring.after(0))
    ring.append(ChannelEvent(3, "t", object(), {"serverTimestamp": 0}))
    assert told(plan(ring, 0, budget=budget)) == [1, 2, 3, complete(3, 3)]


def test_what_comes_after_a_first_event_over_the_budget_is_not_even_encoded():
    ring = ring_of(2, data="x" * 500)
    first, second = ring.after(0)
    plan(ring, 0, budget=1)
    assert first.known_size > 0
    assert second.known_size == 0
