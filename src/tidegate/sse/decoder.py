"""Read an event stream by the rules of WHATWG HTML 9.2.6, from bytes as they arrive."""

from __future__ import annotations

import sys
from typing import Final, NamedTuple

from tidegate.errors import SseDecoderClosed, SseLimitExceeded

__all__ = ["DEFAULT_MAX_BYTES", "MAX_RETRY_DIGITS", "Decoder", "ServerSentEvent"]

DEFAULT_MAX_BYTES: Final = 16 * 1024 * 1024
"""The bound of a line, and of an event, unless another one is asked for."""

MAX_RETRY_DIGITS: Final = 300
"""A longer number is no time to wait, and must not reach int(), which refuses very long ones.

Every number up to this length also fits a float, so that whoever divides it by 1000 is safe.
"""

_BOM: Final = b"\xef\xbb\xbf"
_CR: Final = 0x0D
_LF: Final = 0x0A


class ServerSentEvent(NamedTuple):
    """One event, as a listener of a browser's ``EventSource`` would get it.

    Attributes:
        type: the event's type, never empty.
        data: the payload, its lines joined by LF.
        id: the last event id in force, of this event or an earlier one; ``""`` if there is none.
    """

    type: str = "message"
    data: str = ""
    id: str = ""


# NamedTuple's own constructor costs three times as much, and it runs once for each event.
_new_event: Final = tuple.__new__


