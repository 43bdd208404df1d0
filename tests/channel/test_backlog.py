import pytest

from tidegate.channel.backlog import Backlog
from tidegate.channel.event import ChannelEvent
from tidegate.channel.frames import control_frame


def event(event_id, data=None):
    return ChannelEvent(event_id, "t", data, {"serverTimestamp": 0})


SIZE = event(1).size


def sized(event_id, size):
    made = event(event_id, "x" * (size - event(event_id, "").size))
    assert made.size == size
    return made


def counters(backlog):
    return backlog.live_count, backlog.live_bytes, len(backlog)


def test_live_frames_count_until_they_are_taken():
    backlog = Backlog(4, 10_000)
    first = event(1)
    assert backlog.push(first) is None
    assert backlog.push(event(2)) is None
    assert counters(backlog) == (2, 2 * SIZE, 2)
    assert backlog.pop() is first
    assert counters(backlog) == (1, SIZE, 1)
    assert backlog.pop().id == 2
    assert backlog.pop() is None
    assert counters(backlog) == (0, 0, 0)


def test_forced_frames_never_count_wherever_they_stand():
    backlog = Backlog(2, 10_000)
    backlog.force_push(event(1))
    backlog.push(event(2))
    backlog.force_push(control_frame("slow_client_warning", {}, 0))
    backlog.push(event(3))
    assert counters(backlog) == (2, 2 * SIZE, 4)
    assert [backlog.pop().id for _ in range(3)] == [1, 2, None]
    assert counters(backlog) == (1, SIZE, 1)
    assert backlog.push(event(4)) is None
    assert backlog.push(event(5)) == "queue_overflow"


def test_the_frame_cap_rejects_what_is_over_it():
    backlog = Backlog(2, 10_000)
    assert [backlog.push(event(i)) for i in (1, 2, 3)] == [None, None, "queue_overflow"]
    assert counters(backlog) == (2, 2 * SIZE, 2)


def test_the_frame_cap_is_checked_before_the_byte_cap_and_serializes_nothing():
    backlog = Backlog(1, 60)
    backlog.push(event(1))
    rejected = event(2, "x" * 100)
    assert backlog.push(rejected) == "queue_overflow"
    assert rejected.known_size == 0


def test_an_exact_fit_in_bytes_is_accepted_and_one_byte_more_is_not():
    backlog = Backlog(9, 200)
    assert backlog.push(sized(1, 100)) is None
    assert backlog.push(sized(2, 101)) == "queue_bytes_overflow"
    assert backlog.push(sized(2, 100)) is None
    assert counters(backlog) == (2, 200, 2)


def test_one_oversized_event_is_accepted_when_no_live_frame_waits_and_the_next_evicts():
    backlog = Backlog(9, 100)
    backlog.force_push(event(1, "y" * 500))
    assert backlog.push(sized(2, 300)) is None
    assert counters(backlog) == (1, 300, 2)
    assert backlog.push(event(3, object())) == "queue_bytes_overflow"
    backlog.pop()
    backlog.pop()
    assert backlog.push(sized(3, 300)) is None


def test_an_unserializable_event_counts_as_a_frame_of_no_bytes():
    backlog = Backlog(2, 100)
    assert backlog.push(event(1, object())) is None
    assert counters(backlog) == (1, 0, 1)
    assert backlog.push(event(2, object())) is None
    assert backlog.push(event(3, object())) == "queue_overflow"


def test_a_waiting_consumer_gets_one_event_uncounted_and_unserialized():
    backlog = Backlog(1, 60)
    backlog.waiting = True
    handed = event(1, "x" * 500)
    assert backlog.push(handed) is None
    assert not backlog.waiting
    assert counters(backlog) == (0, 0, 1)
    assert handed.known_size == 0
    assert backlog.push(event(2)) is None
    assert counters(backlog) == (1, SIZE, 2)
    assert backlog.push(event(3)) == "queue_overflow"


def test_a_forced_frame_ends_the_wait_as_well():
    backlog = Backlog(1, 1000)
    backlog.waiting = True
    backlog.force_push(event(1))
    assert not backlog.waiting


