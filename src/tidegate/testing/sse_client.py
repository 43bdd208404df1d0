"""A small client of event streams, for tests: of an ASGI app in this process, or of a URL."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol
from urllib.parse import unquote

from tidegate.errors import MissingExtra, NotAnEventStream, StreamRefused
from tidegate.sse import Decoder

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping

__all__ = ["SseClient", "SseEvent", "SseStream"]

_CHUNKS: Final = 64
_END_SECONDS: Final = 5.0
_MAX_BODY: Final = 65536


class SseEvent(NamedTuple):
    """One event of a stream.

    Attributes:
        type: its type.
        data: what its data is as JSON; the text itself where it is none.
        id: the last event id in force; ``""`` if there is none.
    """

    type: str
    data: Any
    id: str


class _Response(Protocol):
    """A response that has begun."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]: ...

    def chunks(self) -> AsyncIterator[bytes]: ...


class SseStream:
    """One response that is an event stream; iterate it once.

    Attributes:
        status: 200.
        headers: of the response, their names in lower case.
        retry: the last ``retry:`` that came, in milliseconds, or ``None``.
        last_event_id: what a next stream would resume from; ``""`` if there is nothing.
    """

    def __init__(self, response: _Response, last_event_id: str) -> None:
        self.status = response.status
        self.headers = dict(response.headers)
        self._decoder = Decoder(last_event_id=last_event_id)
        self._events = self._read(response)

    @property
    def retry(self) -> int | None:
        """The last ``retry:`` that came, in milliseconds."""
        return self._decoder.retry

    @property
    def last_event_id(self) -> str:
        """What a next stream would resume from."""
        return self._decoder.last_event_id

    def __aiter__(self) -> AsyncGenerator[SseEvent, None]:
        return self._events

    async def take(self, n: int, *, timeout: float = 5.0) -> list[SseEvent]:  # noqa: ASYNC109
        """Return the next ``n`` events.

        Args:
            n: how many.
            timeout: seconds to wait for all of them.

        Raises:
            AssertionError: the stream ended before, or not all came in time; it shows those
                that did.
        """
        taken: list[SseEvent] = []
        try:
            async with asyncio.timeout(timeout):
                while len(taken) < n:
                    taken.append(await anext(self._events))
        except (StopAsyncIteration, TimeoutError) as error:
            what = "in time" if isinstance(error, TimeoutError) else "before the stream ended"
            shown = "".join(f"\n  {event.type} {event.data!r}" for event in taken)
            raise AssertionError(f"{len(taken)} of {n} events came {what}{shown}") from None
        return taken

    async def _read(self, response: _Response) -> AsyncGenerator[SseEvent, None]:
        async for chunk in response.chunks():
            for event in self._decoder.feed(chunk):
                yield SseEvent(event.type, _decoded(event.data), event.id)


class SseClient:
    """Opens event streams of an ASGI app in this process, without a socket, or of a base URL.

    An app's lifespan is not run: start what it needs before, as with ``async with gateway``.
    It keeps the last cursor of nothing: pass ``cursor=`` to resume. To be used in one event loop.

    Args:
        target: an ASGI app, or a URL such as ``http://127.0.0.1:8000``; that needs httpx.
        headers: sent with each request.
    """

    def __init__(
        self, target: Callable[..., Any] | str, *, headers: Mapping[str, str] = {}
    ) -> None:
        self._target = target
        self._headers = {"accept": "text/event-stream", **_lower(headers)}

    @asynccontextmanager
    async def stream(
        self, path: str, *, cursor: str | None = None, headers: Mapping[str, str] = {}
    ) -> AsyncIterator[SseStream]:
        """Open a stream, and end it with the block.

        Args:
            path: with its query.
            cursor: sent as ``Last-Event-ID``.
            headers: for this request.

        Raises:
            StreamRefused: the status is not 200.
            NotAnEventStream: the content type is another one.
            MissingExtra: the target is a URL, and httpx is not installed.
        """
        sent = self._headers | _lower(headers)
        if cursor is not None:
            sent["last-event-id"] = cursor
        opened = (
            _open_url(self._target + path, sent)
            if isinstance(self._target, str)
            else _open_app(self._target, path, sent)
        )
        async with opened as response:
            await _check(response)
            stream = SseStream(response, cursor or "")
            try:
                yield stream
            finally:
                await aiter(stream).aclose()

    async def events(
        self, path: str, *, cursor: str | None = None, headers: Mapping[str, str] = {}
    ) -> AsyncGenerator[SseEvent, None]:
        """Iterate over a stream's events; see `stream`. Close it if you leave it before its end."""
        async with self.stream(path, cursor=cursor, headers=headers) as stream:
            async for event in stream:
                yield event

    async def collect(
        self,
        path: str,
        n: int,
        *,
        cursor: str | None = None,
        headers: Mapping[str, str] = {},
        timeout: float = 5.0,  # noqa: ASYNC109
    ) -> list[SseEvent]:
        """Open a stream, return its first ``n`` events and end it; see `SseStream.take`."""
        async with self.stream(path, cursor=cursor, headers=headers) as stream:
            return await stream.take(n, timeout=timeout)


