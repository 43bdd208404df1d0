"""Publishing many events from one request without starving those who read them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidegate.channel import Channel
    from tidegate.sessions.payloads import PublishItem

__all__ = ["publish_all"]

_SLICE: Final = 64


async def publish_all(
    channel: Channel, items: Sequence[PublishItem], originator_client_id: str | None
) -> int | None:
    """Publish events in order.

    After every 64 of them readers get their turn: a long array would otherwise overflow
    the backlog of every client, however fast.

    Args:
        channel: where.
        items: what.
        originator_client_id: who says so.

    Returns:
        The last one's id, or the channel's last if there are no items; ``None`` when the
        channel was closed before the last could be published.
    """
    last_event_id = channel.last_event_id
    for number, item in enumerate(items, 1):
        event = channel.publish(
            item.type, item.data, meta=item.meta, originator_client_id=originator_client_id
        )
        if event is None or event.id is None:
            return None
        last_event_id = event.id
        if number % _SLICE == 0:
            await asyncio.sleep(0)
    return last_event_id
