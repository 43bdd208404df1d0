"""The broker of one node that keeps everything in memory: a restart is a new epoch.

`MemoryStore` is the whole of it, pure and synchronous; `MemoryBroker` is its asynchronous face.
"""

from __future__ import annotations

import asyncio
import os
import time
from bisect import bisect_left, bisect_right
from heapq import heappop, heappush
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from tidegate.errors import BrokerUnavailable, SnapshotAhead
from tidegate.gateway.brokers.base import (
    HISTORY_LIMIT,
    PAGE_BYTES,
    BrokerCapabilities,
    Head,
    HistoryPage,
    HistoryPolicy,
    Publication,
    PublishError,
    PublishRequest,
    PublishResult,
    Snapshot,
)
from tidegate.gateway.position import NONE, is_position, make_position, next_number

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Sequence

    from tidegate.gateway.brokers.base import BrokerSink

__all__ = ["KEEP_SECONDS", "MemoryBroker", "MemoryStore", "keep_seconds", "make_epoch"]

KEEP_SECONDS: Final = 24 * 3600.0
"""How long a channel's epoch and head are kept at least after it was last used."""

_SWEEP_SECONDS: Final = 10.0
_SWEEP_CHANNELS: Final = 1000

_position = attrgetter("position")


def make_epoch(random_bytes: Callable[[int], bytes]) -> str:
    """Return the name of a new epoch: 16 hexadecimal digits."""
    return random_bytes(8).hex()


def keep_seconds(policy: HistoryPolicy) -> float:
    """Return how long a channel's epoch and head outlive its last use."""
    return max(KEEP_SECONDS, 2 * policy.ttl, policy.idempotency_ttl)


class _Channel:
    """One channel. Its events are ``entries[first:]``; what lies before is ``None``."""

    __slots__ = (
        "entries",
        "epoch",
        "expires",
        "first",
        "keep",
        "keys",
        "number",
        "policy",
        "position",
        "prev",
        "since",
        "snapshot",
        "used",
        "version",
    )

    def __init__(self, epoch: str, now: float) -> None:
        self.epoch = epoch
        self.position = NONE
        self.prev = NONE
        self.number = 0  # of the last event of all epochs
        self.since = NONE  # the last position of the epochs before
        self.version: int | None = None
        self.entries: list[Publication | None] = []
        self.first = 0
        self.expires = 0.0
        self.keys: dict[str, tuple[float, PublishResult]] = {}
        self.snapshot: Snapshot | None = None
        self.used = now
        self.policy: HistoryPolicy | None = None
        self.keep = KEEP_SECONDS

    @property
    def head(self) -> Head:
        return Head(self.epoch, self.position)

    def expire(self, now: float) -> None:
        if now >= self.expires and self.entries:
            self.clear()

    def clear(self) -> None:
        self.entries = []
        self.first = 0

    def add(self, publication: Publication, size: int) -> None:
        entries = self.entries
        entries.append(publication)
        first = self.first
        last = len(entries) - size
        if last > first:
            # What is dropped is let go at once; its slots are when they are half of the list.
            for index in range(first, last):
                entries[index] = None
            self.first = first = last
            if first >= 64 and 2 * first >= len(entries):
                del entries[:first]
                self.first = 0


