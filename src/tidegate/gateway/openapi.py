"""The OpenAPI 3.1 document of a gateway's routes. Pure."""

from __future__ import annotations

import copy
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tidegate.channel.names import RESERVED_TYPES
from tidegate.gateway.brokers.base import HISTORY_LIMIT
from tidegate.gateway.payloads import (
    ChannelList,
    ChannelState,
    ErrorAnswer,
    HistoryAnswer,
    PublishAnswer,
    PublishBody,
    RemovedAnswer,
    SnapshotAnswer,
    SnapshotBody,
    StoredAnswer,
    StreamBody,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["document"]

_SHAPES: Final = (
    ChannelList,
    ChannelState,
    ErrorAnswer,
    HistoryAnswer,
    PublishAnswer,
    PublishBody,
    list[PublishBody],
    RemovedAnswer,
    SnapshotAnswer,
    SnapshotBody,
    StoredAnswer,
    StreamBody,
)

_NAME_PATTERN: Final = "^[A-Za-z0-9._~:@-]{1,200}$"
_POSITION_PATTERN: Final = "^([0-9A-Z_a-z~]{16})?$"
_TYPE_PATTERN: Final = "^[A-Za-z0-9._:-]{1,128}$"
_KEY_PATTERN: Final = "^[!-~]{1,256}$"
_TAGS: Final = {
    "type": "object",
    "maxProperties": 16,
    "propertyNames": {"pattern": r"^[^\s\x00-\x1f\x7f-\x9f,:]{1,128}$"},
    "additionalProperties": {"type": "string", "pattern": r"^[^\s\x00-\x1f\x7f-\x9f,]{1,128}$"},
}
_NAME: Final = {"type": "string", "pattern": _NAME_PATTERN}

# What is checked behind the decoding, where each problem has a code of its own.
_CONSTRAINTS: Final[dict[str, dict[str, dict[str, Any]]]] = {
    "PublishBody": {
        "type": {
            "type": "string",
            "pattern": _TYPE_PATTERN,
            "not": {"enum": sorted(RESERVED_TYPES | {"open", "error"})},
        },
        "channel": _NAME,
        "channels": {"type": "array", "minItems": 1, "items": _NAME},
        "idempotencyKey": {"type": "string", "pattern": _KEY_PATTERN},
        "tags": _TAGS,
        "version": {"type": "integer", "minimum": 0, "maximum": 2**53 - 1},
    },
    "SnapshotBody": {"position": {"type": "string", "pattern": _POSITION_PATTERN}},
    "StreamBody": {
        "channels": {"type": "array", "minItems": 1, "items": _NAME},
        "tail": {"type": "integer", "minimum": 0, "maximum": HISTORY_LIMIT},
        "from": {"enum": ["beginning"]},
        "tags": _TAGS,
    },
}

_ERRORS: Final = {
    400: "What was sent is not what the route takes; the code says what of it.",
    403: "The client may not have it.",
    404: "There is no such thing.",
    405: "The path does not take this method.",
    408: "The body did not come in time.",
    409: "It does not fit what is stored.",
    413: "The body is too large.",
    429: "A limit is reached; come back after Retry-After seconds.",
    500: "The server failed.",
    503: "The server drains, or its broker is away; come back after Retry-After seconds.",
}

_EVENT_STREAM: Final = (
    "An event stream. Each frame's id is the stream's cursor: a client that comes back sends it "
    "as Last-Event-ID. The data of an event is a WireEvent."
)


def document(*, server: str = "/") -> dict[str, Any]:
    """Return the document, made anew.

    Args:
        server: the path below which the routes are.
    """
    components = _components()
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Tidegate",
            "version": _version(),
            "description": "Channels: publish to them, stream them, read their histories.",
        },
        "servers": [{"url": server}],
        "paths": _paths(),
        "components": {"schemas": components},
    }


def _version() -> str:
    try:
        return version("tidegate")
    except PackageNotFoundError:
        return "0"


def _components() -> dict[str, Any]:
    _, components = msgspec.json.schema_components(
        _SHAPES, ref_template="#/components/schemas/{name}"
    )
    for shape, properties in _CONSTRAINTS.items():
        known = components[shape]["properties"]
        assert properties.keys() <= known.keys()  # noqa: S101 - the structs' own names
        for name, schema in properties.items():
            known[name] = _constrained(known[name], schema)
    components["PublishBody"]["oneOf"] = [_given("channel"), _given("channels")]
    components["StreamBody"]["not"] = _given("tail", "from")
    return components


