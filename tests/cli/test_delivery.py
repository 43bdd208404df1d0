"""How long a publisher waits before it tries again."""

import pytest

from tidegate.cli.delivery import Away, retry_delay


def longest():
    return 0.0


@pytest.mark.parametrize(
    ("attempt", "seconds"), [(1, 0.25), (2, 0.5), (3, 1.0), (5, 4.0), (6, 5.0), (100_000, 5.0)]
)
def test_the_delay_doubles_up_to_a_cap(attempt, seconds):
    assert retry_delay(attempt, None, longest) == seconds


def test_up_to_half_of_it_is_left_to_chance():
    assert retry_delay(3, None, lambda: 0.5) == 0.75
    assert retry_delay(3, None, lambda: 1.0) == 0.5


def test_what_the_server_asked_for_is_the_least():
    assert retry_delay(1, 7.0, longest) == 7.0
    assert retry_delay(6, 1.0, longest) == 5.0


def test_being_away_says_why_and_for_how_long():
    away = Away("connection refused", 3.0)
    assert (str(away), away.retry_after) == ("connection refused", 3.0)
