"""Bytes of a command's output -> lines of text, each of bounded size. Pure."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["MAX_LINE_BYTES", "Line", "LineSplitter"]

MAX_LINE_BYTES = 64 * 1024
"""The most bytes that one event takes of a line."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of output, or a piece of one that is too long.

    Attributes:
        text: the line without its end; bytes that are not UTF-8 became U+FFFD.
        partial: the line goes on in the next ``Line``.
    """

    text: str
    partial: bool = False


class LineSplitter:
    """Cuts a stream of bytes at LF or CRLF, whatever the chunks it comes in.

    A line of more than ``limit`` bytes comes as several pieces of at most that, all but the
    last of them ``partial``; no piece ends within a character. At most ``limit`` bytes are held.

    Args:
        limit: the most bytes of a piece, at least 4 (the longest character).
    """

    __slots__ = ("_limit", "_rest")

    def __init__(self, limit: int = MAX_LINE_BYTES) -> None:
        self._limit = limit
        self._rest = b""

    def feed(self, chunk: bytes) -> list[Line]:
        """Take the next bytes and return the lines that are now known."""
        *whole, rest = (self._rest + chunk).split(b"\n")
        lines: list[Line] = []
        for raw in whole:
            last = self._cut(raw, lines)
            lines.append(Line(_text(last.removesuffix(b"\r"))))
        self._rest = self._cut(rest, lines)
        return lines

    def close(self) -> list[Line]:
        """Return what came after the last line's end, if anything; then begin anew."""
        rest, self._rest = self._rest, b""
        return [Line(_text(rest))] if rest else []

    def _cut(self, raw: bytes, lines: list[Line]) -> bytes:
        """Append the pieces that are over the limit, and return what is left."""
        start, limit = 0, self._limit
        while len(raw) - start > limit:
            end = _boundary(raw, start + limit)
            lines.append(Line(_text(raw[start:end]), partial=True))
            start = end
        return raw[start:] if start else raw


def _boundary(raw: bytes, end: int) -> int:
    """Step back from ``end`` to the start of a UTF-8 character, at most 3 bytes."""
    for position in range(end, end - 4, -1):
        if raw[position] & 0xC0 != 0x80:
            return position
    return end  # not UTF-8 at all


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")
