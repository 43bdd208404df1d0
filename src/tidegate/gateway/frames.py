"""What is written to a stream of channels: shared event frames, and control frames. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from tidegate.channel.frames import control_frame
from tidegate.channel.names import (
    CHANNEL_SNAPSHOT,
    CLIENT_EVICTED,
    REPLAY_COMPLETE,
    SLOW_CLIENT_WARNING,
    STATE_RESYNC_REQUIRED,
    STREAM_CURSOR,
    STREAM_ERROR,
    STREAM_OPEN,
)
from tidegate.gateway.cursor import Slot
from tidegate.gateway.position import ZERO

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidegate.channel.frames import ResyncReason
    from tidegate.gateway.brokers.base import Publication, Snapshot

__all__ = [
    "ControlFrame",
    "EventFrame",
    "Place",
    "channel_snapshot",
    "client_evicted",
    "event_envelope",
    "replay_complete",
    "slow_client_warning",
    "state_resync_required",
    "stream_cursor",
    "stream_error",
    "stream_open",
]

_text: Final = msgspec.json.Encoder().encode


class Place:
    """A place in a channel, and how it stands in a cursor. Immutable and shared.

    Args:
        prefix: the hashes of the channel's name and of the epoch, as a cursor has them.
        epoch: the life of the history; ``""`` for one that only its hash is known of.
        position: the position in it.

    Attributes:
        epoch: as given.
        position: as given.
        slot: what stands for both in a cursor.
    """

    __slots__ = ("epoch", "position", "slot")

    def __init__(self, prefix: str, epoch: str, position: str) -> None:
        self.epoch = epoch
        self.position = position
        self.slot = Slot(prefix + (position or ZERO))

    def __repr__(self) -> str:
        return f"Place({self.epoch!r}, {self.position!r})"


def event_envelope(channel: str, event: Publication) -> bytes:
    """Return an event as it stands on the wire: one line of compact JSON."""
    # Spliced, not encoded again: names, types and positions need no escape.
    epoch = _text(event.epoch).decode()
    envelope = (
        f'{{"id":"{event.position}","v":1,"type":"{event.type}",'
        f'"channel":"{channel}","epoch":{epoch},"prev":"{event.prev}",'
    )
    return envelope.encode() + event.payload[1:]


class EventFrame:
    """An event as all streams of a node share it; encoded for the wire at most once.

    Args:
        channel: the channel's name.
        prefix: see `Place`.
        publication: the event.

    Attributes:
        channel: as given.
        publication: as given.
        position: its position; ``prev``, ``epoch`` and ``tags`` likewise.
        place: the place behind it.
    """

    __slots__ = ("_sse", "channel", "epoch", "place", "position", "prev", "publication", "tags")

    def __init__(self, channel: str, prefix: str, publication: Publication) -> None:
        self.channel = channel
        self.publication = publication
        self.position = publication.position
        self.prev = publication.prev
        self.epoch = publication.epoch
        self.tags = publication.tags
        self.place = Place(prefix, publication.epoch, publication.position)
        self._sse: bytes | None = None

    @property
    def size(self) -> int:
        """Roughly the bytes that it takes."""
        return self.publication.size

    @property
    def sse(self) -> bytes:
        """All of the SSE frame but the ``id:`` line, which is each stream's own."""
        if self._sse is None:
            event = self.publication
            self._sse = b"event: %b\ndata: %b\n\n" % (
                event.type.encode(),
                event_envelope(self.channel, event),
            )
        return self._sse

    def matches(self, tags: Mapping[str, str]) -> bool:
        """Tell whether the event has all of ``tags``."""
        own = self.tags
        return own is not None and all(own.get(key) == value for key, value in tags.items())


