"""What a consumer in this process gets: events and control frames as objects. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidegate.gateway.frames import ControlFrame, EventFrame

__all__ = ["GatewayEvent"]


class GatewayEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event of a channel, or a control frame for this subscriber.

    Attributes:
        id: the event's position in its channel; ``None`` for a control frame.
        channel: the channel's name; ``None`` for a control frame that speaks of the stream.
        type: what happened.
        data: what the publisher gave, as JSON gives it back.
        cursor: what resumes the subscription behind this frame.
        epoch: the life of the channel's history that ``id`` and ``prev`` belong to.
        prev: the position of the event before it; ``""`` for the first of an epoch.
        meta: the publisher's own, and ``serverTimestamp`` in ms since 1970.
        tags: as published.
        version: as published.
    """

    id: str | None
    channel: str | None
    type: str
    data: Any
    cursor: str
    epoch: str | None = None
    prev: str | None = None
    meta: Mapping[str, Any] = {}
    tags: Mapping[str, str] | None = None
    version: int | None = None

    @classmethod
    def of_event(cls, frame: EventFrame, cursor: str) -> GatewayEvent:
        """Make one of a shared event frame; the payload is decoded anew for each."""
        publication = frame.publication
        payload = msgspec.json.decode(publication.payload)
        return cls(
            id=publication.position,
            channel=frame.channel,
            type=publication.type,
            data=payload.get("data"),
            cursor=cursor,
            epoch=publication.epoch,
            prev=publication.prev,
            meta=payload.get("_meta") or {},
            tags=publication.tags,
            version=publication.version,
        )

    @classmethod
    def of_control(cls, frame: ControlFrame, cursor: str) -> GatewayEvent:
        """Make one of a control frame."""
        data = {
            key: msgspec.json.decode(value) if isinstance(value, msgspec.Raw) else value
            for key, value in frame.data.items()
        }
        return cls(
            id=None,
            channel=data.get("channel"),
            type=frame.type,
            data=data,
            cursor=cursor,
            meta=frame.meta,
        )
