"""Lines of input become events; a line that cannot is named by its number."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.cli.records import (
    CHANNEL_FIELDS,
    BadRecord,
    RecordReader,
    event_of,
    parse_json,
    unsendable,
)


def read(data, **options):
    reader = RecordReader(**options)
    records, problem = reader.feed(data)
    if problem is None:
        more, problem = reader.close()
        records += more
    return [record.event for record in records], problem


def test_a_plain_line_is_a_message():
    assert read(b"hello\nw\xc3\xb6rld\r\n\n") == (
        [
            {"type": "message", "data": "hello"},
            {"type": "message", "data": "wörld"},
            {"type": "message", "data": ""},
        ],
        None,
    )


def test_an_object_with_a_type_is_an_event():
    assert read(b'{"type":"note","data":[1],"meta":{"a":1}}\n  {"type":"x"}') == (
        [{"type": "note", "data": [1], "meta": {"a": 1}}, {"type": "x"}],
        None,
    )


@pytest.mark.parametrize(
    "line",
    [
        '{"type":1}',
        '{"data":1}',
        '{"type":"x","more":1}',
        '{"type":"x"',
        '["type"]',
        "{",
        '{"type":"x","data":NaN}',
        '{"type":"x","data":1e400}',
        '{"type":"x","data":"\\ud800"}',
        '{"type":"\\udfff"}',
        '{"type":"x","data":' + "[" * 100_000 + "]" * 100_000 + "}",
    ],
)
def test_any_other_json_is_a_message_with_the_line_as_it_is(line):
    assert event_of(line) is None
    assert read(line.encode()) == ([{"type": "message", "data": line}], None)


def test_an_event_of_a_channel_may_have_more():
    line = '{"type":"x","tags":{"a":"b"},"version":2,"idempotencyKey":"k"}'
    assert event_of(line) is None
    assert event_of(line, CHANNEL_FIELDS) == json.loads(line)
    events, problem = read(b'{"type":"x","more":1}', ndjson=True, fields=CHANNEL_FIELDS)
    assert events == []
    assert str(problem) == (
        "line 1 has a field 'more'; an event has type, data, meta, tags, version and idempotencyKey"
    )


def test_records_know_their_line_and_whether_they_were_plain():
    records, problem = RecordReader().feed(b'plain\n{"type":"x"}\n')
    assert problem is None
    assert [(record.number, record.plain, record.size) for record in records] == [
        (1, True, 5),
        (2, False, 12),
    ]


def test_ndjson_passes_over_empty_lines_but_counts_them():
    events, problem = read(b'\n{"type":"x"}\n \r\nnope\n{"type":"y"}\n', ndjson=True)
    assert events == [{"type": "x"}]
    assert (problem.number, str(problem)) == (
        4,
        "line 4 is not JSON: Expecting value: line 1 column 1 (char 0)",
    )


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"\xff", "line 1 is not UTF-8"),
        (b"[1]", "line 1 is not a JSON object"),
        (b"{}", "line 1 has no 'type', or one that is not a string"),
        (b'{"type":null}', "line 1 has no 'type', or one that is not a string"),
        (
            b'{"type":"x","b\xc3\xb6se":1}',
            "line 1 has a field 'b\\xf6se'; an event has type, data and meta",
        ),
        (b'{"type":"x","data":Infinity}', "line 1 is not JSON: Infinity is not JSON"),
        (b'{"type":"x","data":-1e400}', "line 1 is not JSON: a number is out of range"),
        (b'{"type":"x","data":' + b"1" * 5000, "line 1 is not JSON: a number has too many digits"),
        (
            b'{"type":"x","data":"\\ud83d"}',
            "line 1 has half a surrogate pair in it, which is no text",
        ),
        (b'{"type":"x","data":' + b"[" * 100_000, "line 1 is not JSON: too deep"),
    ],
)
def test_ndjson_says_what_is_wrong_with_a_line(line, problem):
    events, found = read(line, ndjson=True)
    assert events == []
    assert isinstance(found, BadRecord)
    assert str(found) == problem


@pytest.mark.parametrize("ndjson", [True, False])
def test_a_line_over_the_limit_is_an_error_before_it_has_ended(ndjson):
    reader = RecordReader(ndjson=ndjson, limit=20)
    records, problem = reader.feed(b'{"type":"x"}\n' + b"y" * 21)
    assert [record.event for record in records] == [{"type": "x"}]
    assert str(problem) == "line 2 is longer than 20 bytes"


def test_a_line_over_the_limit_is_an_error_when_it_comes_whole():
    _, problem = read(b"y" * 21 + b"\n", limit=20)
    assert str(problem) == "line 1 is longer than 20 bytes"
    assert read(b"y" * 20 + b"\n", limit=20)[1] is None


@given(st.lists(st.binary(max_size=12), max_size=10), st.booleans())
def test_chunks_change_nothing(chunks, ndjson):
    whole = read(b"".join(chunks), ndjson=ndjson)
    reader = RecordReader(ndjson=ndjson)
    events = []
    for chunk in [*chunks, None]:
        records, problem = reader.close() if chunk is None else reader.feed(chunk)
        events += [record.event for record in records]
        if problem is not None:
            break
    assert (events, str(problem)) == (whole[0], str(whole[1]))


@given(st.text().filter(lambda text: "\n" not in text and not text.endswith("\r")))
def test_every_line_of_text_survives_the_way_through_json(text):
    try:
        raw = text.encode()
    except UnicodeEncodeError:
        return
    events, _ = read(raw + b"\n")
    if events[0]["type"] == "message" and isinstance(events[0].get("data"), str):
        assert json.loads(json.dumps(events[0]["data"])) == text


@given(
    st.recursive(
        st.none() | st.floats() | st.integers() | st.text(st.characters(exclude_categories=())),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=6,
    )
)
def test_what_is_not_refused_can_be_sent_and_is_the_same(value):
    try:
        read_value = parse_json(json.dumps(value))
    except ValueError:
        return
    if unsendable(read_value) is None:
        assert msgspec.json.decode(msgspec.json.encode(read_value)) == value
