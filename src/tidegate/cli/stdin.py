"""Standard input without a thread: whatever it is, a pipe, a terminal or a file."""

from __future__ import annotations

import asyncio
import os

__all__ = ["Readable"]

_CHUNK = 64 * 1024


class Readable:
    """A descriptor to read from, one read at a time; it is neither changed nor closed.

    Args:
        descriptor: open for reading, blocking or not.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    async def read(self) -> bytes:
        """Return the next bytes as soon as there are some, at most 64 KiB; ``b""`` at the end.

        Cancelling it loses nothing.

        Raises:
            OSError: reading failed.
        """
        loop = asyncio.get_running_loop()
        ready = loop.create_future()
        try:
            loop.add_reader(self._descriptor, _set, ready)
        except PermissionError:
            pass  # a file, which epoll does not take: reading one does not wait for anybody
        else:
            try:
                await ready
            finally:
                loop.remove_reader(self._descriptor)
        return os.read(self._descriptor, _CHUNK)


def _set(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)
