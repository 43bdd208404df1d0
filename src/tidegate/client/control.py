"""The frames that Tidegate itself makes, as typed structs. Pure."""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

__all__ = [
    "CONTROL_PAYLOADS",
    "REFUSING_KINDS",
    "RESERVED_TYPES",
    "SESSION_TERMINAL",
    "STREAM_TERMINAL",
    "ChannelSnapshot",
    "ChannelStart",
    "ClientEvicted",
    "EventUnserializable",
    "ReplayComplete",
    "SlowClientWarning",
    "StateResyncRequired",
    "StreamCursor",
    "StreamError",
    "StreamOpen",
    "is_event_type",
]

SESSION_TERMINAL: Final = frozenset({"session_closed"})
"""Types after which a session has no further event."""

STREAM_TERMINAL: Final = frozenset({"client_evicted", "stream_error"})
"""Types after which a stream ends, and another one may follow."""

REFUSING_KINDS: Final = frozenset(
    {"subscriber_limit", "stream_limit", "rate_limited", "draining", "broker_unavailable"}
)
"""Kinds of ``stream_error`` that, as a stream's first frame, stand for a 429 or 503."""

_TYPE = re.compile(r"[A-Za-z0-9._:-]{1,128}", re.ASCII)


class _Payload(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What the structs below have in common: camelCase on the wire."""


class ChannelStart(_Payload, frozen=True):
    """Where one channel of a stream begins.

    Attributes:
        epoch: the life of its history.
        position: the event that the stream begins after; ``""`` for the epoch's beginning.
        recovered: what follows links to the client's cursor.
        linked: no event will be left out on purpose, so each names the one before it.
    """

    epoch: str
    position: str
    recovered: bool = False
    linked: bool = False


class StreamOpen(_Payload, frozen=True):
    """A stream of channels begins: its first frame.

    Attributes:
        stream_id: names this stream on the server.
        node: the server's process.
        channels: where each channel begins, by name.
        denied: why a channel is not in the stream: a code, by name.
    """

    stream_id: str
    node: str
    channels: dict[str, ChannelStart]
    denied: dict[str, str] = {}


class StreamCursor(_Payload, frozen=True):
    """The cursor moves past events that were filtered out."""


class ChannelSnapshot(_Payload, frozen=True):
    """The full state of a channel; what follows is to be applied to it.

    Attributes:
        channel: its name.
        state: whatever its producer keeps.
        position: the last event that the state takes account of; ``""`` for none.
        epoch: the life of the history that the position belongs to.
    """

    channel: str
    state: Any
    position: str = ""
    epoch: str = ""


class ReplayComplete(_Payload, frozen=True):
    """What was missed has been sent; live events follow.

    Attributes:
        replayed_count: how many events were replayed, 0 included.
        last_replayed_event_id: the last of them, if there was one.
        channel: whose, in a stream of channels.
    """

    replayed_count: int
    last_replayed_event_id: int | str | None = None
    channel: str | None = None


class StateResyncRequired(_Payload, frozen=True):
    """Events between two places are gone; the state has to be loaded anew.

    Attributes:
        reason: ``ring_evicted``, ``epoch_reset``, ``replay_budget_exceeded`` (nothing is lost, the
            client only has to come back); of channels ``history_rewound``, ``cursor_invalid``,
            ``frames_dropped``; or one that a later server knows.
        detail: a refinement of it.
        last_delivered_id: the cursor as the client gave it; for the budget, the last replayed id.
        earliest_available_id: the first id that can still be had.
        channel: whose, in a stream of channels.
        epoch: the life of its history in which the stream goes on.
        position: the event of the channel that the stream goes on after.
    """

    reason: str
    detail: str | None = None
    last_delivered_id: int | str | None = None
    earliest_available_id: int | str | None = None
    channel: str | None = None
    epoch: str | None = None
    position: str | None = None


class SlowClientWarning(_Payload, frozen=True):
    """This client reads too slowly; it is cut if its backlog fills up.

    Attributes:
        queue_size: events that wait for it.
        queued_bytes: their bytes.
        max_queued: how many may wait.
        max_queued_bytes: how many bytes may wait.
        last_event_id: the event that filled the backlog to the threshold.
        threshold: ``frames``, ``bytes`` or ``frames_and_bytes``.
        channel: that event's, in a stream of channels.
    """

    queue_size: int
    queued_bytes: int
    max_queued: int
    max_queued_bytes: int
    last_event_id: int | str
    threshold: str
    channel: str | None = None


class ClientEvicted(_Payload, frozen=True):
    """This client was too slow and is cut; it comes back at its cursor.

    Attributes:
        reason: ``queue_overflow``, ``queue_bytes_overflow``, ``write_timeout`` or another bound.
        queue_size: events that waited for it, without the rejected one.
        queued_bytes: their bytes.
        max_queued: how many might wait.
        max_queued_bytes: how many bytes might wait.
        event_bytes: the size of the rejected event, where bytes were the reason.
        first_dropped_id: the first event that this stream did not get.
        channel: that event's, in a stream of channels.
    """

    reason: str
    queue_size: int
    queued_bytes: int
    max_queued: int
    max_queued_bytes: int
    event_bytes: int | None = None
    first_dropped_id: int | str | None = None
    channel: str | None = None


class StreamError(_Payload, frozen=True):
    """The server ends this stream.

    Attributes:
        error: a sentence.
        error_kind: ``draining``, ``subscriber_limit``, ``revoked`` and the like.
    """

    error: str
    error_kind: str


class EventUnserializable(_Payload, frozen=True):
    """An event has its place here, but could not be put on a wire.

    Attributes:
        type: the type it had, escaped.
    """

    type: str


CONTROL_PAYLOADS: Final[dict[str, type[msgspec.Struct]]] = {
    "replay_complete": ReplayComplete,
    "state_resync_required": StateResyncRequired,
    "slow_client_warning": SlowClientWarning,
    "client_evicted": ClientEvicted,
    "stream_error": StreamError,
    "event_unserializable": EventUnserializable,
    "stream_open": StreamOpen,
    "stream_cursor": StreamCursor,
    "channel_snapshot": ChannelSnapshot,
}
"""The struct of each frame's data."""

RESERVED_TYPES: Final = frozenset({*CONTROL_PAYLOADS, *SESSION_TERMINAL})
"""The types that only Tidegate itself may use."""


def is_event_type(value: object) -> bool:
    """Tell whether ``value`` is a type that a user's event may bear.

    It is 1 to 128 of ``A-Z a-z 0-9 . _ : -``, not ``open``, ``error`` or a reserved name.
    """
    return (
        isinstance(value, str)
        and _TYPE.fullmatch(value) is not None
        and value not in RESERVED_TYPES | {"open", "error"}
    )
