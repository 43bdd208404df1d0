"""`EventStream`: channels as the response of any Starlette or FastAPI route."""

from __future__ import annotations

import asyncio
import logging
import random
import time
import uuid
from typing import TYPE_CHECKING, Any, Final, Literal

from starlette.responses import Response

from tidegate.channel import Channel
from tidegate.stream.answers import error_answer
from tidegate.stream.cursor import Cursor, given_cursor, parse_cursor
from tidegate.stream.delivery import Delivery
from tidegate.stream.drain import Drain, drain_of
from tidegate.stream.frames import jittered, retry_bytes
from tidegate.stream.opening import (
    ChannelOpener,
    OpeningDenied,
    OpeningRefused,
    StreamSource,
    WireOpener,
    WireSource,
)
from tidegate.stream.refusal import SSE_HEADERS, RefusalForm, refuse
from tidegate.stream.transport import transport_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from starlette.background import BackgroundTask
    from starlette.requests import Request
    from starlette.types import Receive, Scope, Send

    from tidegate.channel.frames import StreamErrorKind
    from tidegate.stream.opening import Opener

__all__ = ["EXPOSED_HEADERS", "EventStream", "cursor_of", "raw_cursor_of"]

EXPOSED_HEADERS: Final = ("Last-Event-ID", "Tidegate-Epoch", "Tidegate-Stream-Id")
"""Response headers that a browser shows to scripts of another origin only if told to."""

_log = logging.getLogger("tidegate.stream")

_DRAINING: Final = "the server is shutting down; come back later"


