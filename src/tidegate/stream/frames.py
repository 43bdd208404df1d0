"""The bytes of an SSE stream. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidegate.sse import encode

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidegate.channel import ChannelEvent

__all__ = ["HEARTBEAT", "control_bytes", "event_bytes", "jittered", "retry_bytes"]

HEARTBEAT: Final = encode(comment="hb")
"""What is written when nothing else was for a while."""


def event_bytes(event: ChannelEvent, body: bytes, prefix: bytes) -> bytes:
    """Frame an event, or a control frame, which carries no ``id:`` line.

    Not by `tidegate.sse.encode`: this is the hot path, and nothing here needs its checks.
    The id is a number, the type was checked, and compact JSON holds no line break.

    Args:
        event: whose id and wire type to write.
        body: its envelope.
        prefix: what goes before the number in the ``id:`` line: ``<epoch>-``, or nothing.
    """
    event_type = event.wire_type.encode("ascii")
    if event.id is None:
        return b"event: %b\ndata: %b\n\n" % (event_type, body)
    return b"id: %b%d\nevent: %b\ndata: %b\n\n" % (prefix, event.id, event_type, body)


def control_bytes(frame: ChannelEvent) -> bytes:
    """Frame a control frame of a stream's own."""
    return event_bytes(frame, frame.to_json(), b"")


def retry_bytes(milliseconds: float) -> bytes:
    """Tell the client how long to wait before it comes back."""
    return encode(retry=round(milliseconds))


def jittered(low: float, high: float, rng: Callable[[], float]) -> float:
    """Return a number between ``low`` and ``high``, so that clients do not return as one."""
    return low + (high - low) * rng()
