"""Publishing no faster than those who read in this process can follow."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

__all__ = ["TURN_BYTES", "TURN_EVENTS", "Pacer"]

TURN_EVENTS: Final = 64
"""How many events are published between two turns of the event loop."""

TURN_BYTES: Final = 512 * 1024
"""And how many bytes of them; the first is let through in any case."""


class Pacer:
    """Gives the event loop's readers their turn between events, in the order of the calls.

    A broker in this process may store and deliver without ever suspending its caller. Whoever
    publishes in a loop, or gathers a thousand publishes, would then overflow the backlog of
    every stream, however fast its client reads. Belongs to one event loop.
    """

    def __init__(self) -> None:
        self._events = 0
        self._bytes = 0
        self._scheduled = False
        self._waiting: deque[tuple[asyncio.Future[None], int, int]] = deque()
        self._pending = 0

    async def admit(self, events: int, size: int) -> None:
        """Wait until it is the caller's turn; it suspends only when there was too much.

        Args:
            events: how many are to be published.
            size: their bytes.
        """
        # Those who were let in and have not run yet go first as well.
        if not self._pending and self._fits(events, size):
            self._events += events
            self._bytes += size
            self._schedule()
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((turn, events, size))
        self._pending += 1
        try:
            await turn
        finally:
            self._pending -= 1

    def _fits(self, events: int, size: int) -> bool:
        return not self._events or (
            self._events + events <= TURN_EVENTS and self._bytes + size <= TURN_BYTES
        )

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._scheduled = False
        self._events = self._bytes = 0
        while self._waiting:
            turn, events, size = self._waiting[0]
            if not turn.done():
                if not self._fits(events, size):
                    break
                self._events += events
                self._bytes += size
                turn.set_result(None)
            self._waiting.popleft()
        if self._events:
            # Behind those who were just let in: what they publish counts in their turn.
            self._schedule()
