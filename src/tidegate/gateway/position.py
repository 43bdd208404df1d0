"""A position: an event's place in its channel, never handed out twice. Pure.

A position is a text of 16 characters that stands for 12 bytes: 8 of a number that grows along
the channel, and 4 that are random. The alphabet is in the order of its characters, so texts sort
as what they stand for; and it has no ``-`` and no ``.``, so no one takes one for ``<epoch>-<n>``.

The random part is what makes it safe. A promoted replica or a restored backup hands out the same
numbers again; with numbers alone a client that holds the lost one would be told that nothing is
missing. It is drawn anew for each event and attempt, never derived from what the event says.
"""

from __future__ import annotations

import re
from base64 import b64decode
from binascii import b2a_base64
from typing import Final

__all__ = [
    "ALPHABET",
    "LENGTH",
    "NONE",
    "ZERO",
    "is_position",
    "make_position",
    "next_number",
    "number_of",
    "pack",
    "unpack",
]

ALPHABET: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz~"
"""64 characters that neither a URL nor a header escapes, in the order of their code points."""

LENGTH: Final = 16
"""Characters of a position."""

NONE: Final = ""
"""The position before the first event of an epoch; it sorts before all others."""

ZERO: Final = ALPHABET[0] * LENGTH
"""How `NONE` stands where every position takes the same room."""

_STANDARD: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_TO_OURS: Final = bytes.maketrans(_STANDARD, ALPHABET.encode("ascii"))
_TO_STANDARD: Final = bytes.maketrans(ALPHABET.encode("ascii"), _STANDARD)
_POSITION: Final = re.compile(r"[0-9A-Z_a-z~]{16}", re.ASCII)
_MAX_NUMBER: Final = 2**64 - 1


def pack(raw: bytes) -> str:
    """Write bytes, a multiple of 3 of them, as text that sorts as they do."""
    return b2a_base64(raw, newline=False).translate(_TO_OURS).decode("ascii")


def unpack(text: str) -> bytes:
    """Read what `pack` wrote; ``text`` has been checked."""
    return b64decode(text.encode("ascii").translate(_TO_STANDARD))


def make_position(number: int, random_part: bytes) -> str:
    """Make a position.

    Args:
        number: from 1 to 2^64 - 1, higher than that of every event before it.
        random_part: 4 bytes, drawn for this event and this attempt.
    """
    if not 1 <= number <= _MAX_NUMBER or len(random_part) != 4:
        raise ValueError("a position takes a number from 1 to 2^64-1 and 4 bytes")
    return pack(number.to_bytes(8, "big") + random_part)


def number_of(position: str) -> int:
    """Return the number in a position; 0 for `NONE`."""
    return int.from_bytes(unpack(position)[:8], "big") if position else 0


def next_number(last: int, now_ms: int) -> int:
    """Return the number of the event after the one with number ``last``.

    The time in milliseconds, as long as that grows; else the next number: a clock that goes
    back, or many events in one millisecond, do not break the order.
    """
    return max(now_ms, last + 1)


def is_position(text: object) -> bool:
    """Tell whether ``text`` is a position; `NONE` is one."""
    return isinstance(text, str) and (
        text == NONE or (_POSITION.fullmatch(text) is not None and text > ZERO)
    )
