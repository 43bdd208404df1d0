"""What ``tidegate tail`` does once it knows what to follow."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from tidegate.cli.comeback import through_restarts
from tidegate.cli.console import CommandFailed
from tidegate.cli.delivery import Away, Refused
from tidegate.client import connect

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidegate.cli.names import ChannelTarget, SessionTarget
    from tidegate.cli.printer import Printer
    from tidegate.cli.session import SessionDoor
    from tidegate.client import ClientStream

__all__ = ["TailSettings", "follow_channels", "follow_session"]


@dataclass(frozen=True, slots=True)
class TailSettings:
    """What ``tidegate tail`` was asked to do.

    Attributes:
        url: the server's base URL.
        target: the session, or the channels.
        token: the server's token, if it wants one.
        last_event_id: where to begin; for a session a number or ``<epoch>-<number>``, for
            channels a cursor; ``None``: what comes now, or as the next two say.
        newest: begin with as many of each channel's events.
        from_start: begin with the oldest event that is still there.
        tags: print only a channel's events that have all of these.
        count: events to print; ``None`` for no end.
        as_json: print whole envelopes.
        create: make the session first if there is none, and again if a restart took it.
        patience: seconds to wait for a session that was there and is gone.
    """

    url: str
    target: SessionTarget | tuple[ChannelTarget, ...]
    token: str | None = None
    last_event_id: str | None = None
    newest: int | None = None
    from_start: bool = False
    tags: Mapping[str, str] = field(default_factory=dict)
    count: int | None = None
    as_json: bool = False
    create: bool = False
    patience: float = 60.0


async def follow_session(
    settings: TailSettings, session_id: str, printer: Printer, door: SessionDoor
) -> None:
    """Print a session's events until it or the count ends.

    Raises:
        CommandFailed: the token or the cursor is none, or the session could not be made again.
        ClientError: the server refused the stream, or it is none.
        ReaderGone: nobody reads what is printed.
    """
    stream = _connect(
        f"{settings.url}/session/{session_id}",
        settings,
        printer,
        last_event_id="0" if settings.from_start else settings.last_event_id,
    )
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


async def follow_channels(
    settings: TailSettings, channels: tuple[str, ...], printer: Printer
) -> None:
    """Print the events of channels until the count ends, and then where to go on.

    Raises:
        CommandFailed: the token or the cursor is none.
        ClientError: the server refused the stream, or it is none.
        ReaderGone: nobody reads what is printed.
    """
    stream = _connect(
        settings.url,
        settings,
        printer,
        channels=channels,
        last_event_id=settings.last_event_id,
        tail=settings.newest,
        from_beginning=settings.from_start,
        tags=settings.tags or None,
    )
    left = settings.count
    done = settings.last_event_id
    try:
        async with stream:
            async for event in stream:
                if event.id is None:
                    printer.control(event)
                else:
                    printer.event(event)
                    left = None if left is None else left - 1
                done = event.cursor or done
                if left == 0:
                    return
    finally:
        if done is not None:
            printer.aside(f"to go on behind this: --last-event-id {done}")


def _connect(url: str, settings: TailSettings, printer: Printer, **options: Any) -> ClientStream:
    try:
        return connect(url, token=settings.token, on_state=printer.state, **options)
    except ValueError as error:
        raise CommandFailed(str(error), 2) from None


async def _make(door: SessionDoor) -> None:
    try:
        await door.attach()
    except Away:
        pass  # opening the stream waits for the server
    except Refused as refused:
        raise CommandFailed(str(refused)) from None
