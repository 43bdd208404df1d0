"""What a stream hands out: events, read from SSE frames. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidegate.client.cursor import Cursor
    from tidegate.sse import ServerSentEvent

__all__ = ["MalformedFrame", "StreamEvent", "parse_frame", "plain_frame"]


@dataclass(frozen=True, slots=True)
class StreamEvent:
    """One event or control frame of a stream.

    Attributes:
        id: the event's number in its session, from 1, or its position in its channel, a text;
            ``None`` for control frames.
        cursor: the SSE id in force at this frame: what resumes the stream after it. ``None`` as
            long as the connection has named none.
        epoch: the life of the history that the cursor belongs to, or the channel's, where the
            server names it.
        type: what happened.
        data: its payload, as JSON gave it.
        meta: the envelope's ``_meta``; ``serverTimestamp`` in it is in milliseconds since 1970.
        originator_client_id: the ``Tidegate-Client-Id`` of whoever caused the event.
        envelope: the whole envelope; empty for frames of a stream that is not Tidegate's.
        channel: the channel that the event is of, or that a control frame speaks of.
        prev: the position of the event before it in its channel; ``""`` for an epoch's first.
        tags: those of a channel's event.
        version: that of a channel's event, if it was published with one.
    """

    id: int | str | None
    cursor: str | None
    epoch: str | None
    type: str
    data: Any = None
    meta: Mapping[str, Any] = field(default_factory=dict)
    originator_client_id: str | None = None
    envelope: Mapping[str, Any] = field(default_factory=dict)
    channel: str | None = None
    prev: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    version: int | None = None

    @property
    def position(self) -> str | None:
        """The event's place in its channel; ``None`` for events of sessions and control frames."""
        return self.id if isinstance(self.id, str) else None


class MalformedFrame(ValueError):
    """A frame's data is no envelope of version 1; the text says what is wrong with it."""


def parse_frame(frame: ServerSentEvent, cursor: Cursor | None) -> StreamEvent:
    """Read the envelope in a frame's data.

    Args:
        frame: as it was decoded.
        cursor: what its id says.

    Raises:
        MalformedFrame: it is not JSON, not an object, not version 1, or has no string as type or an
            id that is neither a positive integer nor a string.
    """
    try:
        envelope = msgspec.json.decode(frame.data)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        raise MalformedFrame("the data is not JSON") from None
    if not isinstance(envelope, dict):
        raise MalformedFrame("the data is not a JSON object")
    version, type_, id_ = envelope.get("v"), envelope.get("type"), envelope.get("id")
    if version != 1 or isinstance(version, bool):
        raise MalformedFrame("the envelope's v is not 1")
    if not isinstance(type_, str):
        raise MalformedFrame("the envelope's type is not a string")
    place = _place(envelope, id_)
    meta, originator = envelope.get("_meta"), envelope.get("originatorClientId")
    return StreamEvent(
        id=place.id,
        cursor=None if cursor is None else cursor.text,
        epoch=place.epoch or (None if cursor is None else cursor.epoch),
        type=type_,
        data=envelope.get("data"),
        meta=meta if isinstance(meta, dict) else {},
        originator_client_id=originator if isinstance(originator, str) else None,
        envelope=envelope,
        channel=place.channel,
        prev=place.prev,
        tags=place.tags,
        version=place.version,
    )


class _Place(NamedTuple):
    """What an envelope says of where its event stands."""

    id: int | str | None = None
    channel: str | None = None
    epoch: str | None = None
    prev: str | None = None
    tags: Mapping[str, str] = {}
    version: int | None = None


def _place(envelope: dict[str, Any], id_: object) -> _Place:
    if isinstance(id_, int) and not isinstance(id_, bool) and id_ >= 1:
        return _Place(id_)
    if id_ is None:  # a control frame: what it says of a channel stands in its data
        match envelope.get("data"):
            case {"channel": str(channel), "epoch": str(epoch)}:
                return _Place(channel=channel, epoch=epoch)
            case {"channel": str(channel)}:
                return _Place(channel=channel)
            case _:
                return _Place()
    if not isinstance(id_, str):
        raise MalformedFrame("the envelope's id is neither a positive integer nor a string")
    match envelope:
        case {"channel": str(channel), "epoch": str(epoch), "prev": str(prev)}:
            tags, version = envelope.get("tags"), envelope.get("version")
            return _Place(
                id_,
                channel,
                epoch,
                prev,
                tags if isinstance(tags, dict) else {},
                version if isinstance(version, int) else None,
            )
        case _:
            return _Place()  # another's envelope: what its id means is not known


def plain_frame(frame: ServerSentEvent, cursor: Cursor | None) -> StreamEvent:
    """Hand a frame of a stream that is not Tidegate's over as it is: type, and data as text."""
    return StreamEvent(
        id=None,
        cursor=None if cursor is None else cursor.text,
        epoch=None if cursor is None else cursor.epoch,
        type=frame.type,
        data=frame.data,
    )
