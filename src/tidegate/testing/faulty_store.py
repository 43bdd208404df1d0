"""A store for several nodes, in this process, that does what real ones do on a bad day."""

from __future__ import annotations

import asyncio
import copy
import random
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import msgspec

from tidegate.errors import BrokerUnavailable
from tidegate.gateway.brokers.base import (
    HISTORY_LIMIT,
    BrokerCapabilities,
    Head,
    HistoryPage,
    Publication,
    PublishError,
    PublishRequest,
    PublishResult,
    Snapshot,
)
from tidegate.gateway.brokers.memory import MemoryStore
from tidegate.testing.sinks import FaultySink, MessageFaults

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tidegate.gateway.brokers.base import BrokerSink

__all__ = ["Appended", "FaultyBroker", "FaultyStore", "StoreFaults"]

T = TypeVar("T")

_KINDS: Final = (
    "trimmed",
    "epochs",
    "clock_back",
    "tails_lost",
    "copies",
    "disconnected",
    "refused",
    "answers_lost",
    "short_pages",
)


class StoreFaults(msgspec.Struct, kw_only=True):
    """How bad the day is; all of it may be changed at any time.

    The shares from ``trim`` to ``disconnect`` are asked once for each event that is published.

    Attributes:
        messages: how badly what nodes are told travels.
        latency: how many seconds a call takes at most until it takes effect, and again
            until its answer comes.
        refuse: the share of calls that fail and do nothing.
        lose_answer: the share of calls that take effect, and whose answer is lost.
        trim: a history loses its oldest events, below what its policy says.
        new_epoch: a history is removed, and a new epoch begins.
        clock_back: the store's clock goes back, by up to an hour.
        lose_tail: the store goes back to its last copy and continues, as a promoted replica
            does: the same epoch, and numbers repeat.
        copy: the copy is renewed.
        disconnect: one node's connection is away for up to a second.
        short_page: the share of pages that end early, and say that they are not complete.
    """

    messages: MessageFaults = msgspec.field(default_factory=MessageFaults)
    latency: float = 0.0
    refuse: float = 0.0
    lose_answer: float = 0.0
    trim: float = 0.0
    new_epoch: float = 0.0
    clock_back: float = 0.0
    lose_tail: float = 0.0
    copy: float = 0.0
    disconnect: float = 0.0
    short_page: float = 0.0

    def stop(self) -> None:
        """From now on all is well, but for what is under way."""
        self.messages.stop()
        self.refuse = self.lose_answer = self.trim = self.new_epoch = 0.0
        self.clock_back = self.lose_tail = self.copy = self.disconnect = self.short_page = 0.0


class Appended(NamedTuple):
    """What truly happened: an event was appended behind another one.

    Attributes:
        serial: counts the events of all channels, from 0.
        parent: the serial of the event before it; ``None`` for the first of an epoch.
        channel: the channel's name.
        publication: the event as it is stored.
    """

    serial: int
    parent: int | None
    channel: str
    publication: Publication


class _State(NamedTuple):
    """A copy of the store."""

    channels: dict[str, Any]
    forget: list[tuple[float, str, str]]
    tips: dict[str, int | None]


