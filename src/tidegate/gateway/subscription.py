"""One stream of several channels: its members, its backlog and its cursor."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tidegate.errors import BrokerUnavailable, StreamDenied
from tidegate.gateway.backlog import Entry, StreamBacklog
from tidegate.gateway.cursor import CursorWriter
from tidegate.gateway.events import GatewayEvent
from tidegate.gateway.frames import (
    ControlFrame,
    EventFrame,
    client_evicted,
    slow_client_warning,
    stream_cursor,
    stream_error,
    stream_open,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tidegate.channel.frames import EvictionReason, StreamErrorKind, Threshold
    from tidegate.gateway.cursor import Slot
    from tidegate.gateway.frames import Place
    from tidegate.gateway.member import Member
    from tidegate.gateway.node import Node

__all__ = [
    "StreamRequest",
    "Subscription",
    "SubscriptionStatistics",
]

_JOIN_SECONDS: Final = 15.0


class StreamRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a stream is asked to be.

    Attributes:
        channels: names, checked and each but once.
        cursor: what an earlier stream gave; ``None`` for a new one.
        tail: for channels that the cursor says nothing of: begin with so many events.
        from_beginning: likewise: begin with the oldest event.
        tags: only events that have all of these.
        max_queued: live frames that may wait for it.
        max_queued_bytes: their bytes.
    """

    channels: tuple[str, ...]
    cursor: str | None = None
    tail: int | None = None
    from_beginning: bool = False
    tags: Mapping[str, str] | None = None
    max_queued: int = 256
    max_queued_bytes: int = 2 * 1024 * 1024


class SubscriptionStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """Counters of one stream at one moment.

    Attributes:
        queued_frames: live frames that wait for it.
        queued_bytes: their bytes.
        delivered: events taken.
        warned: warnings given.
        evicted: it was cut because it was too slow.
    """

    queued_frames: int
    queued_bytes: int
    delivered: int
    warned: int
    evicted: bool


