import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.datastructures import QueryParams

from tidegate.gateway.brokers.base import PublishError, PublishResult
from tidegate.gateway.cursor import epoch_hash, parse_cursor
from tidegate.gateway.payloads import (
    channel_cursor,
    outcome,
    parse_history_query,
    parse_publish,
    parse_snapshot,
    parse_stream_body,
    parse_stream_query,
)
from tidegate.gateway.position import make_position
from tidegate.stream.answers import json_answer
from tidegate.stream.input import BadInput

POSITION = make_position(7, b"rand")


def stream_query(text, cursor=None, max_channels=100):
    return parse_stream_query(QueryParams(text), cursor, max_channels=max_channels)


def stream_body(body, cursor=None, max_channels=100):
    return parse_stream_body(json.dumps(body).encode(), cursor, max_channels=max_channels)


def code(parse, *args, **options):
    with pytest.raises(BadInput) as caught:
        parse(*args, **options)
    assert caught.value.error
    assert caught.value.error.isascii()
    assert len(caught.value.error) < 500
    return caught.value.code


# -- streams -------------------------------------------------------------------------------


def test_a_query_says_all_of_a_stream():
    asked = stream_query("channel=a&channel=b:1&tail=3&tags=k:v&tags=x:y:z,u:w", "cursor")
    assert asked.channels == ("a", "b:1")
    assert (asked.cursor, asked.tail, asked.from_beginning) == ("cursor", 3, False)
    assert asked.tags == {"k": "v", "x": "y:z", "u": "w"}


def test_a_body_says_the_same():
    asked = stream_body(
        {"channels": ["a", "b:1"], "from": "beginning", "tags": {"k": "v"}, "lastEventId": "c"}
    )
    assert asked.channels == ("a", "b:1")
    assert (asked.cursor, asked.tail, asked.from_beginning) == ("c", None, True)
    assert asked.tags == {"k": "v"}
    assert stream_body({"channels": ["a"], "tail": 0, "tags": {}}).tail == 0


def test_a_stream_is_live_unless_it_says_otherwise():
    asked = stream_query("channel=a")
    assert (asked.cursor, asked.tail, asked.from_beginning, asked.tags) == (None, None, False, None)


def test_a_channel_named_twice_counts_once():
    assert stream_query("channel=a&channel=b&channel=a", max_channels=2).channels == ("a", "b")


def test_what_a_page_adds_to_its_url_is_ignored():
    assert stream_query("channel=a&_=17&ts=x&ts=y&%00=1").channels == ("a",)


