"""A session's state, kept by reducing its events: `SessionView`."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from tidegate.client.control import CONTROL_PAYLOADS, SESSION_TERMINAL, STREAM_TERMINAL
from tidegate.client.cursor import Cursor
from tidegate.client.follow import Following, SyncFollowing
from tidegate.client.load import Loaded
from tidegate.client.state import Applied

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from tidegate.client.events import StreamEvent
    from tidegate.client.stream import ClientStream
    from tidegate.client.stream_sync import SyncClientStream

__all__ = ["SessionView"]

S = TypeVar("S")

# What speaks of the stream and not of the session's state; reduce never sees it.
_ABOUT_THE_STREAM: Final = CONTROL_PAYLOADS.keys() - {"event_unserializable"} | {
    "stream_open",
    "stream_cursor",
}


class SessionView(Generic[S]):
    """A state that follows a session's events and starts anew where they do not link.

    ::

        view = SessionView(lambda: load_session(url), reduce, initial=0)
        async with view.follow(url) as states:
            async for state in states:
                show(state)

    Each event goes through ``reduce`` once, in order: one that comes again is skipped. After
    ``state_resync_required`` nothing is applied (`awaiting_resync`) until a state was loaded, but
    for what does not need a state: the ends of the session and of the stream. Reason
    ``replay_budget_exceeded`` loses nothing and asks for nothing. Nothing in a stream ends the
    waiting, except a ``channel_snapshot``, which brings a state.

    `apply` and `loaded` are the whole of it, without I/O, for whoever has a loop of his own;
    `follow` and `follow_sync` are such loops. Not for two threads or tasks at once.

    Args:
        load: gives a `Loaded`, or what the ``/load`` route answers; async for `follow`.
        reduce: makes the next state of a state and a `StreamEvent`. It sees the session's events,
            ``session_closed`` and ``event_unserializable`` included, and no other control frame.
            What it raises comes out of `apply`; the event is then not applied.
        initial: the state to begin with, and where ``load`` gives ``None``; copied each time.

    Attributes:
        state: the state now.
        awaiting_resync: it does not link to the stream, and has to be loaded.
        resyncs: how often that was so.
        last_resync: the last frame that said so.
        terminal_event: the first frame that ended the session or the stream; the session's end
            takes the place of a stream's.
        complete: no event before `place` is missing, as far as the last load knows.
        place: what the state contains: where to open the stream. ``None`` before the first event.
    """

    def __init__(
        self,
        load: Callable[[], Awaitable[Loaded | Mapping[str, Any]] | Loaded | Mapping[str, Any]],
        reduce: Callable[[S, StreamEvent], S],
        *,
        initial: S | None = None,
    ) -> None:
        self.load = load
        self._reduce = reduce
        self._initial = initial
        self.state: S = self._first_state()
        self.awaiting_resync = False
        self.resyncs = 0
        self.last_resync: StreamEvent | None = None
        self.terminal_event: StreamEvent | None = None
        self.complete = True
        self.place: Cursor | None = None
        # A load has said that events are gone for good: hearing so again brings nothing new.
        self._gap_known = False

    @property
    def ended(self) -> bool:
        """Whether the session is over."""
        return self.terminal_event is not None and self.terminal_event.type in SESSION_TERMINAL

    def apply(self, event: StreamEvent) -> Applied:
        """Take the next frame of the stream.

        Returns:
            What it did; at `Applied.RESYNC` the caller loads a state and reopens the stream.
        """
        if event.type == "state_resync_required":
            return self._resync(event)
        if event.type == "channel_snapshot":
            return self._snapshot(event)
        if event.type in STREAM_TERMINAL:
            if self.terminal_event is None:
                self.terminal_event = event
            return Applied.NOTHING
        if event.type == "replay_complete":
            self._gap_known = False
            return Applied.CAUGHT_UP
        if event.type in _ABOUT_THE_STREAM:
            return Applied.NOTHING
        last = event.type in SESSION_TERMINAL
        if self.awaiting_resync and not last:
            return Applied.NOTHING
        cursor = Cursor.read(event.cursor or "", event.epoch)
        if event.id is not None and cursor is not None and cursor.after(self.place) is not cursor:
            return Applied.NOTHING
        self.state = self._reduce(self.state, event)
        if last and not self.ended:
            self.terminal_event = event
        if cursor is not None and not self.awaiting_resync:
            self.place = cursor
        return Applied.CHANGED

    def loaded(self, answer: Loaded | Mapping[str, Any]) -> None:
        """Begin anew with a state that was loaded. The stream is then opened at `place`.

        Raises:
            LoadFailed: it is no state.
        """
        loaded = Loaded.read(answer)
        self.place = Cursor.given(loaded.last_event_id, loaded.epoch)
        self.state = self._first_state() if loaded.state is None else loaded.state
        self.complete = loaded.complete
        self.awaiting_resync = False
        self._gap_known = not loaded.complete
        if not self.ended:
            self.terminal_event = None

    def follow(self, source: str | ClientStream) -> Following[S]:
        """Follow a session: connect, reduce, and on a resync load and reopen.

        Args:
            source: a session's URL, or a stream made by `connect`, entered or not. One that is not
                entered is entered here, and closed at the end.

        Returns:
            An async iterator of states, one for each event and each load. Use it with ``async
            with``, so that the stream is closed also if the loop is left early.
        """
        return Following(self, source)

    def follow_sync(self, source: str | SyncClientStream) -> SyncFollowing[S]:
        """Do as `follow` does, without an event loop; ``load`` is then a plain function."""
        return SyncFollowing(self, source)

    def _first_state(self) -> S:
        state: Any = copy.deepcopy(self._initial)  # S may well be Optional; the caller knows
        return state  # type: ignore[no-any-return]

    def _resync(self, event: StreamEvent) -> Applied:
        reason = event.data.get("reason") if isinstance(event.data, dict) else None
        if reason == "replay_budget_exceeded" or (reason == "ring_evicted" and self._gap_known):
            return Applied.NOTHING
        self.awaiting_resync = True
        self.resyncs += 1
        self.last_resync = event
        return Applied.RESYNC

    def _snapshot(self, event: StreamEvent) -> Applied:
        data = event.data
        if not isinstance(data, dict) or "state" not in data:
            return Applied.NOTHING
        self.state = data["state"]
        self.place = Cursor.read(event.cursor or "", event.epoch) or self.place
        self.awaiting_resync = False
        self.complete = True
        return Applied.CHANGED
