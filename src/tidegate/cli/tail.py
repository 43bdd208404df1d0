"""``tidegate tail``: follow a session or channels, with resume."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Annotated

import typer

from tidegate.cli.causes import not_let_in
from tidegate.cli.console import BROKEN_PIPE, CommandFailed, when_stdout_is_gone
from tidegate.cli.delivery import Away, Refused
from tidegate.cli.following import TailSettings, follow_channels, follow_session
from tidegate.cli.names import ChannelTarget, SessionTarget
from tidegate.cli.options import DEFAULT_URL, Token, Url, base_url, tags_of, target_of
from tidegate.cli.printer import Printer
from tidegate.cli.render import printable
from tidegate.cli.session import SessionDoor
from tidegate.client.cursor import Cursor
from tidegate.errors import StreamRefused

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["run_tail", "tail"]

_MAX_CHANNELS = 100


def tail(
    *,
    targets: Annotated[
        list[str],
        typer.Argument(
            metavar="TARGET...",
            help="One or several channels by their names, or one session as session/ID.",
            show_default=False,
        ),
    ],
    url: Url = DEFAULT_URL,
    token: Token = None,
    newest: Annotated[
        int | None,
        typer.Option(
            "--tail",
            min=1,
            metavar="N",
            show_default=False,
            help="Begin with the newest N events of each channel.",
        ),
    ] = None,
    from_start: Annotated[
        bool,
        typer.Option(
            "--from-start",
            "--from-beginning",
            help="Begin with the oldest event that is still there.",
        ),
    ] = False,
    last_event_id: Annotated[
        str | None,
        typer.Option(
            metavar="ID",
            show_default=False,
            help="Begin after this event of a session: a number, or EPOCH-NUMBER; for channels: "
            "the cursor that an earlier tail named at its end.",
        ),
    ] = None,
    tags: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY:VALUE",
            show_default=False,
            help="Only events of channels that have this tag; repeatable: all of them.",
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
    """Print the events of a session or of channels as they come, and go on after a cut.

    Events go to stdout, one a line: id, time, the channel if it is one's, type, data. What only
    concerns this connection (control frames, waits) goes to stderr. Without --from-start, --tail or
    --last-event-id it begins with what is published from now on. A session that was there and is
    not when the server is back after a restart is waited for, --patience seconds long, or made
    again with --create. It ends with status 0 when the session is closed or --count is reached, and
    with 130 after Ctrl-C. With channels it says on stderr where another tail can go on.
    """
    target = _one_target([target_of(name) for name in targets])
    if sum((newest is not None, from_start, last_event_id is not None)) > 1:
        raise CommandFailed("--from-start, --last-event-id and --tail exclude each other", 2)
    if isinstance(target, SessionTarget):
        if newest is not None or tags:
            raise CommandFailed("--tail and --tags are for channels", 2)
        if last_event_id is not None and not _is_place(last_event_id):
            shown = printable(last_event_id[:80])
            raise CommandFailed(f"--last-event-id is NUMBER or EPOCH-NUMBER, not '{shown}'", 2)
    elif create:
        raise CommandFailed("--create is for a session; a channel is there when it is used", 2)
    settings = TailSettings(
        url=base_url(url),
        target=target,
        token=token,
        last_event_id=last_event_id,
        newest=newest,
        from_start=from_start,
        tags=tags_of(tags or []),
        count=count,
        as_json=as_json,
        create=create,
        patience=patience,
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
    printer = Printer(settings.as_json, settings.url)
    with when_stdout_is_gone() as gone, _waits_said_once():
        try:
            if isinstance(settings.target, SessionTarget):
                await _tail_session(settings, settings.target.session_id, printer)
            else:
                channels = tuple(target.channel for target in settings.target)
                await follow_channels(settings, channels, printer)
        except StreamRefused as refusal:
            if refusal.status != 401:
                raise
            raise CommandFailed(not_let_in(settings.token, refusal.message)) from None
        except asyncio.CancelledError:
            if not gone.is_set():
                raise
            return BROKEN_PIPE
    return 0


async def _tail_session(settings: TailSettings, session_id: str, printer: Printer) -> None:
    async with SessionDoor(settings.url, session_id, token=settings.token) as door:
        if settings.create:
            try:
                await door.attach()
            except (Away, Refused) as error:
                raise CommandFailed(str(error)) from None
        await follow_session(settings, session_id, printer, door)


def _one_target(
    targets: Sequence[SessionTarget | ChannelTarget],
) -> SessionTarget | tuple[ChannelTarget, ...]:
    """Return the one session, or the channels, each once."""
    channels = tuple(dict.fromkeys(one for one in targets if isinstance(one, ChannelTarget)))
    sessions = [one for one in targets if isinstance(one, SessionTarget)]
    if sessions and len(targets) > 1:
        raise CommandFailed("follow one session, or one or several channels", 2)
    if len(channels) > _MAX_CHANNELS:
        raise CommandFailed(f"a stream takes at most {_MAX_CHANNELS} channels", 2)
    return sessions[0] if sessions else channels


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
