"""The tree of exceptions: what each one is, carries and says."""

import pickle
import re
from pathlib import Path

import pytest

from tidegate import errors

CASES = [
    (
        errors.SseEncodeError("id", "LF cannot stand in it"),
        "SSE field 'id': LF cannot stand in it",
        {"field": "id", "problem": "LF cannot stand in it"},
    ),
    (
        errors.SseLimitExceeded("line", 1024),
        (
            "an SSE line is longer than 1024 bytes; "
            "raise max_line_bytes if the sender is to be trusted"
        ),
        {"what": "line", "limit": 1024},
    ),
    (
        errors.SseDecoderClosed(),
        "feed() after close(); make a new Decoder for each stream",
        {},
    ),
    (
        errors.SubscriberLimitExceeded(64),
        "the channel already has 64 subscribers, its max_subscribers",
        {"limit": 64},
    ),
    (
        errors.ConcurrentConsumers(),
        "another task already waits for this subscription; subscribe once for each consumer",
        {},
    ),
    (
        errors.InvalidSessionId("a b\n"),
        r"a session id is 1 to 128 of A-Z a-z 0-9 . _ ~ -, not . or .., and not 'a b\n'",
        {"session_id": "a b\n"},
    ),
    (
        errors.SessionNotFound("é"),
        r"there is no session '\xe9'; it has ended or was never created",
        {"session_id": "é"},
    ),
    (
        errors.SessionLimitExceeded(5),
        "there are already 5 sessions, its max_sessions",
        {"limit": 5},
    ),
    (
        errors.RunCancelled("a1"),
        "the run was cancelled, or its session a1 ended first",
        {"session_id": "a1"},
    ),
    (
        errors.SnapshotConflict(9, 3, 7),
        "a snapshot at event 9 does not fit: the stored one is at 3, the channel's head at 7",
        {"last_event_id": 9, "low": 3, "head": 7},
    ),
    (
        errors.InvalidChannelName("a b\n"),
        r"a channel name is 1 to 200 of A-Z a-z 0-9 . _ ~ : @ -, not . or .., and not 'a b\n'",
        {"name": "a b\n"},
    ),
    (
        errors.UnknownNamespace("room"),
        ("there is no namespace room; configure it, or use a channel of one that is configured"),
        {"namespace": "room"},
    ),
    (
        errors.InvalidEvent("invalid_data", "the event is nested too deeply"),
        "the event is nested too deeply",
        {"code": "invalid_data", "problem": "the event is nested too deeply"},
    ),
    (
        errors.SnapshotAhead("p2", "p1"),
        (
            "a snapshot at position 'p2' does not fit: the channel's head is at 'p1', "
            "and a stored snapshot only moves forward"
        ),
        {"position": "p2", "head": "p1"},
    ),
    (
        errors.BrokerUnavailable("the broker does not answer"),
        "the broker does not answer",
        {"problem": "the broker does not answer"},
    ),
    (
        errors.StreamDenied({"b": "unknown_namespace", "a": "subscriber_limit"}),
        "none of the channels may be subscribed to: subscriber_limit, unknown_namespace",
        {"denied": {"b": "unknown_namespace", "a": "subscriber_limit"}},
    ),
    (errors.ConfigError("there is no key prot"), "there is no key prot", {}),
    (
        errors.StreamRefused(404, "session_not_found", "there is no session"),
        "the server refused the stream with 404 (session_not_found): there is no session",
        {"status": 404, "code": "session_not_found", "message": "there is no session"},
    ),
    (
        errors.StreamRefused(403, None, "Forbidden"),
        "the server refused the stream with 403: Forbidden",
        {"status": 403, "code": None, "message": "Forbidden"},
    ),
    (
        errors.NotAnEventStream("text/html"),
        (
            "the answer's content type is 'text/html', not text/event-stream; "
            "is the URL right, and does a proxy answer in the server's place?"
        ),
        {"content_type": "text/html"},
    ),
    (
        errors.StreamUnavailable(3, "connection refused"),
        "the stream could not be opened in 3 attempts: connection refused",
        {"attempts": 3, "problem": "connection refused"},
    ),
    (
        errors.ChainBroken("room:1", "p1", "p2", {"id": "p3"}),
        (
            "events of channel 'room:1' are missing: the next one follows 'p2', "
            "and what came last is 'p1'"
        ),
        {"channel": "room:1", "expected": "p1", "got": "p2", "event": {"id": "p3"}},
    ),
    (errors.LoadFailed("no state"), "no state", {}),
    (
        errors.PublishRefused(413, "body_too_large", "too large"),
        "the server refused the publish with 413 (body_too_large): too large",
        {"status": 413, "code": "body_too_large", "message": "too large"},
    ),
    (
        errors.PublishRefused(429, None, "Too Many Requests"),
        "the server refused the publish with 429: Too Many Requests",
        {"status": 429, "code": None, "message": "Too Many Requests"},
    ),
    (
        errors.ItemRefused(200, "access_denied", "you may not", "room:1"),
        "nothing was published to channel room:1 (access_denied): you may not",
        {"status": 200, "code": "access_denied", "message": "you may not", "channel": "room:1"},
    ),
    (
        errors.ItemRefused(0, None, "no reason given", "room:1"),
        "nothing was published to channel room:1: no reason given",
        {"status": 0, "code": None},
    ),
    (errors.ServeError("port 1 is in use"), "port 1 is in use", {}),
    (
        errors.MissingExtra("httpx", "client"),
        "httpx is not installed; run: pip install 'tidegate[client]'",
        {"package": "httpx", "extra": "client"},
    ),
]

