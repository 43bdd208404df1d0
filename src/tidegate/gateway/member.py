"""One stream's hold on one channel: how it starts, catches up, goes live and starts over.

A member that is not live is pulled: the stream asks it for the next frame whenever its socket has
room, and it reads the channel's ring, or a page of history that the channel has fetched. It holds
no live events meanwhile, so however much it missed, its memory is one page. At the ring's head it
goes live, check and join without a suspension point, and is pushed to from then on.
"""

from __future__ import annotations

import enum
from bisect import bisect_right
from collections import deque
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from tidegate.gateway.backlog import Entry
from tidegate.gateway.continuity import find
from tidegate.gateway.frames import channel_snapshot, replay_complete, state_resync_required

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidegate.channel.frames import ResyncReason
    from tidegate.gateway.brokers.base import HistoryPage, Snapshot
    from tidegate.gateway.frames import EventFrame, Place
    from tidegate.gateway.local import LocalChannel
    from tidegate.gateway.subscription import Subscription

__all__ = ["Member", "Need", "Want"]

_position: Final = attrgetter("position")


class Want(enum.Enum):
    """Where a stream starts in a channel."""

    LIVE = "live"
    TAIL = "tail"
    BEGINNING = "beginning"
    RESUME = "resume"
    INVALID = "invalid"


class Need(enum.Enum):
    """What a member waits for its channel to fetch."""

    FRESH = "fresh"
    """That the ring is at the broker's head."""

    PAGE = "page"
    """What follows its place."""

    BEGINNING = "beginning"
    """The oldest events."""

    TAIL = "tail"
    """The newest ones, `Member.count` of them."""

    SNAPSHOT = "snapshot"
    """The channel's state."""


