"""The chain rule: every event names its predecessor, and nothing else is believed. Pure.

Whatever resumes, merges or delivers asks one question: is the next event's ``prev`` the position
I hold, in the same epoch? `Chain` asks it where a node takes events in, `find` where a page of
history is joined to a place.
"""

from __future__ import annotations

import enum
from bisect import bisect_right
from operator import attrgetter
from typing import TYPE_CHECKING, Generic, Literal, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidegate.gateway.brokers.base import Head, HistoryPage

__all__ = ["Chain", "Gap", "Link", "Linked", "break_of", "find"]

Gap = Literal["ring_evicted", "history_rewound"]
"""Why two places do not link: what lies between is gone, or the later one never was."""

_position = attrgetter("position")


class Linked(Protocol):
    """What a chain is made of."""

    @property
    def position(self) -> str:
        """Its place."""

    @property
    def prev(self) -> str:
        """The place of its predecessor."""

    @property
    def epoch(self) -> str:
        """The life of the history that both belong to."""

    @property
    def size(self) -> int:
        """Roughly the bytes that it takes."""


class Link(enum.Enum):
    """What a `Chain` says to an event that it is offered."""

    APPENDED = "appended"
    """It follows the head, and is the head now."""

    KNOWN = "known"
    """It is in the chain already."""

    UNLINKED = "unlinked"
    """Only the history can tell where it belongs."""


E = TypeVar("E", bound=Linked)


class Chain(Generic[E]):
    """The newest events of one channel that a node knows: one linked chain of one epoch.

    It never holds anything else: what does not link is not taken in, and a reset empties it.
    Appending and finding a position are O(1).

    Args:
        max_events: the most events held.
        max_bytes: the most bytes of them; the newest is held in any case.

    Attributes:
        epoch: the life of the history that all positions belong to.
        base: the position before the oldest event held.
        head: the position of the newest event, or ``base``.
        lives: how often it has been reset: what was read before that says nothing of it.
    """

    __slots__ = (
        "_bytes",
        "_index",
        "_items",
        "_max_bytes",
        "_max_events",
        "_offset",
        "_start",
        "base",
        "epoch",
        "head",
        "lives",
    )

    def __init__(self, max_events: int, max_bytes: int) -> None:
        self._max_events = max_events
        self._max_bytes = max_bytes
        self.epoch = ""
        self.lives = 0
        self.base = self.head = ""
        self._items: list[E] = []
        self._start = 0  # where in the list the oldest stands
        self._offset = 0  # the serial number of the list's first item
        self._index: dict[str, int] = {}
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._items) - self._start

    def reset(self, head: Head) -> None:
        """Begin anew, empty, at a head that the primary has named."""
        self.epoch = head.epoch
        self.lives += 1
        self.base = self.head = head.position
        self._items.clear()
        self._index.clear()
        self._start = self._bytes = 0

    def offer(self, item: E) -> Link:
        """Take an event in if it follows the head.

        One that does not is dropped as old only if that very position is here: also one that
        sorts before the head may be news, where a clock went back or a replica was promoted.
        """
        if item.epoch == self.epoch:
            if item.prev == self.head:
                self._append(item)
                return Link.APPENDED
            if self.holds(item.position):
                return Link.KNOWN
        return Link.UNLINKED

    def holds(self, position: str) -> bool:
        """Tell whether a place is in the chain: what follows it can be read from here."""
        return position == self.base or position in self._index

    def reached(self, position: str, since: str) -> bool:
        """Tell whether a place is in the chain, and not before another one that once was.

        A head that the chain has left behind is no proof of health: it is a lost tail.

        Args:
            position: the place.
            since: what was the head at some time of this epoch.
        """
        if not self.holds(position):
            return False
        return not self.holds(since) or self._next_serial(position) >= self._next_serial(since)

    def count_after(self, position: str) -> int:
        """Return how many events follow a place that the chain holds."""
        return self._offset + len(self._items) - self._next_serial(position)

    def next_after(self, position: str) -> E | None:
        """Return the event that follows a place that the chain holds; ``None`` at the head."""
        where = self._next_serial(position) - self._offset
        return self._items[where] if where < len(self._items) else None

    def newest(self) -> E | None:
        """Return the newest event held."""
        return self._items[-1] if len(self) else None

    def _next_serial(self, position: str) -> int:
        serial = self._index.get(position)
        return self._offset + self._start if serial is None else serial + 1

    def _append(self, item: E) -> None:
        self._index[item.position] = self._offset + len(self._items)
        self._items.append(item)
        self._bytes += item.size
        self.head = item.position
        while len(self) > self._max_events or (self._bytes > self._max_bytes and len(self) > 1):
            self._drop_oldest()
        if self._start > 64:
            del self._items[: self._start]
            self._offset += self._start
            self._start = 0

    def _drop_oldest(self) -> None:
        oldest = self._items[self._start]
        self._start += 1
        self._bytes -= oldest.size
        del self._index[oldest.position]
        self.base = oldest.position


def break_of(held: str, prev: str) -> Gap | None:
    """Tell why what comes next does not link to a place; ``None`` if it does.

    Args:
        held: the place.
        prev: the ``prev`` of the first event after it that the history has, or the head if it
            has none.
    """
    if prev == held:
        return None
    # An older one: the history reaches back behind the place, and does not know it.
    return "ring_evicted" if prev > held else "history_rewound"


def find(page: HistoryPage, held: str) -> int | Gap | None:
    """Find where a page goes on from a place of its epoch.

    Args:
        page: oldest first, read after ``held`` was known; it begins after ``held`` or before.
        held: the place.

    Returns:
        The index of the first event after it, if that links; the length of the page at its
        end. ``None``: the page ends before the place. Otherwise why it does not link.
    """
    publications: Sequence[Linked] = page.publications
    index = bisect_right(publications, held, key=_position)
    if index < len(publications):
        gap = break_of(held, publications[index].prev)
    elif index and publications[-1].position == held:
        gap = None
    elif page.complete:
        gap = break_of(held, page.head.position)
    else:
        return None
    return index if gap is None else gap