NAMES = [type(error).__name__ for error, _, _ in CASES]


@pytest.mark.parametrize(("error", "text", "facts"), CASES, ids=NAMES)
def test_an_error_says_what_it_carries(error, text, facts):
    assert str(error) == text
    for name, value in facts.items():
        assert getattr(error, name) == value


@pytest.mark.parametrize(("error", "text", "facts"), CASES, ids=NAMES)
def test_an_error_survives_the_way_to_another_process(error, text, facts):
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert str(copy) == text
    for name, value in facts.items():
        assert getattr(copy, name) == value


def test_what_a_user_sent_is_shown_escaped_and_short():
    assert str(errors.InvalidSessionId("\x1b[2J" * 100)).endswith("...")
    assert len(str(errors.InvalidSessionId("x" * 10_000))) < 200
    assert "\x1b" not in str(errors.InvalidSessionId("\x1b[2J"))
    assert "\x1b" not in str(errors.SessionNotFound("\x1b[2J"))
    assert "\x1b" not in str(errors.InvalidChannelName("\x1b[2J"))
    assert str(errors.InvalidChannelName("\x1b[2J" * 100)).endswith("...")


def test_the_tree_at_the_top_of_the_module_is_the_tree():
    drawn = []
    above = {}
    for line in errors.__doc__.splitlines():
        match = re.match(r"( {4}[│├└─ ]*)(\w+)(?: \((\w+)\))?(?: |$)", line)
        if match is None or not hasattr(errors, match[2]):
            continue
        depth = len(match[1])
        above = {d: name for d, name in above.items() if d < depth}
        bases = [above[max(above)]] if above else ["Exception"]
        drawn.append((match[2], [*bases, *([match[3]] if match[3] else [])]))
        above[depth] = match[2]
    assert sorted(name for name, _ in drawn) == errors.__all__
    for name, bases in drawn:
        assert [base.__name__ for base in getattr(errors, name).__bases__] == bases


def test_every_error_has_its_case():
    roots = {base for name in errors.__all__ for base in getattr(errors, name).__bases__}
    leaves = {name for name in errors.__all__ if getattr(errors, name) not in roots}
    assert leaves <= set(NAMES)


def test_the_page_of_errors_draws_the_same_tree_and_says_what_to_do_about_each():
    page = (Path(__file__).parents[1] / "docs" / "errors.md").read_text("utf-8")
    drawn = page.partition("```text\n")[2].partition("```")[0]
    module = "".join(f"{line[4:]}\n" for line in errors.__doc__.splitlines() if line[:4] == "    ")
    assert drawn == module
    named = set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE))
    roots = {"TidegateError", "SseError", "SessionError", "GatewayError"}
    assert set(errors.__all__) - roots <= named