def test_the_headers_cursor_goes_before_the_bodys():
    assert stream_body({"channels": ["a"], "lastEventId": "old"}, "new").cursor == "new"
    assert stream_body({"channels": ["a"], "lastEventId": ""}).cursor is None


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", "channel_required"),
        ("tail=1", "channel_required"),
        ("channel=", "invalid_channel"),
        ("channel=a&channel=a%20b", "invalid_channel"),
        ("channel=%FF", "invalid_channel"),
        ("channel=..", "invalid_channel"),
        ("channel=" + "x" * 201, "invalid_channel"),
        ("channel=%1B%5B31m" * 3, "invalid_channel"),
        ("channel=a&channel=b&channel=c&channel=d", "too_many_channels"),
        ("channel=a&tail=", "invalid_tail"),
        ("channel=a&tail=-1", "invalid_tail"),
        ("channel=a&tail=1001", "invalid_tail"),
        ("channel=a&tail=1.5", "invalid_tail"),
        ("channel=a&tail=x", "invalid_tail"),
        ("channel=a&tail=%D9%A1", "invalid_tail"),
        ("channel=a&tail=" + "9" * 5000, "invalid_tail"),
        ("channel=a&tail=1&tail=1", "invalid_tail"),
        ("channel=a&from=", "invalid_from"),
        ("channel=a&from=end", "invalid_from"),
        ("channel=a&from=beginning&from=beginning", "invalid_from"),
        ("channel=a&from=beginning&tail=1", "invalid_from"),
        ("channel=a&tags=", "invalid_tags"),
        ("channel=a&tags=k", "invalid_tags"),
        ("channel=a&tags=k:", "invalid_tags"),
        ("channel=a&tags=:v", "invalid_tags"),
        ("channel=a&tags=k:v,", "invalid_tags"),
        ("channel=a&tags=k:v&tags=k:w", "invalid_tags"),
        ("channel=a&tags=k:a%20b", "invalid_tags"),
        ("channel=a&tags=" + ",".join(f"k{n}:v" for n in range(17)), "invalid_tags"),
    ],
)
def test_a_query_that_makes_no_sense_is_refused(query, expected):
    assert code(stream_query, query, max_channels=3) == expected


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ([], "invalid_body"),
        ({}, "invalid_body"),
        ({"channels": "a"}, "invalid_body"),
        ({"channels": [1]}, "invalid_body"),
        ({"channels": ["a"], "more": 1}, "invalid_body"),
        ({"channels": ["a"], "from": "end"}, "invalid_body"),
        ({"channels": ["a"], "tail": "1"}, "invalid_body"),
        ({"channels": ["a"], "tail": True}, "invalid_body"),
        ({"channels": ["a"], "lastEventId": 1}, "invalid_body"),
        ({"channels": ["a"], "tags": {"k": 1}}, "invalid_body"),
        ({"channels": []}, "channel_required"),
        ({"channels": ["a b"]}, "invalid_channel"),
        ({"channels": ["a", "b", "c", "d"]}, "too_many_channels"),
        ({"channels": ["a"], "tail": -1}, "invalid_tail"),
        ({"channels": ["a"], "tail": 1001}, "invalid_tail"),
        ({"channels": ["a"], "tail": 1, "from": "beginning"}, "invalid_from"),
        ({"channels": ["a"], "tags": {"a:b": "v"}}, "invalid_tags"),
    ],
)
def test_a_body_that_makes_no_sense_is_refused(body, expected):
    assert code(stream_body, body, max_channels=3) == expected


def test_a_body_that_is_no_json_is_refused():
    assert code(parse_stream_body, b"{", None, max_channels=3) == "invalid_json"


@given(st.text(max_size=60))
def test_no_query_gets_further_than_an_error(text):
    try:
        asked = stream_query(text)
    except BadInput:
        return
    assert asked.channels


# -- publishes -----------------------------------------------------------------------------


def test_one_event_or_an_array_may_be_published():
    (item,) = parse_publish(
        b'{"channel":"a","type":"m","data":[1],"idempotencyKey":"k","meta":{"x":1},'
        b'"tags":{"t":"v"},"version":2}'
    )
    event = item.publishable()
    assert item.targets == ["a"]
    assert (event.channel, event.type, event.data, event.meta) == ("a", "m", [1], {"x": 1})
    assert (event.idempotency_key, event.tags, event.version) == ("k", {"t": "v"}, 2)
    (item,) = parse_publish(b'{"channel":"a","type":"m","version":97470.0}')
    assert repr(item.publishable().version) == "97470"
    items = parse_publish(b'[{"channels":["a","b","a"],"type":"m"},{"channel":"c","type":"n"}]')
    assert [item.targets for item in items] == [["a", "b"], ["c"]]
    assert parse_publish(b"[]") == []


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"", "invalid_json"),
        (b"{", "invalid_json"),
        (b'{"channel":"a","type":"m","data":NaN}', "invalid_json"),
        (b'{"channel":"a","type":"m","data":"\xff"}', "invalid_json"),
        (b'{"channel":"a","type":"m","data":' + b"[" * 990 + b"]" * 990 + b"}", "invalid_json"),
        (b"3", "invalid_body"),
        (b"{}", "invalid_body"),
        (b'{"channel":"a"}', "invalid_body"),
        (b'{"type":"m"}', "invalid_body"),
        (b'{"channel":"a","channels":["b"],"type":"m"}', "invalid_body"),
        (b'{"channel":1,"type":"m"}', "invalid_body"),
        (b'{"channels":"a","type":"m"}', "invalid_body"),
        (b'{"channel":"a","type":"m","meta":[]}', "invalid_body"),
        (b'{"channel":"a","type":"m","tags":{"a":1}}', "invalid_body"),
        (b'{"channel":"a","type":"m","version":"1"}', "invalid_body"),
        (b'{"channel":"a","type":"m","idempotency_key":"k"}', "invalid_body"),
        (b'[{"channel":"a","type":"m"},3]', "invalid_body"),
        (b'{"channels":[],"type":"m"}', "channel_required"),
    ],
)
def test_a_publish_of_another_shape_is_refused_whole(body, expected):
    assert code(parse_publish, body) == expected


