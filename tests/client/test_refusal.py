"""Texts of a server's, made harmless, and what in them is a refusal."""

import json
import typing
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.client.support import control, frame
from tidegate.channel.frames import StreamErrorKind
from tidegate.client.control import REFUSING_KINDS
from tidegate.client.refusal import MAX_SHOWN, refusal, refused_by, shown
from tidegate.sse import Decoder
from tidegate.stream.refusal import refuse

HOSTILE = "\x1b[2J\x07\x9b31m\x7f\u202eevil\u2066\u200b\u2028\r\n\ud800 é日"


def only(data):
    (one,) = Decoder().feed(data)
    return one


def stream_error(**data):
    return only(control("stream_error", **data))


def test_what_a_terminal_would_obey_is_escaped_and_what_prints_is_kept():
    assert shown(HOSTILE) == (r"\x1b[2J\x07\x9b31m\x7f\u202eevil\u2066\u200b\u2028\r\n\ud800 é日")


@given(st.text(st.characters()), st.integers(1, 100))
def test_nothing_that_comes_out_controls_anything_or_is_over_its_bound(text, limit):
    out = shown(text, limit)
    assert len(out) <= limit
    assert not any(unicodedata.category(one) in {"Cc", "Cf", "Cs", "Zl", "Zp"} for one in out)
    if text.isprintable() and len(text) <= limit:
        assert out == text


def test_what_is_cut_off_is_seen_to_be():
    assert shown("x" * 512) == "x" * 512
    assert shown("x" * 10**6) == "x" * 511 + "…"
    assert len(shown("\x1b" * 10**6)) == MAX_SHOWN


@pytest.mark.parametrize(
    ("body", "code", "message"),
    [
        (b'{"error": "none", "code": "session_not_found"}', "session_not_found", "none"),
        (b'{"error": 5, "code": 6}', None, "Not Found"),
        (b"<html>", None, "Not Found"),
        (b"[1]", None, "Not Found"),
        (b"", None, "Not Found"),
    ],
)
def test_a_refusals_body_says_why(body, code, message):
    assert refusal("Not Found", body) == (code, message)


def test_a_refusal_that_says_nothing():
    assert refusal("", b"") == (None, "no reason given")
    assert refusal("", b'{"error": ""}') == (None, "no reason given")


def test_all_texts_of_a_refusal_are_harmless():
    hostile = HOSTILE.replace("\ud800", "") * 100
    body = json.dumps({"error": hostile, "code": hostile}).encode()
    for text in (*refusal("x", body), *refusal(hostile, b"")[1:]):
        assert text.isprintable()
        assert len(text) <= MAX_SHOWN


def test_a_first_frame_that_refuses_says_why():
    frame_ = stream_error(error="full\x1b[2J", errorKind="subscriber_limit")
    assert refused_by(frame_) == r"subscriber_limit: full\x1b[2J"
    assert refused_by(stream_error(errorKind="draining")) == "draining"
    assert len(refused_by(stream_error(error="x" * 10**5, errorKind="draining"))) == MAX_SHOWN


@pytest.mark.parametrize(
    "first",
    [
        frame(1),
        control("replay_complete", replayedCount=0),
        control("stream_error", error="x", errorKind="internal"),
        control("stream_error", error="x", errorKind="revoked"),
        control("stream_error", error="x", errorKind=[]),
        control("stream_error"),
        b'data: {"v": 1, "type": "stream_error", "data": 5}\n\n',
        b"event: stream_error\ndata: draining\n\n",
    ],
)
def test_any_other_first_frame_is_no_refusal(first):
    assert refused_by(only(first)) is None


@pytest.mark.parametrize("kind", typing.get_args(StreamErrorKind))
def test_the_server_refuses_with_the_kinds_that_refuse_here(kind):
    scope = {"headers": [(b"accept", b"text/event-stream")]}
    try:
        status = refuse(scope, kind, "why", form="status").status_code
    except KeyError:
        status = None
    assert (status in {429, 503}) is (kind in REFUSING_KINDS)
    if status is not None:
        answer = refuse(scope, kind, "why")
        assert refused_by(only(bytes(answer.body))) == f"{kind}: why"
        names = {name for name, _ in answer.raw_headers}
        assert not names & {b"tidegate-stream-id", b"last-event-id"}, "the client takes it for one"
