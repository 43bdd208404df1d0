"""What clients of channels may send and what they get, checked whole before anything happens."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec
from msgspec import UNSET, UnsetType

from tidegate.errors import InvalidChannelName, InvalidEvent
from tidegate.gateway.brokers.base import HISTORY_LIMIT, PublishError
from tidegate.gateway.cursor import CursorWriter, epoch_hash, make_slot, name_hash
from tidegate.gateway.names import checked_name
from tidegate.gateway.position import is_position
from tidegate.gateway.publishing import Publishable, checked_tags
from tidegate.gateway.subscription import StreamRequest
from tidegate.stream.input import BadInput, check_depth, decoded, shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from starlette.datastructures import QueryParams

    from tidegate.gateway.brokers.base import PublishResult

__all__ = [
    "MAX_ITEMS",
    "ChannelList",
    "ChannelState",
    "ErrorAnswer",
    "HistoryAnswer",
    "PublishAnswer",
    "PublishBody",
    "PublishOutcome",
    "RemovedAnswer",
    "SnapshotAnswer",
    "SnapshotBody",
    "StoredAnswer",
    "StreamBody",
    "WireEvent",
    "channel_cursor",
    "outcome",
    "parse_history_query",
    "parse_publish",
    "parse_snapshot",
    "parse_stream_body",
    "parse_stream_query",
]

MAX_ITEMS: Final = 1000
"""How many events one request may publish, each channel of an item counted."""

_DEFAULT_PAGE: Final = 100
_NUMBER = re.compile(r"[0-9]{1,16}", re.ASCII)


# -- bodies --------------------------------------------------------------------------------


class StreamBody(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    """The body of ``POST /v1/stream``: what ``GET`` has in its query."""

    channels: list[str]
    last_event_id: str | None = None
    tail: int | None = None
    from_: Literal["beginning"] | None = msgspec.field(default=None, name="from")
    tags: dict[str, str] | None = None


class PublishBody(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    """One event of ``POST /v1/publish``, for one channel or for several."""

    type: str
    channel: str | None = None
    channels: list[str] | None = None
    data: Any = None
    idempotency_key: str | None = None
    meta: dict[str, Any] | None = None
    tags: dict[str, str] | None = None
    version: int | float | None = None

    @property
    def targets(self) -> list[str]:
        """The channels that it goes to, each once."""
        names = [self.channel] if self.channel is not None else self.channels or []
        return list(dict.fromkeys(names))

    def publishable(self) -> Publishable:
        """Return it as the event that it is, of its first channel."""
        version = self.version
        if isinstance(version, float) and version.is_integer():
            # An integer all the same, as JSON Schema counts. Others are refused as they are.
            version = int(version)
        return Publishable(
            channel=self.targets[0],
            type=self.type,
            data=self.data,
            idempotency_key=self.idempotency_key,
            version=version,  # type: ignore[arg-type]
            tags=self.tags,
            meta=self.meta,
        )


class SnapshotBody(msgspec.Struct, forbid_unknown_fields=True):
    """The body of ``PUT /v1/channels/{channel}/snapshot``."""

    state: Any
    position: str | None = None


# -- answers -------------------------------------------------------------------------------


class ErrorAnswer(msgspec.Struct):
    """What every error is: a sentence for people, a code for programs."""

    error: str
    code: str


class PublishOutcome(msgspec.Struct, kw_only=True):
    """What became of an event: where it is stored, or why it is not known to be."""

    channel: str
    id: str | UnsetType = UNSET
    epoch: str | UnsetType = UNSET
    duplicate: bool | UnsetType = UNSET
    suppressed: bool | UnsetType = UNSET
    error: str | UnsetType = UNSET
    code: str | UnsetType = UNSET


class PublishAnswer(msgspec.Struct):
    """One result for each event and channel, in the order of the request."""

    results: list[PublishOutcome]


class ChannelState(msgspec.Struct):
    """Where a channel is, and how many streams of this node have it."""

    channel: str
    epoch: str
    position: str
    subscribers: int


class ChannelList(msgspec.Struct):
    """The channels that streams of this node have."""

    channels: list[ChannelState]


class WireEvent(msgspec.Struct, omit_defaults=True):
    """An event as it stands in histories and streams."""

    id: str
    v: int
    type: str
    channel: str
    epoch: str
    prev: str
    data: Any
    meta: dict[str, Any] = msgspec.field(name="_meta")
    tags: dict[str, str] | None = None
    version: int | None = None


class HistoryAnswer(msgspec.Struct):
    """A part of a channel's history, oldest first."""

    events: list[WireEvent]
    epoch: str
    position: str
    complete: bool


