"""Lines of standard input -> events to publish. Pure."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "CHANNEL_FIELDS",
    "MAX_RECORD_BYTES",
    "SESSION_FIELDS",
    "BadRecord",
    "Record",
    "RecordReader",
    "event_of",
    "parse_json",
    "unsendable",
]

MAX_RECORD_BYTES = 512 * 1024
"""The longest line of input. A server takes at most 1 MiB in a request."""

SESSION_FIELDS = ("type", "data", "meta")
"""What an event for a session may have."""

CHANNEL_FIELDS = (*SESSION_FIELDS, "tags", "version", "idempotencyKey")
"""What an event for a channel may have."""


class BadRecord(ValueError):
    """A line of input is no event.

    Attributes:
        number: the line's number, from 1.
        problem: what is wrong with it.
    """

    def __init__(self, number: int, problem: str) -> None:
        super().__init__(number, problem)
        self.number = number
        self.problem = problem

    def __str__(self) -> str:
        return f"line {self.number} {self.problem}"


@dataclass(frozen=True, slots=True)
class Record:
    """One event to publish, and where it comes from.

    Attributes:
        number: the line's number, from 1.
        event: ``{"type", "data"?, "meta"?}``, for a channel also ``tags`` and the like.
        plain: the line was no event in JSON and became a ``message``.
        size: the bytes of the line; what the event takes in a request is close to it.
    """

    number: int
    event: dict[str, Any]
    plain: bool
    size: int


class RecordReader:
    """Cuts a stream of bytes into lines and makes an event of each.

    Args:
        ndjson: every line must be an event in JSON, empty lines aside. Otherwise a line that
            is none becomes an event of type ``message`` with the line's text as its data.
        fields: what an event may have.
        limit: the most bytes of a line.
    """

    __slots__ = ("_fields", "_limit", "_ndjson", "_number", "_rest")

    def __init__(
        self,
        *,
        ndjson: bool = False,
        fields: Sequence[str] = SESSION_FIELDS,
        limit: int = MAX_RECORD_BYTES,
    ) -> None:
        self._ndjson = ndjson
        self._fields = fields
        self._limit = limit
        self._rest = b""
        self._number = 0

    def feed(self, chunk: bytes) -> tuple[list[Record], BadRecord | None]:
        """Take the next bytes; return the events that they complete.

        The second value is the error of the first bad line, if there is one: the events before
        it are in the first value, and nothing after it is looked at.
        """
        *whole, self._rest = (self._rest + chunk).split(b"\n")
        records, problem = self._read(whole)
        if problem is None and len(self._rest) > self._limit:
            problem = self._too_long(self._number + 1)
        return records, problem

    def close(self) -> tuple[list[Record], BadRecord | None]:
        """Return the last line if it has no end; as ``feed``."""
        rest, self._rest = self._rest, b""
        return self._read([rest] if rest else [])

    def _read(self, lines: list[bytes]) -> tuple[list[Record], BadRecord | None]:
        records: list[Record] = []
        for raw in lines:
            self._number += 1
            try:
                record = self._record(raw)
            except BadRecord as problem:
                return records, problem
            if record is not None:
                records.append(record)
        return records, None

    def _record(self, raw: bytes) -> Record | None:
        number = self._number
        if len(raw) > self._limit:
            raise self._too_long(number)
        line = raw.removesuffix(b"\r")
        if self._ndjson:
            if not line.strip():
                return None
            event = _strict_event(number, line, self._fields)
            return Record(number, event, plain=False, size=len(raw))
        text = line.decode("utf-8", "replace")
        found = event_of(text, self._fields)
        if found is None:
            return Record(number, {"type": "message", "data": text}, plain=True, size=len(raw))
        return Record(number, found, plain=False, size=len(raw))

    def _too_long(self, number: int) -> BadRecord:
        return BadRecord(number, f"is longer than {self._limit} bytes")


def event_of(text: str, fields: Sequence[str] = SESSION_FIELDS) -> dict[str, Any] | None:
    """Return the event that ``text`` is in JSON, or ``None`` if it is anything else.

    An event is an object with a string ``type`` and, beside it, only what ``fields`` names.
    """
    if not text.lstrip().startswith("{"):
        return None
    try:
        value = parse_json(text)
    except ValueError:
        return None
    return value if _problem_of(value, fields) is None else None


def parse_json(text: str) -> Any:
    """Read JSON as a server would: without Python's NaN and Infinity, and within its bounds.

    Raises:
        ValueError: it is none, or too deep, or a number in it is out of range.
    """
    try:
        return json.loads(
            text, parse_constant=_refuse_constant, parse_float=_finite, parse_int=_bounded
        )
    except RecursionError:
        raise ValueError("too deep") from None


def unsendable(event: object) -> str | None:
    """Tell why a value of `parse_json`, or one with a user's words in it, cannot be sent.

    Returns:
        What is wrong with it, to be said after its name; ``None`` if nothing is.
    """
    try:
        msgspec.json.encode(event)
    except UnicodeEncodeError:
        return "has half a surrogate pair in it, which is no text"
    except RecursionError:
        return "is too deep"
    return None


def _strict_event(number: int, line: bytes, fields: Sequence[str]) -> dict[str, Any]:
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError:
        raise BadRecord(number, "is not UTF-8") from None
    try:
        value = parse_json(text)
    except ValueError as error:
        raise BadRecord(number, f"is not JSON: {error}") from None
    problem = _problem_of(value, fields)
    if problem is not None:
        raise BadRecord(number, problem)
    event: dict[str, Any] = value
    return event


def _problem_of(value: object, fields: Sequence[str]) -> str | None:
    if not isinstance(value, dict):
        return "is not a JSON object"
    if not isinstance(value.get("type"), str):
        return "has no 'type', or one that is not a string"
    unknown = sorted(value.keys() - set(fields))
    if unknown:
        return f"has a field {unknown[0]!a}; an event has {', '.join(fields[:-1])} and {fields[-1]}"
    return unsendable(value)


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError("a number is out of range")
    return value


def _bounded(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError("a number has too many digits") from None
