"""What can stand on a command line, and what is said about the rest."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.cli.names import (
    BadName,
    ChannelTarget,
    SessionTarget,
    parse_base_url,
    parse_target,
)


@pytest.mark.parametrize("session_id", ["a1", "build", "A-Z_0.9~", "x" * 128, "session"])
def test_a_session_is_written_with_its_prefix(session_id):
    assert parse_target(f"session/{session_id}") == SessionTarget(session_id)


@pytest.mark.parametrize(
    "text",
    [
        "session/",
        "session/a/b",
        "session/a b",
        "session/é",
        "session/a:b",
        "session/" + "x" * 129,
        "session/.",
        "session/..",
    ],
)
def test_what_follows_the_prefix_must_be_an_id(text):
    with pytest.raises(BadName, match="names no session"):
        parse_target(text)


@pytest.mark.parametrize("name", ["room:101", "user:7@eu", "build", "x" * 200, "..."])
def test_a_bare_name_is_a_channel(name):
    assert parse_target(name) == ChannelTarget(name)


@pytest.mark.parametrize("text", ["", ".", "..", "/session/..", "a/b", "a b", "x" * 201, "ro\nom"])
def test_anything_else_is_no_name(text):
    with pytest.raises(BadName, match="a session is written session/ID"):
        parse_target(text)


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("/session/a", "did you mean session/a?"),
        ("sessions/a", "did you mean session/a?"),
        ("/sessions/a/", "did you mean session/a?"),
        ("http://h:1/session/a", "write: --url http://h:1 session/a"),
        ("http://[::1]:1/live/session/a/events", "write: --url http://[::1]:1/live session/a"),
        ("http://h:1", "--url http://HOST:PORT CHANNEL, or session/ID for a session"),
        ("http://h:1/session/..", "CHANNEL, or session/ID for a session"),
        ("https://u:p@h/session/a", "CHANNEL, or session/ID for a session"),
    ],
)
def test_what_is_almost_a_session_gets_the_way_to_write_it(text, advice):
    with pytest.raises(BadName) as refusal:
        parse_target(text)
    assert str(refusal.value).endswith(advice)


@given(st.text(alphabet=st.characters(exclude_characters="./:@~-_"), min_size=1).map("/".__add__))
def test_a_refusal_is_one_short_line_of_ascii_whatever_was_given(text):
    with pytest.raises(BadName) as refusal:
        parse_target(text)
    sentence = str(refusal.value)
    assert sentence.isascii()
    assert sentence.isprintable()
    assert len(sentence) < 250


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("http://127.0.0.1:8765", "http://127.0.0.1:8765"),
        ("http://127.0.0.1:8765/", "http://127.0.0.1:8765"),
        ("https://example.org/live//", "https://example.org/live"),
        ("http://[::1]:80", "http://[::1]:80"),
    ],
)
def test_a_base_url_loses_only_its_last_slashes(text, url):
    assert parse_base_url(text) == url


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("127.0.0.1:8765", "not the URL of a server"),
        ("ftp://example.org", "not the URL of a server"),
        ("http://", "not the URL of a server"),
        ("http://example.org:0", "not the URL of a server"),
        ("http://example.org:99999", "is no URL"),
        ("http://[::1", "is no URL"),
        ("http://example.org/?a=1", "has a query or a fragment"),
        ("http://example.org/#a", "has a query or a fragment"),
    ],
)
def test_a_base_url_that_is_none_says_why(text, why):
    with pytest.raises(BadName, match=why):
        parse_base_url(text)
