"""Publishes what waits in an `OutputQueue`, and tries again while the server is away."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from typing import TYPE_CHECKING, Any

from tidegate.cli.delivery import Away, Refused, retry_delay

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidegate.cli.delivery import Send
    from tidegate.cli.output_queue import OutputQueue

__all__ = ["Feed"]


class Feed:
    """Empties a queue in batches; belongs to one event loop.

    When the server has been away for ``patience`` seconds, the source is held back no longer:
    the queue drops lines until the server is back, which `run` goes on to look for.

    Args:
        queue: what to publish.
        send: publishes a batch.
        patience: seconds that the source may be held back.
        on_room: called when ``full`` has become false.
        on_lost: called with a sentence when lines begin to be dropped.
        clock: a monotonic time in seconds.
        rng: uniform in [0, 1), for the spread of the delays.
    """

    def __init__(
        self,
        queue: OutputQueue,
        send: Send,
        *,
        patience: float,
        on_room: Callable[[], None],
        on_lost: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
        rng: Callable[[], float] = random.random,
    ) -> None:
        self._queue = queue
        self._send = send
        self._patience = patience
        self._on_room = on_room
        self._on_lost = on_lost
        self._clock = clock
        self._rng = rng
        self._more = asyncio.Event()
        self._hurry = asyncio.Event()
        self._finished = False
        self._abandoned = False
        self._refused = False
        self._away_since: float | None = None

    @property
    def full(self) -> bool:
        """Whether the source should be held back."""
        return self._queue.full

    def put(self, event: dict[str, Any], size: int) -> None:
        """Append a line of about ``size`` bytes; never blocks."""
        self._queue.put(event, size)
        self._more.set()

    def finish(self, last: dict[str, Any]) -> None:
        """Append the last event: `run` returns when all is published, or lost."""
        self._queue.put_last(last)
        self._finished = True
        self._more.set()
        self._hurry.set()

    def abandon(self) -> None:
        """Try no more, should the server be away: what waits, and what comes, counts as lost."""
        self._abandoned = True
        self._hurry.set()

    async def run(self) -> bool:
        """Publish until the last event is out.

        Cancelling it leaves the queue as it is; the batch under way may have been published.

        Returns:
            Whether the last event was published.
        """
        attempt = 0
        while True:
            batch = self._queue.batch()
            if batch is None or self._refused:
                if self._finished:
                    break
                self._more.clear()
                await self._more.wait()
                continue
            try:
                await self._send(batch.events)
            except Refused as refusal:
                self._refused = True
                self._lose(str(refusal))
            except Away as away:
                attempt += 1
                if not await self._hold(away, attempt):
                    self._queue.start_dropping()
                    self._on_room()
                    return False
            else:
                attempt = 0
                self._away_since = None
                self._queue.published(batch)
                self._on_room()
        return not self._refused

    async def _hold(self, away: Away, attempt: int) -> bool:
        """Wait before the next attempt; return false if there is to be none."""
        if self._abandoned:
            return False
        now = self._clock()
        if self._away_since is None:
            self._away_since = now
        left = self._away_since + self._patience - now
        delay = retry_delay(attempt, away.retry_after, self._rng)
        if left > 0:
            delay = min(delay, left)
        else:
            if not self._queue.dropping:
                self._lose(str(away))
            if self._finished:
                return False
        # The end of the source is worth an attempt at once.
        self._hurry.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(delay):
                await self._hurry.wait()
        return not self._abandoned

    def _lose(self, why: str) -> None:
        self._queue.start_dropping()
        self._on_lost(why)
        self._on_room()
