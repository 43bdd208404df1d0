"""One subscriber of a channel: the record that it feeds, and the consumer's handle."""

from __future__ import annotations

import asyncio
import warnings
import weakref
from typing import TYPE_CHECKING, Self

from tidegate.channel.statistics import SubscriptionStatistics
from tidegate.errors import ConcurrentConsumers

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidegate.channel.backlog import Backlog
    from tidegate.channel.channel import Channel
    from tidegate.channel.event import ChannelEvent
    from tidegate.channel.frames import EvictionReason

__all__ = ["ChannelSubscription", "Subscriber"]


class Subscriber:
    """What a channel knows of one consumer. Not public: consumers hold the handle.

    The channel holds this record and not the handle, so that a handle that nobody holds
    any more can be collected and its place freed.

    Attributes:
        backlog: its queue.
        on_ready: a wire's way of waiting, see `ChannelSubscription.on_ready`.
        waiter: a task's way of waiting.
        consuming: a task is inside ``anext``.
        delivered: events taken by the consumer.
        warned: warnings given to it.
        evicted: it was cut because it was too slow.
        aborted: its consumer ended it.
        budget_exceeded: its replay stopped at the byte budget.
    """

    __slots__ = (
        "aborted",
        "backlog",
        "budget_exceeded",
        "channel",
        "consuming",
        "delivered",
        "evicted",
        "on_ready",
        "waiter",
        "warned",
    )

    def __init__(self, channel: Channel, backlog: Backlog) -> None:
        self.channel = channel
        self.backlog = backlog
        self.on_ready: Callable[[], None] | None = None
        self.waiter: asyncio.Future[None] | None = None
        self.consuming = False
        self.delivered = 0
        self.warned = 0
        self.evicted = False
        self.aborted = False
        self.budget_exceeded = False

    def close(self) -> None:
        """Let the consumer take what waits, then end."""
        self.backlog.close()
        self.wake()

    def abort(self) -> None:
        """Drop what waits and end."""
        self.aborted = True
        self.backlog.abort()
        self.wake()

    def pop(self) -> ChannelEvent | None:
        """Take the oldest frame and count it."""
        event = self.backlog.pop()
        if event is not None and event.id is not None:
            self.delivered += 1
        return event

    def wake(self) -> None:
        """Tell the consumer that it need not wait any more."""
        waiter = self.waiter
        if waiter is None:
            if self.on_ready is not None:
                self.on_ready()
            return
        self.waiter = None
        if not waiter.done():
            # contextlib.suppress would cost more than the rest: 0.3 µs a delivery.
            try:  # noqa: SIM105
                waiter.set_result(None)
            except RuntimeError:
                # The loop was closed under its consumer: the backlog fills and evicts it.
                pass


