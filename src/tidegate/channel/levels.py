"""How full a subscriber's backlog is, when to warn, and when it is full. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidegate.channel.frames import EvictionReason, Threshold

__all__ = ["Levels"]


class Levels:
    """The live frames that wait in a backlog, counted and in bytes, against two caps.

    Attributes:
        max_frames: the most live frames that may wait.
        max_bytes: the most bytes of live frames; one oversized frame may wait alone.
        live_count: live frames that wait.
        live_bytes: their bytes.
        warned: a warning was given, and the backlog has not shrunk enough since.
    """

    __slots__ = (
        "_rearm_bytes",
        "_rearm_frames",
        "_warn_bytes",
        "_warn_frames",
        "live_bytes",
        "live_count",
        "max_bytes",
        "max_frames",
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
        self.live_count = 0
        self.live_bytes = 0
        self.warned = False

    @property
    def low(self) -> bool:
        """Both measures are at most 37.5 %, where a warned backlog counts as recovered."""
        return self.live_count <= self._rearm_frames and self.live_bytes <= self._rearm_bytes

    def overflow(self, size: int) -> EvictionReason | None:
        """Say which cap forbids one more live frame of ``size`` bytes, if one does."""
        if self.live_count >= self.max_frames:
            return "queue_overflow"
        if self.live_count > 0 and self.live_bytes + size > self.max_bytes:
            return "queue_bytes_overflow"
        return None

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
