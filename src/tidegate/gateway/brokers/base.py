"""What a broker is: where a channel's history and the delivery between nodes live.

Any ordered store can be one. Node and broker share the types of this module; the contract is
tested by `tidegate.testing.check_broker`, which every broker passes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = [
    "HISTORY_LIMIT",
    "PAGE_BYTES",
    "Broker",
    "BrokerCapabilities",
    "BrokerSink",
    "Head",
    "HistoryPage",
    "HistoryPolicy",
    "Publication",
    "PublishError",
    "PublishRequest",
    "PublishResult",
    "Snapshot",
]

HISTORY_LIMIT: Final = 1000
"""How many events a page of history has at most, unless asked otherwise."""

PAGE_BYTES: Final = 4 * 1024 * 1024
"""A page ends behind the event with which its payloads reach as many bytes."""


class BrokerCapabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What a broker can do.

    Attributes:
        durable: its history survives the end of the process.
        shared: several nodes may use it.
    """

    durable: bool
    shared: bool


class HistoryPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How much of a channel is kept. It travels with each publish; the last one holds.

    Attributes:
        size: events; 0 keeps none: positions are still handed out, and the chain goes on.
        ttl: seconds after the channel's last publish when all its events are dropped. The
            epoch and the last position stay: a client that missed nothing resumes all the same.
        idempotency_ttl: seconds that an idempotency key is remembered.
    """

    size: int = 1000
    ttl: float = 3600.0
    idempotency_ttl: float = 3600.0


class PublishRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One event to publish, checked and encoded.

    Attributes:
        channel: the channel's name.
        type: the event's type.
        payload: a compact JSON object of ``data``, ``_meta`` and perhaps ``tags`` and
            ``version``: what of the envelope does not depend on the place.
        tags: what ``payload`` says of them.
        version: with one, the event is suppressed unless it is above the channel's last one.
        idempotency_key: the second publish of a key in a channel returns the first's result.
        policy: what to keep of the channel.
    """

    channel: str
    type: str
    payload: bytes
    tags: Mapping[str, str] | None = None
    version: int | None = None
    idempotency_key: str | None = None
    policy: HistoryPolicy = HistoryPolicy()