def _decoded(data: str) -> Any:
    try:
        return json.loads(data)
    except ValueError:
        return data


def _lower(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


async def _check(response: _Response) -> None:
    if response.status != 200:
        body = b""
        async for chunk in response.chunks():
            body += chunk
            if len(body) > _MAX_BODY:
                break
        answer = _decoded(body.decode("utf-8", "replace"))
        if not isinstance(answer, dict):
            answer = {"error": str(answer)}
        raise StreamRefused(response.status, answer.get("code"), str(answer.get("error")))
    content_type = response.headers.get("content-type", "")
    if content_type.partition(";")[0].strip().lower() != "text/event-stream":
        raise NotAnEventStream(content_type)


# -- an app in this process ------------------------------------------------------------------


class _AppResponse:
    """What an ASGI app sends, as it comes."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self._begun = asyncio.Event()
        self._chunks: asyncio.Queue[bytes | None] = asyncio.Queue(_CHUNKS)
        self._asked = False
        self._gone = asyncio.Event()

    async def receive(self) -> dict[str, Any]:
        if not self._asked:
            self._asked = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Mapping[str, Any]) -> None:
        if self._gone.is_set():
            # As a server does: what is sent to one who has gone is dropped.
            await asyncio.sleep(0)
            return
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {
                name.decode("latin-1").lower(): value.decode("latin-1")
                for name, value in message.get("headers", [])
            }
            self._begun.set()
        elif message["type"] == "http.response.body":
            if message.get("body"):
                await self._put(message["body"])
            if not message.get("more_body"):
                await self._put(None)

    async def _put(self, chunk: bytes | None) -> None:
        putting = asyncio.ensure_future(self._chunks.put(chunk))
        leaving = asyncio.ensure_future(self._gone.wait())
        try:
            await asyncio.wait((putting, leaving), return_when=asyncio.FIRST_COMPLETED)
        finally:
            putting.cancel()
            leaving.cancel()

    async def begun(self, running: Awaitable[None]) -> None:
        """Wait for the head; raises what the app does before it."""
        beginning = asyncio.ensure_future(self._begun.wait())
        ended = asyncio.ensure_future(running)
        try:
            await asyncio.wait((beginning, ended), return_when=asyncio.FIRST_COMPLETED)
            if not self._begun.is_set():
                await ended
                raise AssertionError("the app returned without a response")
        finally:
            beginning.cancel()

    def ended(self) -> None:
        """The app has returned: nothing more comes."""
        if self._chunks.full():
            self._chunks.get_nowait()
        self._chunks.put_nowait(None)

    def leave(self) -> None:
        """The client goes away."""
        self._gone.set()

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        while (chunk := await self._chunks.get()) is not None:
            yield chunk


@asynccontextmanager
async def _open_app(
    app: Callable[..., Any], path: str, headers: Mapping[str, str]
) -> AsyncIterator[_AppResponse]:
    response = _AppResponse()
    raw_path, _, query = path.partition("?")
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": unquote(raw_path),
        "raw_path": raw_path.encode("ascii"),
        "query_string": query.encode("ascii"),
        "root_path": "",
        "headers": [(b"host", b"testserver")]
        + [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()],
        "client": ("127.0.0.1", 1),
        "server": ("testserver", 80),
        "state": {},
        "extensions": {},
    }

    async def run() -> None:
        try:
            await app(scope, response.receive, response.send)
        finally:
            response.ended()

    running = asyncio.ensure_future(run())
    try:
        await response.begun(running)
        yield response
    finally:
        response.leave()
        done, _ = await asyncio.wait([running], timeout=_END_SECONDS)
        if not done:
            running.cancel()
            await asyncio.wait([running])
        # It is the cause of whatever the block met.
        if not running.cancelled() and (error := running.exception()) is not None:
            raise error


# -- a URL --------------------------------------------------------------------------------------


class _UrlResponse:
    def __init__(self, response: Any) -> None:
        self.status: int = response.status_code
        self.headers: Mapping[str, str] = response.headers
        self._response = response

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        async for chunk in self._response.aiter_raw():
            yield chunk


@asynccontextmanager
async def _open_url(url: str, headers: Mapping[str, str]) -> AsyncIterator[_UrlResponse]:
    try:
        import httpx  # noqa: PLC0415 - only who gives a URL needs it
    except ImportError as error:
        raise MissingExtra("httpx", "client") from error
    limits = httpx.Timeout(5.0, read=None)
    async with (
        httpx.AsyncClient(timeout=limits, trust_env=False) as client,
        client.stream("GET", url, headers={**headers, "accept-encoding": "identity"}) as response,
    ):
        yield _UrlResponse(response)
