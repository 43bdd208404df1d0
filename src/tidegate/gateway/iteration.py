"""`GatewaySubscription`: channels inside the process, as an async iterator of events."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Self

from tidegate.errors import BrokerUnavailable, ConcurrentConsumers

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidegate.gateway.events import GatewayEvent
    from tidegate.gateway.subscription import Subscription

__all__ = ["GatewaySubscription"]


class GatewaySubscription:
    """Channels inside the process: an async context manager and async iterator of events.

    The same stream as a client's: it is told of gaps, is warned and cut when it is too slow,
    and goes on later from a `cursor`. Only one task may iterate it. A cancelled iteration
    loses nothing. A route may return it as ``EventStream(subscription, request)`` instead, not
    entered.

    Args:
        open_stream: makes the stream.
    """

    def __init__(self, open_stream: Callable[[], Subscription]) -> None:
        self._open_stream = open_stream
        self._stream: Subscription | None = None
        self._taken: list[GatewayEvent] = []
        self._waiter: asyncio.Future[None] | None = None
        self._cursor: str | None = None

    def open(self) -> Subscription:
        """Make the stream: what `__aenter__` does, for wires. Once."""
        if self._stream is not None:
            raise RuntimeError("this subscription was entered before; subscribe again")
        self._stream = self._open_stream()
        return self._stream

    async def __aenter__(self) -> Self:
        """Join all channels: every publish acknowledged after this is delivered.

        Raises:
            BrokerUnavailable: the broker does not answer.
            StreamDenied: it gets none of its channels.
        """
        stream = self.open()
        stream.on_ready = self._ready
        try:
            await stream.joined()
        except TimeoutError:
            stream.abort()
            raise BrokerUnavailable(
                "the broker did not let the channels be joined in time"
            ) from None
        except BaseException:
            stream.abort()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._stream is not None:
            self._stream.abort()
            self._taken.clear()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> GatewayEvent:
        """Return the next event or control frame.

        Raises:
            StopAsyncIteration: it was evicted, failed or left; the last frame says why.
            ConcurrentConsumers: another task waits already.
        """
        stream = self._stream
        if stream is None:
            raise RuntimeError("enter the subscription first: async with gateway.subscribe(...)")
        if self._waiter is not None:
            raise ConcurrentConsumers
        while not self._taken:
            if stream.ended:
                raise StopAsyncIteration
            # One at a time: what has been taken is out of the backlog's caps.
            self._taken = stream.take(1)
            if not self._taken and stream.arm():
                self._waiter = asyncio.get_running_loop().create_future()
                try:
                    await self._waiter
                finally:
                    self._waiter = None
                    stream.disarm()
        event = self._taken.pop()
        self._cursor = event.cursor
        return event

    def _ready(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    @property
    def cursor(self) -> str | None:
        """What resumes it behind the event that was returned last; ``None`` before the first."""
        return self._cursor

    @property
    def stream(self) -> Subscription:
        """The stream; the subscription has been entered."""
        if self._stream is None:
            raise RuntimeError("enter the subscription first: async with gateway.subscribe(...)")
        return self._stream
