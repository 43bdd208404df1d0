"""How events from other threads reach a channel's event loop, in order and bounded."""

from __future__ import annotations

import threading
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

    __slots__ = ("_lock", "_pending", "_run", "_scheduled", "loop")

    def __init__(self, run: Callable[[tuple[object, ...]], None]) -> None:
        self.loop: asyncio.AbstractEventLoop | None = None
        self._run = run
        self._pending: deque[tuple[object, ...]] = deque()
        self._lock = threading.Lock()
        self._scheduled = False

    def put(self, call: tuple[object, ...]) -> str | None:
        """Queue a call, from any thread; never raises.

        Returns:
            ``None``, or why it was dropped: ``"no_loop"``, ``"loop_closed"``,
            ``"queue_full"`` (over a million calls wait).
        """
        if self.loop is None:
            return "no_loop"
        with self._lock:
            if self.loop.is_closed():
                return "loop_closed"
            if len(self._pending) >= _MAX_PENDING:
                return "queue_full"
            if not self._scheduled:
                try:
                    self.loop.call_soon_threadsafe(self._drain)
                except RuntimeError:
                    # Closed since we looked.
                    return "loop_closed"
                self._scheduled = True
            self._pending.append(call)
        return None

    def _drain(self) -> None:
        for _ in range(_SLICE):
            with self._lock:
                if not self._pending:
                    self._scheduled = False
                    return
                call = self._pending.popleft()
            self._run(call)
        assert self.loop is not None  # noqa: S101 - what was queued had a loop
        self.loop.call_soon(self._drain)
