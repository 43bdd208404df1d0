"""What ``tidegate tail`` prints for a frame. Pure."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

__all__ = ["clock_of", "compact", "printable"]


def printable(text: str) -> str:
    r"""Make ``text`` harmless for a terminal: what does not print becomes ``\uXXXX``.

    Within a JSON string that changes nothing, since ``\uXXXX`` is how JSON may write it;
    between the tokens of JSON only white space can be meant, which becomes a space.
    """
    if text.isprintable():
        return text
    return "".join(map(_printable_character, text))


def compact(data: Any) -> str:
    """Write a value as JSON in one line that a terminal can show."""
    return printable(json.dumps(data, ensure_ascii=False, separators=(",", ":")))


def clock_of(meta: Any) -> str:
    """Return the time of day of an event, ``HH:MM:SS.mmmZ``, or ``""`` if it has none."""
    stamp = meta.get("serverTimestamp") if isinstance(meta, dict) else None
    if not isinstance(stamp, int | float) or isinstance(stamp, bool):
        return ""
    try:
        moment = datetime.fromtimestamp(stamp / 1000, UTC)
    except (OverflowError, OSError, ValueError):
        return ""
    return moment.strftime("%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"


def _printable_character(character: str) -> str:
    if character.isprintable():
        return character
    if character in "\t\n\r":
        return " "
    code = ord(character)
    if code > 0xFFFF:
        code -= 0x10000
        return f"\\u{0xD800 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"
    return f"\\u{code:04x}"
