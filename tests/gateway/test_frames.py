import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.gateway.brokers.base import Publication, Snapshot
from tidegate.gateway.cursor import CursorWriter, epoch_hash, name_hash, parse_cursor
from tidegate.gateway.frames import (
    EventFrame,
    Place,
    channel_snapshot,
    replay_complete,
    state_resync_required,
    stream_cursor,
    stream_error,
)
from tidegate.gateway.position import make_position
from tidegate.sse import Decoder

PREFIX = name_hash("room:1") + epoch_hash("e")
POSITION = make_position(5, b"abcd")


def frame(data=None, **options):
    payload = {"data": data, "_meta": {"serverTimestamp": 1}}
    return EventFrame(
        "room:1",
        PREFIX,
        Publication(
            position=POSITION,
            prev="",
            epoch="e",
            type="message",
            payload=msgspec.json.encode(payload),
            **options,
        ),
    )


def decoded(sse):
    (event,) = Decoder().feed(sse)
    return event.type, msgspec.json.decode(event.data)


text = st.text(st.characters(codec="utf-8"), max_size=20)
json = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=10,
)


@given(json)
def test_an_event_is_one_frame_with_its_envelope(data):
    assert decoded(frame(data).sse) == (
        "message",
        {
            "id": POSITION,
            "v": 1,
            "type": "message",
            "channel": "room:1",
            "epoch": "e",
            "prev": "",
            "data": data,
            "_meta": {"serverTimestamp": 1},
        },
    )


def test_an_event_is_encoded_once():
    made = frame({"a": 1})
    assert made.sse is made.sse


def test_an_events_place_is_what_a_cursor_says():
    parsed = parse_cursor(CursorWriter([frame().place.slot]).text())
    assert parsed.find("room:1") == [(epoch_hash("e"), POSITION)]


def test_the_place_before_the_first_event_has_a_slot_too():
    parsed = parse_cursor(CursorWriter([Place(PREFIX, "e", "").slot]).text())
    assert parsed.find("room:1") == [(epoch_hash("e"), "")]


@pytest.mark.parametrize(
    ("asked", "matches"),
    [
        ({"k": "v"}, True),
        ({"k": "v", "l": "w"}, True),
        ({"k": "x"}, False),
        ({"m": "v"}, False),
        ({"k": "v", "m": "v"}, False),
    ],
)
def test_tags_match_when_all_that_are_asked_for_are_there(asked, matches):
    assert frame(tags={"k": "v", "l": "w"}).matches(asked) is matches
    assert not frame().matches(asked)


def test_control_frames_have_no_id_and_name_their_channel():
    start = Place(PREFIX, "e", POSITION)
    resync = state_resync_required(
        7, channel="room:1", reason="epoch_reset", last="", earliest=None, start=start
    )
    type_, envelope = decoded(resync.sse)
    assert type_ == "state_resync_required"
    assert set(envelope) == {"v", "type", "data", "_meta"}
    assert envelope["_meta"] == {"serverTimestamp": 7}
    assert envelope["data"] == {
        "channel": "room:1",
        "reason": "epoch_reset",
        "detail": "epoch_mismatch",
        "lastDeliveredId": "",
        "earliestAvailableId": None,
        "epoch": "e",
        "position": POSITION,
    }


def test_which_control_frames_move_the_cursor():
    assert stream_cursor(1).moves_cursor
    assert replay_complete(1, channel="a", replayed=0, last="").moves_cursor
    assert not stream_error(1, kind="draining", error="later").moves_cursor


def test_a_snapshots_state_stands_in_the_frame_as_it_was_stored():
    snapshot = Snapshot(state=b'{"a":[1,"\\n"]}', position=POSITION, epoch="e")
    _, envelope = decoded(channel_snapshot(1, channel="room:1", snapshot=snapshot).sse)
    assert envelope["data"] == {
        "channel": "room:1",
        "state": {"a": [1, "\n"]},
        "position": POSITION,
        "epoch": "e",
    }


def test_replay_complete_names_the_last_event_only_if_there_was_one():
    none = replay_complete(1, channel="a", replayed=0, last="x").data
    some = replay_complete(1, channel="a", replayed=2, last="x").data
    assert none == {"channel": "a", "replayedCount": 0}
    assert some == {"channel": "a", "replayedCount": 2, "lastReplayedEventId": "x"}
