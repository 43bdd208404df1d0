"""Reading a request's body: bounded in size and time."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from starlette.requests import Request

__all__ = ["BodyTooLarge", "BodyTooSlow", "read_body"]

_SECONDS: Final = 30.0


class BodyTooLarge(Exception):
    """The body is larger than allowed."""


class BodyTooSlow(Exception):
    """The body did not come in time."""


async def read_body(request: Request, limit: int, seconds: float = _SECONDS) -> bytes:
    """Read a body of at most ``limit`` bytes.

    It is counted while it is read: what ``Content-Length`` says can only shorten that, and
    a chunked body says nothing.

    Args:
        request: whose body to read.
        limit: in bytes.
        seconds: how long it may take.

    Raises:
        BodyTooLarge: it is larger; the rest is not read.
        BodyTooSlow: it did not come in time.
        ClientDisconnect: the client went before the end.
    """
    declared = request.headers.get("content-length", "")
    if declared.isascii() and declared.isdigit() and int(declared[:20]) > limit:
        raise BodyTooLarge
    chunks: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(seconds), aclosing(request.stream()) as stream:
            async for chunk in stream:
                size += len(chunk)
                if size > limit:
                    raise BodyTooLarge
                chunks.append(chunk)
    except TimeoutError:
        raise BodyTooSlow from None
    return b"".join(chunks)
