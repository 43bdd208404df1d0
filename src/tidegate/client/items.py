"""What a publisher is given and what it gives back. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["PublishItem", "Published"]


class PublishItem(msgspec.Struct, frozen=True):
    """One event for `Publisher.publish_many`; the arguments are those of `Publisher.publish`."""

    channel: str
    type: str
    data: Any = None
    idempotency_key: str | None = None
    version: int | None = None
    tags: Mapping[str, str] | None = None
    meta: Mapping[str, Any] | None = None


class Published(msgspec.Struct, frozen=True):
    """What became of an event: it is stored.

    Attributes:
        channel: the channel's name.
        id: its position there; of a duplicate the first one's, of a suppressed one the head.
        epoch: the life of the channel's history that the position belongs to.
        duplicate: its idempotency key was known: it had been published before, perhaps by this
            call, whose first answer was lost.
        suppressed: its version was not above the channel's last one: nothing was published.
    """

    channel: str
    id: str
    epoch: str
    duplicate: bool = False
    suppressed: bool = False
