"""``tidegate publish``: one event, or events as lines of standard input."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidegate.cli.console import CommandFailed, say, write_line
from tidegate.cli.delivery import Away, Refused
from tidegate.cli.doors import door_to
from tidegate.cli.names import ChannelTarget
from tidegate.cli.options import (
    DEFAULT_URL,
    TargetName,
    Token,
    Url,
    base_url,
    tags_of,
    target_of,
)
from tidegate.cli.records import (
    CHANNEL_FIELDS,
    SESSION_FIELDS,
    RecordReader,
    parse_json,
    unsendable,
)
from tidegate.cli.render import compact
from tidegate.cli.stdin import Readable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidegate.cli.delivery import Door
    from tidegate.cli.records import BadRecord, Record

__all__ = ["publish", "publish_input", "publish_one"]

_BATCH_EVENTS = 256
_ONE_ATTEMPT = 15.0  # seconds
_BATCH_BYTES = 512 * 1024


def publish(
    *,
    target: TargetName,
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
    tags: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY:VALUE",
            show_default=False,
            help="A tag of an event of a channel; repeatable.",
        ),
    ] = None,
    version: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            show_default=False,
            help="Publish to a channel only if N is above the version of its last such event.",
        ),
    ] = None,
    idempotency_key: Annotated[
        str | None,
        typer.Option(
            metavar="KEY",
            show_default=False,
            help="Publish to a channel only if it does not remember the same key.",
        ),
    ] = None,
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
        bool, typer.Option("--json", help="Print what the server says of the last event.")
    ] = False,
) -> None:
    """Publish one event, or every line of standard input; print the id of the last one.

    With --stdin, a line that is a JSON object with a string "type" and beside it "data" and "meta"
    only is that event; for a channel it may have "tags", "version" and "idempotencyKey" too. Any
    other line becomes an event of type "message" with the line's text as its data; how many did is
    said at the end, on stderr. With --ndjson such a line is an error instead, with status 2, empty
    lines aside: what stands before it is published, nothing after it.

    Lines are published as they come, those that have come together in one request. What goes to a
    channel is tried again until --patience is over, and is there once all the same, as long as the
    channel remembers its key.
    """
    where = target_of(target)
    to_channel = isinstance(where, ChannelTarget)
    single = _options_of_one(tags or [], version, idempotency_key)
    if not to_channel and single:
        raise CommandFailed("--tags, --version and --idempotency-key are for channels", 2)
    if to_channel and not create:
        raise CommandFailed("--no-create is for sessions; a channel is there when it is used", 2)
    door = door_to(
        where,
        base_url(url),
        token=token,
        create=create,
        retries=patience > 0,
        deadline=patience or _ONE_ATTEMPT,
    )
    if stdin or ndjson:
        if type_ is not None:
            raise CommandFailed("with --stdin or --ndjson there is no TYPE and no DATA", 2)
        if single:
            raise CommandFailed(
                "with --stdin or --ndjson, tags, version and idempotencyKey stand in the lines", 2
            )
        fields = CHANNEL_FIELDS if to_channel else SESSION_FIELDS
        reader = RecordReader(ndjson=ndjson, fields=fields)
        last = asyncio.run(publish_input(door, Readable(_stdin()), reader))
    elif type_ is None:
        raise CommandFailed("name the event's TYPE, or give --stdin", 2)
    else:
        event: dict[str, Any] = {"type": type_, **single}
        if data is not None:
            event["data"] = data if text else _json(data)
        problem = unsendable(event)
        if problem is not None:
            raise CommandFailed(f"the event {problem}", 2)
        last = asyncio.run(publish_one(door, event))
    if last is not None:
        write_line(compact(door.receipt()) if as_json else str(last))


def _options_of_one(tags: list[str], version: int | None, key: str | None) -> dict[str, Any]:
    """Return the fields of an event that only a channel's has, as far as they were given."""
    given = {"tags": tags_of(tags) or None, "version": version, "idempotencyKey": key}
    return {name: value for name, value in given.items() if value is not None}


async def publish_one(door: Door, event: dict[str, Any]) -> int | str:
    """Publish an event and return its id.

    Raises:
        CommandFailed: the server did not take it, or gave no answer.
    """
    async with door:
        try:
            given_key = "idempotencyKey" in event
            last = await door.publish([event])
        except (Away, Refused) as error:
            raise CommandFailed(str(error)) from None
    receipt = door.receipt()
    if receipt.get("suppressed"):
        say(f"not published: version {event['version']} is not above the channel's")
    elif receipt.get("duplicate") and given_key:
        say("not published again: the channel remembers the key")
    return last


async def publish_input(door: Door, source: Readable, reader: RecordReader) -> int | str | None:
    """Publish the lines that ``source`` brings, until it ends.

    Returns:
        The id of the last event; ``None`` if there was none.

    Raises:
        CommandFailed: a line is no event, or the server did not take one, or the input cannot be
            read. The message names the line, and says how many were published before it.
    """
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
    last: int | str | None = None

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
    door: Door, records: list[Record], problem: BadRecord | None, sent: _Sent
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


async def _send_singly(door: Door, batch: list[Record], sent: _Sent) -> None:
    for record in batch:
        try:
            await _send(door, [record], sent)
        except Refused as refusal:
            message = f"line {record.number}: {refusal}; {sent.so_far()}"
            raise CommandFailed(message) from None


async def _send(door: Door, batch: list[Record], sent: _Sent) -> None:
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
