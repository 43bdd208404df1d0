"""A session's state at a position, and what a client that lost events may load. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tidegate.errors import SnapshotConflict

__all__ = ["Loaded", "Snapshot", "accept_snapshot", "load"]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The full state of a session as of one event."""

    state: Any
    """What JSON can express; ``None`` where nobody gave any."""
    last_event_id: int
    """The last event that the state takes account of; 0: none."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a client builds on after a resync."""

    state: Any
    """The state to take over."""
    last_event_id: int
    """The cursor with which to reopen the stream."""
    complete: bool
    """Whether no event is missing between the state and the stream from there."""


NOTHING = Snapshot(None, 0)


def accept_snapshot(stored: Snapshot | None, offered: Snapshot, head: int) -> Snapshot:
    """Decide whether a snapshot may take the place of the stored one.

    Args:
        stored: the one in force.
        offered: the new one.
        head: the channel's last event id.

    Raises:
        SnapshotConflict: it is ahead of the channel or behind the one in force.
    """
    low = 0 if stored is None else stored.last_event_id
    if not low <= offered.last_event_id <= head:
        raise SnapshotConflict(offered.last_event_id, low, head)
    return offered


def load(snapshot: Snapshot | None, *, first: int, head: int) -> Loaded:
    """Decide from where a client goes on after it took over a snapshot.

    If events between the snapshot and the ring are gone, the client goes on at the ring
    all the same, told that its state is incomplete: another resync would change nothing.

    Args:
        snapshot: the one in force.
        first: the first event id that can be replayed; ``head + 1`` if none.
        head: the channel's last event id.

    Raises:
        SnapshotConflict: the snapshot is ahead of the channel, so that reopening there
            would end in the next resync.
    """
    snapshot = snapshot or NOTHING
    position = snapshot.last_event_id
    if not 0 <= position <= head:
        raise SnapshotConflict(position, 0, head)
    if first > position + 1:
        return Loaded(snapshot.state, first - 1, complete=False)
    return Loaded(snapshot.state, position, complete=True)
