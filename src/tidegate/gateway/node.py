"""A node: who listens to which channel here, and what the broker is told of it."""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
import time
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from tidegate.errors import BrokerUnavailable, UnknownNamespace
from tidegate.gateway.cursor import make_slot, name_hash, parse_cursor
from tidegate.gateway.hub import BATCH, Hub
from tidegate.gateway.local import CALL_SECONDS, NOWHERE, Phase
from tidegate.gateway.member import Member, Want
from tidegate.gateway.snapshots import fetch_snapshot
from tidegate.gateway.subscription import Subscription

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from tidegate.gateway.brokers.base import Broker, Head, Publication, Snapshot
    from tidegate.gateway.cursor import ParsedCursor, Slot
    from tidegate.gateway.local import LocalChannel
    from tidegate.gateway.namespaces import Namespaces
    from tidegate.gateway.subscription import StreamRequest

__all__ = ["Node", "NodeStatistics"]

_log = logging.getLogger("tidegate.gateway")

_TICK: Final = 0.25
_CHECK_AFTER: Final = (6.0, 9.0)
_PROBE_SECONDS: Final = 5.0


class NodeStatistics(msgspec.Struct, kw_only=True):
    """Counters of a node since it started, and what there is at this moment.

    Attributes:
        streams: open ones.
        channels: that somebody holds, or held a moment ago.
        subscriptions: of streams to channels.
        history_reads: from the broker.
        gaps_healed: by such a read, without anybody's noticing.
        resyncs: by reason: how often a stream was told that events are gone.
        evictions: by reason.
    """

    streams: int = 0
    channels: int = 0
    subscriptions: int = 0
    history_reads: int = 0
    gaps_healed: int = 0
    resyncs: dict[str, int] = {}
    evictions: dict[str, int] = {}


