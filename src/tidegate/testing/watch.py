"""A client of channel streams that checks the chain of what it is given."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from tidegate.channel.names import (
    CHANNEL_SNAPSHOT,
    CONTROL_TYPES,
    REPLAY_COMPLETE,
    STATE_RESYNC_REQUIRED,
    STREAM_OPEN,
)
from tidegate.sse import Decoder

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["At", "Resync", "StreamWatch"]


class At(NamedTuple):
    """A place in a channel: an epoch, and the position in it."""

    epoch: str
    position: str


class Resync(NamedTuple):
    """A ``state_resync_required`` frame: of which channel, why, and where it goes on."""

    channel: str
    reason: str
    at: At


class StreamWatch:
    """Reads the streams that one client opens one after another, and checks them end to end.

    For each channel: each event once, in order, or a resync in between; behind that, what
    follows links to the place that it announced. It holds its place across streams, as a
    client that comes back with its cursor does. Override `saw_anchor` and `saw_event` to look
    at more.

    Attributes:
        cursor: what the next stream is asked to resume from; ``None`` before the first.
        held: the place in each channel behind what was read.
        events: how many events of each channel came.
        resyncs: those that came, in order.
        replays: how many ``replay_complete`` came.
        problems: sentences that say what was wrong.
        last: the type of the last frame, or ``None``.
    """

    def __init__(self) -> None:
        self.cursor: str | None = None
        self.held: dict[str, At] = {}
        self.events: dict[str, int] = {}
        self.resyncs: list[Resync] = []
        self.replays = 0
        self.problems: list[str] = []
        self.last: str | None = None
        self._decoder = Decoder()
        self._opened = False
        self._unlinked: set[str] = set()

    def reopen(self) -> str | None:
        """Begin a new stream; what was not read whole is dropped. Return the cursor to ask for."""
        self._decoder.close()
        self._decoder = Decoder(last_event_id=self.cursor or "")
        self._opened = False
        return self.cursor

    def feed(self, chunk: bytes) -> int:
        """Read bytes of the stream; return how many events of channels they completed."""
        seen = 0
        for frame in self._decoder.feed(chunk):
            self.last = frame.type
            envelope = msgspec.json.decode(frame.data)
            if frame.type in CONTROL_TYPES:
                self._control(frame.type, envelope.get("data") or {})
            else:
                self._event(envelope)
                seen += 1
        self.cursor = self._decoder.last_event_id or None
        return seen

    def saw_anchor(self, channel: str, at: At, reason: str) -> None:
        """The place in a channel was set: by ``stream_open``, a resync or a snapshot."""

    def saw_event(self, channel: str, envelope: Mapping[str, Any]) -> None:
        """An event came, and linked."""

    def problem(self, text: str) -> None:
        """Note what is wrong."""
        self.problems.append(text)

    def _control(self, type_: str, data: Mapping[str, Any]) -> None:
        if type_ == STREAM_OPEN:
            if self._opened:
                self.problem("a stream was opened twice")
            self._opened = True
            # The cursor speaks of these channels alone from here on.
            self.held = {name: at for name, at in self.held.items() if name in data["channels"]}
            for channel, start in data["channels"].items():
                self._open(channel, start)
            return
        if not self._opened:
            self.problem(f"{type_} came before stream_open")
        if type_ in {STATE_RESYNC_REQUIRED, CHANNEL_SNAPSHOT}:
            at = At(data["epoch"], data["position"])
            if type_ == STATE_RESYNC_REQUIRED:
                self.resyncs.append(Resync(data["channel"], data["reason"], at))
            self._anchor(data["channel"], at, data.get("reason", type_))
        elif type_ == REPLAY_COMPLETE:
            self.replays += 1

    def _open(self, channel: str, start: Mapping[str, Any]) -> None:
        at = At(start["epoch"], start["position"])
        held = self.held.get(channel)
        if start["linked"]:
            self._unlinked.discard(channel)
        else:
            self._unlinked.add(channel)
        if held is None or channel in self._unlinked:
            self._anchor(channel, at, STREAM_OPEN)
        elif start["recovered"] and at != held:
            self.problem(f"{channel}: recovered at {at}, the client holds {held}")

    def _anchor(self, channel: str, at: At, reason: str) -> None:
        self.held[channel] = at
        self.saw_anchor(channel, at, reason)

    def _event(self, envelope: Mapping[str, Any]) -> None:
        channel = envelope["channel"]
        if not self._opened:
            self.problem("an event came before stream_open")
        at = At(envelope["epoch"], envelope["id"])
        held = self.held.get(channel)
        if held is None:
            self.problem(f"{channel}: an event of a channel that was not opened")
        elif channel not in self._unlinked and (at.epoch, envelope["prev"]) != held:
            self.problem(
                f"{channel}: the event at {at} names {envelope['prev']!r} as the one before it, "
                f"the client holds {held}"
            )
        self.held[channel] = at
        self.events[channel] = self.events.get(channel, 0) + 1
        self.saw_event(channel, envelope)