class Subscription:
    """One stream, as its channels and its wire know it. Made by `Node.subscribe`.

    The wire takes frames when its socket has room and is told (`on_ready`) when there are some
    again. Everything belongs to the node's event loop; only `joined` waits.

    Attributes:
        stream_id: its name.
        tags: what an event must have to be wanted.
        denied: the channels that it does not get, and why, by code.
        carried: what the cursor says of them, which stands in this stream's own: who gets them
            when he comes back has missed nothing in silence.
        on_ready: called when an armed wire has something to take, and at the end. It must be
            cheap and must neither raise nor call back.
        evicted: it was too slow; its last frame says so.
    """

    def __init__(self, node: Node, request: StreamRequest, stream_id: str) -> None:
        self._node = node
        self.stream_id = stream_id
        self.tags = request.tags
        self.backlog = StreamBacklog(request.max_queued, request.max_queued_bytes)
        self.denied: dict[str, str] = {}
        self.carried: list[Slot] = []
        self.on_ready: Callable[[], None] | None = None
        self.evicted = False
        self._request_honoured = True
        self._members: list[Member] = []
        self._pulling: dict[Member, None] = {}
        self._pull_first = False
        self._undecided = 0
        self._opened = False
        self._cursor: CursorWriter | None = None
        self._text: str | None = None
        self._moved = False
        self._joined: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._error: Exception | None = None
        self._aborted = False
        self._delivered = 0
        self._warned = 0

    # -- joining ---------------------------------------------------------------------------

    def begin(self, members: Sequence[Member], *, honoured: bool) -> None:
        """Take the members that it is made of; each joins by itself. For the node.

        Args:
            members: one for each channel that is not denied.
            honoured: the cursor speaks of all of them, and of nothing else.
        """
        self._members = list(members)
        self._request_honoured = honoured
        self._undecided = len(self._members)
        self._pulling = dict.fromkeys(self._members)
        if not self._members:
            self._fail_join(StreamDenied(dict(self.denied)))

    def decided(self) -> None:
        """One member knows where it starts. For the member."""
        self._undecided -= 1
        if self._undecided == 0 and not self._joined.done():
            starts = [member.start for member in self._members]
            slots = [start.slot for start in starts if start is not None]
            self._cursor = CursorWriter([*slots, *self.carried])
            self._text = None
            self._joined.set_result(None)
            self.wake()

    def fail_join(self, error: Exception) -> None:
        """The broker does not let it in. For the channel."""
        if not self._joined.done():
            self._fail_join(error)
        self.fail("broker_unavailable", str(error), self._node.patience_ms())

    def _fail_join(self, error: Exception) -> None:
        self._error = error
        self._joined.set_result(None)

    async def joined(self, seconds: float = _JOIN_SECONDS) -> None:
        """Wait until it is known where each channel starts. May be cancelled and repeated.

        Args:
            seconds: how long.

        Raises:
            BrokerUnavailable: the broker does not answer.
            StreamDenied: it gets none of its channels.
            TimeoutError: not within ``seconds``.
        """
        if not self._joined.done():
            async with asyncio.timeout(seconds):
                await asyncio.shield(self._joined)
        if self._error is not None:
            raise self._error

    @property
    def undecided(self) -> bool:
        """Whether it still waits for a channel."""
        return not self._joined.done()

    @property
    def honoured(self) -> bool:
        """Whether all of the request's cursor is: it goes on from there without a gap."""
        return self._request_honoured and all(member.recovered for member in self._members)

    @property
    def start_cursor(self) -> str:
        """The cursor at which it starts; known when it has joined."""
        return "" if self._cursor is None else self.cursor

    @property
    def cursor(self) -> str:
        """What resumes it behind the frame that was taken last."""
        if self._text is None:
            assert self._cursor is not None  # noqa: S101 - joined
            self._text = self._cursor.text()
        return self._text

    # -- what the members say ----------------------------------------------------------------

    def now_ms(self) -> int:
        """Return the time to stamp, in ms since 1970."""
        return self._node.now_ms()

    def wants(self, frame: EventFrame) -> bool:
        """Tell whether the stream's filter lets an event through."""
        return self.tags is None or frame.matches(self.tags)

    def offer(self, member: Member, frame: EventFrame) -> None:
        """Take a live event of a channel in; never waits, never raises."""
        if self.tags is not None and not frame.matches(self.tags):
            self.move(member, frame.place)
            return
        backlog = self.backlog
        slow = member.channel.options.slow
        waited = backlog.waiting
        if slow == "conflate" and backlog.has_event(member):
            reason = backlog.replace_last(member, frame)
        else:
            reason = backlog.push(member, frame)
        while reason is not None:
            if slow != "drop_oldest":
                self._evict(reason, frame)
                return
            if not backlog.drop_oldest(member, frame.place):
                return
            reason = backlog.push(member, frame)
        if waited:
            self.wake()
        threshold = backlog.due_warning()
        if threshold is not None:
            self._warn(threshold, frame)

    def move(self, member: Member, place: Place) -> None:
        """Pass over an event of a channel: the cursor moves all the same, in order."""
        last = member.last_entry
        if last is not None:
            last.place = place
            return
        self._place(member, place)
        if not self._moved:
            self._moved = True
            self._node.moved(self)

    def pulls(self, member: Member) -> None:
        """A member has to be pulled again."""
        self._pulling[member] = None

    def tell_cursor(self) -> bool:
        """Say where the cursor is, if events were skipped and nothing else has said so.

        Returns:
            Whether that is done; if not, something waits that may yet say it.
        """
        if not self._moved:
            return True
        if not self._opened or len(self.backlog):
            return False
        self.backlog.force(Entry(None, stream_cursor(self.now_ms()), None))
        self.wake()
        return True

    def _place(self, member: Member, place: Place) -> None:
        member.place = place
        if self._cursor is not None:
            self._cursor.replace(member.index, place.slot)
            self._text = None

    # -- the wire ------------------------------------------------------------------------------

    def take(self, max_frames: int = 64, max_bytes: int = 65536) -> list[GatewayEvent]:
        """Take at once what there is, as events, in order; empty when there is nothing.

        Args:
            max_frames: the most frames to take.
            max_bytes: no further one is taken once those taken have as many bytes.
        """
        taken: list[GatewayEvent] = []
        size = 0
        while len(taken) < max_frames and size < max_bytes:
            frame = self._next()
            if frame is None:
                break
            cursor = self.cursor if self._cursor is not None else ""
            if isinstance(frame, EventFrame):
                size += frame.size
                taken.append(GatewayEvent.of_event(frame, cursor))
            else:
                taken.append(GatewayEvent.of_control(frame, cursor))
        return taken

    def take_bytes(self, max_bytes: int = 65536) -> bytes:
        """Take at once what there is, as SSE frames with their ``id:`` lines, in order.

        Args:
            max_bytes: no further frame is taken once those taken have as many bytes.
        """
        parts: list[bytes] = []
        size = 0
        while size < max_bytes:
            frame = self._next()
            if frame is None:
                break
            body = frame.sse
            if isinstance(frame, EventFrame) or frame.moves_cursor:
                parts.append(b"id: %b\n" % self.cursor.encode("ascii"))
            parts.append(body)
            size += len(body)
        return b"".join(parts)

    def _next(self) -> EventFrame | ControlFrame | None:
        if not self._opened and not self.backlog.closed:
            return self._open()
        entry = self._next_entry() if self._pulling else self.backlog.pop()
        if entry is None:
            return None
        member = entry.member
        if entry.frame is None:
            assert member is not None  # noqa: S101 - only channels drop events
            assert entry.place is not None  # noqa: S101 - up to somewhere
            entry = member.frames_dropped(entry.place)
        if member is not None and entry.place is not None:
            self._place(member, entry.place)
        frame = entry.frame
        assert frame is not None  # noqa: S101 - said above
        if isinstance(frame, EventFrame):
            self._delivered += 1
            self._moved = False
        elif frame.moves_cursor:
            self._moved = False
        return frame

    def _open(self) -> ControlFrame | None:
        if self._cursor is None:
            return None
        self._opened = True
        channels: dict[str, dict[str, Any]] = {}
        for member in self._members:
            assert member.start is not None  # noqa: S101 - joined
            channels[member.channel.name] = {
                "epoch": member.start.epoch or member.channel.chain.epoch,
                "position": member.start.position,
                "recovered": member.recovered,
                "linked": member.linked,
            }
        return stream_open(
            self.now_ms(),
            stream_id=self.stream_id,
            node=self._node.name,
            channels=channels,
            denied=self.denied,
        )

    def _next_entry(self) -> Entry | None:
        # In turns, so that neither a long replay nor a busy channel starves the other; but what
        # waits goes first before it costs the stream its life.
        self._pull_first = not self._pull_first and self.backlog.low
        if self._pull_first:
            return self._pull() or self.backlog.pop()
        return self.backlog.pop() or self._pull()

    def _pull(self) -> Entry | None:
        if not self._pulling or self.backlog.closed:
            return None
        for member in list(self._pulling):
            # What waits in the backlog comes before what is yet to be read.
            if member.queued:
                continue
            entry = member.pull()
            if member.live and not member.pullable:
                del self._pulling[member]
            elif entry is not None and len(self._pulling) > 1:
                # To the back, so that all channels have their turn.
                del self._pulling[member]
                self._pulling[member] = None
            if entry is not None:
                return entry
        return None

    def arm(self) -> bool:
        """Say that the wire waits: the next event is handed over uncounted.

        Returns:
            False if there is something to take already, or nothing more will come.
        """
        if self.backlog.closed or len(self.backlog) or self._available():
            return False
        self.backlog.waiting = True
        return True

    def _available(self) -> bool:
        if not self._opened:
            return self._cursor is not None
        return bool(self._pulling) and any(member.pullable for member in self._pulling)

    def disarm(self) -> None:
        """Say that the wire does not wait any more."""
        self.backlog.waiting = False

    def wake(self) -> None:
        """Tell the wire that there may be something to take."""
        self.backlog.waiting = False
        if self.on_ready is not None:
            self.on_ready()

    @property
    def ended(self) -> bool:
        """Nothing waits, and nothing more will come."""
        return self.backlog.closed and not len(self.backlog)

    @property
    def aborted(self) -> bool:
        """It was ended by its own side."""
        return self._aborted

    def statistics(self) -> SubscriptionStatistics:
        """Return the counters at this moment."""
        return SubscriptionStatistics(
            queued_frames=self.backlog.live_count,
            queued_bytes=self.backlog.live_bytes,
            delivered=self._delivered,
            warned=self._warned,
            evicted=self.evicted,
        )

    # -- the end ---------------------------------------------------------------------------------

    def _warn(self, threshold: Threshold, frame: EventFrame) -> None:
        backlog = self.backlog
        self._warned += 1
        warning = slow_client_warning(
            self.now_ms(),
            channel=frame.channel,
            queueSize=backlog.live_count,
            queuedBytes=backlog.live_bytes,
            maxQueued=backlog.max_frames,
            maxQueuedBytes=backlog.max_bytes,
            lastEventId=frame.position,
            threshold=threshold,
        )
        backlog.force(Entry(None, warning, None))

    def evict(self, reason: EvictionReason) -> None:
        """Cut the stream for a reason that only its wire knows. Without effect on an ended one."""
        if not self.backlog.closed:
            self._evict(reason, None)

    def _evict(self, reason: EvictionReason, rejected: EventFrame | None) -> None:
        backlog = self.backlog
        first = backlog.oldest_event() if rejected is None else rejected
        data: dict[str, Any] = {
            "reason": reason,
            "queueSize": backlog.live_count,
            "queuedBytes": backlog.live_bytes,
            "maxQueued": backlog.max_frames,
            "maxQueuedBytes": backlog.max_bytes,
        }
        if rejected is not None and reason == "queue_bytes_overflow":
            data["eventBytes"] = len(rejected.sse)
        if first is not None:
            data |= {"channel": first.channel, "firstDroppedId": first.position}
        self.evicted = True
        self._node.count_eviction(reason)
        self._close(client_evicted(self.now_ms(), **data))

    def fail(self, kind: StreamErrorKind, error: str, retry_ms: int | None = None) -> None:
        """End the stream: what waits goes out, and then a ``stream_error``.

        Args:
            kind: why, by name.
            error: why, as a sentence.
            retry_ms: when the client is to come back.
        """
        if not self.backlog.closed:
            frame = stream_error(self.now_ms(), kind=kind, error=error, retry_ms=retry_ms)
            self._close(frame)

    def _close(self, last: ControlFrame) -> None:
        self.backlog.force(Entry(None, last, None))
        self._leave()
        self.backlog.close()
        self.wake()

    def abort(self) -> None:
        """Drop what waits and end now. Idempotent."""
        self._aborted = True
        self._leave()
        self.backlog.abort()
        if not self._joined.done():
            self._fail_join(BrokerUnavailable("the stream was ended before it had begun"))
        self.wake()

    def _leave(self) -> None:
        members, self._members = self._members, []
        self._pulling.clear()
        for member in members:
            member.end()
        self._node.forget(self)
