"""What waits for one stream: frames of all its channels, bounded, in the order they came. Pure."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from tidegate.channel.levels import Levels
from tidegate.gateway.frames import EventFrame

if TYPE_CHECKING:
    from tidegate.channel.frames import EvictionReason
    from tidegate.gateway.frames import ControlFrame, Place
    from tidegate.gateway.member import Member

__all__ = ["Entry", "StreamBacklog"]

_UNCOUNTED: Final = -1


class Entry:
    """One frame that waits.

    Attributes:
        member: the channel that it belongs to; ``None``: to the stream.
        frame: an event, a control frame, or ``None`` where events were dropped: what is then
            to be said is known when it is taken.
        place: where the stream is in the channel behind it; ``None``: where it was.
        size: what it counts in bytes; negative: it does not count.
        dropped: it is no longer to be taken.
    """

    __slots__ = ("dropped", "frame", "member", "place", "size")

    def __init__(
        self,
        member: Member | None,
        frame: EventFrame | ControlFrame | None,
        place: Place | None,
        size: int = _UNCOUNTED,
    ) -> None:
        self.member = member
        self.frame = frame
        self.place = place
        self.size = size
        self.dropped = False


class StreamBacklog(Levels):
    """The queue between a stream's channels and its socket.

    Live events count against the caps; control frames, and an event handed to a waiting
    consumer, do not. What a channel does when the caps are reached is its namespace's choice.

    Attributes:
        waiting: a consumer waits; the next frame is handed to it uncounted.
        closed: nothing is taken in any more.
    """

    __slots__ = ("_dropped", "_entries", "closed", "waiting")

    def __init__(self, max_frames: int, max_bytes: int) -> None:
        super().__init__(max_frames, max_bytes)
        self._entries: deque[Entry] = deque()
        self._dropped = 0
        self.waiting = False
        self.closed = False

    def __len__(self) -> int:
        return len(self._entries) - self._dropped

    def push(self, member: Member, frame: EventFrame) -> EvictionReason | None:
        """Take in a live event, or say which cap forbids it. Not on a closed backlog."""
        if self.waiting:
            self.waiting = False
            size = _UNCOUNTED
        else:
            size = len(frame.sse)
            reason = self.overflow(size)
            if reason is not None:
                return reason
            self.live_count += 1
            self.live_bytes += size
        self._append(Entry(member, frame, frame.place, size))
        return None

    def force(self, entry: Entry) -> None:
        """Put an entry at the back, whatever the caps say; ignored when closed."""
        if not self.closed:
            self.waiting = False
            entry.size = _UNCOUNTED
            self._append(entry)

    def has_event(self, member: Member) -> bool:
        """Tell whether the last thing that waits of a channel is an event."""
        last = member.last_entry
        return last is not None and isinstance(last.frame, EventFrame)

    def replace_last(self, member: Member, frame: EventFrame) -> EvictionReason | None:
        """Let an event take the place of the channel's last one, which waits.

        Returns:
            Why it cannot: it is so much larger that the stream would have too many bytes.
        """
        last = member.last_entry
        assert last is not None  # noqa: S101 - `has_event` has said so
        if last.size != _UNCOUNTED:
            size = len(frame.sse)
            if self.live_count > 1 and self.live_bytes - last.size + size > self.max_bytes:
                return "queue_bytes_overflow"
            self.live_bytes += size - last.size
            last.size = size
        last.frame = frame
        last.place = frame.place
        return None

    def drop_oldest(self, member: Member, place: Place) -> bool:
        """Drop the oldest event of a channel to make room; where it stood, that will be said.

        Args:
            member: the channel.
            place: behind the event that looks for room.

        Returns:
            Whether there is more room now. If not, none of the channel's own waits, and the new
            event counts as dropped.
        """
        marker: Entry | None = None
        made_room = False
        for entry in self._entries:
            if entry.member is not member or entry.dropped:
                continue
            if entry.frame is None:
                marker = entry
            elif entry.size == _UNCOUNTED:
                # A control frame moves the cursor by itself: no mark before it may speak of
                # what comes behind it.
                marker = None
            else:
                self._uncount(entry)
                if marker is None:
                    entry.frame = None
                else:
                    marker.place = entry.place
                    self._drop(entry, marker)
                made_room = True
                break
        else:
            # The room is taken by other channels: it is the new event that goes.
            if marker is None:
                self.force(Entry(member, None, place))
            else:
                marker.place = place
        if self._dropped > self.max_frames:
            self._entries = deque(entry for entry in self._entries if not entry.dropped)
            self._dropped = 0
        return made_room

    def pop(self) -> Entry | None:
        """Take the oldest entry; ``None`` when there is none."""
        while self._entries:
            entry = self._entries.popleft()
            if entry.dropped:
                self._dropped -= 1
                continue
            if entry.size != _UNCOUNTED:
                self._uncount(entry)
            member = entry.member
            if member is not None:
                member.queued -= 1
                if member.last_entry is entry:
                    member.last_entry = None
            return entry
        return None

    def purge(self, member: Member) -> None:
        """Drop whatever waits of one channel."""
        for entry in self._entries:
            if entry.member is member and not entry.dropped:
                if entry.size != _UNCOUNTED:
                    self._uncount(entry)
                self._drop(entry)
        member.last_entry = None

    def oldest_event(self) -> EventFrame | None:
        """Return the oldest event that waits."""
        for entry in self._entries:
            if isinstance(entry.frame, EventFrame) and not entry.dropped:
                return entry.frame
        return None

    def close(self) -> None:
        """Take nothing in any more; what waits can still be taken."""
        self.closed = True
        self.waiting = False

    def abort(self) -> None:
        """Take nothing in any more and drop what waits."""
        self.close()
        self._entries.clear()
        self._dropped = self.live_count = self.live_bytes = 0

    def _append(self, entry: Entry) -> None:
        self._entries.append(entry)
        if entry.member is not None:
            entry.member.queued += 1
            entry.member.last_entry = entry

    def _uncount(self, entry: Entry) -> None:
        self.live_count -= 1
        self.live_bytes -= entry.size
        entry.size = _UNCOUNTED

    def _drop(self, entry: Entry, behind: Entry | None = None) -> None:
        entry.dropped = True
        self._dropped += 1
        if entry.member is not None:
            entry.member.queued -= 1
            if entry.member.last_entry is entry:
                entry.member.last_entry = behind
