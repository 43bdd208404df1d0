"""What a terminal is shown cannot disturb it, and still is the same JSON."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.cli.render import clock_of, compact, printable


def test_text_that_prints_stays_as_it_is():
    assert printable("plain, é, 中文, 💥") == "plain, é, 中文, 💥"


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("\x1b[2J", "\\u001b[2J"),
        ("\x9b31m", "\\u009b31m"),
        ("a\u202eb", "a\\u202eb"),
        ("a\nb\tc\rd", "a b c d"),
        ("\U000e0001", "\\udb40\\udc01"),
        ("\x00", "\\u0000"),
    ],
)
def test_what_does_not_print_is_escaped(raw, shown):
    assert printable(raw) == shown


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(json_values)
def test_compact_json_is_one_printable_line_of_the_same_value(value):
    line = compact(value)
    assert line.isprintable()
    assert json.loads(line) == value


@given(json_values)
def test_indented_json_is_the_same_value_afterwards(value):
    raw = json.dumps(value, indent=1, ensure_ascii=False)
    assert printable(raw).isprintable()
    assert json.loads(printable(raw)) == value


def test_the_clock_is_in_utc_to_the_millisecond():
    assert clock_of({"serverTimestamp": 1_719_000_000_123}) == "20:00:00.123Z"
    assert clock_of({"serverTimestamp": 0.0}) == "00:00:00.000Z"


@pytest.mark.parametrize(
    "meta",
    [None, {}, [], {"serverTimestamp": "x"}, {"serverTimestamp": True}, {"serverTimestamp": 1e300}],
)
def test_without_a_time_there_is_no_clock(meta):
    assert clock_of(meta) == ""