class ControlFrame:
    """What Tidegate itself says to one stream.

    Attributes:
        type: one of the reserved types.
        data: what it says.
        moves_cursor: it carries the stream's cursor.
        sse: all of the SSE frame but the ``id:`` line.
    """

    __slots__ = ("data", "meta", "moves_cursor", "sse", "type")

    def __init__(
        self,
        type: str,  # noqa: A002 - the name of the field on the wire
        data: dict[str, Any],
        now_ms: int,
        *,
        moves_cursor: bool = False,
        retry_ms: int | None = None,
    ) -> None:
        frame = control_frame(type, data, now_ms)
        self.type = type
        self.data = data
        self.meta = frame.meta
        self.moves_cursor = moves_cursor
        retry = b"" if retry_ms is None else b"retry: %d\n" % retry_ms
        self.sse = b"%bevent: %b\ndata: %b\n\n" % (retry, type.encode(), frame.to_json())


def stream_open(
    now_ms: int,
    *,
    stream_id: str,
    node: str,
    channels: dict[str, dict[str, Any]],
    denied: dict[str, str],
) -> ControlFrame:
    """Say what a stream is and where each of its channels starts: its first frame."""
    data = {"streamId": stream_id, "node": node, "channels": channels, "denied": denied}
    return ControlFrame(STREAM_OPEN, data, now_ms, moves_cursor=True)


def state_resync_required(
    now_ms: int,
    *,
    channel: str,
    reason: ResyncReason,
    last: str,
    earliest: str | None,
    start: Place,
) -> ControlFrame:
    """Say that events of a channel between two places are gone for this stream.

    Args:
        now_ms: the time to stamp.
        channel: whose.
        reason: why.
        last: the position that the client held, as it was given.
        earliest: the first event that can still be had; ``None``: there is none yet.
        start: where the stream goes on: what comes next names it as its ``prev``.
    """
    data: dict[str, Any] = {"channel": channel, "reason": reason}
    if reason == "epoch_reset":
        data["detail"] = "epoch_mismatch"
    data |= {
        "lastDeliveredId": last,
        "earliestAvailableId": earliest,
        "epoch": start.epoch,
        "position": start.position,
    }
    return ControlFrame(STATE_RESYNC_REQUIRED, data, now_ms, moves_cursor=True)


def replay_complete(now_ms: int, *, channel: str, replayed: int, last: str) -> ControlFrame:
    """Mark the end of a channel's replay."""
    data: dict[str, Any] = {"channel": channel, "replayedCount": replayed}
    if replayed:
        data["lastReplayedEventId"] = last
    return ControlFrame(REPLAY_COMPLETE, data, now_ms, moves_cursor=True)


def channel_snapshot(now_ms: int, *, channel: str, snapshot: Snapshot) -> ControlFrame:
    """Give a channel's full state at a position."""
    data = {
        "channel": channel,
        "state": msgspec.Raw(snapshot.state),
        "position": snapshot.position,
        "epoch": snapshot.epoch,
    }
    return ControlFrame(CHANNEL_SNAPSHOT, data, now_ms, moves_cursor=True)


def stream_cursor(now_ms: int) -> ControlFrame:
    """Move the cursor past events that the stream's filter has skipped."""
    return ControlFrame(STREAM_CURSOR, {}, now_ms, moves_cursor=True)


def slow_client_warning(now_ms: int, **data: Any) -> ControlFrame:
    """Warn a stream whose backlog is three quarters full."""
    return ControlFrame(SLOW_CLIENT_WARNING, data, now_ms)


def client_evicted(now_ms: int, **data: Any) -> ControlFrame:
    """Tell a stream that it was too slow and ends here; it can come back at its cursor."""
    return ControlFrame(CLIENT_EVICTED, data, now_ms)


def stream_error(
    now_ms: int, *, kind: str, error: str, retry_ms: int | None = None
) -> ControlFrame:
    """Say why a stream ends: a sentence and its kind, and perhaps when to come back."""
    data = {"error": error, "errorKind": kind}
    return ControlFrame(STREAM_ERROR, data, now_ms, retry_ms=retry_ms)
