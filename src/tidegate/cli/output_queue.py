"""A command's output that waits to be published: bounded, and counted when it is lost. Pure."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

__all__ = ["Batch", "OutputQueue"]


@dataclass(frozen=True, slots=True)
class Batch:
    """What goes into one request.

    Attributes:
        events: ``{"type", "data"?, "meta"?}``, in order.
        lines: how many of the queue's first lines are among them.
        announced: how many lost lines the first event tells of; 0 if it is no such event.
        last: the last event of all is among them.
    """

    events: list[dict[str, Any]]
    lines: int
    announced: int
    last: bool


class OutputQueue:
    """Lines as events, first in, first out, and one event that comes after all of them.

    It never refuses one: whoever fills it looks at ``full`` and stops its source, so that the
    queue holds at most its bounds and what one read of the source brings. After `start_dropping`
    it takes no lines, until a batch was published again; what it did not take is announced by an
    event ``output_lost`` with ``{"lines": N}`` in the place where those lines would be. An event
    that was in a batch is in the next one as the same object until it is published: who tries
    again does not make another event of it.

    Args:
        max_events: lines from which on the queue is full.
        max_bytes: bytes from which on it is full.
        batch_events: the most lines of a batch.
        batch_bytes: the most bytes of a batch, but a single line may be larger.
    """

    def __init__(
        self,
        *,
        max_events: int = 2048,
        max_bytes: int = 1024 * 1024,
        batch_events: int = 256,
        batch_bytes: int = 256 * 1024,
    ) -> None:
        self._max_events = max_events
        self._max_bytes = max_bytes
        self._batch_events = batch_events
        self._batch_bytes = batch_bytes
        self._lines: deque[tuple[dict[str, Any], int]] = deque()
        self._bytes = 0
        self._last: dict[str, Any] | None = None
        self._dropping = False
        self._unannounced = 0
        self._announcement: tuple[dict[str, Any], int] | None = None
        self._lost = 0

    @property
    def full(self) -> bool:
        """Whether the source should be stopped for now."""
        return len(self._lines) >= self._max_events or self._bytes >= self._max_bytes

    @property
    def dropping(self) -> bool:
        """Whether lines are counted instead of taken."""
        return self._dropping

    @property
    def lost(self) -> int:
        """How many lines were dropped so far, announced or not."""
        return self._lost

    def put(self, event: dict[str, Any], size: int) -> None:
        """Append a line of about ``size`` bytes; while dropping, count it as lost."""
        if self._dropping:
            self._unannounced += 1
            self._lost += 1
        else:
            self._lines.append((event, size))
            self._bytes += size

    def put_last(self, event: dict[str, Any]) -> None:
        """Set the event that comes after all lines. It is no line and never dropped."""
        self._last = event

    def batch(self) -> Batch | None:
        """Return what to publish next, without removing it; ``None`` if nothing waits."""
        events: list[dict[str, Any]] = []
        announced = 0
        if self._unannounced:
            if self._announcement is None:
                event = {"type": "output_lost", "data": {"lines": self._unannounced}}
                self._announcement = event, self._unannounced
            event, announced = self._announcement
            events.append(event)
        lines = size = 0
        for event, event_bytes in self._lines:
            size += event_bytes
            if lines and (lines >= self._batch_events or size > self._batch_bytes):
                break
            events.append(event)
            lines += 1
        complete = lines == len(self._lines) and announced == self._unannounced
        last = self._last if complete else None
        if last is not None:
            events.append(last)
        return Batch(events, lines, announced, last is not None) if events else None

    def published(self, batch: Batch) -> None:
        """Remove the batch that `batch` returned last; lines are taken again."""
        self._unannounced -= batch.announced
        if batch.announced:
            self._announcement = None
        for _ in range(batch.lines):
            _, size = self._lines.popleft()
            self._bytes -= size
        if batch.last:
            self._last = None
        self._dropping = False

    def start_dropping(self) -> None:
        """Drop and count the lines that wait, and those that come."""
        self._dropping = True
        self._unannounced += len(self._lines)
        self._lost += len(self._lines)
        self._lines.clear()
        self._bytes = 0