class StoredAnswer(msgspec.Struct):
    """Where a snapshot stands that was stored."""

    position: str
    epoch: str
    cursor: str


class SnapshotAnswer(msgspec.Struct):
    """A channel's full state, and the cursor with which a stream goes on from it."""

    state: Any
    position: str
    epoch: str
    cursor: str


class RemovedAnswer(msgspec.Struct):
    """The empty head of a channel's new epoch."""

    channel: str
    epoch: str
    position: str


_stream = msgspec.json.Decoder(StreamBody)
_publish = msgspec.json.Decoder(PublishBody | list[PublishBody])
_snapshot = msgspec.json.Decoder(SnapshotBody)


# -- reading -------------------------------------------------------------------------------


def parse_stream_query(
    query: QueryParams, cursor: str | None, *, max_channels: int
) -> StreamRequest:
    """Read what ``GET /v1/stream`` asks for; parameters of other names are ignored.

    Args:
        query: the request's.
        cursor: as the request gives it.
        max_channels: how many there may be.

    Raises:
        BadInput: its code says what is wrong.
    """
    tail = _one(query, "tail")
    start = _one(query, "from")
    if start not in {None, "beginning"}:
        raise BadInput("invalid_from", "from can only be beginning")
    return _request(
        query.getlist("channel"),
        cursor,
        tail=None if tail is None else _number("tail", tail, 0, HISTORY_LIMIT),
        from_beginning=start is not None,
        tags=_tags_of(query.getlist("tags")),
        max_channels=max_channels,
    )


def parse_stream_body(body: bytes, cursor: str | None, *, max_channels: int) -> StreamRequest:
    """Read what ``POST /v1/stream`` asks for; a cursor in the header goes before the body's.

    Raises:
        BadInput: its code says what is wrong.
    """
    asked = decoded(_stream, body)
    if asked.tail is not None and not 0 <= asked.tail <= HISTORY_LIMIT:
        raise _out_of_range("tail", 0, HISTORY_LIMIT)
    return _request(
        asked.channels,
        cursor or asked.last_event_id or None,
        tail=asked.tail,
        from_beginning=asked.from_ is not None,
        tags=None if not asked.tags else _sound_tags(asked.tags),
        max_channels=max_channels,
    )


def parse_publish(body: bytes) -> list[PublishBody]:
    """Read one event or an array of them; what is in them is checked when it is encoded.

    Raises:
        BadInput: its code says what is wrong.
    """
    given = decoded(_publish, body)
    items = given if isinstance(given, list) else [given]
    check_depth(items)
    count = 0
    for item in items:
        if (item.channel is None) == (item.channels is None):
            raise BadInput("invalid_body", "an event has either channel or channels")
        if not item.targets:
            raise BadInput("channel_required", "channels names no channel")
        count += len(item.targets)
    if count > MAX_ITEMS:
        raise BadInput(
            "too_many_events", f"one request publishes at most {MAX_ITEMS} events, not {count}"
        )
    return items


