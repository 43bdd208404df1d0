"""Writes a command's output to our own stdout and stderr, where a full pipe blocks nobody else."""

from __future__ import annotations

import asyncio
import os
import queue
import select
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Echo"]

_MAX_WAITING_BYTES = 256 * 1024


class Echo:
    """A thread that writes what it is given, in order; made within a running event loop.

    A descriptor that cannot be written is written to no more. That its other end is gone is no
    error, as with ``tee``; anything else is the ``problem``. Everything but the thread belongs to
    one event loop. The thread is a daemon: a reader that has stopped for good cannot keep the
    process alive.

    Args:
        on_room: called when ``full`` may have become false.
        descriptors: where 1 and 2 go, in this order.
        max_bytes: bytes waiting to be written from which on the echo is full.
    """

    def __init__(
        self,
        on_room: Callable[[], None],
        *,
        descriptors: tuple[int, int] = (1, 2),
        max_bytes: int = _MAX_WAITING_BYTES,
    ) -> None:
        self._on_room = on_room
        self._descriptors: dict[int, int] = {1: descriptors[0], 2: descriptors[1]}
        self._max_bytes = max_bytes
        self._waiting = 0
        self._problem: OSError | None = None
        self._idle = asyncio.Event()
        self._idle.set()
        self._loop = asyncio.get_running_loop()
        # Bounded by ``full``, which the caller heeds.
        self._work: queue.SimpleQueue[tuple[int, bytes] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="tidegate-echo", daemon=True)
        self._thread.start()

    @property
    def full(self) -> bool:
        """Whether the source should be stopped for now."""
        return self._waiting >= self._max_bytes

    @property
    def problem(self) -> OSError | None:
        """Why something could not be written, as on a full disk; known after `drain`."""
        return self._problem

    def write(self, number: int, data: bytes) -> None:
        """Hand over what came from descriptor 1 or 2 of the command; never blocks."""
        self._waiting += len(data)
        self._idle.clear()
        self._work.put((number, data))

    async def drain(self) -> None:
        """Wait until everything is written. May be cancelled; the writing goes on."""
        await self._idle.wait()

    def close(self) -> None:
        """Let the thread end when everything is written; does not wait for it."""
        self._work.put(None)

    def join(self, seconds: float) -> bool:
        """After `close`: block for the thread's end; return whether it came."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while (item := self._work.get()) is not None:
            number, data = item
            descriptor = self._descriptors.get(number)
            if descriptor is not None and (failure := _write_all(descriptor, data)) is not None:
                del self._descriptors[number]
                if not isinstance(failure, BrokenPipeError):
                    self._problem = failure
            try:
                self._loop.call_soon_threadsafe(self._wrote, len(data))
            except RuntimeError:
                return  # the loop is closed: nobody waits any more

    def _wrote(self, size: int) -> None:
        self._waiting -= size
        if self._waiting == 0:
            self._idle.set()
        self._on_room()


def _write_all(descriptor: int, data: bytes) -> OSError | None:
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(descriptor, view) :]
        except BlockingIOError:
            # Somebody who shares the descriptor made it non-blocking, as some terminals' users do.
            select.select([], [descriptor], [])
        except OSError as error:
            return error
    return None