class Decoder:
    """Bytes of one event stream in, events out, at the first byte that completes them.

    Any bytes are an event stream: what is not UTF-8 becomes U+FFFD, unknown lines are ignored. How
    the bytes are cut into chunks changes nothing. A decoder serves one response; a client that
    reconnects makes a new one, with the ``last_event_id`` of the old.

    It never waits and holds nothing but the unfinished event: at most one line and the data of one
    event. Not safe for two threads at once.

    Args:
        last_event_id: the id in force before the first event: that which the request resumes from.
        max_line_bytes: the longest line, in bytes as received, without its end. ``None`` is no
            bound, and then an endless line takes memory without end.
        max_event_bytes: the longest data of one event, in bytes as received: the values of its
            ``data`` lines and an LF between each two. ``None`` is no bound. Its type and id are
            bounded as lines are; comments and unknown fields are not kept and do not count.

    Raises:
        ValueError: a bound is less than 1.
    """

    __slots__ = (
        "_after_cr",
        "_at_start",
        "_closed",
        "_data",
        "_failure",
        "_id",
        "_last_event_id",
        "_max_event_bytes",
        "_max_line_bytes",
        "_retry",
        "_type",
        "_unfinished",
    )

    def __init__(
        self,
        *,
        last_event_id: str = "",
        max_line_bytes: int | None = DEFAULT_MAX_BYTES,
        max_event_bytes: int | None = DEFAULT_MAX_BYTES,
    ) -> None:
        for bound in (max_line_bytes, max_event_bytes):
            if bound is not None and bound < 1:
                raise ValueError(f"a bound is at least 1 byte, or None for no bound, not {bound}")
        self._max_line_bytes = sys.maxsize if max_line_bytes is None else max_line_bytes
        self._max_event_bytes = sys.maxsize if max_event_bytes is None else max_event_bytes
        self._last_event_id = last_event_id
        self._retry: int | None = None
        self._unfinished = bytearray()  # the line whose end has not come
        self._at_start = True  # a BOM may still stand before the first line
        self._after_cr = False  # an LF would belong to the CR that ended the line
        self._data: bytes | bytearray | None = None  # without the last LF; None: no data line yet
        self._type = ""
        # Becomes last_event_id at the blank line. The standard's text starts it empty, and an event
        # without an id would erase the cursor the stream was resumed from; browsers keep it, too.
        self._id = last_event_id
        self._failure: tuple[str, int] | None = None
        self._closed = False

    @property
    def last_event_id(self) -> str:
        """The last event id in force: what a reconnect has to ask for.

        It moves at a blank line, also when the lines before it had no data and make no event, and
        not before: an event that was cut off is asked for again.
        """
        return self._last_event_id

    @property
    def retry(self) -> int | None:
        """The last reconnection time the stream asked for, in milliseconds; ``None`` if none did.

        Any size up to 300 digits: whoever waits puts a cap on it.
        """
        return self._retry

    def feed(self, chunk: bytes | bytearray | memoryview) -> list[ServerSentEvent]:
        """Take the next bytes, and return the events they complete, oldest first.

        A CR that ends a chunk ends its line at once; the LF that may follow is then no line of its
        own. Where a bound is passed behind events that are complete, these are returned and the
        next call raises; without such events this call does. So no event is lost, however the bytes
        were cut. What follows that place is not read. ``feed(b"")`` asks whether it was passed.

        Args:
            chunk: any number of bytes, also none.

        Raises:
            SseLimitExceeded: a line or an event is over its bound; again at each later call.
            SseDecoderClosed: ``close()`` was called before.
            TypeError: ``chunk`` is not bytes-like.
        """
        self._raise_failure()
        if self._closed:
            raise SseDecoderClosed
        if not isinstance(chunk, bytes):
            chunk = bytes(memoryview(chunk))  # refuses a number, of which bytes() makes zeros
        events = self._interpret(self._split(chunk))
        if not events:
            self._raise_failure()
        return events

    def close(self) -> None:
        """Say that the stream has ended: an unfinished event is dropped, its id too.

        ``last_event_id`` and ``retry`` stay readable. Closing twice is closing once.
        """
        self._closed = True
        self._unfinished = bytearray()
        self._data = None

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise SseLimitExceeded(*self._failure)

    def _split(self, chunk: bytes) -> list[bytes]:
        """The lines that end in this chunk, as far as they keep to the bound."""
        if self._after_cr and chunk:
            self._after_cr = False
            if chunk[0] == _LF:
                chunk = chunk[1:]
        if not chunk:
            return []
        unfinished = self._unfinished
        longest = len(unfinished) + len(chunk)
        lines = chunk.splitlines()  # of bytes: at CRLF, CR and LF, and nowhere else
        end = chunk[-1]
        self._after_cr = end == _CR
        rest = b"" if end in (_LF, _CR) else lines.pop()
        if lines and unfinished:
            unfinished += lines[0]
            lines[0] = bytes(unfinished)
            unfinished.clear()
        unfinished += rest
        if longest > self._max_line_bytes:
            lines = self._bounded(lines)
        if self._at_start and lines:
            self._at_start = False
            lines[0] = lines[0].removeprefix(_BOM)
        return lines

    def _bounded(self, lines: list[bytes]) -> list[bytes]:
        """The lines before the first one that is too long."""
        bound = self._max_line_bytes
        for index, line in enumerate(lines):
            if len(line) > bound:
                self._failure = ("line", bound)
                return lines[:index]
        if len(self._unfinished) > bound:
            self._failure = ("line", bound)
        return lines

    def _interpret(self, lines: list[bytes]) -> list[ServerSentEvent]:
        """Follow the lines, up to the first that takes the event over its bound."""
        # Cutting at line ends before decoding is the same as decoding first: in UTF-8 an ASCII byte
        # ends whatever was begun before it. Locals, since this loop is the decoder's whole cost.
        events: list[ServerSentEvent] = []
        data, type_, id_ = self._data, self._type, self._id
        bound = self._max_event_bytes
        for line in lines:
            if not line:
                self._last_event_id = id_
                if data is not None:
                    text = data.decode("utf-8", "replace")
                    events.append(_new_event(ServerSentEvent, (type_ or "message", text, id_)))
                    data = None
                type_ = ""
                continue
            name, _, value = line.partition(b":")
            if value[:1] == b" ":
                value = value[1:]
            if name == b"data":
                if data is None:
                    data = value
                else:
                    if isinstance(data, bytes):
                        data = bytearray(data)  # so that many lines do not copy the first ones
                    data += b"\n"
                    data += value
                if len(data) > bound:
                    self._failure = ("event", bound)
                    break  # before a line that was too long, if one was: it came later
            elif name == b"id" and b"\0" not in value:
                id_ = value.decode("utf-8", "replace")
            elif name == b"event":
                type_ = value.decode("utf-8", "replace")
            elif name == b"retry":
                self._take_retry(value)
        self._data, self._type, self._id = data, type_, id_
        return events

    def _take_retry(self, value: bytes) -> None:
        if value.isdigit():  # of bytes: ASCII digits, at least one
            digits = value.lstrip(b"0") or b"0"
            if len(digits) <= MAX_RETRY_DIGITS:
                self._retry = int(digits)
