"""Prints a stream: its events on stdout, what concerns the connection on stderr."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from tidegate.cli.causes import why_away
from tidegate.cli.console import bold, dim, say, styled, write_line
from tidegate.cli.render import clock_of, compact, printable

if TYPE_CHECKING:
    from tidegate.client import StreamEvent, StreamState

__all__ = ["Printer"]


class Printer:
    """Writes what comes: events to stdout, all else dimmed to stderr.

    Args:
        as_json: write each event's envelope as a line of JSON.
        url: the server's base URL.
    """

    def __init__(self, as_json: bool, url: str) -> None:
        self._url = url
        self._as_json = as_json
        self._styled = styled(sys.stdout)
        self._styled_err = styled(sys.stderr)

    def event(self, event: StreamEvent) -> None:
        """Write an event of a session or a channel.

        Raises:
            ReaderGone: nobody reads stdout any more.
            CommandFailed: it cannot be written.
        """
        if self._as_json:
            line = compact(event.envelope)
        else:
            place = f"{event.id!s:>6} {clock_of(event.meta)}"
            if event.channel is not None:
                place += f" {event.channel}"
            kind = bold(printable(event.type), self._styled)
            line = f"{dim(printable(place), self._styled)} {kind} {compact(event.data)}"
        write_line(line)

    def control(self, event: StreamEvent) -> None:
        """Write a control frame; the first one of a stream of channels in words."""
        match event.type, event.data:
            case "stream_cursor", _:
                pass  # it moves the cursor, and says nothing
            case "stream_open", {"channels": dict(channels), "denied": dict(denied)}:
                self.aside(f"open: {', '.join(map(str, channels))}")
                for name, code in denied.items():
                    self.aside(f"not followed: {name}, {code}")
            case type_, data:
                self.aside(f"{type_} {compact(data)}")

    def state(self, state: StreamState) -> None:
        """Write that the stream waits, and why."""
        if state.phase == "waiting":
            cause = why_away(state.cause, self._url) or state.cause
            self.aside(f"back in {state.delay:.1f} s: {cause}")

    def aside(self, text: str) -> None:
        """Write a remark."""
        say(f"     · {text}", dimmed=self._styled_err)
