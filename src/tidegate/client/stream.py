"""Read a stream with asyncio: `connect`."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import random as random_module
from typing import TYPE_CHECKING, Final, Self

from tidegate.client.core import Step, StreamCore
from tidegate.client.face import StreamFace
from tidegate.client.reconnect import DEFAULT_RETRY, Verdict
from tidegate.client.selection import Selection
from tidegate.client.transport import checked_url, failed, httpx, problem_of, read_body, timeouts
from tidegate.errors import ChainBroken, ConcurrentConsumers

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
    from types import TracebackType

    from tidegate.client.events import StreamEvent
    from tidegate.client.state import StateCallback

__all__ = ["STALL_TIMEOUT", "ClientStream", "connect"]

STALL_TIMEOUT: Final = 45.0
"""Seconds without a byte, after which a stream is dead: the server writes some every 15 s."""

_NOT_ENTERED: Final = (
    "the stream was not entered, so nothing would close it; write: "
    "async with connect(url) as stream: async for event in stream: …"
)


def connect(
    url: str,
    *,
    channels: Iterable[str] | None = None,
    tail: int | None = None,
    from_beginning: bool = False,
    tags: Mapping[str, str] | None = None,
    token: str | None = None,
    get_token: Callable[[], str | Awaitable[str]] | None = None,
    last_event_id: int | str | None = None,
    epoch: str | None = None,
    max_queued: int | None = None,
    headers: Mapping[str, str] | None = None,
    client: httpx.AsyncClient | None = None,
    stall_timeout: float = STALL_TIMEOUT,
    retry: float = DEFAULT_RETRY,
    max_attempts: int | None = None,
    plain: bool = False,
    on_state: StateCallback | None = None,
    random: Callable[[], float] = random_module.random,
) -> ClientStream:
    """Follow a session's events for as long as it lives, over any number of connections.

    ::

        async with connect("http://127.0.0.1:8765/session/a1") as stream:
            async for event in stream:
                print(event.id, event.type, event.data)

    Entering opens the stream, and goes on trying where that may help: no connection, 5xx, 408, 429.
    Servers may refuse in the form of a stream that only says ``stream_error``, as browsers need it;
    that counts like the status, and is not handed out. If such an answer does not tell its length,
    it is the first event that goes on trying.
    A stream that breaks off or ends is opened again where it was, after the server's ``retry`` plus
    a random time up to 1 s, 2 s, 4 s, … 30 s. 204 and the end of the session end the iteration.
    What is final raises, at entering or at a later event: `StreamRefused` (401 after one new token,
    other 4xx), `NotAnEventStream`.

    With ``channels`` it follows channels of a gateway, in one stream::

        async with connect("http://127.0.0.1:8765", channels=["room:1", "user:7"]) as stream:
            async for event in stream:
                print(event.channel, event.type, event.data)

    Each of their events names its predecessor (``prev``), and what does not link, where the server
    does not skip events on purpose, raises `ChainBroken`: once, and whoever asks for the next event
    then goes on from the place before the gap, over a new connection. An event that comes again is
    not handed out again.

    Without ``last_event_id`` a new stream is live only, from where the server says that it begins.
    If it does not say so, what comes between the opening and a cut before the first event is lost.
    0 asks for everything there is in a session.

    Args:
        url: ``http://HOST/session/ID``, with or without ``/events``; with ``channels`` the
            server's base URL, with the path that a gateway is mounted below; or the URL of any
            other route that answers with a stream, taken as it is. Its query is kept.
        channels: names of channels; not needed where the URL is ``…/v1/stream?channel=…``.
        tail: a new stream of channels begins before the last so many events of each.
        from_beginning: a new stream of channels begins with the oldest events there are. Neither
            counts once there is a cursor.
        tags: of channels, only events that have all of these.
        token: sent as ``Authorization: Bearer``, never in the URL.
        get_token: called for a token when there is none, and once more after a 401; may be async.
            What it raises comes out here; the next event that is asked for calls it again.
        last_event_id: resume after this event: a number, or a cursor's text (``stream.cursor``);
            of channels always the latter.
        epoch: the epoch that goes with a number, so that a restart of the server is noticed.
        max_queued: how many events may wait on the server for this client. It is asked for only if
            the server's ``/capabilities`` name it; else a warning is logged.
        headers: more headers. ``Tidegate-Client-Id`` may be one.
        client: whose connections to use; it is not closed. Otherwise the stream has its own.
        stall_timeout: seconds without a byte, heartbeats included, before it is opened again.
        retry: seconds to wait, as long as the server has not named its own time.
        max_attempts: give up with `StreamUnavailable` after so many failed attempts in a row.
        plain: the stream is not Tidegate's: frames are handed over with their data as text.
        on_state: called with each `StreamState`, for a display.
        random: gives numbers from 0 up to 1.

    Raises:
        TypeError: an argument is of the wrong type.
        ValueError: one is out of range; for ``max_queued`` that is known only at entering.
    """
    selection = Selection.given(channels, tags, tail, from_beginning)
    core = StreamCore(
        checked_url(url),
        last_event_id=last_event_id,
        epoch=epoch,
        token=token,
        refreshable=get_token is not None,
        max_queued=max_queued,
        selection=selection if selection.says_anything else None,
        headers=headers,
        plain=plain,
        retry=retry,
        max_attempts=max_attempts,
        on_state=on_state,
        random=random,
    )
    return ClientStream(core, get_token=get_token, client=client, stall_timeout=stall_timeout)


class ClientStream(StreamFace):
    """One logical stream: an async context manager, and its own iterator. Made by `connect`.

    Leaving a loop does not close it: a later ``async for`` goes on with the next event. The cursor
    moves when the consumer comes back for the next event, so an event that was being handled when
    the process died is sent again: at least once, and exactly once in one process.

    A cancelled ``anext`` loses nothing: what was under way goes on, on the same connection, and the
    next ``anext`` has it. So ``asyncio.timeout`` around it is a way to poll. Leaving the context
    stops all that is under way and closes the response at once. Only one task may iterate.

    Nothing is read while nobody asks for an event; the server sees a slow client.
    """

    def __init__(
        self,
        core: StreamCore,
        *,
        get_token: Callable[[], str | Awaitable[str]] | None,
        client: httpx.AsyncClient | None,
        stall_timeout: float,
    ) -> None:
        super().__init__(core)
        self._get_token = get_token
        self._client = client
        self._owns_client = client is None
        self._timeouts = timeouts(stall_timeout)
        self._response: httpx.Response | None = None
        self._chunks: AsyncIterator[bytes] | None = None
        # The step that is under way. It is a task so that a cancelled consumer does not tear down
        # the connection; it is made by the consumer, seen by it, and ended by aclose().
        self._work: asyncio.Task[None] | None = None
        self._consuming = False

    async def __aenter__(self) -> Self:
        if self._entered:
            raise RuntimeError("a stream is entered once; call connect() again")
        self._entered = True
        try:
            while self._core.opening:
                await self._advance()
        except BaseException:
            await self.aclose()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> StreamEvent:
        if not self._entered:
            raise RuntimeError(_NOT_ENTERED)
        if self._consuming:
            raise ConcurrentConsumers
        self._consuming = True
        try:
            while True:
                event = self._core.take()
                if event is not None:
                    return event
                if self._core.step is Step.DONE:
                    raise StopAsyncIteration
                await self._advance()
        except ChainBroken:
            # Nothing waits here, so that a cancel cannot take the error's place. What was under
            # way had to be over before it was seen.
            self._work = asyncio.create_task(self._drop())
            raise
        finally:
            self._consuming = False

    async def reopen(
        self, last_event_id: int | str | None = None, epoch: str | None = None
    ) -> None:
        """Go on at another place, without a wait; what has come and was not handed out is dropped.

        The request goes out when the next event is asked for. Before the context is entered, this
        only sets where to begin.

        Raises:
            ConcurrentConsumers: another task waits for the next event.
            RuntimeError: the stream is closed.
            TypeError: ``last_event_id`` is of the wrong type.
            ValueError: it is out of range.
        """
        if self._consuming:
            raise ConcurrentConsumers
        if self._core.end_reason == "closed":
            raise RuntimeError("the stream is closed")
        cursor = self._core.given(last_event_id, epoch)
        await self._stop()
        self._core.reopen(cursor)

    async def aclose(self) -> None:
        """Stop what is under way, close the response, end the iteration. Idempotent.

        A task that waits for the next event gets the end of the iteration.
        """
        self._core.close()
        try:
            await self._stop()
        finally:
            if self._owns_client and self._client is not None:
                await self._client.aclose()

    async def _advance(self) -> None:
        work = self._work
        if work is None:
            work = self._work = asyncio.create_task(self._take_step())
        await asyncio.wait({work})
        if self._work is work:
            self._work = None
        if not work.cancelled():  # else aclose() took it away, and the step says what now
            work.result()

    async def _take_step(self) -> None:
        core = self._core
        match core.step:
            case Step.TOKEN if self._get_token is not None:
                token = self._get_token()
                core.got_token(await token if inspect.isawaitable(token) else token)
            case Step.WAIT:
                await asyncio.sleep(core.delay)
                core.waited()
            case Step.READ:
                await self._read()
            case _:
                await self._request()

    def _http(self) -> httpx.AsyncClient:
        if self._client is None:
            self._client = httpx.AsyncClient()
        return self._client

    async def _request(self) -> None:
        core, client = self._core, self._http()
        preflight = core.step is Step.PREFLIGHT
        request = core.request()
        try:
            response = await client.send(
                client.build_request(
                    request.method,
                    request.url,
                    headers=request.headers,
                    content=request.body,
                    timeout=self._timeouts,
                ),
                stream=True,
                follow_redirects=True,
            )
        except httpx.RequestError as error:
            failed(core, error)
            return
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(response.aclose)
            if preflight:
                try:
                    body = await read_body(response)
                except httpx.RequestError as error:
                    failed(core, error)
                    return
                core.got_capabilities(response.status_code, response.headers, body)
                return
            verdict = core.answered(response.status_code, response.headers)
            if verdict is Verdict.REFUSED:
                body = b""
                with contextlib.suppress(httpx.RequestError):
                    body = await read_body(response)
                raise core.refused(response.reason_phrase, body)
            if verdict is Verdict.OPEN:
                self._response, self._chunks = response, response.aiter_bytes()
                stack.pop_all()

    async def _read(self) -> None:
        core = self._core
        chunks = self._chunks
        try:
            chunk = None if chunks is None else await anext(chunks, None)
            if chunk is None:
                core.ended()
            else:
                core.feed(chunk)
        except httpx.RequestError as error:
            core.failed(problem_of(error))
        finally:
            if core.step is not Step.READ:
                await self._drop()

    async def _stop(self) -> None:
        work, self._work = self._work, None
        try:
            if work is not None:
                work.cancel()
                await asyncio.wait({work})
                if not work.cancelled():
                    work.exception()  # seen; whoever closes does not want it any more
        finally:
            await self._drop()

    async def _drop(self) -> None:
        response, self._response, self._chunks = self._response, None, None
        if response is not None:
            with contextlib.suppress(httpx.RequestError):
                await response.aclose()
