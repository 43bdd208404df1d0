"""What one stream has to say, as bytes: the side of a stream that knows its channel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from tidegate.channel.names import REPLAY_COMPLETE
from tidegate.stream.frames import event_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidegate.channel import ChannelSubscription
    from tidegate.channel.frames import EvictionReason

__all__ = ["Feed", "WireFeed"]


class WireFeed(Protocol):
    """A subscription as a wire reads it: ready bytes, and no suspension point.

    Everything is called on the event loop, and nothing waits.
    """

    on_ready: Callable[[], None] | None
    """Called when an armed feed has something to read, and whenever the end comes. It is called
    inside other calls of the subscription: it must be cheap and must not raise."""

    @property
    def done(self) -> bool:
        """Nothing waits, and nothing more will come."""

    @property
    def evicted(self) -> bool:
        """The subscriber was cut; its eviction frame is the last of what waits."""

    def chunk(self) -> bytes:
        """Return the next batch of whole frames; empty when nothing waits."""

    def rest(self) -> bytes:
        """Return what waits at this moment, bounded, as whole frames."""

    def arm(self) -> bool:
        """Say that the wire waits; ``False`` when something is there already or has ended."""

    def disarm(self) -> None:
        """Say that the wire does not wait any more."""

    def evict(self, reason: EvictionReason) -> None:
        """Cut the subscriber for a reason that only its wire knows."""

    def abort(self) -> None:
        """Drop what waits and end now. Idempotent."""

    def statistics(self) -> object:
        """Return the counters at this moment, to be logged."""


class Feed:
    """A channel's subscription, read as ready SSE frames.

    Args:
        subscription: what to read; the feed aborts it where a wire must end.
        prefix: what goes before the number in ``id:`` lines.
    """

    __slots__ = ("_prefix", "_subscription")

    def __init__(self, subscription: ChannelSubscription, prefix: bytes = b"") -> None:
        self._subscription = subscription
        self._prefix = prefix

    @property
    def on_ready(self) -> Callable[[], None] | None:
        """See `ChannelSubscription.on_ready`."""
        return self._subscription.on_ready

    @on_ready.setter
    def on_ready(self, callback: Callable[[], None] | None) -> None:
        self._subscription.on_ready = callback

    @property
    def done(self) -> bool:
        """Nothing waits, and nothing more will come."""
        return self._subscription.ended

    @property
    def evicted(self) -> bool:
        """See `ChannelSubscription.evicted`."""
        return self._subscription.evicted

    def chunk(self) -> bytes:
        """Return the next batch of whole frames; empty when nothing waits.

        Where a replay stopped at its budget the feed ends behind ``replay_complete``:
        the client resumes at its cursor, so that nothing is lost.
        """
        subscription = self._subscription
        prefix = self._prefix
        frames: list[bytes] = []
        for event in subscription.take():
            frames.append(event_bytes(event, event.to_json(), prefix))
            if event.id is None and subscription.budget_exceeded and event.type == REPLAY_COMPLETE:
                subscription.abort()
                break
        return b"".join(frames)

    def rest(self) -> bytes:
        """Return all that waits at this moment; the backlog's caps bound it."""
        chunks: list[bytes] = []
        while chunk := self.chunk():
            chunks.append(chunk)
        return b"".join(chunks)

    def arm(self) -> bool:
        """See `ChannelSubscription.arm`."""
        return self._subscription.arm()

    def disarm(self) -> None:
        """See `ChannelSubscription.disarm`."""
        self._subscription.disarm()

    def evict(self, reason: EvictionReason) -> None:
        """See `ChannelSubscription.evict`."""
        self._subscription.evict(reason)

    def abort(self) -> None:
        """See `ChannelSubscription.abort`."""
        self._subscription.abort()

    def statistics(self) -> object:
        """See `ChannelSubscription.statistics`."""
        return self._subscription.statistics()
