"""What the two layers of I/O, and all who make a request, share of httpx."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidegate.client.refusal import shown
from tidegate.errors import ClientError, MissingExtra, StreamUnavailable

if TYPE_CHECKING:
    from tidegate.client.core import StreamCore

try:
    import httpx
except ModuleNotFoundError as error:
    if error.name != "httpx":
        raise
    raise MissingExtra("httpx", "client") from error

__all__ = [
    "CONNECT_TIMEOUT",
    "MAX_BODY",
    "checked_url",
    "failed",
    "httpx",
    "never_sent",
    "problem_of",
    "read_body",
    "read_body_sync",
    "timeouts",
    "unasked_encoding",
    "unusable",
]

CONNECT_TIMEOUT: Final = 10.0
"""Seconds for a connection, for a place in the pool, and for one write."""

MAX_BODY: Final = 64 * 1024
"""How much of the body of an error or of a small answer is read, in bytes."""


def checked_url(url: str) -> str:
    """Return a URL that httpx can take.

    Raises:
        ValueError: it cannot.
    """
    if isinstance(url, str):  # else Target.read says what is wrong
        try:
            httpx.URL(url)
        except httpx.InvalidURL as error:
            raise ValueError(f"not a URL: {error}") from None
    return url


def timeouts(read: float) -> httpx.Timeout:
    """Return the time-outs of a request.

    Args:
        read: seconds in which something has to arrive, again and again.

    Raises:
        ValueError: it is not more than 0.
    """
    if not read > 0:
        raise ValueError(f"a time-out is more than 0 s, not {read}")
    return httpx.Timeout(CONNECT_TIMEOUT, read=read)


def unusable(error: httpx.RequestError) -> ClientError | None:
    """Return what to raise for an error that the next attempt would meet again, else ``None``."""
    if isinstance(error, httpx.TooManyRedirects):
        return ClientError("the server sends the request from one URL to the next without an end")
    if isinstance(error, httpx.UnsupportedProtocol):
        return ClientError("the server sends the request to a URL that is not http or https")
    if isinstance(error, httpx.LocalProtocolError):
        # Its text may hold the header, which may hold a secret.
        return ClientError("a header of the request has characters that HTTP does not allow")
    return None


def failed(core: StreamCore, error: httpx.RequestError) -> None:
    """Tell a stream that a request came to nothing.

    Raises:
        ClientError: the next attempt would meet the same error, or there is no next attempt.
    """
    final = unusable(error)
    if final is not None:
        core.give_up()
        raise final from error
    try:
        core.failed(problem_of(error))
    except StreamUnavailable as unavailable:
        raise unavailable from error


def never_sent(error: httpx.RequestError) -> bool:
    """Tell whether an error proves that nothing of the request has reached the server."""
    return isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout)


def problem_of(error: Exception) -> str:
    """Say in a few words what went wrong."""
    text = shown(str(error))  # some quote what the server sent
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def unasked_encoding(response: httpx.Response) -> str | None:
    """Return a body's content encoding, fit to be shown, if it has one; every request forbids it.

    Such a body is not decoded: a few bytes could become any number of them.
    """
    encoding = response.headers.get("content-encoding", "").strip().lower()
    return None if encoding in {"", "identity"} else shown(encoding)


async def read_body(response: httpx.Response, limit: int = MAX_BODY) -> bytes:
    """Read a response's body as it was sent, and at most ``limit`` bytes of it.

    Raises:
        httpx.RequestError: it broke off.
    """
    body = bytearray()
    async for chunk in response.aiter_raw():
        body += chunk
        if len(body) >= limit:
            break
    return bytes(body[:limit])


def read_body_sync(response: httpx.Response, limit: int = MAX_BODY) -> bytes:
    """Do as `read_body` does, without an event loop."""
    body = bytearray()
    for chunk in response.iter_raw():
        body += chunk
        if len(body) >= limit:
            break
    return bytes(body[:limit])
