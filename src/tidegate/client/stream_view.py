"""What a view of a session and one of channels have in common. Pure, but for `follow`."""

from __future__ import annotations

import copy
from abc import abstractmethod
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from tidegate.client.control import CONTROL_PAYLOADS, SESSION_TERMINAL, STREAM_TERMINAL
from tidegate.client.state import Applied

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidegate.client.cursor import Cursor
    from tidegate.client.events import StreamEvent

__all__ = ["StreamView"]

S = TypeVar("S")

# What speaks of the stream and not of the state; reduce never sees it.
_ABOUT_THE_STREAM: Final = CONTROL_PAYLOADS.keys() - {"event_unserializable"}


class StreamView(Generic[S]):
    """A state that follows a stream's events and starts anew where they do not link.

    Attributes:
        state: the state now.
        resyncs: how often it did not link to the stream, and had to be loaded.
        last_resync: the last frame that said so.
        terminal_event: the first frame that ended the session or the stream; the session's end
            takes the place of a stream's.
        place: what the state contains: where to open the stream.
        reopen_at: where the stream has to be opened after a load; ``None``: it goes on as it is.
    """

    def __init__(self, reduce: Callable[[S, StreamEvent], S], initial: S | None) -> None:
        self._reduce = reduce
        self._initial = initial
        self.state: S = self._first_state()
        self.resyncs = 0
        self.last_resync: StreamEvent | None = None
        self.terminal_event: StreamEvent | None = None
        self.place: Cursor | None = None
        self.reopen_at: Cursor | None = None
        # The channels whose part of the state has to be loaded; a session has no name here.
        self._awaiting: dict[str, None] = {}

    @property
    def awaiting_resync(self) -> bool:
        """Whether the state does not link to the stream, and has to be loaded."""
        return bool(self._awaiting)

    @property
    def awaiting_load(self) -> bool:
        """Whether the state has to be loaded, and does not come in the stream."""
        return self.awaiting_resync

    @property
    def ended(self) -> bool:
        """Whether the session is over."""
        return self.terminal_event is not None and self.terminal_event.type in SESSION_TERMINAL

    def apply(self, event: StreamEvent) -> Applied:
        """Take the next frame of the stream.

        Returns:
            What it did; at `Applied.RESYNC` the caller loads a state and, if `reopen_at` says so,
            reopens the stream there.
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
            self._caught_up(event)
            return Applied.CAUGHT_UP
        if event.type in _ABOUT_THE_STREAM:
            self._told(event)
            return Applied.NOTHING
        last = event.type in SESSION_TERMINAL
        waits = (event.channel or "") in self._awaiting
        if waits and not last:
            self._passed_by(event)
            return Applied.NOTHING
        if not self._is_new(event):
            return Applied.NOTHING
        self.state = self._reduce(self.state, event)
        if last and not self.ended:
            self.terminal_event = event
        if not waits:
            self._applied(event)
        return Applied.CHANGED

    @abstractmethod
    def wants_load(self, channels: tuple[str, ...]) -> bool:
        """Tell whether a view that is at no place begins with a load, and not with the stream."""

    @abstractmethod
    def ask(self) -> Any:
        """Call the user's ``load`` for what is awaited."""

    @abstractmethod
    def loaded(self, answer: Any) -> None:
        """Begin anew with a state that was loaded."""

    @abstractmethod
    def _resync(self, event: StreamEvent) -> Applied: ...

    @abstractmethod
    def _snapshot(self, event: StreamEvent) -> Applied: ...

    @abstractmethod
    def _caught_up(self, event: StreamEvent) -> None: ...

    @abstractmethod
    def _told(self, event: StreamEvent) -> None: ...

    def _passed_by(self, event: StreamEvent) -> None:
        """An event was not applied, since its state is awaited."""

    @abstractmethod
    def _is_new(self, event: StreamEvent) -> bool: ...

    @abstractmethod
    def _applied(self, event: StreamEvent) -> None: ...

    def _first_state(self) -> S:
        state: Any = copy.deepcopy(self._initial)  # S may well be Optional; the caller knows
        return state  # type: ignore[no-any-return]

    def _await(self, name: str, event: StreamEvent) -> Applied:
        """Apply nothing more of a channel, or of the session, until its state was loaded."""
        self._awaiting[name] = None
        self.resyncs += 1
        self.last_resync = event
        return Applied.RESYNC

    def _begun_anew(self) -> None:
        """A state was loaded: how a stream ended does not matter any more."""
        if not self.ended:
            self.terminal_event = None
