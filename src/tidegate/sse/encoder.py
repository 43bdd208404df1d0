"""Write one frame of an event stream."""

from __future__ import annotations

from tidegate.errors import SseEncodeError
from tidegate.sse.decoder import MAX_RETRY_DIGITS

__all__ = ["encode"]

_RETRY_END = 10**MAX_RETRY_DIGITS


def encode(
    *,
    event: str | None = None,
    data: str | None = None,
    id: str | None = None,  # noqa: A002 - the wire's own name
    retry: int | None = None,
    comment: str | None = None,
) -> bytes:
    r"""Encode one frame: what is given, then one blank line.

    The order is ``retry``, ``comment``, ``id``, ``event``, ``data``. Lines end with LF. Nothing is
    ever deleted or replaced: what cannot be written as it stands is refused. A pure function, safe
    from any thread.

    Args:
        event: the event's type. ``""`` is written, and means ``message`` to a reader.
        data: the payload, one ``data: `` line for each of its lines; they end at CRLF, CR or LF and
            nowhere else, and a reader gets LF for each of the three. ``""`` is one line.
        id: the last event id from here on. ``""`` is written, and makes a reader forget its id.
        retry: how long a reader waits before it reconnects, in milliseconds.
        comment: lines that a reader ignores, split as ``data`` is.

    Returns:
        The frame in UTF-8, to be written whole; ``b""`` if nothing was given.

    Raises:
        SseEncodeError: CR, LF or NUL in ``id``, CR or LF in ``event``, a lone surrogate anywhere, or
            a ``retry`` that is no non-negative integer of at most 300 digits (a bool is none).
        TypeError: another argument is neither ``str`` nor ``None``. Bytes are not text either.
    """
    # Joined with + and not with f-strings, which would write the name of a str-Enum's member.
    frame = ""
    if retry is not None:
        frame += "retry: " + _digits(retry) + "\n"
    if comment is not None:
        frame += ": " + _lines("comment", comment, "\n: ") + "\n"
    if id is not None:
        frame += "id: " + _one_line("id", id) + "\n"
        if "\0" in id:
            raise SseEncodeError("id", f"{_at(id, 0)}; a reader ignores an id with NUL")
    if event is not None:
        frame += "event: " + _one_line("event", event) + "\n"
    if data is not None:
        frame += "data: " + _lines("data", data, "\ndata: ") + "\n"
    if not frame:
        return b""
    frame += "\n"
    try:
        return frame.encode()
    except UnicodeEncodeError:
        _refuse_surrogate(comment=comment, id=id, event=event, data=data)
        raise


def _text(field: str, value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"SSE field {field!r} is a str, not {type(value).__name__}")
    return value