class FaultyStore:
    """One store for the brokers of several nodes, with faults that happen by a seeded schedule.

    Nothing is shared between processes, nothing is written. With the same seed, in a
    `tidegate.testing.SimulatedLoop`, the same happens in each run.

    Args:
        seed: of all randomness.
        faults: how bad the day is; by default good.
        clock: returns seconds since 1970.
        random_bytes: the random parts of positions, and epochs; by default seeded, too.

    Attributes:
        faults: as given.
        counts: how often each fault happened; those of messages are counted by each broker.
        appended: all that was ever published, in order; what a lost tail has lost is still here.
    """

    def __init__(
        self,
        seed: int | str = 0,
        *,
        faults: StoreFaults | None = None,
        clock: Callable[[], float] = time.time,
        random_bytes: Callable[[int], bytes] | None = None,
    ) -> None:
        self._seed = seed
        self._rng = random.Random(f"store {seed}")  # noqa: S311 - to be repeated, not secret
        self.faults = StoreFaults() if faults is None else faults
        self._clock = clock
        self._clock_offset = 0.0
        self._store = MemoryStore(random_bytes=random_bytes or self._rng.randbytes)
        self._brokers: list[FaultyBroker] = []
        self._made = 0
        self._tips: dict[str, int | None] = {}  # the serial of each channel's head
        self._copy: _State | None = None
        self.appended: list[Appended] = []
        self.counts: dict[str, int] = dict.fromkeys(_KINDS, 0)

    def broker(self, name: str = "node") -> FaultyBroker:
        """Return a broker for a node, not yet started; a node that restarts takes a new one."""
        self._made += 1
        return FaultyBroker(self, name, random.Random(f"{name} {self._made} {self._seed}"))  # noqa: S311

    def now(self) -> float:
        """Return what the store's clock shows, in seconds since 1970."""
        return self._clock() + self._clock_offset

    def head(self, channel: str) -> Head:
        """Return a channel's head, without any fault."""
        return self._store.head(channel, self.now())

    def tip(self, channel: str) -> int | None:
        """Return the serial of a channel's newest event; ``None`` if its epoch has none."""
        return self._tips.get(channel)

    def message_counts(self) -> dict[str, int]:
        """Return how many messages travelled badly, to all nodes that run."""
        totals: dict[str, int] = {}
        for broker in self._brokers:
            for kind, count in broker.message_counts().items():
                totals[kind] = totals.get(kind, 0) + count
        return totals

    # -- faults by hand --------------------------------------------------------------------

    def trim(self, channel: str, keep: int) -> None:
        """Drop all events of a history but the ``keep`` newest ones."""
        found = self._channels.get(channel)
        if found is not None:
            entries = [entry for entry in found.entries if entry is not None]
            found.entries = entries[max(0, len(entries) - keep) :]
            found.first = 0
        self.counts["trimmed"] += 1

    def new_epoch(self, channel: str) -> Head:
        """Remove a history: a new epoch begins, and the nodes are told."""
        head = self._store.remove_history(channel, self.now())
        self._tips[channel] = None
        self.counts["epochs"] += 1
        for broker in self._brokers:
            broker.tell_reset(channel, head)
        return head

    def forget(self, channel: str) -> None:
        """Lose all that is known of a channel, as a flush does; nobody is told."""
        self._channels.pop(channel, None)
        store = self._store
        store._forget = [item for item in store._forget if item[1] != channel]  # noqa: SLF001
        store._to_sweep = []  # noqa: SLF001
        self._tips.pop(channel, None)
        self.counts["epochs"] += 1

    def clock_back(self, seconds: float) -> None:
        """Set the store's clock back."""
        self._clock_offset -= seconds
        self.counts["clock_back"] += 1

    def checkpoint(self) -> None:
        """Copy the store as it is now, for `lose_tail`."""
        self._copy = self._state()
        self.counts["copies"] += 1

    def lose_tail(self) -> bool:
        """Go back to the last copy, and continue from there; nobody is told.

        Returns:
            Whether there was a copy.
        """
        if self._copy is None:
            return False
        state = self._copy
        # The copy may be gone back to again.
        self._channels.clear()
        self._channels.update(_twins(state.channels))
        self._store._forget = list(state.forget)  # noqa: SLF001
        self._store._to_sweep = []  # noqa: SLF001
        self._tips = dict(state.tips)
        self.counts["tails_lost"] += 1
        return True

    def disconnect(self, broker: FaultyBroker, seconds: float) -> None:
        """Cut one node's connection: its calls fail, and what it would be told is lost."""
        self.counts["disconnected"] += 1
        broker.disconnect(seconds)

    # -- what brokers call, each at one moment ---------------------------------------------

    def attach(self, broker: FaultyBroker) -> None:
        """A broker has started."""
        self._brokers.append(broker)

    def detach(self, broker: FaultyBroker) -> None:
        """A broker has stopped."""
        if broker in self._brokers:
            self._brokers.remove(broker)

    def append(self, request: PublishRequest) -> PublishResult | PublishError:
        """Append an event and tell all nodes; then perhaps something bad happens."""
        result, publication = self._store.append(request, self.now())
        if publication is not None:
            channel = request.channel
            serial = len(self.appended)
            parent = self._tips.get(channel) if publication.prev else None
            self.appended.append(Appended(serial, parent, channel, publication))
            self._tips[channel] = serial
            for broker in self._brokers:
                broker.tell(channel, publication)
            self._happen(channel)
        return result

    def history(self, channel: str, **options: Any) -> HistoryPage:
        """Read a page."""
        return self._store.history(channel, self.now(), **options)

    def put_snapshot(self, channel: str, state: bytes, position: str) -> Snapshot:
        """Store a snapshot."""
        return self._store.put_snapshot(channel, state, position, self.now())

    def get_snapshot(self, channel: str) -> Snapshot | None:
        """Return a snapshot."""
        return self._store.get_snapshot(channel)

    # -- the rest --------------------------------------------------------------------------

    @property
    def _channels(self) -> dict[str, Any]:
        return self._store._channels  # noqa: SLF001 - this is its evil twin

    def _state(self) -> _State:
        forget = list(self._store._forget)  # noqa: SLF001
        return _State(_twins(self._channels), forget, dict(self._tips))

    def _happen(self, channel: str) -> None:
        """Ask for each fault whether it happens now."""
        faults = self.faults
        draw = self._rng.random
        if draw() < faults.copy:
            self.checkpoint()
        if draw() < faults.trim:
            self.trim(channel, self._rng.choice((0, 0, 1, 2, 5, 20)))
        if draw() < faults.clock_back:
            self.clock_back(self._rng.uniform(0.0, 3600.0))
        if draw() < faults.new_epoch:
            self.new_epoch(channel)
        if draw() < faults.lose_tail:
            self.lose_tail()
        if draw() < faults.disconnect:
            self.disconnect(self._rng.choice(self._brokers), self._rng.uniform(0.0, 1.0))


