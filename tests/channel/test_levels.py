import pytest

from tidegate.channel.levels import Levels


def levels(count=0, size=0, *, frames=8, bytes_=800):
    made = Levels(frames, bytes_)
    made.live_count, made.live_bytes = count, size
    return made


@pytest.mark.parametrize(
    ("count", "held", "size", "reason"),
    [
        (7, 0, 10, None),
        (8, 0, 10, "queue_overflow"),
        (8, 800, 10, "queue_overflow"),
        (1, 700, 100, None),
        (1, 700, 101, "queue_bytes_overflow"),
        (0, 0, 5000, None),
    ],
)
def test_a_frame_is_refused_by_count_first_and_then_by_bytes(count, held, size, reason):
    assert levels(count, held).overflow(size) == reason


@pytest.mark.parametrize(
    ("count", "held", "threshold"),
    [
        (5, 599, None),
        (6, 0, "frames"),
        (0, 600, "bytes"),
        (6, 600, "frames_and_bytes"),
    ],
)
def test_the_warning_is_due_at_three_quarters(count, held, threshold):
    assert levels(count, held).due_warning() == threshold


@pytest.mark.parametrize(
    ("count", "held", "low"), [(3, 300, True), (4, 300, False), (3, 301, False), (0, 0, True)]
)
def test_low_is_where_a_warned_backlog_counts_as_recovered(count, held, low):
    assert levels(count, held).low is low


def test_a_warning_is_given_once_until_both_measures_have_fallen():
    made = levels(6, 600)
    assert made.due_warning() == "frames_and_bytes"
    assert made.due_warning() is None
    made.live_count, made.live_bytes = 3, 301
    assert made.due_warning() is None
    assert made.warned
    made.live_bytes = 300
    assert made.due_warning() is None
    assert not made.warned
    made.live_count = 6
    assert made.due_warning() == "frames"