def parse_snapshot(body: bytes) -> SnapshotBody:
    """Read a snapshot.

    Raises:
        BadInput: its code says what is wrong.
    """
    snapshot = decoded(_snapshot, body)
    check_depth(snapshot.state)
    if snapshot.position is not None:
        _check_position(snapshot.position)
    return snapshot


def parse_history_query(query: QueryParams) -> tuple[str | None, int]:
    """Read which page of a history is asked for: after which position, and how many events.

    Raises:
        BadInput: its code says what is wrong.
    """
    after = _one(query, "after") or None
    if after is not None:
        _check_position(after)
    limit = _one(query, "limit")
    if limit is None:
        return after, _DEFAULT_PAGE
    return after, _number("limit", limit, 1, HISTORY_LIMIT)


# -- writing -------------------------------------------------------------------------------


def outcome(result: PublishResult | PublishError) -> PublishOutcome:
    """Return what a publisher is told of one event."""
    if isinstance(result, PublishError):
        return PublishOutcome(channel=result.channel, error=result.error, code=result.code)
    return PublishOutcome(
        channel=result.channel,
        id=result.position,
        epoch=result.epoch,
        duplicate=result.duplicate,
        suppressed=result.suppressed or UNSET,
    )


def channel_cursor(channel: str, epoch: str, position: str) -> str:
    """Return the cursor of a stream of one channel at a position."""
    return CursorWriter([make_slot(name_hash(channel), epoch_hash(epoch), position)]).text()


# -- parts ---------------------------------------------------------------------------------


def _request(
    channels: Iterable[str],
    cursor: str | None,
    *,
    tail: int | None,
    from_beginning: bool,
    tags: Mapping[str, str] | None,
    max_channels: int,
) -> StreamRequest:
    # A channel named twice counts once.
    names = tuple(dict.fromkeys(channels))
    if not names:
        raise BadInput("channel_required", "name at least one channel")
    if len(names) > max_channels:
        raise BadInput(
            "too_many_channels", f"a stream has at most {max_channels} channels, not {len(names)}"
        )
    for name in names:
        try:
            checked_name(name)
        except InvalidChannelName as error:
            raise BadInput("invalid_channel", str(error)) from None
    if tail is not None and from_beginning:
        raise BadInput("invalid_from", "a stream begins with tail or from, not both")
    return StreamRequest(
        channels=names, cursor=cursor, tail=tail, from_beginning=from_beginning, tags=tags
    )


def _one(query: QueryParams, name: str) -> str | None:
    values = query.getlist(name)
    if len(values) > 1:
        raise BadInput(f"invalid_{name}", f"{name} is given more than once")
    return values[0] if values else None


def _number(name: str, text: str, low: int, high: int) -> int:
    # [0-9] and few of them: other scripts have digits too, and long ones take time.
    if _NUMBER.fullmatch(text) is None or not low <= int(text) <= high:
        raise _out_of_range(name, low, high)
    return int(text)


def _out_of_range(name: str, low: int, high: int) -> BadInput:
    return BadInput(f"invalid_{name}", f"{name} is a decimal number from {low} to {high}")


def _check_position(text: str) -> None:
    if not is_position(text):
        raise BadInput("invalid_position", f"{shown(text)} is no position")


def _tags_of(values: Sequence[str]) -> dict[str, str] | None:
    """Read ``?tags=k:v``, repeated or separated by commas."""
    tags: dict[str, str] = {}
    for pair in (pair for value in values for pair in value.split(",")):
        key, colon, value = pair.partition(":")
        if not colon:
            raise BadInput("invalid_tags", f"tags are given as key:value, not {shown(pair)}")
        if tags.setdefault(key, value) != value:
            raise BadInput("invalid_tags", f"the tag {shown(key)} has two values")
    return _sound_tags(tags) if tags else None


def _sound_tags(tags: Mapping[str, str]) -> dict[str, str]:
    try:
        return checked_tags(tags)
    except InvalidEvent as error:
        raise BadInput(error.code, error.problem) from None
