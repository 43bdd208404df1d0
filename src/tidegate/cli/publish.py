"""``tidegate publish``: one event, or events as lines of standard input."""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidegate.cli.console import CommandFailed, say, write_line
from tidegate.cli.delivery import Away, Refused
from tidegate.cli.options import DEFAULT_URL, Target, Token, Url, base_url, session_id
from tidegate.cli.records import RecordReader, parse_json, unsendable
from tidegate.cli.session import SessionDoor
from tidegate.cli.stdin import Readable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidegate.cli.records import BadRecord, Record

__all__ = ["publish", "publish_input", "publish_one"]

_BATCH_EVENTS = 256
_BATCH_BYTES = 512 * 1024


def publish(
    *,
    target: Target,
    type_: Annotated[
        str | None,
        typer.Argument(metavar="TYPE", help="The event's type.", show_default=False),
    ] = None,
    data: Annotated[
        str | None,
        typer.Argument(
            metavar="DATA", help="Its data, in JSON; null if left out.", show_default=False
        ),
    ] = None,
    url: Url = DEFAULT_URL,
    token: Token = None,
    text: Annotated[
        bool, typer.Option("--text", help="DATA is a string as it stands, not JSON.")
    ] = False,
    stdin: Annotated[
        bool, typer.Option("--stdin", help="Publish every line of standard input as it comes.")
    ] = False,
    ndjson: Annotated[
        bool,
        typer.Option("--ndjson", help="As --stdin, and a line that is no event is an error."),
    ] = False,
    create: Annotated[bool, typer.Option(help="Make the session if there is none.")] = True,
    patience: Annotated[
        float,
        typer.Option(
            min=0.0,
            metavar="SECONDS",
            help="How long to try again where that cannot publish twice.",
        ),
    ] = 10.0,
    as_json: Annotated[
        bool, typer.Option("--json", help='Print {"lastEventId": N} instead of N.')
    ] = False,
) -> None:
    """Publish one event, or every line of standard input; print the id of the last one.

    With --stdin, a line that is a JSON object with a string "type" and beside it "data" and "meta"
    only is that event. Any other line becomes an event of type "message" with the line's text as
    its data; how many did is said at the end, on stderr. With --ndjson such a line is an error
    instead, with status 2, empty lines aside: what stands before it is published, nothing after it.

    Lines are published as they come, those that have come together in one request.
    """
    door = SessionDoor(
        base_url(url),
        session_id(target),
        token=token,
        create=create,
        retries=True,
        deadline=patience,
    )
    if stdin or ndjson:
        if type_ is not None:
            raise CommandFailed("with --stdin or --ndjson there is no TYPE and no DATA", 2)
        last = asyncio.run(publish_input(door, Readable(_stdin()), ndjson=ndjson))
    elif type_ is None:
        raise CommandFailed("name the event's TYPE, or give --stdin", 2)
    else:
        event: dict[str, Any] = {"type": type_}
        if data is not None:
            event["data"] = data if text else _json(data)
        problem = unsendable(event)
        if problem is not None:
            raise CommandFailed(f"the event {problem}", 2)
        last = asyncio.run(publish_one(door, event))
    if last is not None:
        write_line(json.dumps({"lastEventId": last}) if as_json else str(last))


async def publish_one(door: SessionDoor, event: dict[str, Any]) -> int:
    """Publish an event and return its id.

    Raises:
        CommandFailed: the server did not take it, or gave no answer.
    """
    async with door:
        try:
            return await door.publish([event])
        except (Away, Refused) as error:
            raise CommandFailed(str(error)) from None


async def publish_input(door: SessionDoor, source: Readable, *, ndjson: bool) -> int | None:
    """Publish the lines that ``source`` brings, until it ends.

    Returns:
        The id of the last event; ``None`` if there was none.

    Raises:
        CommandFailed: a line is no event, or the server did not take one, or the input cannot be
            read. The message names the line, and says how many were published before it.
    """
    reader = RecordReader(ndjson=ndjson)
    sent = _Sent()
    async with door:
        while chunk := await _read(source, sent):
            await _publish_records(door, *reader.feed(chunk), sent)
        await _publish_records(door, *reader.close(), sent)
    if sent.plain:
        say(f"{sent.count} published, {sent.plain} of them plain lines, as type 'message'")
    return sent.last


@dataclass(slots=True)
class _Sent:
    """What was published so far."""

    count: int = 0
    plain: int = 0
    last: int | None = None

    def so_far(self) -> str:
        if self.last is None:
            return "nothing was published"
        events = "1 event was" if self.count == 1 else f"{self.count} events were"
        return f"before it {events} published, up to id {self.last}; nothing after it"


async def _read(source: Readable, sent: _Sent) -> bytes:
    try:
        return await source.read()
    except OSError as error:
        problem = f"standard input cannot be read: {error.strerror}"
        raise CommandFailed(f"{problem}; {sent.so_far()}") from None


async def _publish_records(
    door: SessionDoor, records: list[Record], problem: BadRecord | None, sent: _Sent
) -> None:
    for batch in _batches(records):
        try:
            await _send(door, batch, sent)
        except Refused as refusal:
            if not refusal.about_events:
                raise CommandFailed(f"{refusal}; {sent.so_far()}") from None
            # A batch is refused as a whole, so one by one shows which line it was.
            await _send_singly(door, batch, sent)
    if problem is not None:
        raise CommandFailed(f"{problem}; {sent.so_far()}", 2)


async def _send_singly(door: SessionDoor, batch: list[Record], sent: _Sent) -> None:
    for record in batch:
        try:
            await _send(door, [record], sent)
        except Refused as refusal:
            message = f"line {record.number}: {refusal}; {sent.so_far()}"
            raise CommandFailed(message) from None


async def _send(door: SessionDoor, batch: list[Record], sent: _Sent) -> None:
    try:
        sent.last = await door.publish([record.event for record in batch])
    except Away as away:
        where = f"line {batch[0].number}"
        if len(batch) > 1:
            where = f"lines {batch[0].number} to {batch[-1].number}"
        raise CommandFailed(f"{where}: {away}; {sent.so_far()}") from None
    sent.count += len(batch)
    sent.plain += sum(record.plain for record in batch)


def _batches(records: list[Record]) -> Iterator[list[Record]]:
    batch: list[Record] = []
    size = 0
    for record in records:
        size += record.size
        if batch and (len(batch) >= _BATCH_EVENTS or size > _BATCH_BYTES):
            yield batch
            batch, size = [], record.size
        batch.append(record)
    if batch:
        yield batch


def _stdin() -> int:
    if sys.stdin is None:
        raise CommandFailed("standard input is closed, so there is nothing to publish", 2)
    return sys.stdin.fileno()


def _json(text: str) -> Any:
    try:
        return parse_json(text)
    except ValueError as error:
        raise CommandFailed(
            f"DATA is not JSON ({error}); a string is written '\"like this\"', "
            "or as it stands after --text",
            2,
        ) from None