class Member:
    """One stream's hold on one channel. Belongs to the event loop; nothing here waits.

    Args:
        subscription: the stream.
        channel: the channel.
        index: which slot of the stream's cursor is the channel's.
        want: where to start.
        count: how many events of the tail.
        candidates: what a cursor says of the channel: hashes of epochs, and positions.

    Attributes:
        queued: its entries in the stream's backlog; ``last_entry`` is the last of them.
        place: where the stream is in the channel: behind what was taken last.
        start: where it started.
        recovered: a resumed stream goes on from its place without a gap.
        live: it is pushed to.
    """

    __slots__ = (
        "_candidates",
        "_controls",
        "_decided",
        "_fallback",
        "_fresh",
        "_given",
        "_page",
        "_page_next",
        "_reason",
        "_replayed",
        "_seen",
        "_snapshot",
        "_tells_complete",
        "_want",
        "channel",
        "count",
        "index",
        "last_entry",
        "live",
        "need",
        "place",
        "queued",
        "recovered",
        "start",
        "subscription",
    )

    def __init__(
        self,
        subscription: Subscription,
        channel: LocalChannel,
        index: int,
        want: Want,
        *,
        count: int = 0,
        candidates: Sequence[tuple[str, str]] = (),
    ) -> None:
        self.subscription = subscription
        self.channel = channel
        self.index = index
        self.count = count
        self.queued = 0
        self.last_entry: Entry | None = None
        self.place: Place | None = None
        self.start: Place | None = None
        self.recovered = False
        self.live = False
        self.need: Need | None = None
        self._want = want
        self._candidates = candidates
        self._decided = False
        self._seen: Place | None = None
        self._given = ""
        self._fresh = False
        self._controls: deque[Entry] = deque()
        self._page: Sequence[EventFrame] = ()
        self._page_next = 0
        self._reason: ResyncReason | None = None
        self._replayed = 0
        self._tells_complete = want is not Want.LIVE
        # A snapshot that is told if history links to it, and how to go on if not.
        self._snapshot: Snapshot | None = None
        self._fallback: tuple[Place, Sequence[EventFrame], int] | None = None

    @property
    def pullable(self) -> bool:
        """Whether `pull` has something to do."""
        return bool(self._controls) or (self._decided and not self.live and self.need is None)

    @property
    def linked(self) -> bool:
        """Whether what it gets never skips an event on purpose."""
        return self.channel.options.linked and not self.subscription.tags

    # -- the start -----------------------------------------------------------------------

    def begin(self) -> None:
        """The channel is subscribed to: find out where to start."""
        channel = self.channel
        want = self._want
        if want is Want.LIVE:
            self._start_at(channel.head_place(), recovered=False)
        elif want is Want.INVALID:
            self._lost("cursor_invalid", channel.unknown_place())
        elif want is Want.RESUME:
            self._resume()
        else:
            self._ask(Need.TAIL if want is Want.TAIL else Need.BEGINNING)

    def _resume(self) -> None:
        channel = self.channel
        if channel.stale:
            # Not to be judged by a channel that does not know where it is itself.
            self._ask(Need.FRESH)
            return
        ours = next((p for e, p in self._candidates if e == channel.epoch_hash), None)
        if ours is None and not self._fresh:
            # Perhaps it is this node that has not heard of the new epoch yet.
            self._ask(Need.FRESH)
            return
        if ours is None:
            epoch_hash, self._given = self._candidates[0]
            self._lost("epoch_reset", channel.foreign_place(epoch_hash, self._given))
            return
        self._given = ours
        self._seen = channel.place(ours)
        self.start = self.place = self._seen
        chain = channel.chain
        if channel.options.recovery == "latest":
            if ours == chain.head:
                self._start_at(self._seen, recovered=True)
            else:
                self.count = 1
                self._ask(Need.TAIL)
        elif chain.holds(ours) and chain.count_after(ours) <= channel.options.history_size:
            self._start_at(self._seen, recovered=True)
        elif chain.holds(ours) or ours < chain.base:
            self._ask(Need.PAGE)
        else:
            # Perhaps this node is behind: never judge before it is at the head.
            self._ask(Need.FRESH)

    def _start_at(self, place: Place, *, recovered: bool) -> None:
        self._seen = place
        if self.start is None:
            self.start = self.place = place
        self.recovered = recovered
        self._decide()

    def _lost(self, reason: ResyncReason, place: Place) -> None:
        """What the client holds means nothing here: it gets a resync, then all there is."""
        # A client that is cut behind `stream_open` must come back with the same, and get it again.
        self.start = self.place = place
        self._seen = place
        self._decide()
        self._start_over(reason)

    def _decide(self) -> None:
        if not self._decided:
            self._decided = True
            self.subscription.decided()

    # -- being pulled --------------------------------------------------------------------

    def pull(self) -> Entry | None:
        """Return the next frame of a start or a replay; ``None`` when it is live or must wait."""
        while not self._controls and self.pullable:
            frame = self._next()
            if frame is None:
                continue
            if self.subscription.wants(frame):
                self._replayed += 1
                return Entry(self, frame, frame.place)
            self.subscription.move(self, frame.place)
        return self._controls.popleft() if self._controls else None

    def _next(self) -> EventFrame | None:
        """Return the next event of the page or the ring; without one, see what is to be done."""
        seen = self._seen
        assert seen is not None  # noqa: S101 - decided
        if self._page_next < len(self._page):
            frame = self._page[self._page_next]
            if frame.prev != seen.position:
                # A hole in the history itself.
                start = self.channel.place(frame.prev, frame.epoch)
                self._resync("ring_evicted", start, self._page, self._page_next)
                return None
            self._page_next += 1
            self._seen = frame.place
            return frame
        self._page = ()
        self._page_next = 0
        chain = self.channel.chain
        ours = seen.epoch == chain.epoch
        if ours and chain.holds(seen.position):
            following = chain.next_after(seen.position)
            if following is None:
                self._join()
            else:
                self._seen = following.place
            return following
        # A ring that has moved on, or one that is behind: then it is brought to its head first.
        if ours and seen.position < chain.base:
            self._ask_for_more()
        else:
            self._ask(Need.FRESH)
        return None

    def _ask_for_more(self) -> None:
        """Ask for what follows its place, or of a `latest` channel for the newest alone."""
        if self.channel.options.recovery == "latest" and self._snapshot is None:
            self.count = 1
            self._ask(Need.TAIL)
        else:
            self._ask(Need.PAGE)

    def _join(self) -> None:
        self.live = True
        self.channel.live[self] = None
        if self._tells_complete:
            self._tells_complete = False
            assert self._seen is not None  # noqa: S101 - decided
            frame = replay_complete(
                self.subscription.now_ms(),
                channel=self.channel.name,
                replayed=self._replayed,
                last=self._seen.position,
            )
            self._controls.append(Entry(self, frame, self._seen))

    def step_back(self, head: Place) -> None:
        """Read by itself what comes behind ``head``: more than its stream could be pushed."""
        if self.live:
            self._leave_live(head)
            self.subscription.pulls(self)
            self.subscription.wake()

    def _leave_live(self, seen: Place) -> None:
        self.live = False
        self.channel.live.pop(self, None)
        self._seen = seen

    # -- what the channel has fetched ------------------------------------------------------

    def _ask(self, need: Need) -> None:
        self.need = need
        self.channel.wait(self)

    def _served(self) -> None:
        self.need = None
        self.channel.serve(self)

    def answer_fresh(self) -> None:
        """The ring has been at the head since this was asked for."""
        chain, seen = self.channel.chain, self._seen
        self._served()
        self._fresh = True
        if seen is None:
            self._resume()
        elif self._decided:
            if seen.epoch != chain.epoch:
                self._ask(Need.PAGE)
            elif not chain.holds(seen.position):
                self._ask_for_more()
        elif (
            seen.epoch == chain.epoch
            and chain.holds(seen.position)
            and chain.count_after(seen.position) <= self.channel.options.history_size
        ):
            self._start_at(seen, recovered=True)
        else:
            self._ask(Need.PAGE)
        self.subscription.wake()

    def asks_after(self) -> tuple[str, str]:
        """Return the epoch and the position behind which it needs a page."""
        assert self._seen is not None  # noqa: S101 - asked for by one that has a place
        return self._seen.epoch, self._seen.position

    def answer_page(self, page: HistoryPage, frames: Sequence[EventFrame]) -> None:
        """A page was read since this was asked for; it may not reach to the place."""
        seen = self._seen
        assert seen is not None  # noqa: S101 - asked for by one that has a place
        found = find(page, seen.position) if page.epoch == seen.epoch else "epoch_reset"
        if found is None:
            return
        self._served()
        if isinstance(found, int):
            self._linked(frames, found)
        elif self._fallback is not None:
            # The snapshot does not link to what there is: it is not told.
            self._seen, self._page, self._page_next = self._fallback
            self._fallback = self._snapshot = None
        else:
            self._decide()
            if found == "ring_evicted":
                index = bisect_right(frames, seen.position, key=_position)
                prev = frames[index].prev if index < len(frames) else page.head.position
                self._resync(found, self.channel.place(prev, page.epoch), frames, index)
            else:
                self._start_over(found)
        self.subscription.wake()

    def _linked(self, frames: Sequence[EventFrame], index: int) -> None:
        if self._snapshot is not None:
            self._tell_snapshot(self._snapshot)
            self._fallback = self._snapshot = None
        elif not self._decided:
            self.recovered = True
            self._decide()
        self._page, self._page_next = frames, index

    def answer_beginning(self, page: HistoryPage, frames: Sequence[EventFrame]) -> None:
        """The oldest page was read."""
        self._served()
        prev = frames[0].prev if frames else page.head.position
        start = self.channel.place(prev, page.epoch)
        if self._reason is not None:
            reason, self._reason = self._reason, None
            self._resync(reason, start, frames, 0)
        else:
            self._page, self._page_next = frames, 0
            self._start_at(start, recovered=False)
        self.subscription.wake()

    def answer_tail(
        self, page: HistoryPage, frames: Sequence[EventFrame], prevs: Sequence[str]
    ) -> None:
        """The newest events were read, `count` of them or as many as there are.

        Args:
            page: the newest.
            frames: its events, oldest first.
            prevs: the ``prev`` of each event that was read, from the newest backwards.
        """
        self._served()
        wanted = min(self.count, len(prevs))
        # Of more than a page only the place to begin at is known.
        frames = frames[len(frames) - wanted :] if wanted <= len(frames) else ()
        prev = prevs[wanted - 1] if wanted else page.head.position
        start = self.channel.place(prev, page.epoch)
        if self._want is Want.RESUME or self._decided:
            self._answer_latest(page, frames, start)
        else:
            self._page, self._page_next = frames, 0
            self._start_at(start, recovered=False)
        self.subscription.wake()

    def _answer_latest(self, page: HistoryPage, frames: Sequence[EventFrame], start: Place) -> None:
        seen = self._seen
        assert seen is not None  # noqa: S101 - resumed
        newest = page.head.position
        if page.epoch != seen.epoch or newest < seen.position:
            self._decide()
            reason: ResyncReason = "history_rewound" if page.epoch == seen.epoch else "epoch_reset"
            self._resync(reason, start, frames, 0)
        elif newest == seen.position:
            self._start_at(seen, recovered=True)
        elif frames:
            self._page, self._page_next = frames, 0
            self._start_at(start, recovered=True)
        else:
            self._decide()
            self._resync("ring_evicted", start, frames, 0)

    # -- starting over ---------------------------------------------------------------------

    def _start_over(self, reason: ResyncReason) -> None:
        self._reason = reason
        self._ask(Need.BEGINNING)

    def _resync(
        self, reason: ResyncReason, start: Place, page: Sequence[EventFrame], index: int
    ) -> None:
        """Tell that events are gone; then the snapshot if there is one, and the survivors."""
        assert self._seen is not None  # noqa: S101 - decided
        frame = state_resync_required(
            self.subscription.now_ms(),
            channel=self.channel.name,
            reason=reason,
            last=self._seen.position if reason != "cursor_invalid" else "",
            earliest=page[index].position if index < len(page) else None,
            start=start,
        )
        self.channel.count_resync(reason)
        self._controls.append(Entry(self, frame, start))
        self._seen = start
        self._page, self._page_next = page, index
        if self.channel.options.snapshot is not None:
            self._ask(Need.SNAPSHOT)

    def resync_live(self, reason: ResyncReason, last: str, head: Place) -> None:
        """History cannot bridge a gap: go on at the head, behind what waits."""
        frame = state_resync_required(
            self.subscription.now_ms(),
            channel=self.channel.name,
            reason=reason,
            last=last,
            earliest=None,
            start=head,
        )
        self.channel.count_resync(reason)
        self.subscription.backlog.force(Entry(self, frame, head))
        if self.channel.options.snapshot is not None:
            self._leave_live(head)
            self.subscription.pulls(self)
            self._ask(Need.SNAPSHOT)
        self.subscription.wake()

    def frames_dropped(self, place: Place) -> Entry:
        """Say, now that it is taken, that events up to ``place`` were dropped."""
        assert self.place is not None  # noqa: S101 - live
        frame = state_resync_required(
            self.subscription.now_ms(),
            channel=self.channel.name,
            reason="frames_dropped",
            last=self.place.position,
            earliest=None,
            start=place,
        )
        self.channel.count_resync("frames_dropped")
        if self.channel.options.snapshot is not None and self.live:
            self.subscription.backlog.purge(self)
            self._leave_live(place)
            self.subscription.pulls(self)
            self._ask(Need.SNAPSHOT)
        return Entry(self, frame, place)

    def answer_snapshot(self, snapshot: Snapshot | None) -> None:
        """The channel's state was fetched, or there is none.

        It is told only if what follows links to it: it ends the client's waiting for a state,
        and an event between it and the next one would be missed in silence.
        """
        self._served()
        seen, chain = self._seen, self.channel.chain
        assert seen is not None  # noqa: S101 - resynced
        self.subscription.wake()
        if snapshot is None or snapshot.epoch != seen.epoch:
            return
        index = bisect_right(self._page, snapshot.position, key=_position)
        if snapshot.position == seen.position:
            self._tell_snapshot(snapshot)
        elif index and self._page[index - 1].position == snapshot.position:
            self._tell_snapshot(snapshot)
            self._seen = self._page[index - 1].place
            self._page_next = index
        elif chain.epoch == snapshot.epoch and chain.holds(snapshot.position):
            self._tell_snapshot(snapshot)
            self._seen = self.channel.place(snapshot.position)
            self._page = ()
            self._page_next = 0
        else:
            self._fallback = (seen, self._page, self._page_next)
            self._snapshot = snapshot
            self._seen = self.channel.place(snapshot.position, snapshot.epoch)
            self._page = ()
            self._page_next = 0
            self._ask(Need.PAGE)

    def _tell_snapshot(self, snapshot: Snapshot) -> None:
        frame = channel_snapshot(
            self.subscription.now_ms(), channel=self.channel.name, snapshot=snapshot
        )
        place = self.channel.place(snapshot.position, snapshot.epoch)
        self._controls.append(Entry(self, frame, place))

    # -- the end ---------------------------------------------------------------------------

    def end(self) -> None:
        """The stream is over: leave the channel."""
        self.need = None
        self._controls.clear()
        self._page = ()
        self.channel.leave(self)
