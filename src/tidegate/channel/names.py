"""Which event types may travel, and which names are Tidegate's own. Pure."""

from __future__ import annotations

import re

__all__ = [
    "CHANNEL_SNAPSHOT",
    "CLIENT_EVICTED",
    "CONTROL_TYPES",
    "EVENT_UNSERIALIZABLE",
    "REPLAY_COMPLETE",
    "RESERVED_TYPES",
    "SESSION_CLOSED",
    "SLOW_CLIENT_WARNING",
    "STATE_RESYNC_REQUIRED",
    "STREAM_CURSOR",
    "STREAM_ERROR",
    "STREAM_OPEN",
    "escape_type",
    "event_type_problem",
    "is_event_type",
]

STREAM_OPEN = "stream_open"
STATE_RESYNC_REQUIRED = "state_resync_required"
REPLAY_COMPLETE = "replay_complete"
SLOW_CLIENT_WARNING = "slow_client_warning"
CLIENT_EVICTED = "client_evicted"
STREAM_ERROR = "stream_error"
CHANNEL_SNAPSHOT = "channel_snapshot"
STREAM_CURSOR = "stream_cursor"

EVENT_UNSERIALIZABLE = "event_unserializable"
SESSION_CLOSED = "session_closed"

CONTROL_TYPES = frozenset(
    {
        STREAM_OPEN,
        STATE_RESYNC_REQUIRED,
        REPLAY_COMPLETE,
        SLOW_CLIENT_WARNING,
        CLIENT_EVICTED,
        STREAM_ERROR,
        CHANNEL_SNAPSHOT,
        STREAM_CURSOR,
    }
)
"""The types of control frames: made for one subscriber, without an id."""

RESERVED_TYPES = CONTROL_TYPES | {EVENT_UNSERIALIZABLE, SESSION_CLOSED}
"""The types that only Tidegate itself may use."""

# ``open`` and ``error`` are events of the browser's EventSource itself: a listener
# could not tell ours from its own.
_REFUSED = RESERVED_TYPES | {"open", "error"}

_EVENT_TYPE = re.compile(r"[A-Za-z0-9._:-]{1,128}", re.ASCII)

_SHOWN = 128


def is_event_type(value: object) -> bool:
    """Tell whether ``value`` is a type that a user's event may bear on a wire.

    It is 1 to 128 of ``A-Z a-z 0-9 . _ : -``, not ``open``, ``error`` or a reserved name.
    """
    if not isinstance(value, str):
        return False
    # By its characters: a subclass may have no hash, or one of its own.
    name = str.__str__(value)
    return _EVENT_TYPE.fullmatch(name) is not None and name not in _REFUSED


def event_type_problem(value: str) -> tuple[str, str] | None:
    """Tell why ``value`` is no event type, as a code and a sentence; ``None`` if it is one."""
    if is_event_type(value):
        return None
    if value in RESERVED_TYPES:
        return "reserved_event_type", f"{value} is a name of the server's own"
    if value in _REFUSED:
        sentence = f"{value} is an event of the browser's EventSource itself; choose another type"
    else:
        shown = ascii(value[:80]) + ("..." if len(value) > 80 else "")
        sentence = f"an event type is 1 to 128 of A-Z a-z 0-9 . _ : -, which {shown} is not"
    return "invalid_event_type", sentence


def escape_type(value: object) -> str:
    """Make whatever was given as a type safe to show: ASCII, at most 128 characters.

    Never raises, not even for an object whose ``repr`` does.
    """
    try:
        # Cut first: escaping a string of megabytes would cost more than the publish.
        text = str.__str__(value)[:_SHOWN] if isinstance(value, str) else repr(value)[:_SHOWN]
        return text.encode("unicode_escape").decode("ascii")[:_SHOWN]
    except Exception:  # noqa: BLE001 - a foreign __repr__ may raise anything
        return "<unprintable>"