def _twins(channels: dict[str, Any]) -> dict[str, Any]:
    copies: dict[str, Any] = {}
    for name, channel in channels.items():
        twin = copies[name] = copy.copy(channel)
        twin.entries = list(channel.entries)
        twin.keys = dict(channel.keys)
    return copies


class FaultyBroker:
    """One node's broker over a `FaultyStore`; see `tidegate.gateway.brokers.Broker`.

    Args:
        store: shared with the other nodes.
        name: the node's.
        rng: decides when a call fails, and how long it takes.

    Attributes:
        name: as given.
    """

    capabilities: Final = BrokerCapabilities(durable=True, shared=True)

    def __init__(self, store: FaultyStore, name: str, rng: random.Random) -> None:
        self._store = store
        self.name = name
        self._rng = rng
        self._sink: FaultySink | None = None
        self._subscribed: set[str] = set()
        self._connected = True
        self._reconnect: asyncio.TimerHandle | None = None
        self._publishing = asyncio.Lock()
        self._stopped = False

    def message_counts(self) -> dict[str, int]:
        """Return how many messages to this node travelled badly."""
        return {} if self._sink is None else dict(self._sink.counts)

    # -- what the store calls --------------------------------------------------------------

    def tell(self, channel: str, publication: Publication) -> None:
        """Tell the node of an event, if it has subscribed, more or less well."""
        if self._sink is not None and self._connected and channel in self._subscribed:
            self._sink.on_publication(channel, publication)

    def tell_reset(self, channel: str, head: Head) -> None:
        """Tell the node of a new epoch, more or less well."""
        if self._sink is not None and self._connected and channel in self._subscribed:
            self._sink.on_reset(channel, head)

    def disconnect(self, seconds: float) -> None:
        """Lose the connection for a time."""
        if self._sink is None or not self._connected:
            return
        self._connected = False
        self._sink.on_disconnected()
        self._reconnect = asyncio.get_running_loop().call_later(seconds, self._connect)

    def _connect(self) -> None:
        self._reconnect = None
        if self._sink is not None:
            self._connected = True
            self._sink.on_reconnected()

    # -- a broker --------------------------------------------------------------------------

    async def start(self, sink: BrokerSink) -> None:
        """Tell ``sink`` from now on.

        Raises:
            RuntimeError: it has been started or stopped before.
        """
        if self._sink is not None or self._stopped:
            raise RuntimeError("a broker starts once in its life; make a new one")
        self._sink = FaultySink(sink, self._store.faults.messages, self._rng)
        self._store.attach(self)

    async def stop(self) -> None:
        """Let go of everything. Idempotent."""
        self._stopped = True
        self._store.detach(self)
        if self._sink is not None:
            self._sink.close()
            self._sink = None
        if self._reconnect is not None:
            self._reconnect.cancel()
            self._reconnect = None
        self._subscribed.clear()

    async def publish(self, batch: Sequence[PublishRequest]) -> list[PublishResult | PublishError]:
        """Append events and deliver them; see `Broker.publish`."""
        try:
            # One after another: in the order of the calls.
            async with self._publishing:
                await self._pause()
                self._refuse()
                results = [self._append(request) for request in batch]
            await self._answer()
        except _AnswerLostError as error:
            return [_failed(request, error, certain=False) for request in batch]
        except BrokerUnavailable as error:
            return [_failed(request, error, certain=True) for request in batch]
        return results

    async def subscribe(self, channels: Iterable[str]) -> dict[str, Head]:
        """Be told of the events of ``channels``; see `Broker.subscribe`."""
        names = list(channels)

        def subscribe() -> dict[str, Head]:
            self._subscribed.update(names)
            return {name: self._store.head(name) for name in names}

        return await self._call(subscribe)

    async def unsubscribe(self, channels: Iterable[str]) -> None:
        """Not be told any more."""
        names = list(channels)
        await self._call(lambda: self._subscribed.difference_update(names))

    async def history(
        self,
        channel: str,
        *,
        after: str | None = None,
        limit: int = HISTORY_LIMIT,
        newest_first: bool = False,
    ) -> HistoryPage:
        """Read a page and the head; see `Broker.history`."""
        if limit > 1 and self._rng.random() < self._store.faults.short_page:
            self._store.counts["short_pages"] += 1
            limit = self._rng.randint(1, min(limit, 8))
        return await self._call(
            lambda: self._store.history(
                channel, after=after, limit=limit, newest_first=newest_first
            )
        )

    async def heads(self, channels: Iterable[str]) -> dict[str, Head]:
        """Return the heads of channels; see `Broker.heads`."""
        names = list(channels)
        return await self._call(lambda: {name: self._store.head(name) for name in names})

    async def remove_history(self, channel: str) -> Head:
        """Drop a channel's events and snapshot; see `Broker.remove_history`."""
        return await self._call(lambda: self._store.new_epoch(channel))

    async def put_snapshot(self, channel: str, state: bytes, position: str) -> Snapshot:
        """Store the state at ``position``; see `Broker.put_snapshot`."""
        return await self._call(lambda: self._store.put_snapshot(channel, state, position))

    async def get_snapshot(self, channel: str) -> Snapshot | None:
        """Return the stored state, if there is one."""
        return await self._call(lambda: self._store.get_snapshot(channel))

    # -- how calls fail --------------------------------------------------------------------

    async def _call(self, effect: Callable[[], T]) -> T:
        await self._pause()
        self._refuse()
        result = effect()
        await self._answer()
        return result

    def _append(self, request: PublishRequest) -> PublishResult | PublishError:
        try:
            return self._store.append(request)
        except Exception as error:  # noqa: BLE001 - one bad item does not touch the others
            return PublishError(
                channel=request.channel, code="broker_error", error=repr(error), certain=True
            )

    async def _pause(self) -> None:
        latency = self._store.faults.latency
        if latency > 0.0:
            await asyncio.sleep(self._rng.uniform(0.0, latency))

    def _refuse(self) -> None:
        if self._sink is None:
            raise BrokerUnavailable("the broker does not run")
        if not self._connected:
            raise BrokerUnavailable("the broker is not connected")
        if self._rng.random() < self._store.faults.refuse:
            self._store.counts["refused"] += 1
            raise BrokerUnavailable("the broker refuses the call")

    async def _answer(self) -> None:
        await self._pause()
        if self._rng.random() < self._store.faults.lose_answer:
            self._store.counts["answers_lost"] += 1
            raise _AnswerLostError("the broker's answer is lost")


class _AnswerLostError(BrokerUnavailable):
    """The call has taken effect."""


def _failed(request: PublishRequest, error: Exception, *, certain: bool) -> PublishError:
    return PublishError(
        channel=request.channel, code="broker_unavailable", error=str(error), certain=certain
    )
