"""What a client may send: bodies and headers, checked whole before anything happens. Pure."""

from __future__ import annotations

import re
from typing import Any, Final, TypeVar

import msgspec

from tidegate.channel.names import RESERVED_TYPES, is_event_type

__all__ = [
    "BadInput",
    "CreateBody",
    "PublishItem",
    "SnapshotBody",
    "parse_client_id",
    "parse_create",
    "parse_publish",
    "parse_snapshot",
]

_CLIENT_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}", re.ASCII)
_MAX_ID: Final = 2**53 - 1
_SHOWN: Final = 80
_SPARE_LEVELS: Final = 64

T = TypeVar("T")


class BadInput(Exception):
    """What a client sent is not what the route takes.

    Attributes:
        code: for programs, ``snake_case``.
        error: a sentence for people.
    """

    def __init__(self, code: str, error: str) -> None:
        super().__init__(code, error)
        self.code = code
        self.error = error


class CreateBody(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    """The body of ``POST /session``."""

    session_id: str | None = None


class PublishItem(msgspec.Struct, forbid_unknown_fields=True):
    """One event of ``POST /session/{id}/events``."""

    type: str
    data: Any = None
    meta: dict[str, Any] | None = None


class SnapshotBody(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    """The body of ``PUT /session/{id}/snapshot``."""

    state: Any
    last_event_id: int


_create = msgspec.json.Decoder(CreateBody)
_publish = msgspec.json.Decoder(PublishItem | list[PublishItem])
_snapshot = msgspec.json.Decoder(SnapshotBody)


def parse_create(body: bytes) -> CreateBody:
    """Read the body of a create; an empty one asks for nothing.

    Raises:
        BadInput: ``invalid_json`` or ``invalid_body``.
    """
    return _decoded(_create, body) if body.strip() else CreateBody()


def parse_publish(body: bytes) -> list[PublishItem]:
    """Read one event or an array of them; all are sound, or none is taken.

    Raises:
        BadInput: ``invalid_json``, ``invalid_body``, ``invalid_event_type`` or
            ``reserved_event_type``.
    """
    decoded = _decoded(_publish, body)
    items = decoded if isinstance(decoded, list) else [decoded]
    _check_depth(items)
    for item in items:
        if item.type in RESERVED_TYPES:
            raise BadInput("reserved_event_type", f"{item.type} is a name of the server's own")
        if not is_event_type(item.type):
            raise BadInput("invalid_event_type", _why_no_type(item.type))
    return items


def _why_no_type(given: str) -> str:
    if given in {"open", "error"}:
        return f"{given} is an event of the browser's EventSource itself; choose another type"
    return f"an event type is 1 to 128 of A-Z a-z 0-9 . _ : -, which {_shown(given)} is not"


def _check_depth(items: list[PublishItem]) -> None:
    """See that what could be decoded can also be encoded later, with room to spare.

    Both stop at the interpreter's recursion limit, and between the two lie some levels at
    which an event would be accepted and then be nothing that a wire can carry.
    """
    trial: object = items
    for _ in range(_SPARE_LEVELS):
        trial = [trial]
    try:
        msgspec.json.encode(trial)
    except RecursionError:
        raise BadInput("invalid_json", "the body is nested too deeply") from None


def parse_snapshot(body: bytes) -> SnapshotBody:
    """Read a snapshot.

    Raises:
        BadInput: ``invalid_json`` or ``invalid_body``.
    """
    snapshot = _decoded(_snapshot, body)
    if not 0 <= snapshot.last_event_id <= _MAX_ID:
        raise BadInput("invalid_body", f"lastEventId must be from 0 to {_MAX_ID}")
    return snapshot


def parse_client_id(value: str | None) -> str | None:
    """Read ``Tidegate-Client-Id``; an absent or empty one is none.

    Raises:
        BadInput: ``invalid_client_id``.
    """
    if not value:
        return None
    if _CLIENT_ID.fullmatch(value) is None:
        raise BadInput(
            "invalid_client_id",
            f"Tidegate-Client-Id is 1 to 128 of A-Z a-z 0-9 . _ : -, not {_shown(value)}",
        )
    return value


def _decoded(decoder: msgspec.json.Decoder[T], body: bytes) -> T:
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise BadInput("invalid_body", f"the body does not fit: {error}") from None
    except msgspec.DecodeError as error:
        raise BadInput("invalid_json", f"the body is not JSON: {error}") from None
    except RecursionError:
        raise BadInput("invalid_json", "the body is nested too deeply") from None


def _shown(text: str) -> str:
    shown = ascii(text[:_SHOWN])
    return shown if len(text) <= _SHOWN else shown + "..."
