"""The replay ring: a channel's newest events, bounded in number and bytes. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidegate.channel.event import ChannelEvent

__all__ = ["Ring"]


class Ring:
    """The newest events of one channel, ids without gaps.

    Appending, dropping the oldest and finding an id are all O(1). An event of id ``n``
    has its slot at ``(n - 1) % capacity``: the list grows by appending until it is full
    and is overwritten in place from then on. (A deque finds the middle in O(n): at a
    million events a client that returns would block the loop for milliseconds.)

    Attributes:
        first: the id of the oldest event; ``last + 1`` when empty.
        last: the id of the newest event ever appended; 0 before the first.
        bytes: the sum of the sizes of the events held, where ``max_bytes`` is set; else 0.
    """

    __slots__ = ("_capacity", "_max_bytes", "_slots", "bytes", "first", "last")

    def __init__(self, capacity: int, max_bytes: int | None = None) -> None:
        self._capacity = capacity
        self._max_bytes = max_bytes
        self._slots: list[ChannelEvent | None] = []
        self.first = 1
        self.last = 0
        self.bytes = 0

    def __len__(self) -> int:
        return self.last + 1 - self.first

    def append(self, event: ChannelEvent) -> None:
        """Add the event whose id is ``last + 1`` and drop what no longer fits.

        With ``max_bytes`` the event is serialized, and the oldest are dropped until all
        fit, the newest itself too if it alone is too big.
        """
        capacity = self._capacity
        if capacity == 0:
            self.last += 1
            self.first = self.last + 1
            return
        # First of all: what goes wrong in a foreign serializer must leave the ring as it was.
        size = 0 if self._max_bytes is None else event.size
        if self.last - self.first + 1 == capacity:
            self._drop_oldest()
        slot = self.last % capacity
        if slot == len(self._slots):
            self._slots.append(event)
        else:
            self._slots[slot] = event
        # Counted only when it is in: an append that fails must leave no hole.
        self.last += 1
        if self._max_bytes is not None:
            self.bytes += size
            while self.bytes > self._max_bytes:
                self._drop_oldest()

    def after(self, position: int) -> Iterator[ChannelEvent]:
        """Yield the events held whose id is greater than ``position``, oldest first."""
        for event_id in range(max(position + 1, self.first), self.last + 1):
            event = self._slots[(event_id - 1) % self._capacity]
            assert event is not None  # noqa: S101 - first..last are always filled
            yield event

    def _drop_oldest(self) -> None:
        slot = (self.first - 1) % self._capacity
        if self._max_bytes is not None:
            event = self._slots[slot]
            assert event is not None  # noqa: S101 - first..last are always filled
            self.bytes -= event.size
        self._slots[slot] = None
        self.first += 1
