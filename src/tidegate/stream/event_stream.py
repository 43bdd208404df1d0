"""`EventStream`: a channel as the response of any Starlette or FastAPI route."""

from __future__ import annotations

import asyncio
import logging
import random
import time
import uuid
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

from starlette.responses import Response

from tidegate.channel import Channel
from tidegate.errors import SubscriberLimitExceeded
from tidegate.stream.cursor import Cursor, is_epoch, parse_cursor
from tidegate.stream.delivery import Delivery
from tidegate.stream.drain import Drain, drain_of
from tidegate.stream.feed import Feed
from tidegate.stream.frames import jittered, retry_bytes
from tidegate.stream.refusal import SSE_HEADERS, RefusalForm, refuse
from tidegate.stream.transport import transport_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from starlette.background import BackgroundTask
    from starlette.requests import Request
    from starlette.types import Receive, Scope, Send

__all__ = ["EXPOSED_HEADERS", "EventStream", "StreamSource", "cursor_of"]

EXPOSED_HEADERS: Final = ("Last-Event-ID", "Tidegate-Epoch", "Tidegate-Stream-Id")
"""Response headers that a browser shows to scripts of another origin only if told to."""

_log = logging.getLogger("tidegate.stream")


class StreamSource(Protocol):
    """What has a channel to stream, such as a session."""

    @property
    def channel(self) -> Channel:
        """The channel."""


class EventStream(Response):
    """Streams a channel to one client as Server-Sent Events, with resume.

    Return it from a route. The cursor is read from the request (``Last-Event-ID``, else
    ``?lastEventId=``); a client without one gets live events only. The client is
    subscribed when the response is sent and released when that ends, however it ends: at
    the channel's end, by eviction, disconnect, drain or cancellation.

    A client that cannot be served now (``max_subscribers``, a drain) is refused in the
    form that its kind understands; see `tidegate.stream.refusal.refuse`. ``HEAD`` gets
    the same head, and takes no place.

    Args:
        source: a `Channel`, or what has one as ``channel``.
        request: the request to answer.
        max_queued: live frames that may wait for this client; ``None``: as the channel
            says.
        heartbeat: seconds of silence after which a comment is written.
        retry_ms: what the client is told to wait before it comes back, ± 20 %.
        write_timeout: seconds that one write may be blocked before the client is evicted.
        ids: ``"plain"``: ids are numbers; ``"epoch"``: they are ``<epoch>-<number>``,
            with which a native EventSource notices a restart; ``"auto"``: plain, unless
            the request says ``?ids=epoch``.
        drain: what ends the stream when the process is to stop; by default the one in
            the application's lifespan state, if any.
        headers: further response headers.
        refusal: ``"status"`` refuses every client by the plain status.
        background: run after the stream's end.
        rng: draws from [0, 1), for jitter.
        clock: the time in seconds since 1970.

    Raises:
        TypeError: ``source`` neither is nor has a channel.
        ValueError: a duration is not positive, or the channel's epoch has characters
            that may not stand in an id.
    """

    media_type = "text/event-stream"

    def __init__(
        self,
        source: Channel | StreamSource,
        request: Request,
        *,
        max_queued: int | None = 256,
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
        channel = source if isinstance(source, Channel) else getattr(source, "channel", None)
        if not isinstance(channel, Channel):
            raise TypeError(f"a stream's source must be or have a Channel, not {source!r}")
        if heartbeat <= 0 or write_timeout <= 0:
            raise ValueError("heartbeat and write_timeout must be positive, in seconds")
        if not is_epoch(channel.epoch):
            raise ValueError("an epoch that goes into ids must be 1 to 128 of A-Z a-z 0-9 . _ ~ -")
        self._channel = channel
        self._cursor = cursor_of(request)
        if ids == "auto":
            ids = "epoch" if request.query_params.get("ids") == "epoch" else "plain"
        self._prefix = f"{channel.epoch}-".encode("ascii") if ids == "epoch" else b""
        self._max_queued = max_queued
        self._heartbeat = heartbeat
        self._retry_ms = retry_ms
        self._write_timeout = write_timeout
        self._drain = drain
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
                "tidegate-epoch": channel.epoch,
                "tidegate-stream-id": self.stream_id,
            }
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request: the ASGI face of a response."""
        drain = drain_of(scope) if self._drain is None else self._drain
        if drain is not None and drain.draining:
            error = "the server is shutting down; come back later"
            await self._refuse(scope, "draining", error)(scope, receive, send)
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
            subscription = self._channel.subscribe(
                last_event_id=self._cursor.last_event_id,
                epoch=self._cursor.epoch,
                max_queued=self._max_queued,
            )
        except SubscriberLimitExceeded as limit:
            await self._refuse(scope, "subscriber_limit", str(limit))(scope, receive, send)
            return
        if self._cursor.last_event_id is None:
            # Where a live stream starts: a client that is cut before its first event can
            # come back to this place, and misses nothing.
            start = b"%b%d" % (self._prefix, self._channel.last_event_id)
            self.raw_headers.append((b"last-event-id", start))
        _log.debug("stream %s of %r begins", self.stream_id, self._channel.name)
        delivery = Delivery(
            Feed(subscription, self._prefix),
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
            subscription.abort()
            if drain is not None:
                drain.discard(delivery)
            listener.cancel()
            _log.debug("stream %s ends: %s", self.stream_id, subscription.statistics())
            await asyncio.wait([listener])

    def _start(self) -> dict[str, Any]:
        return {
            "type": "http.response.start",
            "status": self.status_code,
            "headers": self.raw_headers,
        }

    def _refuse(
        self, scope: Scope, kind: Literal["draining", "subscriber_limit"], error: str
    ) -> Response:
        return refuse(scope, kind, error, form=self._refusal, rng=self._rng, clock=self._clock)


def cursor_of(request: Request) -> Cursor:
    """Read a request's cursor; one that is none leaves a breadcrumb in the log."""
    headers: list[tuple[bytes, bytes]] = request.scope["headers"]
    cursor = parse_cursor(
        next((value for name, value in headers if name == b"last-event-id"), None),
        request.query_params.get("lastEventId"),
        epoch_header=request.headers.get("tidegate-epoch"),
        epoch_query=request.query_params.get("epoch"),
    )
    if cursor.rejected is not None:
        _log.warning("ignored a cursor that is none, live events only: %s", cursor.rejected)
    return cursor


async def _listen(receive: Receive, delivery: Delivery) -> None:
    """Wait for the client to go. Whatever else it sends is of no interest."""
    try:
        while (await receive())["type"] != "http.disconnect":
            pass
    except Exception:  # noqa: BLE001 - a server that cannot say whether the client is there
        _log.debug("receive() failed; the client counts as gone", exc_info=True)
    delivery.gone()