class EventStream(Response):
    """Streams a channel, or several, to one client as Server-Sent Events, with resume.

    Return it from a route. The cursor is read from the request (``Last-Event-ID``, else
    ``?lastEventId=``); a client without one gets live events only. The client is
    subscribed when the response is sent and released when that ends, however it ends: at
    the channel's end, by eviction, disconnect, drain or cancellation.

    A client that cannot be served now (``max_subscribers``, a drain, a broker that is away)
    is refused in the form that its kind understands; see `tidegate.stream.refusal.refuse`.
    ``HEAD`` gets the same head, and takes no place.

    Args:
        source: a `Channel`, what has one as ``channel``, or a gateway's subscription, which
            says by itself where a client without a cursor starts.
        request: the request to answer.
        max_queued: live frames that may wait for this client; ``None``: as the source
            says, which is 256 unless it was told otherwise.
        heartbeat: seconds of silence after which a comment is written.
        retry_ms: what the client is told to wait before it comes back, ± 20 %.
        write_timeout: seconds that one write may be blocked before the client is evicted.
        ids: ``"plain"``: ids are numbers; ``"epoch"``: they are ``<epoch>-<number>``,
            with which a native EventSource notices a restart; ``"auto"``: plain, unless
            the request says ``?ids=epoch``. Not for a gateway's subscription: its ids are
            cursors.
        drain: what ends the stream when the process is to stop; by default the one of
            the source, else the one in the application's lifespan state, if any.
        headers: further response headers.
        refusal: ``"status"`` refuses every client by the plain status.
        background: run after the stream's end.
        rng: draws from [0, 1), for jitter.
        clock: the time in seconds since 1970.

    Raises:
        TypeError: ``source`` is none of these.
        ValueError: a duration is not positive, or the channel's epoch has characters
            that may not stand in an id.
    """

    media_type = "text/event-stream"

    def __init__(
        self,
        source: Channel | StreamSource | WireSource,
        request: Request,
        *,
        max_queued: int | None = None,
        heartbeat: float = 15.0,
        retry_ms: int = 3000,
        write_timeout: float = 30.0,
        ids: Literal["auto", "plain", "epoch"] = "auto",
        drain: Drain | None = None,
        headers: Mapping[str, str] | None = None,
        refusal: RefusalForm = "auto",
        background: BackgroundTask | None = None,
        rng: Callable[[], float] = random.random,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if heartbeat <= 0 or write_timeout <= 0:
            raise ValueError("heartbeat and write_timeout must be positive, in seconds")
        self._opener = _opener(source, request, ids=ids, max_queued=max_queued)
        self._heartbeat = heartbeat
        self._retry_ms = retry_ms
        self._write_timeout = write_timeout
        self._drain = self._opener.drain if drain is None else drain
        self._refusal = refusal
        self._rng = rng
        self._clock = clock
        self.stream_id = uuid.uuid4().hex
        self.status_code = 200
        self.background = background
        # Without a body attribute Response adds no Content-Length.
        self.init_headers(
            {
                **{name.lower(): value for name, value in (headers or {}).items()},
                **SSE_HEADERS,
                **self._opener.headers,
                "tidegate-stream-id": self.stream_id,
            }
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request: the ASGI face of a response."""
        drain = drain_of(scope) if self._drain is None else self._drain
        if drain is not None and drain.draining:
            await self._refuse(scope, "draining", _DRAINING)(scope, receive, send)
        elif scope["method"] == "HEAD":
            await send(self._start())
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        else:
            await self._stream(scope, receive, send, drain)
        if self.background is not None:
            await self.background()

    async def _stream(
        self, scope: Scope, receive: Receive, send: Send, drain: Drain | None
    ) -> None:
        try:
            # Not before: a response that is never sent must not hold a place.
            opened = await self._opener.open()
        except OpeningRefused as refused:
            await self._refuse(scope, refused.kind, refused.error)(scope, receive, send)
            return
        except OpeningDenied as denied:
            answer = error_answer(denied.status, denied.code, denied.error)
            await answer(scope, receive, send)
            return
        feed = opened.feed
        # No suspension point from here to the try below.
        if drain is not None and drain.draining:
            # It has begun meanwhile and does not know of this stream.
            feed.abort()
            await self._refuse(scope, "draining", _DRAINING)(scope, receive, send)
            return
        if opened.stream_id is not None:
            self.stream_id = self.headers["tidegate-stream-id"] = opened.stream_id
        for name, value in opened.headers.items():
            self.headers[name] = value
        _log.debug("stream %s begins", self.stream_id)
        delivery = Delivery(
            feed,
            send,
            transport=transport_of(scope),
            name=self.stream_id,
            heartbeat=self._heartbeat,
            write_timeout=self._write_timeout,
            clock=self._clock,
        )
        retry = retry_bytes(jittered(0.8 * self._retry_ms, 1.2 * self._retry_ms, self._rng))
        listener = asyncio.get_running_loop().create_task(_listen(receive, delivery))
        if drain is not None:
            drain.add(delivery)
        try:
            await delivery.run(self._start(), retry)
        finally:
            # All that matters first, and without a suspension point: under cancellation
            # the await below may not get its turn.
            feed.abort()
            if drain is not None:
                drain.discard(delivery)
            listener.cancel()
            _log.debug("stream %s ends: %s", self.stream_id, feed.statistics())
            await asyncio.wait([listener])

    def _start(self) -> dict[str, Any]:
        return {
            "type": "http.response.start",
            "status": self.status_code,
            "headers": self.raw_headers,
        }

    def _refuse(self, scope: Scope, kind: StreamErrorKind, error: str) -> Response:
        return refuse(scope, kind, error, form=self._refusal, rng=self._rng, clock=self._clock)


def raw_cursor_of(request: Request) -> str | None:
    """Return what a request gives as its cursor, unchecked; ``None`` if nothing."""
    return given_cursor(_raw_header(request), request.query_params.get("lastEventId"))


def cursor_of(request: Request) -> Cursor:
    """Read a request's cursor; one that is none leaves a breadcrumb in the log."""
    cursor = parse_cursor(
        _raw_header(request),
        request.query_params.get("lastEventId"),
        epoch_header=request.headers.get("tidegate-epoch"),
        epoch_query=request.query_params.get("epoch"),
    )
    if cursor.rejected is not None:
        _log.warning("ignored a cursor that is none, live events only: %s", cursor.rejected)
    return cursor


def _raw_header(request: Request) -> bytes | None:
    headers: list[tuple[bytes, bytes]] = request.scope["headers"]
    return next((value for name, value in headers if name == b"last-event-id"), None)


def _opener(
    source: object,
    request: Request,
    *,
    ids: Literal["auto", "plain", "epoch"],
    max_queued: int | None,
) -> Opener:
    channel = source if isinstance(source, Channel) else getattr(source, "channel", None)
    if isinstance(channel, Channel):
        if ids == "auto":
            ids = "epoch" if request.query_params.get("ids") == "epoch" else "plain"
        return ChannelOpener(
            channel, cursor_of(request), with_epoch=ids == "epoch", max_queued=max_queued
        )
    if isinstance(source, WireSource):
        return WireOpener(source, raw_cursor_of(request), max_queued)
    raise TypeError(
        f"a stream's source must be or have a Channel, or be a gateway's subscription, "
        f"not {source!r}"
    )


async def _listen(receive: Receive, delivery: Delivery) -> None:
    """Wait for the client to go. Whatever else it sends is of no interest."""
    try:
        while (await receive())["type"] != "http.disconnect":
            pass
    except Exception:  # noqa: BLE001 - a server that cannot say whether the client is there
        _log.debug("receive() failed; the client counts as gone", exc_info=True)
    delivery.gone()
