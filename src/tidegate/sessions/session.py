"""`Session`: a named channel, its snapshot, and how long it has been idle."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from tidegate.sessions.snapshot import Snapshot, accept_snapshot

if TYPE_CHECKING:
    from tidegate.channel import Channel, ChannelEvent
    from tidegate.sessions.run import Run

__all__ = ["Session", "is_session_id"]

_SESSION_ID = re.compile(r"[A-Za-z0-9._~-]{1,128}", re.ASCII)


def is_session_id(value: object) -> bool:
    """Tell whether ``value`` is a session id: 1 to 128 of ``A-Z a-z 0-9 . _ ~ -``.

    Not ``.`` or ``..``: browsers take them out of a path, and could never reach it.
    """
    if not isinstance(value, str) or value in {".", ".."}:
        return False
    return _SESSION_ID.fullmatch(value) is not None


class Session:
    """One session; made by `Sessions`.

    Attributes:
        id: its name.
        channel: its events; publish here, or by `publish`.
        snapshot: the state that was stored last, if any.
        runs: the generators that feed it now.
    """

    def __init__(self, session_id: str, channel: Channel, now: float) -> None:
        self.id = session_id
        self.channel = channel
        self.snapshot: Snapshot | None = None
        self.runs: set[Run] = set()
        self._active_at = now
        self._seen_head = channel.last_event_id

    def publish(self, type: str, data: Any = None, **options: Any) -> ChannelEvent | None:  # noqa: A002
        """Publish into the session's channel; see `tidegate.Channel.publish`."""
        return self.channel.publish(type, data, **options)

    def put_snapshot(self, state: Any, last_event_id: int) -> None:
        """Store the full state as of an event, for clients that have lost some.

        Args:
            state: anything that JSON can express; must not be changed afterwards.
            last_event_id: the last event that it takes account of.

        Raises:
            SnapshotConflict: that is ahead of the channel or behind the stored snapshot.
        """
        self.snapshot = accept_snapshot(
            self.snapshot, Snapshot(state, last_event_id), self.channel.last_event_id
        )

    def touch(self, now: float) -> None:
        """Note that the session is in use."""
        self._active_at = now

    def idle_for(self, now: float) -> float:
        """Return for how many seconds nobody has used the session.

        In use is a session with a subscriber, with a live run, or with an event published
        since the last call.
        """
        head = self.channel.last_event_id
        if self.runs or head != self._seen_head or self.channel.statistics().subscribers:
            self._seen_head = head
            self._active_at = now
        return now - self._active_at

    def __repr__(self) -> str:
        return f"<Session {self.id} at {self.channel.last_event_id}>"
