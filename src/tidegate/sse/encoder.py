"""Write one frame of an event stream."""

from __future__ import annotations

from tidegate.errors import SseEncodeError
from tidegate.sse.decoder import MAX_RETRY_DIGITS

__all__ = ["encode"]

_RETRY_END = 10**MAX_RETRY_DIGITS
_NAMES = {"\r": "CR", "\n": "LF", "\0": "NUL"}


def encode(
    *,
    event: str | None = None,
    data: str | None = None,
    id: str | None = None,  # noqa: A002 - the wire's own name
    retry: int | None = None,
    comment: str | None = None,
) -> bytes:
    """Encode one frame: what is given, then one blank line.

    The order is ``retry``, ``comment``, ``id``, ``event``, ``data``; lines end with LF. Nothing is
    ever deleted or replaced: what a reader would not get back is refused, with one exception, the
    line ends of ``data``. A pure function, safe from any thread.

    Args:
        event: the event's type. ``""`` is written, and means ``message`` to a reader.
        data: the payload, one ``data: `` line for each of its lines. They end at CRLF, CR or LF and
            nowhere else, and a reader gets LF for each of the three. ``""`` is one line.
        id: the last event id from here on. ``""`` is written, and makes a reader forget its id.
        retry: how long a reader waits before it reconnects, in milliseconds.
        comment: text that a reader ignores, split into lines as ``data`` is.

    Returns:
        The frame in UTF-8, to be written whole; ``b""`` if nothing was given.

    Raises:
        SseEncodeError: CR, LF or NUL in ``id``, CR or LF in ``event``, a lone surrogate anywhere,
            or a ``retry`` that is no non-negative integer of at most 300 digits (a bool is none).
        TypeError: another argument is neither ``str`` nor ``None``. Bytes are not text either.
    """
    # Put together with + and not by formatting, which writes a str-Enum's member as Class.NAME.
    frame = ""
    if retry is not None:
        frame += "retry: " + _digits(retry) + "\n"
    if comment is not None:
        frame += ": " + _lines("comment", comment, "\n: ") + "\n"
    if id is not None:
        frame += "id: " + _one_line("id", id, "\r\n\0") + "\n"
    if event is not None:
        frame += "event: " + _one_line("event", event, "\r\n") + "\n"
    if data is not None:
        frame += "data: " + _lines("data", data, "\ndata: ") + "\n"
    if not frame:
        return b""
    frame += "\n"
    try:
        return frame.encode()
    except UnicodeEncodeError as error:
        line = frame[: error.start].rpartition("\n")[2]
        field = line.partition(":")[0] or "comment"
        code = ord(frame[error.start])
        raise SseEncodeError(field, f"U+{code:04X}, a lone surrogate, has no UTF-8") from None


def _text(field: str, value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"SSE field {field!r} takes a str, not {type(value).__name__}")
    return value


def _one_line(field: str, value: str, forbidden: str) -> str:
    text = _text(field, value)
    for character in forbidden:
        if character in text:
            raise SseEncodeError(field, f"{_NAMES[character]} cannot stand in it")
    return text


def _lines(field: str, value: str, joint: str) -> str:
    text = _text(field, value)
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    # Not splitlines(): it also splits at U+2028, form feeds and more, which are data here.
    return text.replace("\n", joint)


def _digits(retry: object) -> str:
    if isinstance(retry, bool) or not isinstance(retry, int):
        raise SseEncodeError("retry", f"it takes an int, not {type(retry).__name__}")
    if retry < 0:
        raise SseEncodeError("retry", "it cannot be negative")
    if retry >= _RETRY_END:
        raise SseEncodeError("retry", f"it has more than {MAX_RETRY_DIGITS} digits")
    return str(int(retry))
