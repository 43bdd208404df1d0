"""When a client comes back, after how long, and where. Pure: no clock, no chance of its own."""

from __future__ import annotations

import enum
import math
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidegate.client.cursor import Cursor

__all__ = [
    "DEFAULT_RETRY",
    "MAX_RETRY",
    "Reconnect",
    "Verdict",
    "backoff",
    "judge",
    "retry_after",
    "retry_seconds",
]

DEFAULT_RETRY: Final = 3.0
"""Seconds to wait before a server has named its own time."""

MAX_RETRY: Final = 3600.0
"""The longest time, in seconds, that a server may tell a client to stay away."""

_BASE: Final = 1.0
_CAP: Final = 30.0


class Verdict(enum.Enum):
    """What an answer to a stream request means."""

    OPEN = "open"
    RETRY = "retry"
    REFRESH = "refresh"
    FINISHED = "finished"
    REFUSED = "refused"
    NOT_AN_EVENT_STREAM = "not_an_event_stream"


def judge(status: int, content_type: str, *, can_refresh: bool) -> Verdict:
    """Decide how to go on after the head of an answer.

    Args:
        status: the HTTP status, redirects followed.
        content_type: the ``Content-Type`` header, ``""`` if there is none.
        can_refresh: a new token can be had and was not yet asked for since the last open stream.
    """
    if status == 200:
        essence = content_type.partition(";")[0].strip().lower()
        return Verdict.OPEN if essence == "text/event-stream" else Verdict.NOT_AN_EVENT_STREAM
    if status == 204:
        return Verdict.FINISHED
    if status == 401 and can_refresh:
        return Verdict.REFRESH
    if status >= 500 or status in {408, 429}:
        return Verdict.RETRY
    return Verdict.REFUSED


def retry_after(value: str | None, now: float) -> float | None:
    """Read a ``Retry-After`` header, of either form.

    Args:
        value: the header, or ``None``.
        now: the time in seconds since 1970, for a header that is a date.

    Returns:
        Seconds to wait, at least 0 and at most `MAX_RETRY`; ``None`` if it says nothing.
    """
    if value is None:
        return None
    text = value.strip()
    if text.isascii() and text.isdigit():
        # So many digits are past the cap anyway, and int() refuses very long ones.
        return min(float(int(text[:9])), MAX_RETRY)
    try:
        then = parsedate_to_datetime(text)
    except ValueError:
        return None
    if then.tzinfo is None:  # the zone "-0000": UTC, of an unknown place
        then = then.replace(tzinfo=UTC)
    return min(max(then.timestamp() - now, 0.0), MAX_RETRY)


def retry_seconds(retry_ms: int) -> float:
    """Return the reconnection time of a stream in seconds, at most `MAX_RETRY`."""
    # Compared as integers: a number of hundreds of digits is no float.
    return min(retry_ms, int(MAX_RETRY) * 1000) / 1000


def backoff(attempt: int, random: Callable[[], float]) -> float:
    """Return a random time from 0 to 1 s · 2^attempt, 30 s at most.

    Args:
        attempt: failures in a row before this one, from 0; however many.
        random: gives a number from 0 up to 1.
    """
    return random() * min(_CAP, math.ldexp(_BASE, min(attempt, 16)))


class Reconnect:
    """The memory of one stream across its connections: its place, and how long to stay away.

    Args:
        cursor: where to begin; ``None`` for live only.
        retry: seconds to wait until the server has named its own time.

    Attributes:
        cursor: the place to ask for.
        retry: the server's time, in seconds.
        attempt: how often in a row there was something to wait for; 0 after an open.
    """

    __slots__ = ("_anchored", "attempt", "cursor", "retry")

    def __init__(self, cursor: Cursor | None = None, retry: float = DEFAULT_RETRY) -> None:
        self.cursor = cursor
        self.retry = retry
        self.attempt = 0
        self._anchored = True

    def moved(self, cursor: Cursor) -> None:
        """The consumer is done with what stands before ``cursor``."""
        if cursor != self.cursor:
            self.cursor = cursor.after(self.cursor) if self._anchored else cursor
            self._anchored = True

    def resynced(self) -> None:
        """The server said that the history does not link: its next id counts, whatever it is."""
        self._anchored = False

    def restarted(self, cursor: Cursor | None) -> None:
        """Begin at another place, also one further back."""
        self.cursor = cursor
        self.attempt = 0
        self._anchored = True

    def asked(self, retry_ms: int) -> None:
        """The stream named its reconnection time."""
        self.retry = retry_seconds(retry_ms)

    def opened(self) -> None:
        """A stream is open: the next failure is the first one again."""
        self.attempt = 0

    def delay(self, random: Callable[[], float], after: float | None = None) -> float:
        """Return how long to wait now, in seconds, and count the attempt.

        Args:
            random: gives a number from 0 up to 1.
            after: what ``Retry-After`` said; it takes the place of the server's time this once.
        """
        seconds = (self.retry if after is None else after) + backoff(self.attempt, random)
        self.attempt += 1
        return seconds
