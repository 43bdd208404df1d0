"""One subscriber's bounded queue of frames not yet taken. Pure."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidegate.channel.event import ChannelEvent
    from tidegate.channel.frames import EvictionReason, Threshold

__all__ = ["Backlog"]

_UNCOUNTED = -1


class Backlog:
    """What waits for one consumer, its caps, and when to warn.

    Live frames count against the caps; forced frames (replay, control frames) and an
    event handed to a waiting consumer never do. Each entry carries its own tag, so the
    order of live and forced frames does not matter.

    Attributes:
        max_frames: the most live frames that may wait.
        max_bytes: the most bytes of live frames; one oversized frame may wait alone.
        live_count: live frames that wait.
        live_bytes: their bytes.
        waiting: a consumer waits; the next frame is handed to it uncounted.
        warned: a warning was given, and the backlog has not shrunk enough since.
        closed: nothing is taken in any more.
    """

    __slots__ = (
        "_entries",
        "_rearm_bytes",
        "_rearm_frames",
        "_warn_bytes",
        "_warn_frames",
        "closed",
        "live_bytes",
        "live_count",
        "max_bytes",
        "max_frames",
        "waiting",
        "warned",
    )

    def __init__(self, max_frames: int, max_bytes: int) -> None:
        self.max_frames = max_frames
        self.max_bytes = max_bytes
        # In integers: n >= 75 % of the cap is n >= ceil(3 cap / 4), and
        # n <= 37.5 % of it is n <= floor(3 cap / 8).
        self._warn_frames = -(-3 * max_frames // 4)
        self._warn_bytes = -(-3 * max_bytes // 4)
        self._rearm_frames = 3 * max_frames // 8
        self._rearm_bytes = 3 * max_bytes // 8
        self._entries: deque[tuple[ChannelEvent, int]] = deque()
        self.live_count = 0
        self.live_bytes = 0
        self.waiting = False
        self.warned = False
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

    def due_warning(self) -> Threshold | None:
        """Decide after an accepted push whether a warning is due, once per episode.

        Returns:
            The measure that passed 75 % of its cap, or ``None``.
        """
        frames, size = self.live_count, self.live_bytes
        if self.warned:
            if frames <= self._rearm_frames and size <= self._rearm_bytes:
                self.warned = False
            return None
        many, big = frames >= self._warn_frames, size >= self._warn_bytes
        if not (many or big):
            return None
        self.warned = True
        if many and big:
            return "frames_and_bytes"
        return "frames" if many else "bytes"

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