class ChannelSubscription:
    """A consumer's hold on a channel: its own async iterator and an async context manager.

    Iterate it with ``async for``; leaving the loop does not end it, so that a consumer can
    go on later. End it with `abort`, or by leaving ``async with``. A subscription that is
    garbage-collected while attached is aborted, with a `ResourceWarning`.

    Waiting for the next frame may be cancelled at any moment: nothing is lost and nothing
    counted twice. Only one task may wait at a time. All of it belongs to the event loop
    in which the channel is used.
    """

    __slots__ = ("__weakref__", "_subscriber")

    def __init__(self, subscriber: Subscriber) -> None:
        self._subscriber = subscriber
        # Exit of the interpreter is no leak.
        weakref.finalize(self, _collected, subscriber).atexit = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.abort()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ChannelEvent:
        """Return the next frame: an event, or a control frame without an id.

        Raises:
            StopAsyncIteration: the channel closed, the subscriber was evicted or aborted,
                and what had waited was taken.
            ConcurrentConsumers: another task waits already.
        """
        subscriber = self._subscriber
        if subscriber.consuming:
            raise ConcurrentConsumers
        event = subscriber.pop()
        if event is not None:
            return event
        backlog = subscriber.backlog
        subscriber.consuming = True
        try:
            while not backlog.closed:
                waiter = subscriber.waiter = asyncio.get_running_loop().create_future()
                backlog.waiting = True
                # Only now: a signal handler or a finalizer may have published before.
                if not len(backlog):
                    await waiter
                event = subscriber.pop()
                if event is not None:
                    return event
            raise StopAsyncIteration
        finally:
            # Cancelled or served: neither may leave a trace.
            backlog.waiting = False
            subscriber.waiter = None
            subscriber.consuming = False

    def abort(self) -> None:
        """Drop what waits and end now. Idempotent; also before the first ``anext``."""
        self._subscriber.channel._detach(self._subscriber)
        self._subscriber.abort()

    def statistics(self) -> SubscriptionStatistics:
        """Return the counters at this moment."""
        subscriber = self._subscriber
        return SubscriptionStatistics(
            queued_frames=subscriber.backlog.live_count,
            queued_bytes=subscriber.backlog.live_bytes,
            delivered=subscriber.delivered,
            warned=subscriber.warned,
            evicted=subscriber.evicted,
        )

    # -- for wires: the same frames without a suspension point --------------------------

    @property
    def ended(self) -> bool:
        """Nothing waits, and nothing more will come."""
        return self._subscriber.backlog.closed and not len(self._subscriber.backlog)

    @property
    def evicted(self) -> bool:
        """The subscriber was cut; its eviction frame is the last of what waits."""
        return self._subscriber.evicted

    @property
    def aborted(self) -> bool:
        """The subscription was ended by its own side."""
        return self._subscriber.aborted

    @property
    def budget_exceeded(self) -> bool:
        """The replay stopped at its byte budget: a wire ends after ``replay_complete``."""
        return self._subscriber.budget_exceeded

    @property
    def on_ready(self) -> Callable[[], None] | None:
        """Called when an armed wire has something to take, and whenever the end comes.

        Called inside ``publish``, ``close`` or ``abort``: it must be cheap, and must
        neither raise nor call the channel back.
        """
        return self._subscriber.on_ready

    @on_ready.setter
    def on_ready(self, callback: Callable[[], None] | None) -> None:
        self._subscriber.on_ready = callback

    def arm(self) -> bool:
        """Say that the wire waits: the next frame is handed over uncounted, with `on_ready`.

        Returns:
            Whether it waits now; ``False`` when something is there already or has ended.
        """
        backlog = self._subscriber.backlog
        # In this order: a signal handler or a finalizer may publish in between.
        backlog.waiting = True
        if len(backlog) or backlog.closed:
            backlog.waiting = False
        return backlog.waiting

    def disarm(self) -> None:
        """Say that the wire does not wait any more."""
        self._subscriber.backlog.waiting = False

    def take(self, max_frames: int = 64, max_bytes: int = 65536) -> list[ChannelEvent]:
        """Take at once what waits, in order.

        Args:
            max_frames: the most frames to take.
            max_bytes: no further frame is taken once those taken have as many bytes;
                frames not encoded yet count nothing. The first always comes.
        """
        frames: list[ChannelEvent] = []
        size = 0
        while len(frames) < max_frames and size < max_bytes:
            event = self._subscriber.pop()
            if event is None:
                break
            frames.append(event)
            size += event.known_size
        return frames

    def evict(self, reason: EvictionReason) -> None:
        """Cut the subscriber for a reason that only its wire knows.

        As with an overflow it is told by a ``client_evicted`` frame behind what waits, and
        the channel's diagnostics are. Without effect on one that has ended.
        """
        self._subscriber.channel._evict_for_wire(self._subscriber, reason)


def _collected(subscriber: Subscriber) -> None:
    if subscriber.channel._detach(subscriber):
        subscriber.abort()
        warnings.warn(
            f"a subscription of channel {subscriber.channel.name!r} was garbage-collected; "
            "end it with abort() or 'async with'",
            ResourceWarning,
            stacklevel=2,
        )