class Node:
    """One gateway node: a hub of channels over one broker, the broker's `BrokerSink`.

    Start it before anything else and stop it at the end; it does not stop the broker. All of
    it belongs to one event loop.

    Args:
        broker: started by the node, with itself as its sink.
        namespaces: the channels' options.
        name: of the node; by default a random one.
        unsubscribe_delay: seconds that a channel without streams is kept, at the least.
        clock: the time in seconds since 1970.
        monotonic: a time in seconds that only grows.
        rng: draws from [0, 1), to spread checks.
    """

    def __init__(
        self,
        broker: Broker,
        namespaces: Namespaces,
        *,
        name: str | None = None,
        unsubscribe_delay: float = 1.0,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        rng: Callable[[], float] = random.random,
    ) -> None:
        self.broker = broker
        self.namespaces = namespaces
        self.name = secrets.token_hex(4) if name is None else name
        self._clock = clock
        self._monotonic = monotonic
        self._rng = rng
        self._hub = Hub(
            self, unsubscribe_delay=unsubscribe_delay, clock=monotonic, options_of=namespaces.of
        )
        self._streams: dict[Subscription, None] = {}
        self._moved: dict[Subscription, None] = {}
        self._joining: dict[Subscription, float] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._housekeeper: asyncio.Task[None] | None = None
        self._checking = False
        self._probed = 0.0
        self._available = False
        self._stopped = False
        self._counts = NodeStatistics(resyncs={}, evictions={})

    # -- life ------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start the broker and the node's own work.

        Raises:
            BrokerUnavailable: the broker cannot be started.
        """
        await self.broker.start(self)
        self._available = True
        self._housekeeper = self.start_task(self._keep_house, "housekeeper")

    async def stop(self) -> None:
        """End all streams, without a word, and all tasks. Idempotent."""
        self._stopped = True
        for stream in list(self._streams):
            stream.abort()
        self._hub.close()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    @property
    def available(self) -> bool:
        """Whether the broker can be reached, as far as is known."""
        return self._available

    def start_task(self, work: Callable[[], Awaitable[None]], name: str) -> asyncio.Task[None]:
        """Run something in a task that the node ends with itself; a failure is logged."""

        async def run() -> None:
            try:
                await work()
            except Exception:  # noqa: BLE001 - the task's owner is this node, and it says so
                _log.exception("node %s: the %s failed", self.name, name)

        task = asyncio.get_running_loop().create_task(run(), name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def now_ms(self) -> int:
        """Return the time to stamp, in ms since 1970."""
        return int(self._clock() * 1000)

    def patience_ms(self) -> int:
        """Draw how long a client is to wait before it comes back to a broker that is away."""
        return round(10_000 + 20_000 * self._rng())

    def statistics(self) -> NodeStatistics:
        """Return the counters at this moment."""
        return msgspec.structs.replace(
            self._counts,
            streams=len(self._streams),
            channels=len(self._hub),
            subscriptions=sum(len(channel.members) for channel in self._hub),
            resyncs=dict(self._counts.resyncs),
            evictions=dict(self._counts.evictions),
        )

    def channels(self) -> list[LocalChannel]:
        """Return the channels that are subscribed to here."""
        return [channel for channel in self._hub if channel.phase is Phase.READY]

    # -- streams ---------------------------------------------------------------------------

    def subscribe(self, request: StreamRequest) -> Subscription:
        """Make a stream. It joins its channels by itself; see `Subscription.joined`.

        Args:
            request: its channels have been checked.

        Raises:
            RuntimeError: the node has been stopped.
        """
        if self._stopped:
            raise RuntimeError("this node has been stopped")
        stream = Subscription(self, request, secrets.token_hex(8))
        cursor = None if request.cursor is None else parse_cursor(request.cursor)
        members: list[Member] = []
        known = 0
        for name in request.channels:
            channel = self._admitted(name, stream)
            if channel is None:
                continue
            member, has_slot = self._member(stream, channel, len(members), request, cursor)
            known += has_slot
            members.append(member)
        if request.cursor is not None:
            stream.carried = _carried(stream.denied, members, cursor)
        honoured = cursor is not None and known == len(members) == cursor.count
        self._streams[stream] = None
        stream.begin(members, honoured=honoured)
        for member in members:
            member.channel.join(member)
        if stream.undecided:
            self._joining[stream] = self._monotonic() + CALL_SECONDS
        self._hub.subscribe_soon()
        return stream

    def _admitted(self, name: str, stream: Subscription) -> LocalChannel | None:
        """Return a channel, or note why the stream does not get it."""
        try:
            channel = self._hub.channel(name)
        except UnknownNamespace:
            stream.denied[name] = "unknown_namespace"
            return None
        limit = channel.options.max_subscribers
        if limit is not None and len(channel.members) >= limit:
            stream.denied[name] = "subscriber_limit"
            return None
        return channel

    def _member(
        self,
        stream: Subscription,
        channel: LocalChannel,
        index: int,
        request: StreamRequest,
        cursor: ParsedCursor | None,
    ) -> tuple[Member, bool]:
        if request.cursor is not None:
            if cursor is None:
                return Member(stream, channel, index, Want.INVALID), False
            candidates = cursor.find(channel.name)
            if candidates:
                return Member(stream, channel, index, Want.RESUME, candidates=candidates), True
        if request.from_beginning:
            want = Want.BEGINNING
        else:
            want = Want.LIVE if request.tail is None else Want.TAIL
        return Member(stream, channel, index, want, count=request.tail or 0), False

    def forget(self, stream: Subscription) -> None:
        """A stream has ended."""
        self._streams.pop(stream, None)
        self._joining.pop(stream, None)
        self._moved.pop(stream, None)

    def moved(self, stream: Subscription) -> None:
        """A stream's cursor has moved without a frame that says so."""
        self._moved[stream] = None

    # -- what the broker says ------------------------------------------------------------------

    def on_publication(self, channel: str, publication: Publication) -> None:
        """An event of a subscribed channel; see `BrokerSink`."""
        local = self._hub.get(channel)
        if local is not None:
            local.on_publication(publication)

    def on_reset(self, channel: str, head: Head) -> None:
        """A channel has begun a new epoch. A hint: only the history's word makes a resync."""
        local = self._hub.get(channel)
        if local is not None and head.epoch != local.chain.epoch:
            local.refresh()

    def on_disconnected(self) -> None:
        """Messages are missed from here on."""
        self._available = False

    def on_reconnected(self) -> None:
        """Messages come again: every channel's head is compared."""
        self._available = True
        self.start_task(partial(self._check, self.channels()), "check")

    # -- housekeeping --------------------------------------------------------------------------

    async def _keep_house(self) -> None:
        while True:
            await asyncio.sleep(_TICK)
            try:
                self._tick()
            except Exception:  # noqa: BLE001 - the next round may go well
                _log.exception("node %s: its housekeeping failed", self.name)

    def _tick(self) -> None:
        self._hub.give_up_vacated()
        for stream in list(self._moved):
            if stream.tell_cursor():
                self._moved.pop(stream, None)
        self._give_up_joining()
        self._check_idle()

    def _give_up_joining(self) -> None:
        """End the streams whose start the broker does not let be known."""
        now = self._monotonic()
        for stream, deadline in list(self._joining.items()):
            if not stream.undecided:
                del self._joining[stream]
            elif now >= deadline:
                del self._joining[stream]
                stream.fail_join(BrokerUnavailable("the broker did not answer in time"))

    def _check_idle(self) -> None:
        if self._checking:
            return
        now = self._monotonic()
        due: list[LocalChannel] = []
        for channel in self._hub:
            low, high = _CHECK_AFTER
            if (
                channel.phase is Phase.READY
                and now - channel.verified >= low + (high - low) * self._rng()
            ):
                due.append(channel)
        # One that does not answer is not asked each time.
        asked = now - self._probed
        if (due and (self._available or asked >= 1)) or asked >= _PROBE_SECONDS:
            self._probed = now
            self._checking = True
            self.start_task(partial(self._check_in_batches, due), "check")

    async def _check_in_batches(self, due: list[LocalChannel]) -> None:
        try:
            await self._check(due)
        finally:
            self._checking = False

    async def _check(self, due: list[LocalChannel]) -> None:
        """Compare channels with the broker's heads; without any, see whether it answers."""
        for start in range(0, max(len(due), 1), BATCH):
            batch = due[start : start + BATCH]
            sent = {one.name: (one.chain.epoch, one.chain.head) for one in batch}
            try:
                async with asyncio.timeout(CALL_SECONDS):
                    heads = await self.broker.heads(sent)
            except Exception as error:  # noqa: BLE001 - whatever it is, the broker does not answer
                if self._available:
                    _log.warning("node %s: the broker does not answer: %r", self.name, error)
                self._available = False
                return
            self._available = True
            self._compare(batch, sent, heads)

    def _compare(
        self,
        batch: Iterable[LocalChannel],
        sent: dict[str, tuple[str, str]],
        heads: dict[str, Head],
    ) -> None:
        for channel in batch:
            head = heads.get(channel.name)
            if head is not None and self._hub.get(channel.name) is channel:
                channel.compare(sent[channel.name], head)

    # -- what channels need ----------------------------------------------------------------------

    def vacated(self, channel: LocalChannel) -> None:
        """Nobody holds a channel any more."""
        self._hub.vacated(channel)

    async def snapshot_of(self, channel: str) -> Snapshot | None:
        """Fetch a channel's state from where its namespace says."""
        return await fetch_snapshot(self.broker, self.namespaces.of(channel), channel)

    def count_read(self) -> None:
        """History was read from the broker."""
        self._counts.history_reads += 1

    def count_healed(self) -> None:
        """A gap was closed without anybody's noticing."""
        self._counts.gaps_healed += 1

    def count_resync(self, reason: str) -> None:
        """A stream was told that events are gone."""
        counts = self._counts.resyncs
        counts[reason] = counts.get(reason, 0) + 1

    def count_eviction(self, reason: str) -> None:
        """A stream was cut because it was too slow."""
        counts = self._counts.evictions
        counts[reason] = counts.get(reason, 0) + 1


def _carried(
    denied: Iterable[str], members: Iterable[Member], cursor: ParsedCursor | None
) -> list[Slot]:
    """Return what a cursor says of the channels that the stream does not get.

    Without it, who gets them when he comes back would start there as on a new stream.

    Args:
        denied: their names.
        members: of the channels that it gets.
        cursor: what the client brought; ``None``: a damaged one.
    """
    taken = {name_hash(member.channel.name) for member in members}
    slots: list[Slot] = []
    for name in denied:
        hashed = name_hash(name)
        if hashed in taken:
            # Two names of one hash; the slot is the other's, or may be.
            continue
        taken.add(hashed)
        found = [(NOWHERE, "")] if cursor is None else cursor.find(name)
        slots += [make_slot(hashed, epoch, position) for epoch, position in found]
    return slots
