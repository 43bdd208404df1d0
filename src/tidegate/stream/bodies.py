"""Reading a request's body: bounded in size and time."""

from __future__ import annotations

import asyncio
import random
from contextlib import aclosing
from typing import TYPE_CHECKING, Final

from tidegate.stream.answers import error_answer
from tidegate.stream.refusal import retry_after

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request
    from starlette.responses import Response

    from tidegate.stream.drain import Drain

__all__ = [
    "BodyError",
    "BodyInterrupted",
    "BodyTooLarge",
    "BodyTooSlow",
    "body_error_answer",
    "read_body",
]

_SECONDS: Final = 30.0


class BodyError(Exception):
    """The body was not read."""


class BodyTooLarge(BodyError):
    """The body is larger than allowed."""


class BodyInterrupted(BodyError):
    """The process is to stop; the rest of the body is not awaited."""


class BodyTooSlow(BodyError):
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


def body_error_answer(
    error: BodyError, limit: int, *, rng: Callable[[], float] = random.random
) -> Response:
    """Say to the client why its body was not read.

    Args:
        error: why.
        limit: the most bytes that it may have.
        rng: draws from [0, 1), for jitter.
    """
    if isinstance(error, BodyTooLarge):
        # The connection stays: closed with bytes unread it would be reset, and the
        # client might not see this answer.
        return error_answer(413, "body_too_large", f"the body is larger than {limit} bytes")
    if isinstance(error, BodyInterrupted):
        headers = {**retry_after(rng), "connection": "close"}
        sentence = "the server is shutting down; come back later"
        return error_answer(503, "draining", sentence, headers)
    sentence = "the body did not come in time"
    return error_answer(408, "body_too_slow", sentence, {"connection": "close"})
