"""Something done again and again while a context is entered."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Repeated"]

_log = logging.getLogger("tidegate.sessions")


class Repeated:
    """Calls a function at intervals from entering to leaving, in a task of its own.

    A call that raises is logged, and the next one comes in its time.

    Args:
        call: what to call; it must not block.
        pause: seconds between calls, the first pause included.
    """

    def __init__(self, call: Callable[[], object], pause: float) -> None:
        self._call = call
        self._pause = pause
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.get_running_loop().create_task(self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None  # noqa: S101 - entered
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._pause)
            try:
                self._call()
            except Exception:  # noqa: BLE001 - one failure must not be the last call
                _log.exception("%r failed", self._call)
