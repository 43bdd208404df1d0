"""An envelope is read whole; what is none says why."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.client.cursor import Cursor
from tidegate.client.events import MalformedFrame, StreamEvent, parse_frame, plain_frame
from tidegate.sse import ServerSentEvent


def parse(frame, epoch=None):
    return parse_frame(frame, Cursor.read(frame.id, epoch))


def sse(data, cursor="", kind="message"):
    return ServerSentEvent(kind, data if isinstance(data, str) else json.dumps(data), cursor)


def test_every_field_of_an_envelope_is_there():
    envelope = {
        "id": 7,
        "v": 1,
        "type": "tick",
        "data": {"n": 1},
        "_meta": {"serverTimestamp": 5},
        "originatorClientId": "me",
    }
    assert parse(sse(envelope, "e1-7", "tick")) == StreamEvent(
        id=7,
        cursor="e1-7",
        epoch="e1",
        type="tick",
        data={"n": 1},
        meta={"serverTimestamp": 5},
        originator_client_id="me",
        envelope=envelope,
    )


def test_a_control_frame_has_no_id_and_the_cursor_in_force():
    event = parse(sse({"v": 1, "type": "replay_complete"}, "e1-7"))
    assert (event.id, event.cursor, event.epoch, event.data) == (None, "e1-7", "e1", None)
    assert parse(sse({"v": 1, "type": "x"})).cursor is None


def test_a_plain_cursor_has_the_epoch_of_its_response():
    event = parse(sse({"v": 1, "type": "x", "id": 3}, "3"), "e9")
    assert (event.id, event.cursor, event.epoch) == (3, "3", "e9")


def test_a_position_that_is_a_text_stays_in_the_envelope():
    event = parse(sse({"v": 1, "type": "x", "id": "abc"}))
    assert event.id is None
    assert event.envelope["id"] == "abc"


def test_meta_and_originator_of_another_kind_are_left_out():
    event = parse(sse({"v": 1, "type": "x", "_meta": [1], "originatorClientId": 5}))
    assert (event.meta, event.originator_client_id) == ({}, None)


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("NaN", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ([1], "not a JSON object"),
        ("null", "not a JSON object"),
        ({}, "v is not 1"),
        ({"v": 2, "type": "x"}, "v is not 1"),
        ({"v": "1", "type": "x"}, "v is not 1"),
        ({"v": True, "type": "x"}, "v is not 1"),
        ({"v": 1}, "type is not a string"),
        ({"v": 1, "type": 5}, "type is not a string"),
        ({"v": 1, "type": "x", "id": 0}, "id is neither"),
        ({"v": 1, "type": "x", "id": True}, "id is neither"),
        ({"v": 1, "type": "x", "id": 1.5}, "id is neither"),
        ({"v": 1, "type": "x", "id": {}}, "id is neither"),
    ],
)
def test_what_is_no_envelope_says_why(data, problem):
    with pytest.raises(MalformedFrame, match=problem):
        parse(sse(data))


@given(st.text() | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(json.dumps))
def test_no_data_at_all_raises_anything_else(data):
    try:
        event = parse(sse(data, "1"))
    except MalformedFrame:
        return
    assert isinstance(event.type, str)


def test_a_plain_frame_is_handed_over_as_it_is():
    event = plain_frame(sse("hello\nworld", "42", "greeting"), Cursor.read("42"))
    assert (event.id, event.cursor, event.type, event.data) == (
        None,
        "42",
        "greeting",
        "hello\nworld",
    )
    assert event.envelope == {}


def test_events_cannot_be_changed():
    with pytest.raises(AttributeError):
        plain_frame(sse("x"), None).type = "y"


def test_an_event_of_a_channel_says_where_it_stands():
    envelope = {
        "id": "p7",
        "v": 1,
        "type": "tick",
        "channel": "room:1",
        "epoch": "e1",
        "prev": "p6",
        "data": {"n": 7},
        "_meta": {"serverTimestamp": 5},
        "tags": {"k": "v"},
        "version": 3,
    }
    frame = sse(envelope, "1ABCDE.x", "tick")
    assert parse_frame(frame, Cursor.opaque(frame.id)) == StreamEvent(
        id="p7",
        cursor="1ABCDE.x",
        epoch="e1",
        type="tick",
        data={"n": 7},
        meta={"serverTimestamp": 5},
        envelope=envelope,
        channel="room:1",
        prev="p6",
        tags={"k": "v"},
        version=3,
    )


def test_the_position_is_the_id_of_a_channels_event_and_of_no_other():
    assert parse(sse({"v": 1, "type": "x", "id": 3})).position is None
    assert parse(sse({"v": 1, "type": "x"})).position is None
    envelope = {"v": 1, "type": "x", "id": "p", "channel": "a", "epoch": "e", "prev": ""}
    event = parse(sse(envelope))
    assert (event.position, event.prev, dict(event.tags), event.version) == ("p", "", {}, None)


@pytest.mark.parametrize("missing", ["channel", "epoch", "prev"])
def test_an_envelope_that_lacks_a_part_of_the_place_has_none(missing):
    envelope = {"v": 1, "type": "x", "id": "p", "channel": "a", "epoch": "e", "prev": "o"}
    del envelope[missing]
    event = parse(sse(envelope))
    assert (event.id, event.channel, event.prev) == (None, None, None)


def test_a_control_frame_says_its_channel_in_its_data():
    event = parse(sse({"v": 1, "type": "replay_complete", "data": {"channel": "a"}}))
    assert (event.id, event.channel, event.epoch) == (None, "a", None)
    event = parse(sse({"v": 1, "type": "x", "data": {"channel": "a", "epoch": "e2"}}), "e1")
    assert (event.channel, event.epoch) == ("a", "e2")
    assert parse(sse({"v": 1, "type": "x", "data": {"channel": 5}})).channel is None
