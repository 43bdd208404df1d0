"""encode(): the exact bytes, what it refuses, and that a decoder gets back what it was given."""

import re
from enum import Enum, StrEnum

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tidegate.errors import SseEncodeError, TidegateError
from tidegate.sse import Decoder, encode

TEXT = st.text(st.sampled_from("ab :\r\n\0\t\f\u0085\u2028\ufeffé€😀"), max_size=12) | st.text()
FIELDS = {
    "event": st.none() | TEXT.map(lambda text: re.sub(r"[\r\n]", "", text)),
    "data": st.none() | TEXT,
    "id": st.none() | TEXT.map(lambda text: re.sub(r"[\r\n\0]", "", text)),
    "retry": st.none() | st.integers(min_value=0, max_value=10**300 - 1),
    "comment": st.none() | TEXT,
}


class Kind(str, Enum):  # noqa: UP042 - the older form, whose format() is another one
    TOKEN = "token"


class Name(StrEnum):
    ONE = "1"


class Delay(int, Enum):
    LONG = 5000


def test_nothing_given_is_nothing_written():
    assert encode() == b""


def test_id_event_and_data_stand_in_that_order():
    frame = encode(data="x", event="token", id="7")
    assert frame == b"id: 7\nevent: token\ndata: x\n\n"


def test_retry_and_comment_stand_before_them():
    frame = encode(comment="hello", retry=3000, data="x", event="token", id="7")
    assert frame == b"retry: 3000\n: hello\nid: 7\nevent: token\ndata: x\n\n"


@pytest.mark.parametrize(
    ("given_field", "frame"),
    [
        ({"data": ""}, b"data: \n\n"),
        ({"data": "x"}, b"data: x\n\n"),
        ({"data": " x"}, b"data:  x\n\n"),
        ({"data": "é€😀"}, "data: é€😀\n\n".encode()),
        ({"data": "a\0b"}, b"data: a\0b\n\n"),
        ({"data": "id: 1"}, b"data: id: 1\n\n"),
        ({"event": ""}, b"event: \n\n"),
        ({"event": "a\0b"}, b"event: a\0b\n\n"),
        ({"id": ""}, b"id: \n\n"),
        ({"retry": 0}, b"retry: 0\n\n"),
        ({"comment": ""}, b": \n\n"),
        ({"comment": "hb"}, b": hb\n\n"),
    ],
)
def test_each_field_alone_makes_a_frame(given_field, frame):
    assert encode(**given_field) == frame


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        ("a\nb", ["a", "b"]),
        ("a\rb", ["a", "b"]),
        ("a\r\nb", ["a", "b"]),
        ("a\n\rb", ["a", "", "b"]),
        ("a\r\r\nb", ["a", "", "b"]),
        ("a\n", ["a", ""]),
        ("\r\n", ["", ""]),
        ("\na", ["", "a"]),
        ("a\u2028b\u2029c\vd\fe\x1cf\x85g", ["a\u2028b\u2029c\vd\fe\x1cf\x85g"]),
    ],
)
def test_data_and_comment_are_split_at_crlf_cr_and_lf_only(data, lines):
    assert encode(data=data).decode() == "".join(f"data: {line}\n" for line in lines) + "\n"
    assert encode(comment=data).decode() == "".join(f": {line}\n" for line in lines) + "\n"


def test_enum_members_are_written_by_their_value():
    frame = encode(event=Kind.TOKEN, data=Kind.TOKEN, id=Name.ONE, retry=Delay.LONG)
    assert frame == b"retry: 5000\nid: 1\nevent: token\ndata: token\n\n"


@pytest.mark.parametrize(
    ("field", "value", "problem"),
    [
        ("id", "a\rb", "CR cannot stand in it"),
        ("id", "a\n", "LF cannot stand in it"),
        ("id", "\0", "NUL cannot stand in it"),
        ("event", "a\rb", "CR cannot stand in it"),
        ("event", "\na", "LF cannot stand in it"),
        ("retry", -1, "it cannot be negative"),
        ("retry", True, "it takes an int, not bool"),
        ("retry", False, "it takes an int, not bool"),
        ("retry", 3.0, "it takes an int, not float"),
        ("retry", "3000", "it takes an int, not str"),
        ("retry", 10**300, "it has more than 300 digits"),
        pytest.param("retry", 10**5000, "it has more than 300 digits", id="very long"),
    ],
)
def test_what_would_corrupt_the_stream_is_refused(field, value, problem):
    with pytest.raises(SseEncodeError) as refused:
        encode(**{"data": "x", field: value})
    assert refused.value.field == field
    assert str(refused.value) == f"SSE field {field!r}: {problem}"
    assert isinstance(refused.value, ValueError)
    assert isinstance(refused.value, TidegateError)


@pytest.mark.parametrize("field", ["event", "data", "id", "comment"])
@pytest.mark.parametrize("code", ["D800", "DBFF", "DC00", "DFFF"])
def test_a_lone_surrogate_is_refused_and_its_field_is_named(field, code):
    fields = dict.fromkeys(("event", "data", "id", "comment"), "é: id: 1")
    fields[field] = f"data: {chr(int(code, 16))}"
    with pytest.raises(SseEncodeError) as refused:
        encode(retry=1, **fields)
    assert refused.value.field == field
    assert refused.value.problem == f"U+{code}, a lone surrogate, has no UTF-8"


def test_two_halves_of_a_pair_are_lone_surrogates_too():
    with pytest.raises(SseEncodeError, match=r"^SSE field 'data': U\+D83D, a lone surrogate"):
        encode(data="first\nevent: x\n\ud83d\ude00")


@pytest.mark.parametrize("field", ["event", "data", "id", "comment"])
@pytest.mark.parametrize("value", [b"abc", 7, True, ["a"]])
def test_a_value_that_is_no_str_is_a_type_error(field, value):
    with pytest.raises(TypeError, match=rf"^SSE field '{field}' takes a str, not \w+$"):
        encode(**{field: value})


@given(st.fixed_dictionaries(FIELDS))
@example({"event": None, "data": "\ufeff", "id": None, "retry": None, "comment": None})
def test_a_decoder_gets_back_what_was_encoded(fields):
    decoder = Decoder(last_event_id="before")
    events = decoder.feed(encode(**fields))
    last_event_id = "before" if fields["id"] is None else fields["id"]
    if fields["data"] is None:
        assert events == []
    else:
        data = re.sub("\r\n|\r", "\n", fields["data"])
        assert events == [(fields["event"] or "message", data, last_event_id)]
    assert decoder.retry == fields["retry"]
    assert decoder.last_event_id == last_event_id


@given(st.lists(st.fixed_dictionaries(FIELDS), max_size=4))
def test_a_frame_never_reaches_into_the_next(frames):
    together, alone = Decoder(), Decoder()
    events = together.feed(b"".join(encode(**fields) for fields in frames))
    assert events == [event for fields in frames for event in alone.feed(encode(**fields))]
    assert (together.retry, together.last_event_id) == (alone.retry, alone.last_event_id)


@given(st.fixed_dictionaries(FIELDS))
def test_every_frame_ends_with_its_only_blank_line(fields):
    frame = encode(**fields)
    assert b"\r" not in frame
    if frame:
        assert frame.endswith(b"\n\n")
        assert b"\n\n" not in frame[:-2]
