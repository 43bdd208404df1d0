"""What one stream has to say, as bytes: the side of a stream that knows its channel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.channel.names import REPLAY_COMPLETE
from tidegate.stream.frames import event_bytes

if TYPE_CHECKING:
    from tidegate.channel import ChannelSubscription

__all__ = ["Feed"]


class Feed:
    """A subscription, read as ready SSE frames. Nothing here waits or writes.

    Args:
        subscription: what to read; the feed aborts it where a wire must end.
        prefix: what goes before the number in ``id:`` lines.

    Attributes:
        subscription: what it was made with.
    """

    __slots__ = ("_prefix", "subscription")

    def __init__(self, subscription: ChannelSubscription, prefix: bytes = b"") -> None:
        self.subscription = subscription
        self._prefix = prefix

    @property
    def done(self) -> bool:
        """Nothing waits, and nothing more will come."""
        return self.subscription.ended

    def chunk(self) -> bytes:
        """Return the next batch of whole frames; empty when nothing waits.

        Where a replay stopped at its budget the feed ends behind ``replay_complete``:
        the client resumes at its cursor, so that nothing is lost.
        """
        subscription = self.subscription
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
