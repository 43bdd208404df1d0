"""Reading a request's body: bounded in size and time."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from starlette.requests import Request

    from tidegate.stream import Drain

__all__ = ["BodyInterrupted", "BodyTooLarge", "BodyTooSlow", "read_body"]

_SECONDS: Final = 30.0


class BodyTooLarge(Exception):
    """The body is larger than allowed."""


class BodyInterrupted(Exception):
    """The process is to stop; the rest of the body is not awaited."""


class BodyTooSlow(Exception):
    """The body did not come in time."""


class _Reading:
    """A body being read, as a drain knows it: it is simply interrupted."""

    __slots__ = ("interrupted", "scope")

    def __init__(self, seconds: float) -> None:
        self.scope = asyncio.timeout(seconds)
        self.interrupted = False

    def farewell(self, _frame: bytes, _seconds: float) -> None:
        self.cut()

    def cut(self) -> None:
        self.interrupted = True
        self.scope.reschedule(asyncio.get_running_loop().time())


async def read_body(
    request: Request, limit: int, seconds: float = _SECONDS, *, drain: Drain | None = None
) -> bytes:
    """Read a body of at most ``limit`` bytes.

    It is counted while it is read: what ``Content-Length`` says can only shorten that, and
    a chunked body says nothing.

    Args:
        request: whose body to read.
        limit: in bytes.
        seconds: how long it may take.
        drain: what interrupts it when the process is to stop; a client that sends slowly
            would hold that up.

    Raises:
        BodyInterrupted: the process is to stop.
        BodyTooLarge: it is larger; the rest is not read.
        BodyTooSlow: it did not come in time.
        ClientDisconnect: the client went before the end.
    """
    declared = request.headers.get("content-length", "")
    if declared.isascii() and declared.isdigit() and int(declared[:20]) > limit:
        raise BodyTooLarge
    chunks: list[bytes] = []
    size = 0
    reading = _Reading(seconds)
    try:
        async with reading.scope, aclosing(request.stream()) as stream:
            if drain is not None:
                drain.add(reading)
            async for chunk in stream:
                size += len(chunk)
                if size > limit:
                    raise BodyTooLarge
                chunks.append(chunk)
    except TimeoutError:
        raise (BodyInterrupted if reading.interrupted else BodyTooSlow) from None
    finally:
        if drain is not None:
            drain.discard(reading)
    return b"".join(chunks)