class MemoryStore:
    """The histories of all channels. Pure: nothing waits, time and randomness come in.

    Almost every call takes ``now``, the time in seconds since 1970. It may go back: positions go on
    growing all the same.

    Args:
        random_bytes: returns as many random bytes as it is asked for.
    """

    def __init__(self, *, random_bytes: Callable[[int], bytes] = os.urandom) -> None:
        self._random_bytes = random_bytes
        self._channels: dict[str, _Channel] = {}
        # When which key is forgotten, the next one first.
        self._forget: list[tuple[float, str, str]] = []
        self._to_sweep: list[str] = []

    def __len__(self) -> int:
        """How many channels something is known of."""
        return len(self._channels)

    def append(
        self, request: PublishRequest, now: float
    ) -> tuple[PublishResult | PublishError, Publication | None]:
        """Append an event.

        Returns:
            What became of it, and the event as it is to be delivered; ``None`` if nothing was
            published now.
        """
        name = request.channel
        channel = self._channels.get(name)
        if channel is None:
            channel = self._create(name, now)
        key = request.idempotency_key
        if key is not None:
            known = channel.keys.get(key)
            if known is not None and now < known[0]:
                return known[1], None
        policy = request.policy
        version = request.version
        if version is not None and channel.version is not None and version <= channel.version:
            result = PublishResult(
                channel=name,
                position=channel.position,
                epoch=channel.epoch,
                prev=channel.prev,
                suppressed=True,
            )
            publication = None
        else:
            try:
                number = next_number(channel.number, int(now * 1000))
                position = make_position(number, self._random_bytes(4))
            except (ValueError, OverflowError) as error:
                problem = f"no position can be made: {error}"
                return PublishError(
                    channel=name, code="broker_error", error=problem, certain=True
                ), None
            prev = channel.position
            publication = Publication(
                position=position,
                prev=prev,
                epoch=channel.epoch,
                type=request.type,
                payload=request.payload,
                tags=request.tags,
                version=version,
            )
            channel.expire(now)
            channel.add(publication, policy.size)
            channel.expires = now + policy.ttl
            channel.number = number
            channel.prev = prev
            channel.position = position
            if version is not None:
                channel.version = version
            if policy is not channel.policy:
                channel.policy = policy
                channel.keep = keep_seconds(policy)
            result = PublishResult(channel=name, position=position, epoch=channel.epoch, prev=prev)
        channel.used = now
        if key is not None:
            self._remember(channel, key, now, policy.idempotency_ttl, result)
        return result, publication

    def head(self, channel: str, now: float) -> Head:
        """Return a channel's head; one without an epoch gets one."""
        return self._used(channel, now).head

    def history(
        self,
        channel: str,
        now: float,
        *,
        after: str | None = None,
        limit: int = HISTORY_LIMIT,
        newest_first: bool = False,
    ) -> HistoryPage:
        """Read a page, as `Broker.history` says."""
        found = self._used(channel, now)
        found.expire(now)
        entries = found.entries
        low, high = found.first, len(entries)
        if after is not None:
            if newest_first:
                high = bisect_left(entries, after, low, high, key=_position)
            else:
                low = bisect_right(entries, after, low, high, key=_position)
        indices = range(high - 1, low - 1, -1) if newest_first else range(low, high)
        page: list[Publication] = []
        taken = 0
        for index in indices:
            if len(page) >= limit or taken >= PAGE_BYTES:
                break
            publication = entries[index]
            assert publication is not None  # noqa: S101 - none is from first on
            page.append(publication)
            taken += len(publication.payload)
        return HistoryPage(publications=page, head=found.head, complete=len(page) == len(indices))

    def remove_history(self, channel: str, now: float) -> Head:
        """Drop a channel's events and snapshot; return the empty head of its new epoch."""
        found = self._used(channel, now)
        found.clear()
        found.epoch = make_epoch(self._random_bytes)
        found.since = found.position or found.since
        found.position = found.prev = NONE
        found.version = None
        found.snapshot = None
        return found.head

    def put_snapshot(self, channel: str, state: bytes, position: str, now: float) -> Snapshot:
        """Store the state at a position.

        Raises:
            SnapshotAhead: as `Broker.put_snapshot` says.
        """
        found = self._used(channel, now)
        stored = found.snapshot
        reached = position == NONE or found.since < position <= found.position
        if (
            not is_position(position)
            or not reached
            or (stored is not None and stored.epoch == found.epoch and position < stored.position)
        ):
            raise SnapshotAhead(position, found.position)
        found.snapshot = Snapshot(state=state, position=position, epoch=found.epoch)
        return found.snapshot

    def get_snapshot(self, channel: str) -> Snapshot | None:
        """Return the stored state, if there is one."""
        found = self._channels.get(channel)
        return None if found is None else found.snapshot

    def sweep(self, now: float, *, keep: Container[str] = (), limit: int = _SWEEP_CHANNELS) -> bool:
        """Let go of what has expired: keys, events, channels that nobody uses any more.

        Args:
            now: the time.
            keep: channels of which epoch and head are kept in any case.
            limit: how many channels, and how many keys, are looked at.

        Returns:
            Whether all channels have been looked at; the next call begins anew then.
        """
        forgotten = self._forget_keys(now, limit)
        if not self._to_sweep:
            self._to_sweep = list(self._channels)
        for _ in range(min(limit, len(self._to_sweep))):
            name = self._to_sweep.pop()
            channel = self._channels[name]
            channel.expire(now)
            if (
                now >= channel.used + channel.keep
                and not channel.entries
                and not channel.keys
                and name not in keep
            ):
                del self._channels[name]
        return not self._to_sweep and forgotten

    def _create(self, name: str, now: float) -> _Channel:
        channel = self._channels[name] = _Channel(make_epoch(self._random_bytes), now)
        return channel

    def _used(self, name: str, now: float) -> _Channel:
        channel = self._channels.get(name)
        if channel is None:
            return self._create(name, now)
        channel.used = max(channel.used, now)
        return channel

    def _remember(
        self, channel: _Channel, key: str, now: float, seconds: float, result: PublishResult
    ) -> None:
        expires = now + seconds
        again = PublishResult(
            channel=result.channel,
            position=result.position,
            epoch=result.epoch,
            prev=result.prev,
            duplicate=True,
            suppressed=result.suppressed,
        )
        channel.keys[key] = (expires, again)
        heappush(self._forget, (expires, result.channel, key))
        self._forget_keys(now, 2)

    def _forget_keys(self, now: float, limit: int) -> bool:
        """Forget up to ``limit`` expired keys; return whether none is left."""
        queue = self._forget
        for _ in range(limit):
            if not queue or queue[0][0] > now:
                return True
            expires, name, key = heappop(queue)
            channel = self._channels.get(name)
            known = None if channel is None else channel.keys.get(key)
            # Published again after it had expired, it has a later entry in the queue.
            if channel is not None and known is not None and known[0] == expires:
                del channel.keys[key]
        return not queue or queue[0][0] > now


