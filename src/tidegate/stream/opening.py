"""How a stream begins: what finds its source, subscribes the client and says what the head says."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from tidegate.errors import SubscriberLimitExceeded
from tidegate.stream.cursor import is_epoch
from tidegate.stream.feed import Feed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidegate.channel import Channel
    from tidegate.channel.frames import StreamErrorKind
    from tidegate.stream.cursor import Cursor
    from tidegate.stream.drain import Drain
    from tidegate.stream.feed import WireFeed

__all__ = [
    "ChannelOpener",
    "Opened",
    "Opener",
    "OpeningDenied",
    "OpeningRefused",
    "StreamSource",
    "WireOpener",
    "WireSource",
]


class OpeningRefused(Exception):
    """The client cannot be served now, and is welcome later.

    Attributes:
        kind: why, by name.
        error: why, as a sentence.
    """

    def __init__(self, kind: StreamErrorKind, error: str) -> None:
        super().__init__(kind, error)
        self.kind = kind
        self.error = error


class OpeningDenied(Exception):
    """The client asks for what it will not get: the answer is a plain status.

    Attributes:
        status: the HTTP status.
        code: for programs, ``snake_case``.
        error: a sentence for people.
    """

    def __init__(self, status: int, code: str, error: str) -> None:
        super().__init__(status, code, error)
        self.status = status
        self.code = code
        self.error = error


@dataclass(slots=True, kw_only=True)
class Opened:
    """A client that has been subscribed; whoever has it aborts its feed in the end.

    Attributes:
        feed: what the stream writes.
        stream_id: the stream's id, where the source has given it one.
        headers: what the head says beyond what was known before.
    """

    feed: WireFeed
    stream_id: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


class StreamSource(Protocol):
    """What has a channel to stream, such as a session."""

    @property
    def channel(self) -> Channel:
        """The channel."""


@runtime_checkable
class WireSource(Protocol):
    """What subscribes each client by itself, such as a gateway's subscription."""

    @property
    def drain(self) -> Drain | None:
        """What ends its streams when the process is to stop, if it has such a thing."""

    async def open_wire(self, cursor: str | None, *, max_queued: int | None) -> Opened:
        """Subscribe a client; bounded in time, and nothing is left behind when it raises.

        Args:
            cursor: where the client stopped reading, as it was sent; it goes before one that
                the source has already.
            max_queued: live frames that may wait for it; ``None``: as the source says.

        Raises:
            OpeningDenied: the client may not have it.
            OpeningRefused: the client may come back later.
        """


class Opener(Protocol):
    """Subscribes one client, once.

    Attributes:
        headers: what the head says of the source before the client is subscribed.
        drain: what ends the source's streams, if it says so.
    """

    headers: Mapping[str, str]
    drain: Drain | None

    async def open(self) -> Opened:
        """Subscribe the client.

        Raises:
            OpeningDenied: as `WireSource.open_wire` does.
            OpeningRefused: likewise.
        """


class ChannelOpener:
    """Subscribes a client to a channel. It never suspends.

    Args:
        channel: which.
        cursor: where the client stopped reading.
        with_epoch: ids are ``<epoch>-<number>``, not numbers alone.
        max_queued: live frames that may wait; ``None``: as the channel says.

    Raises:
        ValueError: the channel's epoch has characters that may not stand in an id.
    """

    def __init__(
        self, channel: Channel, cursor: Cursor, *, with_epoch: bool, max_queued: int | None
    ) -> None:
        if not is_epoch(channel.epoch):
            raise ValueError("an epoch that goes into ids must be 1 to 128 of A-Z a-z 0-9 . _ ~ -")
        self._channel = channel
        self._cursor = cursor
        self._prefix = f"{channel.epoch}-" if with_epoch else ""
        self._max_queued = max_queued
        self.headers: Mapping[str, str] = {"tidegate-epoch": channel.epoch}
        self.drain: Drain | None = None

    async def open(self) -> Opened:
        """Subscribe the client.

        Raises:
            OpeningRefused: the channel has as many subscribers as it may have.
        """
        channel = self._channel
        try:
            subscription = channel.subscribe(
                last_event_id=self._cursor.last_event_id,
                epoch=self._cursor.epoch,
                max_queued=self._max_queued,
            )
        except SubscriberLimitExceeded as limit:
            raise OpeningRefused("subscriber_limit", str(limit)) from None
        opened = Opened(feed=Feed(subscription, self._prefix.encode("ascii")))
        if self._cursor.last_event_id is None:
            # Where a live stream starts: a client that is cut before its first event can
            # come back to this place, and misses nothing.
            opened.headers = {"last-event-id": f"{self._prefix}{channel.last_event_id}"}
        return opened


class WireOpener:
    """Lets a source subscribe a client by itself.

    Args:
        source: which.
        cursor: where the client stopped reading, as it was sent.
        max_queued: see `WireSource.open_wire`.
    """

    def __init__(self, source: WireSource, cursor: str | None, max_queued: int | None) -> None:
        self._source = source
        self._cursor = cursor
        self._max_queued = max_queued
        self.headers: Mapping[str, str] = {}
        self.drain = source.drain

    async def open(self) -> Opened:
        """Subscribe the client; raises what `WireSource.open_wire` raises."""
        return await self._source.open_wire(self._cursor, max_queued=self._max_queued)
