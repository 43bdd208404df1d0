"""Where a request wants its stream to begin, and how much may wait for it. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "MAX_QUEUED_RANGE",
    "Cursor",
    "given_cursor",
    "is_epoch",
    "parse_cursor",
    "parse_max_queued",
]

MAX_QUEUED_RANGE: Final = (16, 2048)
"""What ``?maxQueued`` may ask for: the least and the most live frames that may wait."""

_MAX_ID: Final = 2**53 - 1
_EPOCH = re.compile(r"[A-Za-z0-9._~-]{1,128}", re.ASCII)
# [0-9], never \d: other scripts have digits too, and int() would take them.
_DIGITS = re.compile(r"[0-9]+", re.ASCII)
_SHOWN: Final = 82


@dataclass(frozen=True, slots=True)
class Cursor:
    """What a client said of the place where it stopped reading."""

    last_event_id: int | None = None
    """The id seen last; ``None``: live events only."""
    epoch: str | None = None
    """The epoch in which it was seen, if told."""
    rejected: str | None = None
    """What was given in place of a cursor, escaped and clipped for a log."""


def is_epoch(text: str) -> bool:
    """Tell whether ``text`` can name an epoch: 1 to 128 of ``A-Z a-z 0-9 . _ ~ -``."""
    return _EPOCH.fullmatch(text) is not None


def given_cursor(header: bytes | None, query: str | None) -> str | None:
    """Return what a request gives as its cursor: the header, unless empty, else the query.

    Args:
        header: the raw value of ``Last-Event-ID``. Browsers send it as UTF-8, whatever a
            framework decodes headers as.
        query: the value of ``?lastEventId=``.
    """
    return (header or b"").decode("utf-8", "replace") or query or None


def parse_cursor(
    header: bytes | None = None,
    query: str | None = None,
    *,
    epoch_header: str | None = None,
    epoch_query: str | None = None,
) -> Cursor:
    """Read a session's cursor; never fails.

    A cursor is ASCII digits, at most 2^53 - 1, leading zeros allowed, or such digits
    behind ``<epoch>-``. Anything else is ignored, which leaves a stream of live events
    only, and reported in ``rejected``; nothing or an empty text is no cursor.

    Args:
        header: the raw value of ``Last-Event-ID``; it goes before ``query`` unless empty.
        query: the value of ``?lastEventId=``.
        epoch_header: the epoch of a plain cursor, from ``Tidegate-Epoch``; one that cannot
            be an epoch becomes ``""``, which is nobody's.
        epoch_query: the same from ``?epoch=``, for want of the header.
    """
    given = given_cursor(header, query)
    if given is None:
        return Cursor()
    digits, epoch = given, None
    if "-" in given:
        epoch, _, digits = given.rpartition("-")
        if not is_epoch(epoch):
            return Cursor(rejected=_escape(given))
    number = _parse_id(digits)
    if number is None:
        return Cursor(rejected=_escape(given))
    if epoch is None:
        epoch = next((e for e in (epoch_header, epoch_query) if e), None)
        if epoch is not None and not is_epoch(epoch):
            # It cannot be ours: the number belongs to another life. (Ignoring it would
            # let a number pass that means nothing here.)
            epoch = ""
    return Cursor(number, epoch)


def parse_max_queued(values: Sequence[str]) -> int | None:
    """Read ``?maxQueued``.

    Args:
        values: every value that the query gives for it.

    Returns:
        The cap asked for; ``None`` if none was.

    Raises:
        ValueError: empty, no decimal number, repeated, or out of `MAX_QUEUED_RANGE`.
    """
    if not values:
        return None
    low, high = MAX_QUEUED_RANGE
    number = _parse_id(values[0]) if len(values) == 1 else None
    if number is None or not low <= number <= high:
        raise ValueError(f"maxQueued must be given once, as a decimal number from {low} to {high}")
    return number


def _parse_id(text: str) -> int | None:
    if _DIGITS.fullmatch(text) is None:
        return None
    # Stripped first: int() of a long text takes quadratic time, or refuses.
    significant = text.lstrip("0")
    if len(significant) > len(str(_MAX_ID)):
        return None
    number = int(significant or "0")
    return number if number <= _MAX_ID else None


def _escape(text: str) -> str:
    # Cut first as well: escaping grows a text up to tenfold.
    return ascii(text[:_SHOWN])[:_SHOWN]
