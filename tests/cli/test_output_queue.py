"""Output waits in order, within bounds, and what is lost is counted and announced."""

from hypothesis import given
from hypothesis import strategies as st

from tidegate.cli.output_queue import OutputQueue

LAST = {"type": "exit", "data": {"code": 0}}


def line(number):
    return {"type": "output", "data": number}


def filled(count, size=10, **bounds):
    queue = OutputQueue(**bounds)
    for number in range(count):
        queue.put(line(number), size)
    return queue


def numbers(batch):
    return [event["data"] for event in batch.events if event["type"] == "output"]


def test_an_empty_queue_has_no_batch():
    assert OutputQueue().batch() is None


def test_a_batch_stays_until_it_is_published():
    queue = filled(3)
    assert numbers(queue.batch()) == [0, 1, 2]
    batch = queue.batch()
    assert numbers(batch) == [0, 1, 2]
    queue.put(line(3), 10)
    queue.published(batch)
    assert numbers(queue.batch()) == [3]


def test_a_batch_is_bounded_in_lines_and_bytes():
    assert numbers(filled(5, batch_events=2).batch()) == [0, 1]
    assert numbers(filled(5, size=10, batch_bytes=30).batch()) == [0, 1, 2]
    assert numbers(filled(5, size=10, batch_bytes=29).batch()) == [0, 1]


def test_a_line_that_is_larger_than_a_batch_goes_alone():
    assert numbers(filled(2, size=100, batch_bytes=50).batch()) == [0]


def test_the_queue_is_full_at_either_bound():
    assert not filled(3, max_events=4).full
    assert filled(4, max_events=4).full
    assert not filled(3, size=10, max_bytes=31).full
    assert filled(3, size=10, max_bytes=30).full


def test_room_comes_back_with_a_publish():
    queue = filled(4, size=10, max_events=4, max_bytes=40)
    queue.published(queue.batch())
    assert not queue.full
    queue.put(line(4), 39)
    assert not queue.full


def test_the_last_event_comes_after_all_lines():
    queue = filled(3, batch_events=2)
    queue.put_last(LAST)
    first = queue.batch()
    assert (numbers(first), first.last) == ([0, 1], False)
    queue.published(first)
    second = queue.batch()
    assert second.events == [line(2), LAST]
    assert second.last
    queue.published(second)
    assert queue.batch() is None


def test_dropping_counts_what_waits_and_what_comes():
    queue = filled(3)
    queue.start_dropping()
    queue.put(line(3), 10)
    assert (queue.dropping, queue.full, queue.lost) == (True, False, 4)
    batch = queue.batch()
    assert batch.events == [{"type": "output_lost", "data": {"lines": 4}}]


def test_what_is_lost_during_the_announcement_is_announced_by_the_next():
    queue = filled(3)
    queue.start_dropping()
    batch = queue.batch()
    queue.put(line(3), 10)
    queue.published(batch)
    assert not queue.dropping
    queue.put(line(4), 10)
    assert queue.batch().events == [
        {"type": "output_lost", "data": {"lines": 1}},
        line(4),
    ]
    assert queue.lost == 4


def test_an_event_that_was_in_a_batch_is_the_same_object_in_the_next():
    queue = filled(2)
    queue.start_dropping()
    first = queue.batch()
    queue.put(line(2), 10)
    queue.put_last(LAST)
    second = queue.batch()
    assert first.events[0] is second.events[0]
    assert second.events == [{"type": "output_lost", "data": {"lines": 2}}]
    queue.published(second)
    assert queue.batch().events == [{"type": "output_lost", "data": {"lines": 1}}, LAST]


def test_the_last_event_is_never_dropped():
    queue = filled(2)
    queue.put_last(LAST)
    queue.start_dropping()
    assert queue.batch().events == [{"type": "output_lost", "data": {"lines": 2}}, LAST]


def test_dropping_nothing_announces_nothing():
    queue = OutputQueue()
    queue.start_dropping()
    assert queue.batch() is None
    queue.put(line(0), 10)
    assert queue.lost == 1


steps = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(1, 60)),
        st.tuples(st.sampled_from(["publish", "fail", "drop"]), st.just(0)),
    ),
    max_size=60,
)


@given(steps)
def test_every_line_is_published_in_order_or_announced_in_its_place(steps):
    queue = OutputQueue(batch_events=3, batch_bytes=100)
    put, out = 0, []

    def publish():
        batch = queue.batch()
        if batch is not None:
            out.extend(batch.events)
            queue.published(batch)
        return batch is not None

    for step, size in steps:
        if step == "put":
            queue.put(line(put), size)
            put += 1
        elif step == "publish":
            publish()
        elif step == "fail":
            queue.batch()
        else:
            queue.start_dropping()
    queue.put_last(LAST)
    while publish():
        pass
    assert out[-1] == LAST
    following = lost = 0
    for event in out[:-1]:
        if event["type"] == "output_lost":
            following += event["data"]["lines"]
            lost += event["data"]["lines"]
        else:
            assert event["data"] == following
            following += 1
    assert (following, lost) == (put, queue.lost)
