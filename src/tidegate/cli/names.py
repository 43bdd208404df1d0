"""How the command line names things: ``session/ID``, ``CHANNEL``, and the server's URL. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

__all__ = [
    "BadName",
    "ChannelTarget",
    "SessionTarget",
    "Target",
    "parse_base_url",
    "parse_target",
]

_SESSION_PREFIX = "session/"
_SESSION_ID = re.compile(r"[A-Za-z0-9._~-]{1,128}", re.ASCII)
_CHANNEL = re.compile(r"[A-Za-z0-9._~:@-]{1,200}", re.ASCII)
_SHOWN = 80

# What people write for session/ID: with the URL, with a slash before it, in the plural.
_AS_URL = re.compile(
    r"(https?://[A-Za-z0-9._~:/\[\]-]+?)/session/([^/?#]+)(?:/events)?/?", re.ASCII
)
_ALMOST = re.compile(r"/?sessions?/([^/]+)/?", re.ASCII)


class BadName(ValueError):
    """What stands on the command line names nothing; the message says how to write it."""


@dataclass(frozen=True, slots=True)
class SessionTarget:
    """A session, written ``session/ID``."""

    session_id: str


@dataclass(frozen=True, slots=True)
class ChannelTarget:
    """A channel of the gateway, written as its bare name."""

    channel: str


Target = SessionTarget | ChannelTarget
"""What a command can be pointed at."""


def parse_target(text: str) -> Target:
    """Read a target as it stands on the command line.

    Raises:
        BadName: it is neither ``session/ID`` nor the name of a channel.
    """
    if text.startswith(_SESSION_PREFIX):
        session_id = text.removeprefix(_SESSION_PREFIX)
        if not _is_session_id(session_id):
            raise BadName(
                f"{_shown(text)} names no session: after 'session/' come 1 to 128 of "
                "A-Z a-z 0-9 . _ ~ -, but not . or .. alone"
            )
        return SessionTarget(session_id)
    if _CHANNEL.fullmatch(text) is None or text in {".", ".."}:
        raise BadName(f"{_shown(text)} {_advice(text)}")
    return ChannelTarget(text)


def parse_base_url(text: str) -> str:
    """Check the URL of a server and return it without a slash at its end.

    It may carry a path, for sessions that are mounted below one.

    Raises:
        BadName: it is not ``http://`` or ``https://`` with a host, or has a query or a fragment.
    """
    try:
        parts = urlsplit(text)
        port_ok = parts.port is None or parts.port > 0
    except ValueError:
        raise BadName(f"{_shown(text)} is no URL") from None
    if parts.scheme not in {"http", "https"} or not parts.hostname or not port_ok:
        raise BadName(f"{_shown(text)} is not the URL of a server; write http://HOST:PORT")
    if parts.query or parts.fragment:
        raise BadName(f"{_shown(text)} has a query or a fragment; the URL of a server has none")
    return text.rstrip("/")


def _is_session_id(text: str) -> bool:
    return _SESSION_ID.fullmatch(text) is not None and text not in {".", ".."}


def _advice(text: str) -> str:
    """Say what is wrong with a target, and how it may have been meant."""
    if re.match(r"https?://", text):
        found = _AS_URL.fullmatch(text)
        if found and _is_session_id(found[2]) and len(found[0]) <= _SHOWN:
            return f"is a URL; write: --url {found[1]} session/{found[2]}"
        return "is a URL; write: --url http://HOST:PORT CHANNEL, or session/ID for a session"
    found = _ALMOST.fullmatch(text)
    if found and _is_session_id(found[1]):
        return f"is no name; did you mean session/{found[1]}?"
    return (
        "is no name; a channel's is 1 to 200 of A-Z a-z 0-9 . _ ~ : @ -, "
        "and a session is written session/ID"
    )


def _shown(text: str) -> str:
    """Quote what the user wrote so that nothing in it can disturb a terminal."""
    quoted = ascii(text)
    return quoted if len(quoted) <= _SHOWN else quoted[: _SHOWN - 3] + "..."
