"""The state of one or several channels, kept by reducing their events: `ChannelView`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

from tidegate.client.control import ChannelSnapshot
from tidegate.client.cursor import Cursor
from tidegate.client.follow import Following, SyncFollowing
from tidegate.client.load_channel import LoadedChannel
from tidegate.client.state import Applied
from tidegate.client.stream import connect
from tidegate.client.stream_sync import connect_sync
from tidegate.client.stream_view import StreamView

if TYPE_CHECKING:
    from tidegate.client.events import StreamEvent
    from tidegate.client.stream import ClientStream
    from tidegate.client.stream_sync import SyncClientStream

__all__ = ["ChannelView", "Snapshot"]

S = TypeVar("S")

Snapshot: TypeAlias = LoadedChannel | Mapping[str, Any] | None
"""What ``load`` gives: a `LoadedChannel`, or what the snapshot route answers, or ``None``."""


class _Place(NamedTuple):
    """A place in a channel."""

    epoch: str
    position: str


class ChannelView(StreamView[S]):
    """A state that follows the events of channels and starts anew where they do not link.

    ::

        view = ChannelView(partial(load_channel, url), reduce, initial=0)
        async with view.follow(url, channels=["room:1"]) as states:
            async for state in states:
                show(state)

    Each event goes through ``reduce`` once, in the order of its channel. After a channel's
    ``state_resync_required`` none of its events is applied (`awaiting_resync`) until its state was
    loaded or has come in the stream as a ``channel_snapshot``; nothing else ends the waiting.

    A view of one channel then opens the stream at the place of what was loaded. With several
    channels the stream goes on as it is, since a cursor of one channel is none of the others: the
    channel's events that the loaded state takes account of already are passed over.

    `apply` and `loaded` are the whole of it, without I/O, for whoever has a loop of his own;
    `follow` and `follow_sync` are such loops. Not for two threads or tasks at once.

    Args:
        load: gives the state of the channel that it is called with: a `LoadedChannel`, what the
            snapshot route answers, or ``None``, if there is none; async for `follow`. Without it
            states come in the stream alone, where the channel's namespace has snapshots.
        reduce: makes the next state of a state and a `StreamEvent`, whose ``channel`` says where it
            comes from. It sees no control frames. What it raises comes out of `apply`; the event is
            then not applied.
        initial: the state to begin with, copied each time.
        merge: puts the `ChannelSnapshot` of one channel into the state, for views of several. Where
            nothing is stored, its ``state`` is ``None``. Without it a view is of one channel, and
            the snapshot's state is all of the state, or ``initial`` where nothing is stored.

    Attributes:
        state: the state now.
        resyncs: how often a channel's part of it had to be loaded.
        last_resync: the last frame that said so.
        terminal_event: the last stream's ``client_evicted`` or ``stream_error``, if it had one
            since the last load.
        place: opens a stream with what the state does not contain; ``None`` as long as there is
            none, and while something is awaited.
        reopen_at: after a load: where the stream has to be opened; ``None``: it goes on as it is.
    """

    def __init__(
        self,
        load: Callable[[str], Awaitable[Snapshot] | Snapshot] | None,
        reduce: Callable[[S, StreamEvent], S],
        *,
        initial: S | None = None,
        merge: Callable[[S, ChannelSnapshot], S] | None = None,
    ) -> None:
        super().__init__(reduce, initial)
        self.load = load
        self._merge = merge
        # Where the stream is, in each channel that it has spoken of.
        self._at: dict[str, _Place] = {}
        # Where the state is, in channels where it is ahead of the stream.
        self._ahead: dict[str, _Place] = {}
        # What resumes the stream after the last frame of it.
        self._cursor: Cursor | None = None
        # What was loaded last and is yet to be linked to by the stream.
        self._tried: _Place | None = None
        self._names: set[str] = set()
        self._begun: set[str] = set()
        self._holes: set[str] = set()

    @property
    def complete(self) -> bool:
        """Whether no event is missing before what the state contains, as far as is known.

        It is False where a channel begins in the middle of its history without a stored state,
        and where the stored one is too old to be gone on from.
        """
        return not self._holes

    def loaded(self, answer: Snapshot, channel: str | None = None) -> None:
        """Begin a channel anew with a state that was loaded.

        If `reopen_at` is set then, the stream has to be opened there.

        Args:
            answer: what ``load`` gave.
            channel: whose; by default the one that has been awaited for the longest time.

        Raises:
            LoadFailed: it is no state.
            ValueError: no channel is awaited, and none is named.
        """
        loaded = LoadedChannel.read(answer)
        name = next(iter(self._awaiting), None) if channel is None else channel
        if name is None:
            raise ValueError("no channel is awaited; say whose state it is")
        self._awaiting.pop(name, None)
        self.reopen_at = None
        if loaded.cursor is None:
            self._take(ChannelSnapshot(channel=name, state=None), stored=False)
            self._begin(name)
        else:
            self._take(
                ChannelSnapshot(
                    channel=name,
                    state=loaded.state,
                    position=loaded.position,
                    epoch=loaded.epoch,
                )
            )
            self._begun.add(name)
            self._holes.discard(name)
            self._link(name, _Place(loaded.epoch, loaded.position), loaded.cursor)
        self._settle()
        self._begun_anew()

    def follow(
        self, source: str | ClientStream, *, channels: Iterable[str] | None = None
    ) -> Following[S]:
        """Follow channels: connect, reduce, and on a resync load and go on.

        Args:
            source: a server's URL, or a stream made by `connect`, entered or not. One that is not
                entered is entered here, and closed at the end. Where nothing is stored, a URL's
                channels are followed from the beginning of their history.
            channels: with a URL: their names, unless they stand in it.

        Returns:
            An async iterator of states, one for each event and each load. Use it with ``async
            with``, so that the stream is closed also if the loop is left early.
        """
        if isinstance(source, str):
            source = connect(source, channels=channels, from_beginning=True)
        return Following(self, source)

    def follow_sync(
        self, source: str | SyncClientStream, *, channels: Iterable[str] | None = None
    ) -> SyncFollowing[S]:
        """Do as `follow` does, without an event loop; ``load`` is then a plain function."""
        if isinstance(source, str):
            source = connect_sync(source, channels=channels, from_beginning=True)
        return SyncFollowing(self, source)

    def wants_load(self, channels: tuple[str, ...]) -> bool:
        """Begin with a load of each channel, if there is a way to load.

        Raises:
            TypeError: the channels are several, and nothing says how to merge their states.
        """
        self._names.update(channels)
        if self.load is not None:
            self._check_merge()
            # What an earlier stream has said is not where the one to come will begin.
            self._at.clear()
            self._ahead.clear()
            self._tried = self._cursor = None
            self._awaiting.update(dict.fromkeys(channels))
        return self.awaiting_load

    def ask(self) -> Awaitable[Snapshot] | Snapshot:
        """Call ``load`` for the channel that has been awaited for the longest time."""
        return None if self.load is None else self.load(next(iter(self._awaiting)))

    @property
    def awaiting_load(self) -> bool:
        """Whether a state has to be loaded; without ``load`` it comes in the stream."""
        return self.load is not None and self.awaiting_resync

    def _resync(self, event: StreamEvent) -> Applied:
        data = event.data if isinstance(event.data, dict) else {}
        if data.get("reason") == "replay_budget_exceeded":
            return Applied.NOTHING
        names = list(self._at) if event.channel is None else [event.channel]
        at = _read(data)
        for name in names or [""]:
            self._names.add(name)
            self._ahead.pop(name, None)
            self._begun.add(name)
            if at is None:
                self._at.pop(name, None)
            else:
                self._at[name] = at
            self._awaiting[name] = None
        self._move(event)
        return self._await(names[0] if names else "", event)

    def _snapshot(self, event: StreamEvent) -> Applied:
        name, data = event.channel, event.data
        at = _read(data)
        if name is None or at is None or "state" not in data:
            return Applied.NOTHING
        self._take(
            ChannelSnapshot(channel=name, state=data["state"], position=at.position, epoch=at.epoch)
        )
        self._at[name] = at
        self._ahead.pop(name, None)
        self._awaiting.pop(name, None)
        self._begun.add(name)
        self._holes.discard(name)
        self._tried = None
        self._move(event)
        return Applied.CHANGED

    def _caught_up(self, event: StreamEvent) -> None:
        self._tried = None
        self._move(event)

    def _told(self, event: StreamEvent) -> None:
        if event.type == "stream_open" and isinstance(event.data, dict):
            channels, denied = event.data.get("channels"), event.data.get("denied")
            for name in denied if isinstance(denied, dict) else ():
                self._ahead.pop(name, None)  # the stream will not come there
            for name, start in channels.items() if isinstance(channels, dict) else ():
                at = _read(start)
                if at is not None:
                    self._opened(name, at, recovered=start.get("recovered") is True)
        self._move(event)

    def _opened(self, name: str, at: _Place, *, recovered: bool) -> None:
        self._names.add(name)
        self._at[name] = at
        ahead = self._ahead.pop(name, None)
        if ahead is not None:
            self._wait_for(name, ahead)
        if recovered:
            self._begun.add(name)  # the caller has put state and stream together
        elif name not in self._begun:
            self._begin(name)

    def _passed_by(self, event: StreamEvent) -> None:
        if event.position is not None and event.epoch is not None and event.channel is not None:
            self._at[event.channel] = _Place(event.epoch, event.position)
        self._move(event)

    def _begin(self, name: str) -> None:
        """A channel's part of the state begins where the stream is, if that is known already."""
        at = self._at.get(name)
        if at is None:
            self._begun.discard(name)  # the stream will say where
            return
        self._begun.add(name)
        if at.position:
            self._holes.add(name)
        else:
            self._holes.discard(name)

    def _link(self, name: str, loaded: _Place, cursor: str) -> None:
        """Go on with the stream from the state that was loaded."""
        if len(self._names) > 1:
            self._wait_for(name, loaded)
        elif self._at.get(name) == loaded:
            self._tried = None
        elif self._tried == loaded:
            # The server was asked to go on there, and could not: loading once more gives the same.
            self._tried = None
            self._holes.add(name)
        else:
            self._tried = self._at[name] = loaded
            self.reopen_at = self._cursor = Cursor.opaque(cursor)

    def _wait_for(self, name: str, loaded: _Place) -> None:
        """Pass over what the state takes account of, until the stream is where the state is."""
        at = self._at.get(name)
        if at is None or (at.epoch == loaded.epoch and at.position < loaded.position):
            self._ahead[name] = loaded
        elif at != loaded:
            self._holes.add(name)

    def _is_new(self, event: StreamEvent) -> bool:
        name = event.channel or ""
        if event.position is None or event.epoch is None:
            return True
        here = _Place(event.epoch, event.position)
        if here == self._at.get(name):
            return False
        ahead = self._ahead.get(name)
        if ahead is None:
            return True
        if ahead.epoch == here.epoch and here.position <= ahead.position:
            self._at[name] = here
            if here == ahead:
                del self._ahead[name]
            self._move(event)
            return False
        if (event.epoch, event.prev) != ahead:
            self._holes.add(name)
        del self._ahead[name]
        return True

    def _applied(self, event: StreamEvent) -> None:
        self._tried = None
        if event.channel is not None:
            self._begun.add(event.channel)
        self._passed_by(event)

    def _move(self, event: StreamEvent) -> None:
        self._cursor = Cursor.opaque(event.cursor or "") or self._cursor
        self._settle()

    def _settle(self) -> None:
        """What the stream has said so far is in the state, unless some of it is awaited."""
        self.place = None if self._awaiting or self._ahead else self._cursor

    def _take(self, snapshot: ChannelSnapshot, *, stored: bool = True) -> None:
        self._check_merge()
        if self._merge is not None:
            self.state = self._merge(self.state, snapshot)
        else:
            self.state = snapshot.state if stored else self._first_state()

    def _check_merge(self) -> None:
        if self._merge is None and len(self._names) > 1:
            raise TypeError("a view of several channels takes merge=, which puts a state into all")


def _read(data: Any) -> _Place | None:
    match data:
        case {"epoch": str(epoch), "position": str(position)}:
            return _Place(epoch, position)
        case _:
            return None
