"""How ``tidegate tail`` waits for a session that a restarted server does not have yet."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Final

from tidegate.cli.delivery import retry_delay
from tidegate.errors import StreamRefused

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from tidegate.client import ClientStream, StreamEvent

__all__ = ["through_restarts"]

_NOT_FOUND: Final = "session_not_found"


async def through_restarts(
    stream: ClientStream,
    *,
    patience: float,
    make: Callable[[], Awaitable[None]] | None = None,
    say: Callable[[str], None],
    rng: Callable[[], float] = random.random,
) -> AsyncIterator[StreamEvent]:
    """Hand out the events of an entered stream, and go on when its session comes back.

    A session that ends says so in its stream. One that is unknown without that has died with its
    server, and whoever publishes may make it again. The stream is then opened at the place it had;
    the server tells that the history is another one.

    Args:
        stream: once open.
        patience: seconds to wait in one outage, all waits together.
        make: makes the session, before each new attempt; without it, it is only waited for.
        say: told once in each outage.
        rng: uniform in [0, 1), for the spread of the delays.

    Raises:
        StreamRefused: the patience is over, or it was refused for another reason.
        ClientError: as the stream does.
    """
    connects = attempt = 0
    left = patience
    while True:
        try:
            event = await anext(stream)
        except StopAsyncIteration:
            return
        except StreamRefused as refusal:
            if refusal.status != 404 or refusal.code != _NOT_FOUND:
                raise
            if stream.statistics().connects != connects:
                connects, attempt, left = stream.statistics().connects, 0, patience
                say("session is gone; " + ("making it again" if make else "waiting for it"))
            if left <= 0:
                raise
            # What makes the session itself has nobody to wait for, the first time.
            delay = 0.0 if make and not attempt else min(left, retry_delay(attempt or 1, None, rng))
            attempt += 1
            left -= delay
            await asyncio.sleep(delay)
            if make is not None:
                await make()
            await stream.reopen(stream.cursor, _epoch_beside(stream))
        else:
            yield event


def _epoch_beside(stream: ClientStream) -> str | None:
    """Return the epoch that a plain number needs; a cursor with its own goes alone."""
    return stream.epoch if (stream.cursor or "").isdigit() else None