class MemoryBroker:
    """Channels of one node, in memory.

    It belongs to the event loop in which it was started. No call waits for anything, so each
    is atomic, and a cancelled one has either not begun or is done. Events are told to the sink
    within `publish`.

    Args:
        clock: returns the time in seconds since 1970.
        random_bytes: returns as many random bytes as it is asked for.
    """

    capabilities: Final = BrokerCapabilities(durable=False, shared=False)

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.time,
        random_bytes: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self._clock = clock
        self._store = MemoryStore(random_bytes=random_bytes)
        self._subscribed: set[str] = set()
        self._sink: BrokerSink | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._stopped = False

    async def start(self, sink: BrokerSink) -> None:
        """Tell ``sink`` from now on.

        Raises:
            RuntimeError: it has been started or stopped before.
        """
        if self._sink is not None or self._stopped:
            raise RuntimeError("a broker starts once in its life; make a new one")
        self._sink = sink
        self._timer = asyncio.get_running_loop().call_later(_SWEEP_SECONDS, self._sweep)

    async def stop(self) -> None:
        """Let go of everything. Idempotent."""
        self._stopped = True
        self._sink = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._subscribed.clear()
        self._store = MemoryStore()

    async def publish(self, batch: Sequence[PublishRequest]) -> list[PublishResult | PublishError]:
        """Append events and deliver them; see `Broker.publish`."""
        sink = self._sink
        if sink is None:
            return [
                PublishError(
                    channel=request.channel,
                    code="broker_unavailable",
                    error=self._problem,
                    certain=True,
                )
                for request in batch
            ]
        now = self._clock()
        append = self._store.append
        subscribed = self._subscribed
        results: list[PublishResult | PublishError] = []
        for request in batch:
            result, publication = append(request, now)
            results.append(result)
            if publication is not None and request.channel in subscribed:
                sink.on_publication(request.channel, publication)
        return results

    async def subscribe(self, channels: Iterable[str]) -> dict[str, Head]:
        """Be told of the events of ``channels``; see `Broker.subscribe`."""
        heads = await self.heads(channels)
        self._subscribed.update(heads)
        return heads

    async def unsubscribe(self, channels: Iterable[str]) -> None:
        """Not be told any more."""
        self._running()
        # The time that they are kept for begins now.
        for channel in self._subscribed.intersection(channels):
            self._store.head(channel, self._clock())
            self._subscribed.discard(channel)

    async def history(
        self,
        channel: str,
        *,
        after: str | None = None,
        limit: int = HISTORY_LIMIT,
        newest_first: bool = False,
    ) -> HistoryPage:
        """Read a page and the head; see `Broker.history`."""
        self._running()
        return self._store.history(
            channel, self._clock(), after=after, limit=limit, newest_first=newest_first
        )

    async def heads(self, channels: Iterable[str]) -> dict[str, Head]:
        """Return the heads of channels; see `Broker.heads`."""
        self._running()
        now = self._clock()
        return {channel: self._store.head(channel, now) for channel in channels}

    async def remove_history(self, channel: str) -> Head:
        """Drop a channel's events and snapshot; see `Broker.remove_history`."""
        sink = self._running()
        head = self._store.remove_history(channel, self._clock())
        if channel in self._subscribed:
            sink.on_reset(channel, head)
        return head

    async def put_snapshot(self, channel: str, state: bytes, position: str) -> Snapshot:
        """Store the state at ``position``; see `Broker.put_snapshot`."""
        self._running()
        return self._store.put_snapshot(channel, state, position, self._clock())

    async def get_snapshot(self, channel: str) -> Snapshot | None:
        """Return the stored state, if there is one."""
        self._running()
        return self._store.get_snapshot(channel)

    @property
    def _problem(self) -> str:
        return "the broker has stopped" if self._stopped else "the broker has not started"

    def _running(self) -> BrokerSink:
        if self._sink is None:
            raise BrokerUnavailable(self._problem)
        return self._sink

    def _sweep(self) -> None:
        done = self._store.sweep(self._clock(), keep=self._subscribed)
        pause = _SWEEP_SECONDS if done else 0.05
        self._timer = asyncio.get_running_loop().call_later(pause, self._sweep)
