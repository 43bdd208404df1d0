"""The clock that a test sets."""

from tidegate.testing import ManualClock


def test_it_shows_what_it_was_told():
    clock = ManualClock(100.0)
    assert clock() == 100.0
    clock.advance(2.5)
    assert clock() == 102.5
    clock.advance(-50.0)
    assert clock() == clock.now == 52.5
