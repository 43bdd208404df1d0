import pytest

from tidegate.channel import names
from tidegate.channel.names import RESERVED_TYPES, escape_type, event_type_problem, is_event_type


@pytest.mark.parametrize(
    "name", ["a", "A", "user.created", "a_b:c-d", "9", "x" * 128, "Open", "errors"]
)
def test_types_of_the_allowed_alphabet_are_event_types(name):
    assert is_event_type(name)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "x" * 129,
        "a b",
        "a\n",
        "\na",
        "a/b",
        "é",
        "\u0661",
        "a\x00",
        "~",
        None,
        1,
        b"a",
        ["a"],
        True,
    ],
)
def test_anything_else_is_no_event_type(name):
    assert not is_event_type(name)


@pytest.mark.parametrize("name", ["open", "error", *sorted(RESERVED_TYPES)])
def test_reserved_names_and_the_browsers_own_events_are_refused(name):
    assert not is_event_type(name)


def test_the_reserved_names_are_the_documented_ones():
    assert {
        "stream_open",
        "state_resync_required",
        "replay_complete",
        "slow_client_warning",
        "client_evicted",
        "stream_error",
        "channel_snapshot",
        "stream_cursor",
    } == names.CONTROL_TYPES
    assert names.CONTROL_TYPES | {"event_unserializable", "session_closed"} == names.RESERVED_TYPES


def test_a_type_is_shown_escaped_and_cut():
    assert escape_type("a\nb\u2028\ud800") == "a\\nb\\u2028\\ud800"
    assert escape_type("x" * 500) == "x" * 128
    assert escape_type("\u2028" * 500) == ("\\u2028" * 22)[:128]
    assert escape_type(5) == "5"
    assert escape_type(["a\n"]) == "['a\\\\n']"
    assert escape_type(list(range(1000))) == repr(list(range(1000)))[:128]


def test_an_object_whose_repr_raises_is_shown_all_the_same():
    class Evil:
        def __repr__(self):
            raise RuntimeError

    assert escape_type(Evil()) == "<unprintable>"


def test_a_string_subclass_is_shown_by_its_characters():
    class Loud(str):
        __slots__ = ()

        def __str__(self):
            raise RuntimeError

    assert escape_type(Loud("quiet")) == "quiet"


def test_why_a_type_is_none_is_told_by_code_and_sentence():
    assert event_type_problem("a.b") is None
    assert event_type_problem("stream_open") == (
        "reserved_event_type",
        "stream_open is a name of the server's own",
    )
    code, sentence = event_type_problem("open")
    assert code == "invalid_event_type"
    assert "EventSource" in sentence
    code, sentence = event_type_problem("\x1b\n" * 1000)
    assert code == "invalid_event_type"
    assert sentence.isascii()
    assert "\x1b" not in sentence
    assert len(sentence) < 500
