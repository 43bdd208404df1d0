"""A generator whose events outlive the request that started it."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final, Self

from tidegate.errors import RunCancelled

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tidegate.channel import Channel

__all__ = ["Run", "Runs", "event_of"]

_log = logging.getLogger("tidegate.sessions")

_STOP_SECONDS: Final = 5.0

_EVENT_KEYS = frozenset({"type", "data", "meta"})


class Run:
    """One generator being published into a session, in a task that its `Sessions` owns.

    Nobody needs to wait for it, and whoever waits may stop waiting: it goes on. It ends
    with its generator, when it is cancelled, when its session ends, or with `Sessions`.

    Attributes:
        session_id: the session's id.
        published: how many events it has published so far.
        error: what its generator raised, after it did.
        task: where it runs.
    """

    def __init__(self, session_id: str, channel: Channel, source: AsyncIterator[Any]) -> None:
        self.session_id = session_id
        self.published = 0
        self.error: BaseException | None = None
        self._channel = channel
        self._source = source
        self.task = asyncio.get_running_loop().create_task(self._drive())

    @property
    def done(self) -> bool:
        """Whether it has ended, in whatever way."""
        return self.task.done()

    def cancel(self) -> None:
        """Stop the generator where it is; it is closed in due form."""
        self.task.cancel()

    async def wait(self) -> None:
        """Wait for the end; being cancelled here does not touch the run.

        Raises:
            Exception: what the generator raised.
            RunCancelled: it was cancelled, its session ended first, or something that
                the generator awaited was cancelled.
        """
        await asyncio.wait([self.task])
        if isinstance(self.error, asyncio.CancelledError) or self.task.cancelled():
            # Never a CancelledError: it is not the caller who was cancelled.
            raise RunCancelled(self.session_id) from self.error
        if self.error is not None:
            raise self.error

    async def _drive(self) -> None:
        try:
            try:
                await self._publish_all()
            finally:
                close = getattr(self._source, "aclose", None)
                if close is not None:
                    await close()
        except asyncio.CancelledError as error:
            if self.task.cancelling():
                raise
            # Not we: something that the generator awaited was cancelled under it.
            self._fail(error)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # noqa: BLE001 - a user's code may raise anything
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        _log.error("a run of session %s failed", self.session_id, exc_info=error)
        self.error = error
        self._channel.publish("run_failed", {"error": type(error).__name__})

    async def _publish_all(self) -> None:
        async for item in self._source:
            event_type, data, meta = event_of(item)
            self._channel.publish(event_type, data, meta=meta)
            if self._channel.closed:
                # The session has ended, and the generator did not take the hint.
                raise asyncio.CancelledError
            self.published += 1
            # Consumers get their turn, also when the generator never suspends.
            await asyncio.sleep(0)


class Runs:
    """Owns the tasks of runs; on leaving it cancels and awaits them."""

    def __init__(self) -> None:
        self._running: set[Run] = set()
        self._open = False

    async def __aenter__(self) -> Self:
        self._open = True
        return self

    async def __aexit__(self, *_: object) -> None:
        self._open = False
        running = list(self._running)
        for run in running:
            run.cancel()
        if running:
            _done, late = await asyncio.wait([run.task for run in running], timeout=_STOP_SECONDS)
            if late:
                _log.warning("%d runs did not stop when they were cancelled", len(late))

    def check_open(self) -> None:
        """See that a run may start.

        Raises:
            RuntimeError: not entered yet, or left.
        """
        if not self._open:
            raise RuntimeError("runs live only within: async with sessions: ...")

    def start(self, session_id: str, channel: Channel, source: AsyncIterator[Any]) -> Run:
        """Start a run."""
        run = Run(session_id, channel, source)
        self._running.add(run)
        run.task.add_done_callback(lambda _: self._running.discard(run))
        return run


def event_of(item: object) -> tuple[str, Any, Any]:
    """Return type, data and meta of the event that a yielded object stands for.

    A pair whose first part is a string is ``(type, data)``; a dict with a string under
    ``type`` and no keys but ``type``, ``data`` and ``meta`` is spelt out; anything else
    is the data of a ``message``.
    """
    if isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], str):
        return item[0], item[1], None
    if isinstance(item, dict) and item.keys() <= _EVENT_KEYS and isinstance(item.get("type"), str):
        return item["type"], item.get("data"), item.get("meta")
    return "message", item, None