def test_one_request_publishes_a_bounded_number_of_events():
    def body(events, channels):
        names = [f"c{number}" for number in range(channels)]
        return json.dumps([{"channels": names, "type": "m"}] * events).encode()

    assert len(parse_publish(body(1000, 1))) == 1000
    assert len(parse_publish(body(10, 100))) == 10
    assert code(parse_publish, body(1001, 1)) == "too_many_events"
    assert code(parse_publish, body(10, 101)) == "too_many_events"


def test_an_outcome_says_where_the_event_is_or_why_not():
    def written(result):
        return json.loads(json_answer(outcome(result)).body)

    done = {"channel": "c", "position": "p", "epoch": "e", "prev": ""}
    assert written(PublishResult(**done)) == {
        "channel": "c",
        "id": "p",
        "epoch": "e",
        "duplicate": False,
    }
    assert written(PublishResult(**done, suppressed=True))["suppressed"] is True
    failed = PublishError(channel="c", code="broker_error", error="no")
    assert written(failed) == {"channel": "c", "code": "broker_error", "error": "no"}


# -- histories and snapshots -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", (None, 100)),
        ("after=", (None, 100)),
        (f"after={POSITION}&limit=1", (POSITION, 1)),
        ("limit=1000&_=1", (None, 1000)),
    ],
)
def test_a_page_is_asked_for_by_place_and_size(query, expected):
    assert parse_history_query(QueryParams(query)) == expected


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("after=7", "invalid_position"),
        ("after=" + "0" * 16, "invalid_position"),
        (f"after={POSITION}&after={POSITION}", "invalid_after"),
        ("limit=0", "invalid_limit"),
        ("limit=1001", "invalid_limit"),
        ("limit=", "invalid_limit"),
        ("limit=1&limit=2", "invalid_limit"),
    ],
)
def test_a_page_that_cannot_be_is_refused(query, expected):
    assert code(parse_history_query, QueryParams(query)) == expected


def test_a_snapshot_is_a_state_perhaps_at_a_position():
    assert parse_snapshot(b'{"state":null}').position is None
    given = parse_snapshot(f'{{"state":[1],"position":"{POSITION}"}}'.encode())
    assert (given.state, given.position) == ([1], POSITION)
    assert parse_snapshot(b'{"state":1,"position":""}').position == ""


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"{}", "invalid_body"),
        (b'{"state":1,"position":7}', "invalid_body"),
        (b'{"state":1,"epoch":"e"}', "invalid_body"),
        (b'{"state":1,"position":"7"}', "invalid_position"),
        (b'{"state":' + b"[" * 990 + b"]" * 990 + b"}", "invalid_json"),
        (b"x", "invalid_json"),
    ],
)
def test_a_snapshot_of_another_shape_is_refused(body, expected):
    assert code(parse_snapshot, body) == expected


def test_the_cursor_of_one_channel_finds_its_place():
    parsed = parse_cursor(channel_cursor("a", "epoch", POSITION))
    assert parsed.find("a") == [(epoch_hash("epoch"), POSITION)]
    assert parse_cursor(channel_cursor("a", "epoch", "")).find("a") == [(epoch_hash("epoch"), "")]
