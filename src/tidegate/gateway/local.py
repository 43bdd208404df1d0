"""One channel on this node: its ring, who listens to it, and the one task that reads its history.

All events of a channel come in here and nowhere else. The chain is checked once, for all
subscribers; what does not link is answered by the history. Everything is a call on the event
loop, without a suspension point, but for the one task, which lives only while there is something
to fetch and holds nothing meanwhile.
"""

from __future__ import annotations

import asyncio
import enum
import logging
from typing import TYPE_CHECKING, Final, Literal, Protocol

from tidegate.errors import BrokerUnavailable
from tidegate.gateway.continuity import Chain, Link, break_of
from tidegate.gateway.cursor import epoch_hash, name_hash
from tidegate.gateway.frames import EventFrame, Place
from tidegate.gateway.member import Need

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from tidegate.channel.frames import ResyncReason
    from tidegate.gateway.brokers.base import Broker, Head, HistoryPage, Publication, Snapshot
    from tidegate.gateway.member import Member
    from tidegate.gateway.namespaces import Namespace

__all__ = ["ChannelHost", "LocalChannel", "Phase"]

_log = logging.getLogger("tidegate.gateway")

RING_EVENTS: Final = 256
RING_BYTES: Final = 1024 * 1024
MAX_UNLINKED: Final = 1024
READ_PAUSE: Final = 0.1
READ_LIMIT: Final = 1000
ANSWERS: Final = 32
CALL_SECONDS: Final = 10.0
_MAX_PAUSE: Final = 5.0
NOWHERE: Final = "0000"
"""The hash of an epoch that is nobody's."""

BURST: Final = 32


class Phase(enum.Enum):
    """Where a channel is in its life on this node."""

    SUBSCRIBING = "subscribing"
    READY = "ready"
    LEAVING = "leaving"
    """Nobody listens any more, and the broker is being told."""


class ChannelHost(Protocol):
    """What a channel needs of its node."""

    broker: Broker

    def start_task(self, work: Callable[[], Awaitable[None]], name: str) -> asyncio.Task[None]:
        """Run something whose failure the node sees."""

    def snapshot_of(self, channel: str) -> Awaitable[Snapshot | None]:
        """Fetch a channel's state from wherever its namespace says."""

    def vacated(self, channel: LocalChannel) -> None:
        """The last one has left."""

    def count_read(self) -> None:
        """History was read."""

    def count_healed(self) -> None:
        """A gap was closed."""

    def count_resync(self, reason: str) -> None:
        """A subscriber was told that events are gone."""


