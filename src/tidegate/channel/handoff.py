"""How events from other threads reach a channel's event loop, in order and bounded."""

from __future__ import annotations

import contextlib
from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

__all__ = ["Handoff"]

_SLICE: Final = 64
_MAX_PENDING: Final = 1_048_576


class Handoff:
    """A bounded queue of calls, run on one event loop in the order they came.

    One wake-up serves all that came before it ran, and they run in slices: consumers get
    their turn in between. (One ``call_soon_threadsafe`` an event wakes the loop each time
    and runs a whole burst without a turn for those who should read it.)

    Attributes:
        loop: where the calls run; ``None`` until one is known.
    """

    __slots__ = ("_pending", "_run", "_scheduled", "loop")

    def __init__(self, run: Callable[[tuple[object, ...]], None]) -> None:
        self.loop: asyncio.AbstractEventLoop | None = None
        self._run = run
        # No lock: the garbage collector may run a finalizer that calls `put` while its
        # own thread is inside `put`, and would wait for itself. A deque's ends are safe.
        self._pending: deque[tuple[object, ...]] = deque()
        self._scheduled = False

    def put(self, call: tuple[object, ...]) -> str | None:
        """Queue a call, from any thread; never raises.

        Returns:
            ``None``, or why it was dropped: ``"no_loop"``, ``"loop_closed"``,
            ``"queue_full"`` (over a million calls wait).
        """
        if self.loop is None:
            return "no_loop"
        if self.loop.is_closed():
            return "loop_closed"
        if len(self._pending) >= _MAX_PENDING:
            return "queue_full"
        self._pending.append(call)
        if not self._scheduled:
            self._scheduled = True
            try:
                self.loop.call_soon_threadsafe(self._drain)
            except RuntimeError:
                # Closed since we looked.
                self._scheduled = False
                self._pending.pop()
                return "loop_closed"
        return None

    def take_lost(self) -> list[tuple[object, ...]]:
        """Take the calls that will never run, since the loop was closed before their turn."""
        lost: list[tuple[object, ...]] = []
        if self.loop is not None and self.loop.is_closed():
            with contextlib.suppress(IndexError):
                while True:
                    lost.append(self._pending.popleft())
        return lost

    def _drain(self) -> None:
        assert self.loop is not None  # noqa: S101 - what was queued had a loop
        for _ in range(_SLICE):
            try:
                call = self._pending.popleft()
            except IndexError:
                self._scheduled = False
                break
            self._run(call)
        # Looked at after the flag was lowered, since who saw it raised relies on this;
        # and still raised it is after a whole slice.
        if self._scheduled or self._pending:
            self._scheduled = True
            self.loop.call_soon(self._drain)
