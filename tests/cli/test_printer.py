"""What a stream looks like on a terminal."""

import json

import pytest

from tidegate.cli.printer import Printer
from tidegate.client import StreamEvent
from tidegate.client.state import StreamState

URL = "http://127.0.0.1:8765"
NOON = {"serverTimestamp": 43_200_123}


def event(identity, kind, data=None, **more):
    return StreamEvent(identity, None, None, kind, data, NOON, **more)


def control(kind, data=None):
    return StreamEvent(None, None, None, kind, data)


@pytest.fixture
def printed(capsys):
    def act(what, *arguments, as_json=False):
        getattr(Printer(as_json, URL), what)(*arguments)
        return capsys.readouterr()

    return act


def test_an_event_of_a_session_begins_with_its_number(printed):
    assert printed("event", event(7, "note", {"a": 1})).out == (
        '     7 12:00:00.123Z note {"a":1}\n'
    )


def test_an_event_of_a_channel_begins_with_its_position_and_names_the_channel(printed):
    shown = printed("event", event("0" * 16, "note", channel="room:1")).out
    assert shown == "0000000000000000 12:00:00.123Z room:1 note null\n"


def test_nothing_in_an_event_commands_a_terminal(printed):
    shown = printed("event", event("\x1b[2J", "\x1b[3J", "\x1b[4J", channel="\x1b[5J")).out
    assert shown.count("\n") == 1
    assert "\x1b" not in shown


def test_in_json_it_is_the_envelope(printed):
    envelope = {"id": "x", "channel": "room:1"}
    shown = printed("event", event("x", "n", envelope=envelope), as_json=True).out
    assert json.loads(shown) == envelope


def test_control_frames_are_asides(printed):
    shown = printed("control", control("replay_complete", {"replayedCount": 0}))
    assert (shown.out, shown.err) == ("", '     · replay_complete {"replayedCount":0}\n')


def test_the_opening_is_said_in_words_and_a_moved_cursor_is_not_said(printed):
    data = {"channels": {"a": {}, "b": {}}, "denied": {"c": "unknown_namespace"}}
    assert printed("control", control("stream_open", data)).err == (
        "     · open: a, b\n     · not followed: c, unknown_namespace\n"
    )
    assert printed("control", control("stream_open", "?")).err == '     · stream_open "?"\n'
    assert printed("control", control("stream_cursor", {})).err == ""


def test_a_wait_is_said_with_its_cause(printed):
    waiting = StreamState("waiting", 1, 2.5, "ConnectError: refused")
    assert printed("state", waiting).err.startswith(f"     · back in 2.5 s: no server at {URL}; ")
    assert printed("state", StreamState("open")).err == ""
