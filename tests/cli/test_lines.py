"""Output comes out as lines, whatever the chunks, and never as an unbounded one."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.cli.lines import MAX_LINE_BYTES, Line, LineSplitter


def split(data, limit=MAX_LINE_BYTES):
    splitter = LineSplitter(limit)
    return splitter.feed(data) + splitter.close()


def test_lines_end_at_lf_or_crlf_only():
    assert split(b"one\ntwo\r\nthree\rstill three\n\n") == [
        Line("one"),
        Line("two"),
        Line("three\rstill three"),
        Line(""),
    ]


def test_a_last_line_without_an_end_comes_at_the_close_and_once():
    splitter = LineSplitter()
    assert splitter.feed(b"one\ntw") == [Line("one")]
    assert splitter.feed(b"o") == []
    assert splitter.close() == [Line("two")]
    assert splitter.close() == []


def test_a_line_is_known_as_soon_as_its_end_has_come():
    splitter = LineSplitter()
    assert splitter.feed(b"a") == []
    assert splitter.feed(b"\n") == [Line("a")]


def test_bytes_that_are_not_utf8_are_replaced():
    assert split(b"a\xff\xfeb\n") == [Line("a\ufffd\ufffdb")]


def test_a_character_may_come_in_two_chunks():
    splitter = LineSplitter()
    euro = "€\n".encode()
    assert splitter.feed(euro[:1]) + splitter.feed(euro[1:]) == [Line("€")]


def test_a_line_of_exactly_the_limit_is_whole():
    assert split(b"x" * 8 + b"\n", limit=8) == [Line("x" * 8)]
    assert split(b"x" * 8, limit=8) == [Line("x" * 8)]


def test_a_longer_line_comes_in_pieces_and_says_so():
    assert split(b"x" * 20 + b"\ny\n", limit=8) == [
        Line("x" * 8, partial=True),
        Line("x" * 8, partial=True),
        Line("x" * 4),
        Line("y"),
    ]


def test_a_piece_comes_before_the_line_has_ended():
    splitter = LineSplitter(8)
    assert splitter.feed(b"x" * 9) == [Line("x" * 8, partial=True)]


@pytest.mark.parametrize("character", ["é", "€", "💥"])
def test_no_piece_ends_within_a_character(character):
    for shift in range(4):
        text = "x" * shift + character * 10
        pieces = split(text.encode() + b"\n", limit=8)
        assert "".join(piece.text for piece in pieces) == text
        assert all(len(piece.text.encode()) <= 8 for piece in pieces)
        assert [piece.partial for piece in pieces] == [True] * (len(pieces) - 1) + [False]


def test_endless_continuation_bytes_are_cut_too():
    assert [len(piece.text) for piece in split(b"\x80" * 20, limit=8)] == [8, 8, 4]


output = st.lists(
    st.one_of(
        st.binary(max_size=12),
        st.sampled_from([b"\n", b"\r\n", b"\r", "é€💥".encode(), b"x" * 30]),
    ),
    max_size=12,
).map(b"".join)


@given(output, st.lists(st.integers(0, 200), max_size=8))
def test_chunks_change_nothing(data, cuts):
    edges = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    splitter = LineSplitter(10)
    lines = []
    for start, end in itertools.pairwise(edges):
        lines += splitter.feed(data[start:end])
    assert lines + splitter.close() == split(data, limit=10)


@given(output)
def test_nothing_is_lost_but_the_line_ends(data):
    pieces = split(data, limit=10)
    text = "".join(piece.text + ("" if piece.partial else "\n") for piece in pieces)
    expected = data.decode("utf-8", "replace").replace("\r\n", "\n")
    if not data.endswith(b"\n"):
        text = text.removesuffix("\n")
    assert _squeezed(text) == _squeezed(expected)


def _squeezed(text):
    # How many U+FFFD stand for a broken character depends on where a piece ends.
    while "\ufffd\ufffd" in text:
        text = text.replace("\ufffd\ufffd", "\ufffd")
    return text
