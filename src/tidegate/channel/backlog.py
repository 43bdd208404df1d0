"""One subscriber's bounded queue of frames not yet taken. Pure."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from tidegate.channel.levels import Levels

if TYPE_CHECKING:
    from tidegate.channel.event import ChannelEvent
    from tidegate.channel.frames import EvictionReason

__all__ = ["Backlog"]

_UNCOUNTED = -1


class Backlog(Levels):
    """What waits for one consumer, its caps, and when to warn.

    Live frames count against the caps; forced frames (replay, control frames) and an
    event handed to a waiting consumer never do. Each entry carries its own tag, so the
    order of live and forced frames does not matter.

    Attributes:
        waiting: a consumer waits; the next frame is handed to it uncounted.
        closed: nothing is taken in any more.
    """

    __slots__ = ("_entries", "closed", "waiting")

    def __init__(self, max_frames: int, max_bytes: int) -> None:
        super().__init__(max_frames, max_bytes)
        self._entries: deque[tuple[ChannelEvent, int]] = deque()
        self.waiting = False
        self.closed = False

    def __len__(self) -> int:
        return len(self._entries)

    def push(self, event: ChannelEvent) -> EvictionReason | None:
        """Take in a live event, or say which cap forbids it.

        A closed backlog skips the event. The event is serialized only if it is counted.

        Returns:
            ``None`` when the event was taken or skipped, else the reason for eviction.
        """
        if self.closed:
            return None
        if self.waiting:
            # Into the buffer, uncounted, and the waiter is only woken: a consumer that
            # is cancelled in this very moment then loses nothing. (Setting the event as
            # the waiter's result loses it.)
            self.waiting = False
            self._entries.append((event, _UNCOUNTED))
            return None
        if self.live_count >= self.max_frames:
            return "queue_overflow"
        size = event.size
        if self.live_count > 0 and self.live_bytes + size > self.max_bytes:
            return "queue_bytes_overflow"
        self._entries.append((event, size))
        self.live_count += 1
        self.live_bytes += size
        return None

    def force_push(self, frame: ChannelEvent) -> None:
        """Put a frame at the back, whatever the caps say; ignored when closed."""
        if not self.closed:
            self.waiting = False
            self._entries.append((frame, _UNCOUNTED))

    def pop(self) -> ChannelEvent | None:
        """Take the oldest frame; ``None`` when there is none."""
        try:
            event, size = self._entries.popleft()
        except IndexError:
            return None
        if size != _UNCOUNTED:
            self.live_count -= 1
            self.live_bytes -= size
        return event

    def first_id(self) -> int | None:
        """Return the id of the oldest event that waits, control frames passed over."""
        return next((event.id for event, _ in self._entries if event.id is not None), None)

    def close(self) -> None:
        """Take nothing in any more; what waits can still be taken."""
        self.closed = True
        self.waiting = False

    def abort(self) -> None:
        """Take nothing in any more and drop what waits."""
        self.close()
        self._entries.clear()
        self.live_count = 0
        self.live_bytes = 0
