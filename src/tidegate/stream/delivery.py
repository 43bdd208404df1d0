"""One stream on its way to one client through ASGI ``send``."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from tidegate.channel.frames import stream_error
from tidegate.stream.frames import HEARTBEAT, control_bytes

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tidegate.stream.feed import WireFeed
    from tidegate.stream.transport import TransportExtension

__all__ = ["Delivery"]

_log = logging.getLogger("tidegate.stream")

_EVICTION_SECONDS: Final = 5.0
_BLOCKED_SECONDS: Final = 0.25
_END_SECONDS: Final = 0.1


class Delivery:
    """Writes a feed to a client, serially, and knows when to stop waiting for it.

    It runs in the task of its request. One timer serves heartbeats and deadlines and
    moves itself lazily: an event costs no timer work. Everything else is called from the
    same event loop, also from inside ``publish``, and neither waits nor raises.

    Args:
        feed: what to write.
        send: the request's ASGI ``send``.
        transport: what the server offers beyond ASGI.
        name: for the log.
        heartbeat: seconds without a write after which a comment is written.
        write_timeout: seconds that one write may be blocked.
        clock: the time in seconds since 1970.
    """

    __slots__ = (
        "_abandoned",
        "_beat_due",
        "_clock",
        "_complete",
        "_deadline",
        "_evicted",
        "_farewell",
        "_feed",
        "_heartbeat",
        "_last_write",
        "_loop",
        "_name",
        "_scope",
        "_send",
        "_stopped",
        "_timer",
        "_transport",
        "_waiter",
        "_write_timeout",
        "_writing_since",
    )

    def __init__(
        self,
        feed: WireFeed,
        send: Callable[[dict[str, Any]], Awaitable[None]],
        *,
        transport: TransportExtension | None,
        name: str,
        heartbeat: float,
        write_timeout: float,
        clock: Callable[[], float],
    ) -> None:
        self._feed = feed
        self._send = send
        self._transport = transport
        self._name = name
        self._heartbeat = heartbeat
        self._write_timeout = write_timeout
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        # One scope for the whole stream: moving its deadline to now interrupts whatever
        # it waits for. (A scope per write would cost two objects for each event.)
        self._scope = asyncio.timeout(None)
        self._waiter: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._writing_since: float | None = None
        self._last_write = self._loop.time()
        self._beat_due = False
        self._deadline: float | None = None
        self._farewell: bytes | None = None
        self._evicted = False
        self._complete = False
        self._stopped = False
        self._abandoned = False

    async def run(self, start: dict[str, Any], first: bytes) -> None:
        """Write the head, ``first`` and the feed until it ends, the client is gone or cut.

        Args:
            start: the ``http.response.start`` message.
            first: bytes to go out with the head.

        Raises:
            Exception: what ``send`` raised, unless it was an `OSError`, which only means
                that the client is gone.
        """
        self._feed.on_ready = self._on_ready
        self._timer = self._loop.call_later(min(self._heartbeat, self._write_timeout), self._tick)
        try:
            async with self._scope:
                try:
                    await self._write(start)
                    if self._transport is not None:
                        self._transport["hold"]()
                    await self._pump(first)
                except Exception:
                    if self._writing_since is not None:
                        raise
                    _log.exception("stream %s failed", self._name)
                    await self._write(_body(self._internal_error(), more=False))
        except OSError:
            # Interrupted by us (TimeoutError is one), or the client is gone.
            if self._abandoned:
                await self._end_unread()
        finally:
            self._stopped = True
            self._timer.cancel()
            self._feed.on_ready = None

    # -- what others may ask of it -------------------------------------------------------

    def gone(self) -> None:
        """Stop at once: the client has gone."""
        # Behind the last byte servers call every client gone.
        if not self._stopped and not self._complete:
            self._stopped = True
            self._feed.abort()
            self._interrupt()

    def farewell(self, frame: bytes, seconds: float) -> None:
        """Write what waits, then ``frame``, and end; a blocked client is cut instead.

        Args:
            frame: the last bytes.
            seconds: how long that may take before the client is cut.
        """
        if self._stopped or self._farewell is not None:
            return
        self._farewell = frame
        if self._blocked():
            self.cut()
            return
        self._expire_in(seconds)
        self._wake()

    def cut(self) -> None:
        """Close the connection without another word, as far as the server lets us."""
        if self._stopped:
            return
        self._stopped = True
        if self._transport is None:
            self._abandoned = True
        else:
            self._transport["reset"]()
        self._interrupt()

    # -- the writer ----------------------------------------------------------------------

    async def _pump(self, pending: bytes) -> None:
        feed = self._feed
        while not self._stopped:
            if self._farewell is not None:
                await self._write(_body(pending + feed.rest() + self._farewell, more=False))
                return
            chunk = pending + feed.chunk()
            pending = b""
            if feed.done:
                await self._write(_body(chunk, more=False))
                return
            if chunk:
                await self._write(_body(chunk, more=True))
            elif self._beat_due:
                await self._write(_body(HEARTBEAT, more=True))
            else:
                await self._wait()

    async def _wait(self) -> None:
        armed = self._feed.arm()
        assert armed  # noqa: S101 - no suspension point since nothing was found to wait
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None
            self._feed.disarm()

    async def _write(self, message: dict[str, Any]) -> None:
        self._beat_due = False
        self._writing_since = self._loop.time()
        self._complete = message.get("more_body") is False
        await self._send(message)
        transport = self._transport
        if self._complete and transport is not None and transport["buffered"]():
            # Else the server keeps, for ever, a connection whose peer does not read.
            await transport["flush"]()
        # Not in a ``finally``: a write that failed tells so by still being in progress.
        self._writing_since = None
        self._last_write = self._loop.time()

    async def _end_unread(self) -> None:
        # Where nothing can cut a blocked writer, the response ends all the same; what the
        # peer does not read is then the server's to keep.
        with suppress(OSError):
            async with asyncio.timeout(_END_SECONDS):
                await self._send(_body(b"", more=False))

    def _internal_error(self) -> bytes:
        error = "the stream failed on the server's side; come back with your cursor"
        return control_bytes(stream_error(int(self._clock() * 1000), kind="internal", error=error))

    # -- being woken ---------------------------------------------------------------------

    def _on_ready(self) -> None:
        if self._feed.evicted and not self._evicted:
            self._evicted = True
            if self._blocked():
                # Its frame could only queue up behind what the client does not read.
                self.cut()
                return
            self._expire_in(_EVICTION_SECONDS)
        self._wake()

    def _blocked(self) -> bool:
        """Tell whether a write is in progress that waits for the client."""
        if self._writing_since is None:
            return False
        if self._transport is not None:
            # Nothing buffered: it is only on its way through a middleware.
            return self._transport["buffered"]() > 0
        return self._loop.time() - self._writing_since >= _BLOCKED_SECONDS

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _interrupt(self) -> None:
        self._scope.reschedule(self._loop.time())

    # -- the timer -----------------------------------------------------------------------

    def _expire_in(self, seconds: float) -> None:
        deadline = self._loop.time() + seconds
        if self._deadline is None or deadline < self._deadline:
            self._deadline = deadline
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._loop.call_at(deadline, self._tick)

    def _tick(self) -> None:
        if self._deadline is not None:
            # Whoever set it moved the timer there.
            self.cut()
            return
        now = self._loop.time()
        if self._writing_since is not None:
            limit = self._writing_since + self._write_timeout
            if now >= limit:
                self.cut()
                self._feed.evict("write_timeout")
                return
            # A write that ends right now is followed by a heartbeat no earlier than that.
            later = min(limit, now + self._heartbeat)
        elif now >= self._last_write + self._heartbeat:
            self._beat_due = True
            self._wake()
            later = now + min(self._heartbeat, self._write_timeout)
        else:
            # A write that starts right now times out no earlier than that.
            later = min(self._last_write + self._heartbeat, now + self._write_timeout)
        self._timer = self._loop.call_at(later, self._tick)


def _body(body: bytes, *, more: bool) -> dict[str, Any]:
    return {"type": "http.response.body", "body": body, "more_body": more}
