"""What both kinds of stream, with and without an event loop, show of themselves. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidegate.client.core import StreamCore
    from tidegate.client.state import EndReason, StreamStatistics

__all__ = ["StreamFace"]


class StreamFace:
    """The readable side of a stream."""

    def __init__(self, core: StreamCore) -> None:
        self._core = core
        self._entered = False

    @property
    def cursor(self) -> str | None:
        """What resumes the stream after the last event that is done with; ``None``: live only."""
        cursor = self._core.cursor
        return None if cursor is None else cursor.text

    @property
    def epoch(self) -> str | None:
        """The epoch of the cursor, to be kept beside it; ``None`` if it is not known."""
        cursor = self._core.cursor
        return None if cursor is None else cursor.epoch

    @property
    def channels(self) -> tuple[str, ...]:
        """The channels that the stream is of; none if it is a session's."""
        return self._core.channels

    @property
    def entered(self) -> bool:
        """Whether the context was entered."""
        return self._entered

    @property
    def end_reason(self) -> EndReason | None:
        """Why the stream has ended for good; ``None`` while it has not."""
        return self._core.end_reason

    def statistics(self) -> StreamStatistics:
        """Return the counts so far."""
        return self._core.statistics()