class LocalChannel:
    """One channel on this node.

    Args:
        name: the channel's.
        options: its namespace's.
        host: its node.
        monotonic: a time in seconds that only grows.

    Attributes:
        chain: the newest events; the head is where this node is.
        members: the streams that hold it; those in ``live`` are pushed to.
        phase: where it is in its life.
        verified: when its head was last known to be the broker's.
        vacated_at: since when nobody holds it.
    """

    def __init__(
        self, name: str, options: Namespace, host: ChannelHost, monotonic: Callable[[], float]
    ) -> None:
        self.name = name
        self.options = options
        self.chain: Chain[EventFrame] = Chain(RING_EVENTS, RING_BYTES)
        self.members: dict[Member, None] = {}
        self.live: dict[Member, None] = {}
        self.phase = Phase.SUBSCRIBING
        self.verified = 0.0
        self.vacated_at = 0.0
        self._host = host
        self._monotonic = monotonic
        self._name_hash = name_hash(name)
        self._prefix = ("", self._name_hash + epoch_hash(""))
        self._unlinked: list[Publication] = []
        self._stale = False
        self._waiting: dict[Need, dict[Member, None]] = {need: {} for need in Need}
        self._turn = 0
        self._oldest_first = False
        self._reader: asyncio.Task[None] | None = None
        self._last_read = float("-inf")
        self._snapshots: asyncio.Task[None] | None = None

    @property
    def stale(self) -> bool:
        """Whether it is known to be behind, or may be in another epoch by now."""
        return self._stale or bool(self._unlinked)

    # -- places --------------------------------------------------------------------------

    @property
    def epoch_hash(self) -> str:
        """What stands for the current epoch in a cursor."""
        return self._prefix_of(self.chain.epoch)[4:]

    def place(self, position: str, epoch: str | None = None) -> Place:
        """Return a place in the current epoch, or another one."""
        if epoch is None:
            epoch = self.chain.epoch
        return Place(self._prefix_of(epoch), epoch, position)

    def head_place(self) -> Place:
        """Return where the channel is."""
        return self.place(self.chain.head)

    def foreign_place(self, epoch_hash: str, position: str) -> Place:
        """Return a place in an epoch that only its hash is known of."""
        return Place(self._name_hash + epoch_hash, "", position)

    def unknown_place(self) -> Place:
        """Return a place that links to nothing: who comes back with it gets a resync."""
        return self.foreign_place(NOWHERE, "")

    def _prefix_of(self, epoch: str) -> str:
        if self._prefix[0] != epoch:
            self._prefix = (epoch, self._name_hash + epoch_hash(epoch))
        return self._prefix[1]

    # -- who holds it --------------------------------------------------------------------

    def join(self, member: Member) -> None:
        """Take a stream in; it begins as soon as the channel is subscribed to."""
        self.members[member] = None
        if self.phase is Phase.READY:
            member.begin()

    def leave(self, member: Member) -> None:
        """Let a stream go."""
        self.live.pop(member, None)
        self.serve(member)
        if self.members.pop(member, self) is None and not self.members:
            self._host.vacated(self)

    def ready(self, head: Head) -> None:
        """The broker is subscribed to, and this was the head: let those who wait begin."""
        self.phase = Phase.READY
        self.verified = self._monotonic()
        self.chain.reset(head)
        self._offer_unlinked()
        if self._stale:
            self._work()
        for member in list(self.members):
            member.begin()

    def failed(self, error: Exception) -> None:
        """The broker could not be subscribed to: nobody who waits gets in."""
        for member in list(self.members):
            member.subscription.fail_join(error)

    def abandon(self) -> None:
        """Forget everything: it is not subscribed to any more."""
        self._unlinked.clear()
        for task in (self._reader, self._snapshots):
            if task is not None:
                task.cancel()

    # -- events come in --------------------------------------------------------------------

    def on_publication(self, publication: Publication) -> None:
        """Take in a message from the broker, whenever and however often it comes."""
        if self.phase is Phase.READY:
            if self._take_in(publication):
                if self._unlinked:
                    self._offer_unlinked()
                return
        elif self.phase is Phase.LEAVING:
            return
        if len(self._unlinked) >= MAX_UNLINKED:
            # The history knows them all.
            self._unlinked.clear()
        self._unlinked.append(publication)
        if self.phase is Phase.READY:
            self.refresh()

    def refresh(self) -> None:
        """Compare with the history: something may have been missed."""
        self._stale = True
        if self.phase is Phase.READY:
            self._work()

    def compare(self, sent: tuple[str, str], head: Head) -> None:
        """Take note of the broker's head.

        Args:
            sent: the epoch and the position that were held when it was asked for.
            head: the answer.
        """
        if self.phase is not Phase.READY:
            return
        self.verified = self._monotonic()
        chain = self.chain
        if (head.epoch, head.position) != sent and not (
            head.epoch == chain.epoch and chain.reached(head.position, sent[1])
        ):
            self.refresh()

    def _step_back(self) -> None:
        """Let all who are live read by themselves what is about to come in at once.

        A gap that heals is no fault of theirs: pushed to, they would be evicted for it.
        """
        place = self.head_place()
        for member in tuple(self.live):
            member.step_back(place)

    def _take_in(self, publication: Publication) -> bool:
        """Offer an event to the chain and, if it is new, to all; tell whether it is dealt with."""
        frame = EventFrame(self.name, self._prefix_of(publication.epoch), publication)
        return self._take_frame(frame) is not Link.UNLINKED

    def _take_frame(self, frame: EventFrame) -> Link:
        link = self.chain.offer(frame)
        if link is Link.APPENDED:
            self.verified = self._monotonic()
            # A snapshot: an eviction takes its stream out while this runs.
            for member in tuple(self.live):
                if member.live:
                    member.subscription.offer(member, frame)
        return link

    def _offer_unlinked(self) -> None:
        """Try again what did not link; what still does not is for the history to answer."""
        if len(self._unlinked) > BURST:
            self._step_back()
        moved = True
        while moved and self._unlinked:
            waiting, self._unlinked = self._unlinked, []
            self._unlinked = [one for one in waiting if not self._take_in(one)]
            moved = len(self._unlinked) < len(waiting)
        if self._unlinked:
            self.refresh()

    def _resync(self, reason: ResyncReason, head: Head) -> None:
        """The history cannot bridge a gap: all who are live go on at its head."""
        last = self.chain.head
        self.chain.reset(head)
        place = self.head_place()
        _log.info("channel %s: resync of %d streams: %s", self.name, len(self.live), reason)
        for member in tuple(self.live):
            if member.live:
                member.resync_live(reason, last, place)

    def count_resync(self, reason: str) -> None:
        """Count that a subscriber was told of lost events."""
        self._host.count_resync(reason)

    # -- what members wait for ---------------------------------------------------------------

    def wait(self, member: Member) -> None:
        """A member needs something fetched."""
        assert member.need is not None  # noqa: S101 - it says what
        self._waiting[member.need][member] = None
        if member.need is Need.SNAPSHOT:
            if self._snapshots is None:
                name = f"snapshot of {self.name}"
                self._snapshots = self._host.start_task(self._fetch_snapshots, name)
        else:
            self._work()

    def serve(self, member: Member) -> None:
        """A member has what it needed, or has gone."""
        for waiting in self._waiting.values():
            waiting.pop(member, None)

    def _work(self) -> None:
        if self._reader is None:
            self._reader = self._host.start_task(self._read, f"reader of {self.name}")

    async def _read(self) -> None:
        """Read history as long as somebody needs it, at most once in `READ_PAUSE` seconds."""
        failures = 0
        try:
            while self._next_job() is not None:
                pause = min(_MAX_PAUSE, READ_PAUSE * 2**failures) if failures else READ_PAUSE
                await self._pause(pause)
                job = self._next_job()
                if job is None:
                    break
                self._turn += 1
                try:
                    await job()
                except Exception as error:  # noqa: BLE001 - a broker's bug must not end the channel
                    failures += 1
                    if failures == 1:
                        unknown = not isinstance(error, BrokerUnavailable | TimeoutError)
                        _log.warning(
                            "channel %s: its history cannot be read: %r",
                            self.name,
                            error,
                            exc_info=unknown,
                        )
                else:
                    failures = 0
        finally:
            self._reader = None

    def _next_job(self) -> Callable[[], Awaitable[None]] | None:
        """Choose what to read, in turns, so that no kind of reader starves another."""
        if self.phase is not Phase.READY:
            return None
        waiting = self._waiting
        jobs = [
            job
            for needed, job in (
                (self._stale or waiting[Need.FRESH], self._read_fresh),
                (waiting[Need.TAIL], self._read_tail),
                (waiting[Need.PAGE] or waiting[Need.BEGINNING], self._read_page),
            )
            if needed
        ]
        return jobs[self._turn % len(jobs)] if jobs else None

    # -- the three reads -----------------------------------------------------------------------

    async def _read_fresh(self) -> None:
        """Bring the ring to the broker's head: heal what was missed, or say that it is gone."""
        chain = self.chain
        waiting = list(self._waiting[Need.FRESH])
        answered, self._unlinked = self._unlinked, []
        was_stale, self._stale = self._stale, False
        after, lives = chain.head, chain.lives
        try:
            page = await self._history(after=after)
        except BaseException:
            self._unlinked = answered + self._unlinked
            self._stale |= was_stale
            raise
        if self.phase is not Phase.READY:
            return
        gap = self._extend(page, after) if chain.lives == lives else "uncertain"
        if gap == "uncertain" or (gap is None and not page.complete):
            # Only the last page answers what was received before it was asked for.
            self._unlinked = answered + self._unlinked
            self._stale = True
            return
        if gap is not None:
            self._resync(gap, page.head)
        elif answered:
            self._host.count_healed()
        self.verified = self._monotonic()
        self._offer_unlinked()
        for number, member in enumerate(waiting):
            if member.need is Need.FRESH:
                member.answer_fresh()
            if number % ANSWERS == ANSWERS - 1:
                await asyncio.sleep(0)

    def _extend(self, page: HistoryPage, after: str) -> ResyncReason | Literal["uncertain"] | None:
        """Take in a page that was read behind ``after``, the head of then.

        Returns:
            ``None`` if it links; why it does not; or that it proves nothing, since the ring has
            moved on so far meanwhile that it cannot be compared any more.
        """
        chain = self.chain
        if page.epoch != chain.epoch:
            return "epoch_reset"
        frames = self._frames(page.publications)
        first = frames[0].prev if frames else page.head.position
        if first != after and not chain.reached(first, after):
            if not chain.holds(after):
                return "uncertain"
            return break_of(after, first) or "history_rewound"
        if len(frames) > BURST:
            self._step_back()
        for frame in frames:
            if self._take_frame(frame) is Link.UNLINKED and frame.position > chain.base:
                return break_of(chain.head, frame.prev) or "ring_evicted"
        return None

    async def _read_page(self) -> None:
        """Serve all who are behind with one page.

        From the oldest place among them; and every other time from the place of who has waited
        longest, or those who come back one after the other would starve those who are further on.
        """
        waiting = list(self._waiting[Need.PAGE])
        beginners = list(self._waiting[Need.BEGINNING])
        after: str | None = None
        self._oldest_first = not self._oldest_first
        if not beginners or (waiting and not self._oldest_first):
            beginners = []
            places = (member.asks_after() for member in waiting)
            # Those of another epoch only need to hear of this one.
            here = [position for epoch, position in places if epoch == self.chain.epoch]
            first = min(here, default=None) if self._oldest_first else next(iter(here), None)
            after = self.chain.head if first is None else first
            # A page says nothing of the places before it.
            waiting = [
                member
                for member in waiting
                if member.asks_after()[0] != self.chain.epoch or member.asks_after()[1] >= after
            ]
        page = await self._history(after=after)
        if self.phase is not Phase.READY:
            return
        frames = self._frames(page.publications)
        self._extend_by(page, frames)
        for member in beginners:
            if member.need is Need.BEGINNING:
                member.answer_beginning(page, frames)
        for number, member in enumerate(waiting):
            if member.need is Need.PAGE:
                member.answer_page(page, frames)
            if number % ANSWERS == ANSWERS - 1:
                # Each of them has something to write now. If thousands come back together, the
                # loop would do nothing else for seconds.
                await asyncio.sleep(0)

    async def _read_tail(self) -> None:
        """Serve all who want the newest events with one page, or with as many as it takes.

        Of what does not fit on the first page only the places are kept, to begin at.
        """
        waiting = list(self._waiting[Need.TAIL])
        count = max(member.count for member in waiting)
        page = await self._history(limit=count, newest_first=True)
        prevs = [publication.prev for publication in page.publications]
        last = page
        while len(prevs) < count and not last.complete and last.publications:
            await self._pause(READ_PAUSE)
            oldest = last.publications[-1].position
            last = await self._history(after=oldest, limit=count - len(prevs), newest_first=True)
            if last.epoch != page.epoch:
                break
            prevs += [publication.prev for publication in last.publications]
        if self.phase is not Phase.READY:
            return
        frames = self._frames(page.publications)[::-1]
        for member in waiting:
            if member.need is Need.TAIL:
                member.answer_tail(page, frames, prevs)

    async def _pause(self, seconds: float) -> None:
        """Wait until the last read is so long ago."""
        # Again, since the timers of some event loops are early by a moment.
        while (left := self._last_read + seconds - self._monotonic()) > 0:  # noqa: ASYNC110
            await asyncio.sleep(left)

    async def _history(
        self, *, after: str | None = None, limit: int = READ_LIMIT, newest_first: bool = False
    ) -> HistoryPage:
        self._last_read = self._monotonic()
        self._host.count_read()
        try:
            async with asyncio.timeout(CALL_SECONDS):
                return await self._host.broker.history(
                    self.name, after=after or None, limit=limit, newest_first=newest_first
                )
        finally:
            # Not when it began: that may be long before the broker has to do with it.
            self._last_read = self._monotonic()

    def _extend_by(self, page: HistoryPage, frames: Sequence[EventFrame]) -> None:
        """Take what a page has beyond the ring's head, if it does: it need not be sent again."""
        if page.epoch == self.chain.epoch:
            beyond = [frame for frame in frames if frame.position > self.chain.head]
            if len(beyond) > BURST:
                self._step_back()
            for frame in beyond:
                if frame.prev == self.chain.head:
                    self._take_frame(frame)
        else:
            self.refresh()

    def _frames(self, publications: Sequence[Publication]) -> list[EventFrame]:
        return [
            EventFrame(self.name, self._prefix_of(publication.epoch), publication)
            for publication in publications
        ]

    # -- snapshots -------------------------------------------------------------------------------

    async def _fetch_snapshots(self) -> None:
        """Fetch the channel's state, once for all who wait for it at that moment."""
        try:
            while waiting := list(self._waiting[Need.SNAPSHOT]):
                snapshot = None
                try:
                    async with asyncio.timeout(CALL_SECONDS):
                        snapshot = await self._host.snapshot_of(self.name)
                except Exception as error:  # noqa: BLE001 - a user's code, or the broker
                    _log.warning("channel %s: its snapshot could not be had: %r", self.name, error)
                for member in waiting:
                    if member.need is Need.SNAPSHOT:
                        member.answer_snapshot(snapshot)
        finally:
            self._snapshots = None
