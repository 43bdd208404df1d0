"""Ending all streams in good order when the process is told to stop."""

from __future__ import annotations

import asyncio
import logging
import random
import signal
import threading
import time
from typing import TYPE_CHECKING, Any, Final, Protocol, Self

from tidegate.channel.frames import stream_error
from tidegate.stream.frames import control_bytes, jittered, retry_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import FrameType

__all__ = ["STATE_KEY", "Drain", "DrainableStream", "drain_of"]

STATE_KEY: Final = "tidegate.drain"
"""Where a lifespan puts its drain for streams to find: ``yield {"tidegate.drain": drain}``."""

_log = logging.getLogger("tidegate.stream")

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
_FAREWELL_SECONDS: Final = 1.0
_SETTLE_SECONDS: Final = 0.5


class DrainableStream(Protocol):
    """What a drain needs of a stream."""

    def farewell(self, frame: bytes, seconds: float) -> None:
        """Write ``frame`` and end, or be cut after ``seconds``."""

    def cut(self) -> None:
        """End now."""


class Drain:
    """Knows the open streams of one event loop and ends them when it is time.

    As an async context manager in an application's lifespan it chains itself in front of
    the handlers of SIGTERM and SIGINT, where it is entered in the main thread. The first
    signal ends the streams, each with a ``stream_error`` of kind ``draining``; then the
    handler that was there before gets the signal, and the server stops as it always
    does. A second signal cuts what is left and goes straight through. Servers wait for
    open responses before they end an application's lifespan, so nothing later is early
    enough. Leaving the context drains too and puts the former handlers back.

    Where there are no signals, as in a server run in a thread, await `drain`.

    Cancelling `drain` leaves it undone but repeatable. All of it belongs to one loop.

    Args:
        seconds: over which to spread the ends, so that clients return at a flat rate.
        retry_ms: what the clients are told to wait before they return, ± 20 %, and on top
            of it a random part of ``seconds``.
        farewell_seconds: how long one stream may take to write its last frames before it
            is cut; one that is blocked already is cut at once.
        rng: draws from [0, 1), for the jitter.
        clock: the time in seconds since 1970.
    """

    def __init__(
        self,
        *,
        seconds: float = 0.0,
        retry_ms: int = 3000,
        farewell_seconds: float = _FAREWELL_SECONDS,
        rng: Callable[[], float] = random.random,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._seconds = seconds
        self._retry_ms = retry_ms
        self._farewell_seconds = farewell_seconds
        self._rng = rng
        self._clock = clock
        self._streams: dict[DrainableStream, None] = {}
        self._draining = False
        self._empty: asyncio.Future[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._signalled = False
        self._overtaken = False
        self._chained: dict[int, tuple[Any, Any]] = {}

    @property
    def draining(self) -> bool:
        """Whether new streams are to be refused: true from the first moment of a drain on."""
        return self._draining

    @property
    def open_streams(self) -> int:
        """How many streams are open."""
        return len(self._streams)

    async def __aenter__(self) -> Self:
        if self._loop is not None:
            raise RuntimeError("a Drain serves one lifespan; make another one")
        self._loop = asyncio.get_running_loop()
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                self._chain(number)
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            if self._task is not None:
                await self._task
            await self.drain()
        finally:
            self._unchain()

    async def drain(self) -> None:
        """Refuse new streams and end the open ones; returns when they have ended.

        Bounded by ``seconds`` + ``farewell_seconds`` and half a second more. A concurrent
        or repeated call waits for the same end.
        """
        self._draining = True
        loop = asyncio.get_running_loop()
        began = loop.time()
        streams = list(self._streams)
        for number, stream in enumerate(streams):
            pause = began + self._seconds * number / len(streams) - loop.time()
            if pause > 0 and await self._all_ended(pause):
                return
            stream.farewell(self._farewell(), self._farewell_seconds)
        if not await self._all_ended(self._farewell_seconds):
            self.cut()
            if not await self._all_ended(_SETTLE_SECONDS):
                _log.warning("streams that did not end in time: %d", len(self._streams))

    async def __call__(self) -> None:
        """The same as `drain`: what has a drain as its attribute is drained by calling that."""
        await self.drain()

    def cut(self) -> None:
        """Cut every open stream, without a word to its client."""
        for stream in list(self._streams):
            stream.cut()

    def add(self, stream: DrainableStream) -> None:
        """Take note of an open stream."""
        self._streams[stream] = None

    def discard(self, stream: DrainableStream) -> None:
        """Forget a stream that has ended."""
        self._streams.pop(stream, None)
        if not self._streams and self._empty is not None and not self._empty.done():
            self._empty.set_result(None)

    def _farewell(self) -> bytes:
        retry = jittered(0.8 * self._retry_ms, 1.2 * self._retry_ms, self._rng)
        retry += jittered(0, 1000 * self._seconds, self._rng)
        frame = stream_error(
            int(self._clock() * 1000),
            kind="draining",
            error="the server is shutting down; come back with your cursor",
        )
        return retry_bytes(retry) + control_bytes(frame)

    async def _all_ended(self, seconds: float) -> bool:
        if not self._streams:
            return True
        if self._empty is None or self._empty.done():
            self._empty = asyncio.get_running_loop().create_future()
        await asyncio.wait([self._empty], timeout=seconds)
        return not self._streams

    # -- signals -------------------------------------------------------------------------

    def _chain(self, number: int) -> None:
        previous = signal.getsignal(number)
        # None: a handler that Python cannot call, and could not put back. Ignored
        # signals stay ignored: whoever started the process wants it so.
        if previous is None or previous is signal.SIG_IGN:
            return

        def handler(number: int, frame: FrameType | None) -> None:
            self._on_signal(number, frame)

        self._chained[number] = (handler, previous)
        signal.signal(number, handler)

    def _unchain(self) -> None:
        for number, (handler, previous) in self._chained.items():
            # Somebody may have chained in front of us: then ours stays, and passes on.
            if signal.getsignal(number) is handler:
                signal.signal(number, previous)
        self._signalled = True

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        # Between two bytecodes of the main thread: no more than to wake the loop.
        loop = self._loop
        assert loop is not None  # noqa: S101 - handlers are chained by a loop only
        if not self._signalled and not loop.is_closed():
            self._signalled = True
            loop.call_soon_threadsafe(self._begin, number, frame)
            return
        self._overtaken = True
        if not loop.is_closed():
            loop.call_soon_threadsafe(self.cut)
        self._pass_on(number, frame)

    def _begin(self, number: int, frame: FrameType | None) -> None:
        # Before anything can suspend: /readyz turns red with the signal.
        self._draining = True
        self._task = asyncio.get_running_loop().create_task(self._obey(number, frame))

    async def _obey(self, number: int, frame: FrameType | None) -> None:
        _log.info("signal %d: streams to end: %d", number, len(self._streams))
        try:
            await self.drain()
        finally:
            if not self._overtaken:
                # Not from the task: what raises KeyboardInterrupt must stop the loop.
                asyncio.get_running_loop().call_soon(self._pass_on, number, frame)

    def _pass_on(self, number: int, frame: FrameType | None) -> None:
        _, previous = self._chained[number]
        if callable(previous):
            previous(number, frame)
        else:
            signal.signal(number, previous)
            signal.raise_signal(number)


def drain_of(scope: Mapping[str, Any]) -> Drain | None:
    """Return the drain that the application's lifespan put into its state, or ``None``."""
    found = (scope.get("state") or {}).get(STATE_KEY)
    return found if isinstance(found, Drain) else None
