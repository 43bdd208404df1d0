"""``tidegate tail``: follow a session, with resume."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from tidegate.cli.causes import not_let_in, why_away
from tidegate.cli.comeback import through_restarts
from tidegate.cli.console import (
    BROKEN_PIPE,
    CommandFailed,
    bold,
    dim,
    say,
    styled,
    when_stdout_is_gone,
    write_line,
)
from tidegate.cli.delivery import Away, Refused
from tidegate.cli.options import DEFAULT_URL, Target, Token, Url, base_url, session_id
from tidegate.cli.render import clock_of, compact, printable
from tidegate.cli.session import SessionDoor
from tidegate.client import connect
from tidegate.client.cursor import Cursor
from tidegate.errors import StreamRefused

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidegate.client import StreamEvent, StreamState

__all__ = ["TailSettings", "run_tail", "tail"]


@dataclass(frozen=True, slots=True)
class TailSettings:
    """What ``tidegate tail`` was asked to do.

    Attributes:
        url: the server's base URL.
        session_id: the session.
        token: the server's token, if it wants one.
        last_event_id: where to begin: a number or ``<epoch>-<number>``; ``None``: what comes now.
        count: events to print; ``None`` for no end.
        as_json: print whole envelopes.
        create: make the session first if there is none, and again if a restart took it.
        patience: seconds to wait for a session that was there and is gone.
    """

    url: str
    session_id: str
    token: str | None = None
    last_event_id: str | None = None
    count: int | None = None
    as_json: bool = False
    create: bool = False
    patience: float = 60.0


def tail(
    *,
    target: Target,
    url: Url = DEFAULT_URL,
    token: Token = None,
    from_start: Annotated[
        bool, typer.Option("--from-start", help="Begin with the oldest event that is still there.")
    ] = False,
    last_event_id: Annotated[
        str | None,
        typer.Option(
            metavar="ID",
            show_default=False,
            help="Begin after this event: a number, or EPOCH-NUMBER.",
        ),
    ] = None,
    count: Annotated[
        int | None,
        typer.Option(
            "--count", "-n", min=1, metavar="N", show_default=False, help="End after N events."
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print each event's envelope as a line of JSON.")
    ] = False,
    create: Annotated[
        bool,
        typer.Option(
            "--create", help="Make the session if there is none, also after a server's restart."
        ),
    ] = False,
    patience: Annotated[
        float,
        typer.Option(
            min=0.0,
            metavar="SECONDS",
            help="How long a session that a server's restart took is waited for.",
        ),
    ] = 60.0,
) -> None:
    """Print a session's events as they come, and go on where it was after a cut.

    Events go to stdout, one a line: id, time, type, data. What only concerns this connection
    (control frames, waits) goes to stderr. Without --from-start or --last-event-id it begins with
    what is published from now on. A session that was there and is not when the server is back
    after a restart is waited for, --patience seconds long, or made again with --create. It ends
    with status 0 when the session is closed or --count is
    reached, and with 130 after Ctrl-C.
    """
    if from_start and last_event_id is not None:
        raise CommandFailed("--from-start and --last-event-id exclude each other", 2)
    if last_event_id is not None and not _is_place(last_event_id):
        shown = printable(last_event_id[:80])
        raise CommandFailed(f"--last-event-id is NUMBER or EPOCH-NUMBER, not '{shown}'", 2)
    settings = TailSettings(
        base_url(url),
        session_id(target),
        token,
        "0" if from_start else last_event_id,
        count,
        as_json,
        create,
        patience,
    )
    raise typer.Exit(asyncio.run(run_tail(settings)))


async def run_tail(settings: TailSettings) -> int:
    """Print events until the session or the count ends; return the exit status.

    Raises:
        CommandFailed: the token or the cursor is none, the session could not be made, or stdout
            cannot be written.
        ClientError: the server refused the stream, or it is none.
        ReaderGone: an event was to be printed, and nobody reads stdout any more.
    """
    printer = _Printer(settings.as_json, settings.url)
    async with SessionDoor(settings.url, settings.session_id, token=settings.token) as door:
        if settings.create:
            try:
                await door.attach()
            except (Away, Refused) as error:
                raise CommandFailed(str(error)) from None
        with when_stdout_is_gone() as gone, _waits_said_once():
            try:
                await _follow(settings, printer, door)
            except StreamRefused as refusal:
                if refusal.status != 401:
                    raise
                raise CommandFailed(not_let_in(settings.token)) from None
            except asyncio.CancelledError:
                if not gone.is_set():
                    raise
                return BROKEN_PIPE
    return 0


async def _follow(settings: TailSettings, printer: _Printer, door: SessionDoor) -> None:
    try:
        stream = connect(
            f"{settings.url}/session/{settings.session_id}",
            token=settings.token,
            last_event_id=settings.last_event_id,
            on_state=printer.state,
        )
    except ValueError as error:
        raise CommandFailed(str(error), 2) from None
    left = settings.count
    async with stream:
        events = through_restarts(
            stream,
            patience=settings.patience,
            make=partial(_make, door) if settings.create else None,
            say=printer.aside,
        )
        async for event in events:
            if event.id is None:
                printer.control(event)
                continue
            printer.event(event)
            if left is not None:
                left -= 1
                if left == 0:
                    return


async def _make(door: SessionDoor) -> None:
    try:
        await door.attach()
    except Away:
        pass  # opening the stream waits for the server
    except Refused as refused:
        raise CommandFailed(str(refused)) from None


def _is_place(text: str) -> bool:
    cursor = Cursor.read(text)
    return cursor is not None and cursor.number is not None


@contextlib.contextmanager
def _waits_said_once() -> Iterator[None]:
    """Keep the client's log of its waits from stderr, where the printer shows them already."""

    def shown_already(record: logging.LogRecord) -> bool:
        return getattr(record, "stream_phase", None) != "waiting"

    log = logging.getLogger("tidegate.client")
    log.addFilter(shown_already)
    try:
        yield
    finally:
        log.removeFilter(shown_already)


class _Printer:
    """Writes what comes: events to stdout, all else dimmed to stderr."""

    def __init__(self, as_json: bool, url: str) -> None:
        self._url = url
        self._as_json = as_json
        self._styled = styled(sys.stdout)
        self._styled_err = styled(sys.stderr)

    def event(self, event: StreamEvent) -> None:
        if self._as_json:
            line = compact(event.envelope)
        else:
            number = dim(f"{event.id:>6} {clock_of(event.meta)}", self._styled)
            kind = bold(printable(event.type), self._styled)
            line = f"{number} {kind} {compact(event.data)}"
        write_line(line)

    def control(self, event: StreamEvent) -> None:
        self.aside(f"{printable(event.type)} {compact(event.data)}")

    def state(self, state: StreamState) -> None:
        if state.phase == "waiting":
            cause = why_away(state.cause, self._url) or printable(state.cause)
            self.aside(f"back in {state.delay:.1f} s: {cause}")

    def aside(self, text: str) -> None:
        say(f"     · {text}", dimmed=self._styled_err)