def test_a_closed_backlog_skips_everything_but_can_be_drained():
    backlog = Backlog(1, 1000)
    backlog.waiting = True
    backlog.close()
    assert backlog.closed
    assert not backlog.waiting
    backlog = Backlog(1, 1000)
    backlog.push(event(1))
    backlog.close()
    assert backlog.push(event(2)) is None
    backlog.force_push(event(3))
    assert counters(backlog) == (1, SIZE, 1)
    assert backlog.pop().id == 1
    assert backlog.pop() is None


def test_an_aborted_backlog_drops_what_waits():
    backlog = Backlog(9, 1000)
    backlog.push(event(1))
    backlog.force_push(event(2))
    backlog.waiting = True
    backlog.abort()
    assert backlog.closed
    assert not backlog.waiting
    assert counters(backlog) == (0, 0, 0)
    assert backlog.pop() is None


def test_the_first_id_passes_control_frames_over():
    backlog = Backlog(9, 1000)
    assert backlog.first_id() is None
    backlog.force_push(control_frame("replay_complete", {}, 0))
    assert backlog.first_id() is None
    backlog.push(event(4))
    backlog.push(event(5))
    assert backlog.first_id() == 4


# n >= 75 % of the cap warns, n <= 37.5 % re-arms, also where that is no whole number.
@pytest.mark.parametrize(
    ("cap", "warn_at", "rearm_at"),
    [
        (1, 1, 0),
        (2, 2, 0),
        (3, 3, 1),
        (4, 3, 1),
        (8, 6, 3),
        (10, 8, 3),
        (16, 12, 6),
        (256, 192, 96),
    ],
)
def test_frames_warn_at_75_percent_once_and_rearm_at_37_5(cap, warn_at, rearm_at):
    backlog = Backlog(cap, 10**9)
    due = []
    for i in range(1, cap + 1):
        assert backlog.push(event(i)) is None
        due.append(backlog.due_warning())
    assert due == [None] * (warn_at - 1) + ["frames"] + [None] * (cap - warn_at)
    while backlog.live_count > rearm_at + 1:
        backlog.pop()
    assert backlog.due_warning() is None
    assert backlog.warned
    backlog.pop()
    assert backlog.live_count == rearm_at
    assert backlog.due_warning() is None
    assert not backlog.warned
    while backlog.live_count < warn_at:
        assert backlog.due_warning() is None
        backlog.push(event(1))
    assert backlog.due_warning() == "frames"


def test_bytes_warn_at_75_percent_and_rearm_at_37_5():
    backlog = Backlog(100, 1000)
    backlog.push(sized(1, 375))
    backlog.push(sized(2, 374))
    assert backlog.due_warning() is None
    assert backlog.pop()
    backlog.push(sized(3, 376))
    assert backlog.due_warning() == "bytes"
    assert backlog.due_warning() is None
    backlog.pop()
    assert backlog.live_bytes == 376
    assert backlog.due_warning() is None
    assert backlog.warned
    backlog.pop()
    backlog.push(sized(4, 375))
    assert backlog.due_warning() is None
    assert not backlog.warned


def test_both_measures_must_be_low_to_rearm():
    backlog = Backlog(8, 1000)
    for i in range(6):
        backlog.push(sized(i + 1, 140))
    assert backlog.due_warning() == "frames_and_bytes"
    for _ in range(6):
        backlog.pop()
    backlog.push(sized(9, 400))
    backlog.due_warning()
    assert backlog.warned
    backlog.pop()
    for i in range(4):
        backlog.push(sized(10 + i, 80))
    assert backlog.live_bytes <= 375
    backlog.due_warning()
    assert backlog.warned


def test_the_threshold_in_bytes_need_not_be_whole():
    backlog = Backlog(100, 101)
    backlog.push(sized(1, 75))
    assert backlog.due_warning() is None
    backlog.pop()
    backlog.push(sized(1, 76))
    assert backlog.due_warning() == "bytes"
