"""What a client may send: bodies and headers, checked whole before anything happens. Pure."""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from tidegate.channel.names import event_type_problem
from tidegate.stream.input import BadInput, check_depth, decoded, shown

__all__ = [
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
    return decoded(_create, body) if body.strip() else CreateBody()


def parse_publish(body: bytes) -> list[PublishItem]:
    """Read one event or an array of them; all are sound, or none is taken.

    Raises:
        BadInput: ``invalid_json``, ``invalid_body``, ``invalid_event_type`` or
            ``reserved_event_type``.
    """
    given = decoded(_publish, body)
    items = given if isinstance(given, list) else [given]
    check_depth(items)
    for item in items:
        problem = event_type_problem(item.type)
        if problem is not None:
            raise BadInput(*problem)
    return items


def parse_snapshot(body: bytes) -> SnapshotBody:
    """Read a snapshot.

    Raises:
        BadInput: ``invalid_json`` or ``invalid_body``.
    """
    snapshot = decoded(_snapshot, body)
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
            f"Tidegate-Client-Id is 1 to 128 of A-Z a-z 0-9 . _ : -, not {shown(value)}",
        )
    return value