def _constrained(known: Mapping[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    constrained = copy.deepcopy(dict(schema))
    if "default" not in known:
        return constrained
    # What may be left out may also be null, which says the same.
    return {"anyOf": [constrained, {"type": "null"}], "default": None}


def _given(*names: str) -> dict[str, Any]:
    """Return a schema of bodies that have all these fields, and no null there."""
    return {
        "required": list(names),
        "properties": {name: {"not": {"type": "null"}} for name in names},
    }


def _paths() -> dict[str, Any]:
    one = "/v1/channels/{channel}"
    return {
        "/v1/stream": {
            "get": _operation(
                "stream",
                "Open a stream of channels.",
                _stream_answer(),
                parameters=[
                    _parameter(
                        "channel",
                        "A channel's name; repeat it for several.",
                        {
                            "type": "array",
                            "minItems": 1,
                            "items": {"type": "string", "pattern": _NAME_PATTERN},
                        },
                        required=True,
                        explode=True,
                    ),
                    _parameter(
                        "lastEventId", "The cursor, where no header can be set.", {"type": "string"}
                    ),
                    _parameter("Last-Event-ID", "The cursor.", {"type": "string"}, where="header"),
                    _parameter(
                        "tail",
                        "Begin with so many events, in channels that the cursor does not name.",
                        {"type": "integer", "minimum": 0, "maximum": HISTORY_LIMIT},
                    ),
                    _parameter("from", "Begin with the oldest event.", {"enum": ["beginning"]}),
                    _parameter(
                        "tags",
                        "Only events with these tags: key:value, several with commas between.",
                        {
                            "type": "string",
                            "pattern": r"^[^\s,:]+:[^\s,]+(,[^\s,:]+:[^\s,]+)*$",
                        },
                    ),
                ],
                errors=(400, 403, 429, 503),
            ),
            "post": _operation(
                "streamOfBody",
                "Open a stream of channels, described by a body.",
                _stream_answer(),
                body=_ref("StreamBody"),
                parameters=[
                    _parameter("Last-Event-ID", "The cursor.", {"type": "string"}, where="header")
                ],
                errors=(400, 403, 408, 413, 429, 503),
            ),
        },
        "/v1/publish": {
            "post": _operation(
                "publish",
                "Publish one event or several; all are checked before the first is published.",
                _json_answer("One result for each event and channel.", "PublishAnswer"),
                body={
                    "anyOf": [
                        _ref("PublishBody"),
                        {"type": "array", "items": _ref("PublishBody")},
                    ]
                },
                errors=(400, 408, 413, 503),
            )
        },
        "/v1/channels": {
            "get": _operation(
                "channels",
                "List the channels that streams of this node have.",
                _json_answer("The channels.", "ChannelList"),
            )
        },
        one: {
            "parameters": [_channel()],
            "get": _operation(
                "channel",
                "Tell where a channel is.",
                _json_answer("The channel.", "ChannelState"),
                errors=(400, 503),
            ),
        },
        f"{one}/history": {
            "parameters": [_channel()],
            "get": _operation(
                "history",
                "Read a part of a channel's history, oldest first.",
                _json_answer("The events.", "HistoryAnswer"),
                parameters=[
                    _parameter(
                        "after",
                        "Only events behind this position.",
                        {"type": "string", "pattern": _POSITION_PATTERN},
                    ),
                    _parameter(
                        "limit",
                        "The most events.",
                        {
                            "type": "integer",
                            "minimum": 1,
                            "maximum": HISTORY_LIMIT,
                            "default": 100,
                        },
                    ),
                ],
                errors=(400, 503),
            ),
            "delete": _operation(
                "removeHistory",
                "Drop a channel's events and snapshot; a new epoch begins.",
                _json_answer("The empty head of the new epoch.", "RemovedAnswer"),
                errors=(400, 503),
            ),
        },
        f"{one}/snapshot": {
            "parameters": [_channel()],
            "get": _operation(
                "snapshot",
                "Read a channel's full state, and the cursor with which a stream goes on from it.",
                _json_answer("The state.", "SnapshotAnswer"),
                errors=(400, 404, 500, 503),
            ),
            "put": _operation(
                "putSnapshot",
                "Store a channel's full state at a position, by default its head.",
                _json_answer("Where it stands.", "StoredAnswer"),
                body=_ref("SnapshotBody"),
                errors=(400, 408, 409, 413, 503),
            ),
        },
        "/v1/openapi.json": {
            "get": _operation(
                "openapi",
                "This document.",
                {
                    "description": "OpenAPI 3.1.",
                    "content": {"application/json": {"schema": {"type": "object"}}},
                },
            )
        },
    }


def _operation(
    operation_id: str,
    summary: str,
    answer: Mapping[str, Any],
    *,
    parameters: Iterable[Mapping[str, Any]] = (),
    body: Mapping[str, Any] | None = None,
    errors: Iterable[int] = (),
) -> dict[str, Any]:
    operation: dict[str, Any] = {"operationId": operation_id, "summary": summary}
    if parameters:
        operation["parameters"] = list(parameters)
    if body is not None:
        operation["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": body}},
        }
    operation["responses"] = {
        "200": answer,
        **{str(status): _json_answer(_ERRORS[status], "ErrorAnswer") for status in errors},
    }
    return operation


def _json_answer(description: str, shape: str) -> dict[str, Any]:
    return {
        "description": description,
        "content": {"application/json": {"schema": _ref(shape)}},
    }


def _stream_answer() -> dict[str, Any]:
    return {
        "description": _EVENT_STREAM,
        "headers": {
            "Tidegate-Stream-Id": {"schema": {"type": "string"}},
            "Last-Event-ID": {
                "description": "The request's cursor if all of it is honoured, else the cursor "
                "at which the stream starts; left out where that was not known in time.",
                "schema": {"type": "string"},
            },
        },
        "content": {"text/event-stream": {}},
    }


def _parameter(
    name: str,
    description: str,
    schema: Mapping[str, Any],
    *,
    where: str = "query",
    required: bool = False,
    explode: bool | None = None,
) -> dict[str, Any]:
    parameter: dict[str, Any] = {
        "name": name,
        "in": where,
        "description": description,
        "required": required,
        "schema": schema,
    }
    if explode is not None:
        parameter["explode"] = explode
    return parameter


def _channel() -> dict[str, Any]:
    schema = {"type": "string", "pattern": _NAME_PATTERN}
    return _parameter("channel", "A channel's name.", schema, where="path", required=True)


def _ref(shape: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{shape}"}
