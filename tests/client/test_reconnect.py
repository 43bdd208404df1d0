"""The rules of coming back: when, after how long, and where."""

import itertools
from datetime import UTC, datetime
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.client.cursor import Cursor
from tidegate.client.reconnect import MAX_RETRY, Reconnect, Verdict, backoff, judge, retry_after

fractions = st.floats(0, 1, exclude_max=True)


@pytest.mark.parametrize(
    "content_type",
    ["text/event-stream", "text/event-stream; charset=utf-8", " Text/Event-Stream ;x"],
)
def test_a_stream_is_open(content_type):
    assert judge(200, content_type, can_refresh=True) is Verdict.OPEN


@pytest.mark.parametrize(
    "content_type", ["", "text/html", "text/event-streams", "application/json"]
)
def test_200_of_another_content_type_is_final(content_type):
    assert judge(200, content_type, can_refresh=True) is Verdict.NOT_AN_EVENT_STREAM


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504, 599])
def test_what_may_pass_is_tried_again(status):
    assert judge(status, "text/event-stream", can_refresh=True) is Verdict.RETRY


@pytest.mark.parametrize(
    "status", [201, 202, 205, 206, 301, 304, 400, 402, 403, 404, 405, 409, 410, 413, 421, 451]
)
def test_what_will_not_pass_is_final(status):
    assert judge(status, "text/event-stream", can_refresh=True) is Verdict.REFUSED


def test_204_ends_and_401_asks_once_for_another_token():
    assert judge(204, "", can_refresh=True) is Verdict.FINISHED
    assert judge(401, "", can_refresh=True) is Verdict.REFRESH
    assert judge(401, "", can_refresh=False) is Verdict.REFUSED


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, None),
        ("", None),
        ("soon", None),
        ("-5", None),
        ("1.5", None),
        ("٣", None),
        ("0", 0),
        (" 7 ", 7),
        ("007", 7),
        ("99999999999999999999", MAX_RETRY),
        ("9" * 5000, MAX_RETRY),
    ],
)
def test_retry_after_in_seconds(value, seconds):
    assert retry_after(value, 0.0) == seconds


def test_retry_after_as_a_date():
    now = datetime(2030, 1, 1, tzinfo=UTC).timestamp()
    assert retry_after("Tue, 01 Jan 2030 00:00:20 GMT", now) == 20
    assert retry_after("Tue, 01 Jan 2030 00:00:20 -0000", now) == 20
    assert retry_after("Tue, 01 Jan 2030 01:00:20 +0100", now) == 20
    assert retry_after("Mon, 31 Dec 2029 23:59:59 GMT", now) == 0
    assert retry_after("Tue, 01 Jan 2036 00:00:00 GMT", now) == MAX_RETRY
    assert retry_after("Tue, 99 Jan 2030 00:00:00 GMT", now) is None


@given(st.datetimes(timezones=st.just(UTC)).map(lambda d: format_datetime(d, usegmt=True)))
def test_no_date_is_too_far(date):
    assert 0 <= retry_after(date, 1e9) <= MAX_RETRY


@given(st.text())
def test_no_header_raises(value):
    seconds = retry_after(value, 1e9)
    assert seconds is None or 0 <= seconds <= MAX_RETRY


@given(st.integers(0, 10**30), fractions)
def test_backoff_is_random_from_0_and_bounded_however_large_n(attempt, fraction):
    assert backoff(attempt, lambda: 0.0) == 0
    assert 0 <= backoff(attempt, lambda: fraction) < 30


def test_backoff_doubles_up_to_its_cap():
    assert [backoff(n, lambda: 1.0) for n in range(8)] == [1, 2, 4, 8, 16, 30, 30, 30]


@given(st.integers(0, 10**9), fractions, st.integers(0, 40))
def test_the_delay_is_the_servers_retry_and_the_backoff(retry_ms, fraction, failures):
    state = Reconnect()
    state.asked(retry_ms)
    for n in range(failures):
        delay = state.delay(lambda: fraction)
        assert delay == pytest.approx(min(retry_ms / 1000, MAX_RETRY) + fraction * min(30, 2.0**n))
    assert state.attempt == failures
    state.opened()
    assert state.delay(lambda: fraction) == pytest.approx(
        min(retry_ms / 1000, MAX_RETRY) + fraction
    )


def test_retry_after_takes_the_place_of_the_servers_retry_once():
    state = Reconnect(retry=3.0)
    assert state.delay(lambda: 0.5, after=20.0) == 20.5
    assert state.delay(lambda: 0.5) == 4.0


def test_a_retry_of_hundreds_of_digits_is_no_overflow():
    state = Reconnect()
    state.asked(10**299)
    assert state.delay(lambda: 0.0) == MAX_RETRY


events = st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 30)), max_size=40)


@given(events)
def test_the_cursor_never_goes_back_within_an_epoch(steps):
    state = Reconnect()
    for epoch, number in steps:
        before = state.cursor
        state.moved(Cursor.read(f"{epoch}-{number}"))
        after = state.cursor
        if before is not None and before.epoch == epoch:
            assert after.number == max(before.number, number)
        else:
            assert (after.epoch, after.number) == (epoch, number)


def test_after_a_resync_the_next_id_counts_whatever_it_is():
    state = Reconnect(Cursor.given(100))
    state.resynced()
    state.moved(Cursor.read("100"))  # the id in force, of before: it settles nothing
    state.moved(Cursor.read("1"))
    assert state.cursor.number == 1
    state.moved(Cursor.read("3"))
    state.moved(Cursor.read("2"))
    assert state.cursor.number == 3


def test_restarted_begins_anywhere():
    state = Reconnect(Cursor.given("e-100"))
    state.delay(lambda: 0.0)
    state.restarted(Cursor.given("e-5"))
    assert (state.cursor.number, state.attempt) == (5, 0)
    state.restarted(None)
    assert state.cursor is None


def test_two_drops_in_a_row_ask_for_the_same_place():
    state = Reconnect(Cursor.given("e-5"))
    places = []
    for _ in itertools.repeat(None, 3):
        state.delay(lambda: 0.0)
        places.append(state.cursor)
        state.opened()
    assert places == [Cursor.given("e-5")] * 3
