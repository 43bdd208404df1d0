"""A session's state, kept by reducing its events: `SessionView`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from tidegate.client.cursor import Cursor
from tidegate.client.follow import Following, SyncFollowing
from tidegate.client.load import Loaded
from tidegate.client.state import Applied
from tidegate.client.stream_view import StreamView

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from tidegate.client.events import StreamEvent
    from tidegate.client.stream import ClientStream
    from tidegate.client.stream_sync import SyncClientStream

__all__ = ["SessionView"]

S = TypeVar("S")


class SessionView(StreamView[S]):
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
        reopen_at: after a load the same; ``None`` before the first.
    """

    def __init__(
        self,
        load: Callable[[], Awaitable[Loaded | Mapping[str, Any]] | Loaded | Mapping[str, Any]],
        reduce: Callable[[S, StreamEvent], S],
        *,
        initial: S | None = None,
    ) -> None:
        super().__init__(reduce, initial)
        self.load = load
        self.complete = True
        # A load has said that events are gone for good: hearing so again brings nothing new.
        self._gap_known = False

    def loaded(self, answer: Loaded | Mapping[str, Any]) -> None:
        """Begin anew with a state that was loaded. The stream is then opened at `place`.

        Raises:
            LoadFailed: it is no state.
        """
        loaded = Loaded.read(answer)
        self.place = self.reopen_at = Cursor.given(loaded.last_event_id, loaded.epoch)
        self.state = self._first_state() if loaded.state is None else loaded.state
        self.complete = loaded.complete
        self._awaiting.clear()
        self._gap_known = not loaded.complete
        self._begun_anew()

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

    def wants_load(self, channels: tuple[str, ...]) -> bool:  # noqa: ARG002 - a session has none
        """Begin with a load, as ever."""
        return True

    def ask(self) -> Awaitable[Loaded | Mapping[str, Any]] | Loaded | Mapping[str, Any]:
        """Call ``load``."""
        return self.load()

    def _resync(self, event: StreamEvent) -> Applied:
        reason = event.data.get("reason") if isinstance(event.data, dict) else None
        if reason == "replay_budget_exceeded" or (reason == "ring_evicted" and self._gap_known):
            return Applied.NOTHING
        return self._await("", event)

    def _snapshot(self, event: StreamEvent) -> Applied:
        data = event.data
        if not isinstance(data, dict) or "state" not in data:
            return Applied.NOTHING
        self.state = data["state"]
        self.place = Cursor.read(event.cursor or "", event.epoch) or self.place
        self._awaiting.clear()
        self.complete = True
        return Applied.CHANGED

    def _caught_up(self, event: StreamEvent) -> None:  # noqa: ARG002 - see the base
        self._gap_known = False

    def _told(self, event: StreamEvent) -> None:
        """What else is said of a stream means nothing to a session's state."""

    def _is_new(self, event: StreamEvent) -> bool:
        cursor = Cursor.read(event.cursor or "", event.epoch)
        return event.id is None or cursor is None or cursor.after(self.place) is cursor

    def _applied(self, event: StreamEvent) -> None:
        self.place = Cursor.read(event.cursor or "", event.epoch) or self.place
