import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.stream.cursor import (
    Cursor,
    given_cursor,
    is_epoch,
    parse_cursor,
    parse_max_queued,
)

TOP = 2**53 - 1


@pytest.mark.parametrize(
    ("header", "number"),
    [(b"0", 0), (b"7", 7), (b"007", 7), (b"0" * 500 + b"12", 12), (str(TOP).encode(), TOP)],
)
def test_decimal_digits_are_a_cursor(header, number):
    assert parse_cursor(header) == Cursor(number)


@pytest.mark.parametrize(
    "header",
    [
        b"abc",
        b"-1",
        b"+1",
        b" 1",
        b"1 ",
        b"1\n",
        b"1.5",
        b"1e3",
        b"0x10",
        b"1_000",
        str(TOP + 1).encode(),
        b"9" * 5000,
        "١٢".encode(),
        "²".encode(),
        b"\xff\xfe",
        b"-",
        b"e-",
        b"e-x",
        b"e e-1",
        b"-5",
        b"a" * 129 + b"-5",
        "é-5".encode(),
        f"e-{TOP + 1}".encode(),
    ],
)
def test_anything_else_is_no_cursor_and_is_reported(header):
    cursor = parse_cursor(header)
    assert cursor.last_event_id is None
    assert cursor.epoch is None
    assert cursor.rejected


@pytest.mark.parametrize(("header", "query"), [(None, None), (b"", None), (b"", ""), (None, "")])
def test_nothing_given_is_silent(header, query):
    assert parse_cursor(header, query) == Cursor()


def test_an_epoch_cursor_is_split_at_its_last_dash():
    assert parse_cursor(b"a-b-c-12") == Cursor(12, "a-b-c")
    assert parse_cursor(b"e--1") == Cursor(1, "e-")


def test_the_header_goes_before_the_query_unless_it_is_empty():
    assert parse_cursor(b"3", "4") == Cursor(3)
    assert parse_cursor(b"", "4") == Cursor(4)
    assert parse_cursor(None, "e-4") == Cursor(4, "e")
    assert parse_cursor(b"junk", "4").last_event_id is None


def test_the_epoch_of_a_plain_cursor_comes_from_the_header_else_from_the_query():
    def epoch(header, query, cursor=b"1"):
        return parse_cursor(cursor, epoch_header=header, epoch_query=query).epoch

    assert epoch("h", "q") == "h"
    assert epoch("", "q") == "q"
    assert epoch(None, "q") == "q"
    assert epoch(None, None) is None
    assert epoch("h", "q", b"own-1") == "own"


def test_an_epoch_that_can_be_nobodys_is_not_ours():
    assert parse_cursor(b"1", epoch_header="no spaces", epoch_query="q") == Cursor(1, "")
    assert parse_cursor(b"1", epoch_query="x" * 129) == Cursor(1, "")


def test_an_epoch_without_a_cursor_is_ignored():
    assert parse_cursor(None, None, epoch_header="e") == Cursor()


def test_a_header_is_decoded_as_utf8_with_replacement():
    assert parse_cursor("é".encode()).rejected == r"'\xe9'"
    assert parse_cursor(b"\xff").rejected == r"'\ufffd'"


@given(st.binary(max_size=300))
def test_what_is_reported_is_safe_and_short(header):
    rejected = parse_cursor(header).rejected
    assert rejected is None or re.fullmatch(r"[\x20-\x7e]{1,82}", rejected)


@given(st.integers(0, TOP), st.from_regex(r"[A-Za-z0-9._~-]{1,128}", fullmatch=True))
def test_what_a_stream_sends_as_id_comes_back_as_its_cursor(number, epoch):
    assert parse_cursor(f"{epoch}-{number}".encode()) == Cursor(number, epoch)
    assert parse_cursor(str(number).encode()) == Cursor(number)


def test_epochs_are_1_to_128_characters_that_are_safe_in_an_id():
    assert is_epoch("AZaz09._~-")
    assert is_epoch("x" * 128)
    assert not is_epoch("")
    assert not is_epoch("x" * 129)
    assert not is_epoch("x\n")
    assert not is_epoch("é")


@pytest.mark.parametrize(
    ("values", "cap"), [([], None), (["16"], 16), (["2048"], 2048), (["0100"], 100)]
)
def test_max_queued_is_read(values, cap):
    assert parse_max_queued(values) == cap


@pytest.mark.parametrize(
    "values", [[""], ["x"], ["15"], ["2049"], ["16", "16"], ["-16"], ["1e2"], ["٢٠"], ["9" * 99]]
)
def test_a_bad_max_queued_is_refused_with_its_range(values):
    with pytest.raises(
        ValueError, match="maxQueued must be given once, as a decimal number from 16 to 2048"
    ):
        parse_max_queued(values)


@pytest.mark.parametrize(
    ("header", "query", "given"),
    [
        (None, None, None),
        (b"", "", None),
        (b"", "q", "q"),
        (None, "q", "q"),
        (b"h", "q", "h"),
        ("é".encode(), None, "é"),
        (b"\xff", None, "\ufffd"),
    ],
)
def test_what_is_given_as_a_cursor_is_the_header_or_else_the_query(header, query, given):
    assert given_cursor(header, query) == given
