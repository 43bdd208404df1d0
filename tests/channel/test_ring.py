from hypothesis import given
from hypothesis import strategies as st

from tidegate.channel.event import ChannelEvent
from tidegate.channel.ring import Ring


def event(event_id, data=None):
    return ChannelEvent(event_id, "t", data, {"serverTimestamp": 0})


def ids(ring, after=0):
    return [e.id for e in ring.after(after)]


def test_a_new_ring_is_empty_and_begins_at_one():
    ring = Ring(3)
    assert (ring.first, ring.last, ring.bytes, len(ring), ids(ring)) == (1, 0, 0, 0, [])


def test_over_its_capacity_the_oldest_is_dropped():
    ring = Ring(3)
    for i in range(1, 6):
        ring.append(event(i))
    assert ids(ring) == [3, 4, 5]
    assert (ring.first, ring.last, len(ring), ring.bytes) == (3, 5, 3, 0)
    assert ids(ring, 3) == [4, 5]
    assert ids(ring, 4) == [5]
    assert ids(ring, 5) == []
    assert ids(ring, 9) == []


def test_a_ring_of_capacity_nought_keeps_nothing_but_counts():
    ring = Ring(0)
    ring.append(event(1))
    ring.append(event(2))
    assert (ring.first, ring.last, len(ring), ids(ring)) == (3, 2, 0, [])


def test_dropped_events_are_let_go():
    ring = Ring(4, 200)
    for i in range(1, 5):
        ring.append(event(i, "x" * 60))
    held = [slot.id for slot in ring._slots if slot is not None]
    assert held == ids(ring) == [4]


def test_an_exact_fit_in_bytes_is_kept():
    size = event(1).size
    ring = Ring(10, 2 * size)
    ring.append(event(1))
    ring.append(event(2))
    assert ids(ring) == [1, 2]
    assert ring.bytes == 2 * size
    ring.append(event(3))
    assert ids(ring) == [2, 3]


def test_the_newest_is_dropped_too_if_it_alone_is_too_big():
    ring = Ring(10, 100)
    ring.append(event(1))
    ring.append(event(2, "x" * 200))
    assert (ids(ring), ring.first, ring.last, ring.bytes) == ([], 3, 2, 0)
    ring.append(event(3))
    assert ids(ring) == [3]


def test_without_a_byte_cap_nothing_is_serialized():
    ring = Ring(10)
    made = event(1, "x")
    ring.append(made)
    assert made.known_size == 0


@given(
    capacity=st.integers(0, 7),
    max_bytes=st.none() | st.integers(1, 400),
    lengths=st.lists(st.integers(0, 200), max_size=40),
    after=st.integers(0, 45),
)
def test_a_ring_behaves_like_a_list_that_is_cut_at_the_front(capacity, max_bytes, lengths, after):
    ring, model = Ring(capacity, max_bytes), []
    for i, length in enumerate(lengths, 1):
        made = event(i, "x" * length)
        ring.append(made)
        model.append(made)
        while len(model) > capacity or (max_bytes and sum(e.size for e in model) > max_bytes):
            model.pop(0)
        assert ring.last == i
        assert ring.first == (model[0].id if model else i + 1)
        assert ring.bytes == (sum(e.size for e in model) if max_bytes else 0)
        assert len(ring) == len(model)
    assert ids(ring, after) == [e.id for e in model if e.id > after]
