"""The chain rule at the client's end: every event of a channel names its predecessor. Pure.

Where the server says that it never skips an event on purpose (``linked``), the next event's
``prev`` has to be the position that the client holds, in the same epoch. What does not link is an
error and not an event.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tidegate.errors import ChainBroken

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidegate.client.events import StreamEvent

__all__ = ["Chains"]


@dataclass(frozen=True, slots=True)
class _Held:
    """The place that the client has reached in a channel."""

    epoch: str
    position: str


class Chains:
    """The places that a stream has reached in its channels, over all of its connections.

    It begins where ``stream_open`` says that a channel starts. From then on the client's own place
    counts, also when a later connection says that it starts elsewhere: unless something puts the
    chain down anew (``state_resync_required``, ``channel_snapshot``, another epoch), the next event
    shows the gap.
    """

    def __init__(self) -> None:
        self._linked: set[str] = set()
        self._held: dict[str, _Held] = {}

    def held(self, channel: str) -> str | None:
        """Return the position that is held in a channel; ``None`` if there is none."""
        held = self._held.get(channel)
        return None if held is None else held.position

    def forget(self) -> None:
        """The stream is to go on elsewhere: its next ``stream_open`` says where."""
        self._linked.clear()
        self._held.clear()

    def take(self, event: StreamEvent) -> bool:
        """Take the next frame of the stream.

        Returns:
            Whether it is new; an event that comes again is not.

        Raises:
            ChainBroken: an event does not follow what is held. The channel's place is then
                forgotten, so that the same gap is told once by one connection.
        """
        match event.type:
            case _ if event.position is not None:
                return self._event(event)
            case "stream_open":
                self._opened(event.data)
            case "state_resync_required":
                self._resync(event)
            case "channel_snapshot":
                self._put(event)
            case _:
                pass
        return True

    def _opened(self, data: Any) -> None:
        channels = data.get("channels") if isinstance(data, dict) else None
        for name, start in channels.items() if isinstance(channels, dict) else ():
            if not isinstance(start, dict):
                continue
            if start.get("linked") is True:
                self._linked.add(name)
            else:
                self._linked.discard(name)
            held, at = self._held.get(name), _place(start)
            if at is not None and (held is None or held.epoch != at.epoch):
                self._held[name] = at

    def _resync(self, event: StreamEvent) -> None:
        data = event.data if isinstance(event.data, dict) else {}
        if data.get("reason") == "replay_budget_exceeded":
            return  # nothing is lost
        if event.channel is None:
            self._held.clear()
        else:
            self._put(event)

    def _put(self, event: StreamEvent) -> None:
        """Begin the chain anew where a control frame says, or with whatever comes next."""
        if event.channel is None:
            return
        at = _place(event.data)
        if at is None:
            self._held.pop(event.channel, None)
        else:
            self._held[event.channel] = at

    def _event(self, event: StreamEvent) -> bool:
        channel, position, epoch = event.channel, event.position, event.epoch
        if channel is None or position is None or epoch is None:
            return True
        held = self._held.get(channel)
        if held is None and channel not in self._linked:
            return True  # the server has not spoken of it
        if held is not None and held == _Held(epoch, position):
            return False
        if channel in self._linked and held is not None:
            # An epoch's first event follows whatever was the last of another one.
            expected = held.position if held.epoch == epoch else _FIRST
            if event.prev != expected:
                del self._held[channel]
                raise ChainBroken(channel, expected, event.prev, event)
        self._held[channel] = _Held(epoch, position)
        return True


_FIRST: Final = ""


def _place(data: Mapping[str, Any] | Any) -> _Held | None:
    match data:
        case {"epoch": str(epoch), "position": str(position)}:
            return _Held(epoch, position)
        case _:
            return None
