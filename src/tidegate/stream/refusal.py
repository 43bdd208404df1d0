"""How a stream is refused, so that each kind of client takes it as what it is."""

from __future__ import annotations

import random
import re
import time
from typing import TYPE_CHECKING, Final, Literal

from starlette.responses import Response

from tidegate.channel.frames import stream_error
from tidegate.stream.answers import error_answer
from tidegate.stream.frames import control_bytes, jittered, retry_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from starlette.types import Scope

    from tidegate.channel.frames import StreamErrorKind

__all__ = ["SSE_HEADERS", "RefusalForm", "accepts_event_stream", "refuse", "retry_after"]

RefusalForm = Literal["auto", "status"]

SSE_HEADERS: Final = {
    "content-type": "text/event-stream",
    "cache-control": "no-cache, no-transform",
    "x-accel-buffering": "no",
}
"""What every event stream is sent with."""

_RETRY_SECONDS: Final = (10.0, 30.0)

# The only weight that takes a name back.
_ZERO = re.compile(rb"0+(\.0*)?")

_STATUS: Final[dict[str, int]] = {
    "subscriber_limit": 429,
    "stream_limit": 429,
    "rate_limited": 429,
    "draining": 503,
    "broker_unavailable": 503,
}


def refuse(
    scope: Scope,
    kind: StreamErrorKind,
    error: str,
    *,
    form: RefusalForm = "auto",
    rng: Callable[[], float] = random.random,
    clock: Callable[[], float] = time.time,
) -> Response:
    """Refuse a stream for now: the client is welcome later.

    A browser's EventSource never comes back after a status other than 200. A client that
    names ``text/event-stream`` in ``Accept`` therefore gets a stream that says why, asks
    for 10 to 30 s of patience and ends; any other gets the status.

    Args:
        scope: the request's ASGI scope.
        kind: why, by name.
        error: why, as a sentence.
        form: ``"status"`` gives every client the plain status.
        rng: draws from [0, 1), for the jitter.
        clock: the time in seconds since 1970.
    """
    if form == "auto" and accepts_event_stream(_values(scope, b"accept")):
        body = retry_bytes(1000 * jittered(*_RETRY_SECONDS, rng)) + control_bytes(
            stream_error(int(clock() * 1000), kind=kind, error=error)
        )
        return Response(body, headers=SSE_HEADERS)
    return error_answer(_STATUS[kind], kind, error, retry_after(rng))


def retry_after(rng: Callable[[], float] = random.random) -> dict[str, str]:
    """Return a ``Retry-After`` header of 10 to 30 s."""
    return {"retry-after": str(round(jittered(*_RETRY_SECONDS, rng)))}


def accepts_event_stream(accept: Iterable[bytes]) -> bool:
    """Tell whether ``Accept`` names ``text/event-stream``; a wildcard does not name it.

    Args:
        accept: the raw values of the header, one for each time it was sent.
    """
    return any(_names_it(entry) for value in accept for entry in value.lower().split(b","))


def _names_it(entry: bytes) -> bool:
    media, *parameters = (part.strip() for part in entry.split(b";"))
    if media != b"text/event-stream":
        return False
    for parameter in parameters:
        name, _, weight = parameter.partition(b"=")
        if name.strip() == b"q":
            return _ZERO.fullmatch(weight.strip()) is None
    return True


def _values(scope: Scope, name: bytes) -> list[bytes]:
    return [value for key, value in scope["headers"] if key == name]