class PublishResult(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a `PublishRequest`: it is stored.

    Attributes:
        channel: the channel's name.
        position: the event's; of a duplicate the first one's, of a suppressed one the head.
        epoch: the epoch of that position.
        prev: the position before it; ``""`` for the first of an epoch.
        duplicate: its idempotency key was known: nothing was published now.
        suppressed: its version was not above the last one: nothing was published.
    """

    channel: str
    position: str
    epoch: str
    prev: str
    duplicate: bool = False
    suppressed: bool = False


class PublishError(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a `PublishRequest`: it is not known to be stored.

    Attributes:
        channel: the channel's name.
        code: ``broker_unavailable``, ``broker_error`` or another one in ``snake_case``.
        error: a sentence.
        certain: it is known that the event was not stored.
    """

    channel: str
    code: str
    error: str
    certain: bool = False


class Publication(msgspec.Struct, frozen=True, kw_only=True):
    """A stored event: what history returns and nodes are sent.

    Attributes:
        position: its place.
        prev: the position of the event before it; ``""`` for the first of the epoch.
        epoch: the life of the history that both belong to.
        type: the event's type.
        payload: see `PublishRequest`.
        tags: likewise.
        version: likewise.
    """

    position: str
    prev: str
    epoch: str
    type: str
    payload: bytes
    tags: Mapping[str, str] | None = None
    version: int | None = None

    @property
    def size(self) -> int:
        """Roughly the bytes that it takes."""
        return len(self.payload) + 200


class Head(msgspec.Struct, frozen=True):
    """Where a channel is.

    Attributes:
        epoch: names this life of its history.
        position: of its newest event, also when that has expired; ``""`` before the first.
    """

    epoch: str
    position: str


class HistoryPage(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a history and the head, from one atomic read of the primary.

    Attributes:
        publications: in the order asked for.
        head: where the channel was at that moment.
        complete: nothing lies beyond the page, in the direction asked for.
    """

    publications: Sequence[Publication]
    head: Head
    complete: bool

    @property
    def epoch(self) -> str:
        """The head's epoch."""
        return self.head.epoch


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The full state of a channel at a position.

    Attributes:
        state: as JSON.
        position: the last event that it takes account of.
        epoch: the epoch of that position.
    """

    state: bytes
    position: str
    epoch: str

    def decoded(self) -> Any:
        """Return the state, decoded."""
        return msgspec.json.decode(self.state)


class BrokerSink(Protocol):
    """Who is told what happens. Every call is made on the event loop, neither waits nor raises."""

    def on_publication(self, channel: str, publication: Publication) -> None:
        """An event of a subscribed channel. It may come late, twice, out of order, or never."""

    def on_reset(self, channel: str, head: Head) -> None:
        """A channel has begun a new epoch, and this is its head. A hint, like the above."""

    def on_disconnected(self) -> None:
        """From here on messages are missed; subscriptions are made again by the broker."""

    def on_reconnected(self) -> None:
        """Messages come again, of all subscribed channels; heads are to be compared."""


class Broker(Protocol):
    """Where a channel's history and the delivery between nodes live.

    All calls but `publish` raise `tidegate.errors.BrokerUnavailable` when it cannot be reached
    in time; `publish` says so in its results. A cancelled call may still take effect. No call
    holds up another one.
    """

    @property
    def capabilities(self) -> BrokerCapabilities:
        """What this broker can do."""

    async def start(self, sink: BrokerSink) -> None:
        """Connect, and tell ``sink`` from now on. Once in a broker's life."""

    async def stop(self) -> None:
        """Let go of everything. Idempotent, also before or after a failed `start`."""

    async def publish(self, batch: Sequence[PublishRequest]) -> list[PublishResult | PublishError]:
        """Append events and deliver them, each atomically; one result for each, in order.

        The events of one channel are appended in the order of the batch, and concurrent calls
        in the order in which they were made. Never raises for a request: one bad item does not
        touch the others.
        """

    async def subscribe(self, channels: Iterable[str]) -> dict[str, Head]:
        """Be told of the events of ``channels``, and return their heads.

        Every event after the returned head is delivered, some before it may be. Where a
        channel has no epoch one is created, so that its first event links to something.
        Subscribing again is harmless.
        """

    async def unsubscribe(self, channels: Iterable[str]) -> None:
        """Not be told any more. Messages may come a little longer. Unknown ones are ignored."""

    async def history(
        self,
        channel: str,
        *,
        after: str | None = None,
        limit: int = HISTORY_LIMIT,
        newest_first: bool = False,
    ) -> HistoryPage:
        """Read a page and the head, atomically, from the primary.

        Args:
            channel: its name; one without an epoch gets one.
            after: only events whose position sorts after this one (``newest_first``: before
                it); it need not exist.
            limit: the most events; 0 reads the head alone. A page may be shorter, where its
                bytes reach `PAGE_BYTES`, but has at least one event if there is one.
            newest_first: from the newest backwards.
        """

    async def heads(self, channels: Iterable[str]) -> dict[str, Head]:
        """Return the heads of channels in one call, and keep what is known of them alive."""

    async def remove_history(self, channel: str) -> Head:
        """Drop a channel's events and snapshot; return the empty head of its new epoch.

        All nodes that subscribe are told (`BrokerSink.on_reset`).
        """

    async def put_snapshot(self, channel: str, state: bytes, position: str) -> Snapshot:
        """Store the state at ``position`` of the current epoch.

        Raises:
            SnapshotAhead: the position is none that the channel has reached, or is behind the
                stored snapshot's.
        """

    async def get_snapshot(self, channel: str) -> Snapshot | None:
        """Return the stored state, if there is one, of whatever epoch."""
