"""Read a stream without an event loop: `connect_sync`."""

from __future__ import annotations

import contextlib
import random as random_module
import socket
import threading
from typing import TYPE_CHECKING, Final, Self

from tidegate.client.core import Step, StreamCore
from tidegate.client.face import StreamFace
from tidegate.client.reconnect import DEFAULT_RETRY, Verdict
from tidegate.client.selection import Selection
from tidegate.client.stream import STALL_TIMEOUT
from tidegate.client.transport import (
    checked_url,
    failed,
    httpx,
    problem_of,
    read_body_sync,
    timeouts,
)
from tidegate.errors import ChainBroken, ConcurrentConsumers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from types import TracebackType

    from tidegate.client.events import StreamEvent
    from tidegate.client.state import StateCallback

__all__ = ["SyncClientStream", "connect_sync"]

_NOT_ENTERED: Final = (
    "the stream was not entered, so nothing would close it; write: "
    "with connect_sync(url) as stream: for event in stream: …"
)


def connect_sync(
    url: str,
    *,
    channels: Iterable[str] | None = None,
    tail: int | None = None,
    from_beginning: bool = False,
    tags: Mapping[str, str] | None = None,
    token: str | None = None,
    get_token: Callable[[], str] | None = None,
    last_event_id: int | str | None = None,
    epoch: str | None = None,
    max_queued: int | None = None,
    headers: Mapping[str, str] | None = None,
    client: httpx.Client | None = None,
    stall_timeout: float = STALL_TIMEOUT,
    retry: float = DEFAULT_RETRY,
    max_attempts: int | None = None,
    plain: bool = False,
    on_state: StateCallback | None = None,
    random: Callable[[], float] = random_module.random,
) -> SyncClientStream:
    """Follow a session's events as `connect` does, without an event loop.

    ::

        with connect_sync("http://127.0.0.1:8765/session/a1") as stream:
            for event in stream:
                print(event.id, event.type, event.data)

    The arguments, and what is raised, are those of `connect`; ``get_token`` is a plain function and
    ``client`` an ``httpx.Client``. Nothing bounds how long entering goes on trying but
    ``max_attempts``, and `SyncClientStream.close` from another thread.
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
    return SyncClientStream(core, get_token=get_token, client=client, stall_timeout=stall_timeout)


class SyncClientStream(StreamFace):
    """One logical stream: a context manager, and its own iterator. Made by `connect_sync`.

    It does what `ClientStream` does. One thread iterates; any thread may `close`. It holds no
    thread and reads nothing while nobody asks for an event.
    """

    def __init__(
        self,
        core: StreamCore,
        *,
        get_token: Callable[[], str] | None,
        client: httpx.Client | None,
        stall_timeout: float,
    ) -> None:
        super().__init__(core)
        self._get_token = get_token
        self._client = client
        self._owns_client = client is None
        self._timeouts = timeouts(stall_timeout)
        self._response: httpx.Response | None = None
        self._chunks: Iterator[bytes] | None = None
        # Held by the thread that iterates, and by the one that cleans up after it.
        self._turn = threading.Lock()
        self._closing = threading.Event()

    def __enter__(self) -> Self:
        if self._entered:
            raise RuntimeError("a stream is entered once; call connect_sync() again")
        self._entered = True
        try:
            with self._my_turn():
                while self._core.opening and not self._closing.is_set():
                    self._take_step()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> StreamEvent:
        if not self._entered:
            raise RuntimeError(_NOT_ENTERED)
        with self._my_turn():
            while not self._closing.is_set():
                try:
                    event = self._core.take()
                except ChainBroken:
                    self._drop()
                    raise
                if event is not None:
                    return event
                if self._core.step is Step.DONE:
                    break
                self._take_step()
        raise StopIteration

    def reopen(self, last_event_id: int | str | None = None, epoch: str | None = None) -> None:
        """Go on at another place, without a wait; what has come and was not handed out is dropped.

        The request goes out when the next event is asked for. Before the context is entered, this
        only sets where to begin.

        Raises:
            ConcurrentConsumers: another thread waits for the next event.
            RuntimeError: the stream is closed.
            TypeError: ``last_event_id`` is of the wrong type.
            ValueError: it is out of range.
        """
        with self._my_turn():
            if self._closing.is_set():
                raise RuntimeError("the stream is closed")
            cursor = self._core.given(last_event_id, epoch)
            self._drop()
            self._core.reopen(cursor)

    def close(self) -> None:
        """Close the response and end the iteration. Idempotent, and safe from any thread.

        Where another thread waits for the next event, its connection is shut down, and that thread
        ends its iteration. One that is just connecting does so when the attempt is over.
        """
        self._closing.set()
        if self._turn.acquire(blocking=False):
            try:
                self._clean_up()
            finally:
                self._turn.release()
        else:
            self._shut_down()

    @contextlib.contextmanager
    def _my_turn(self) -> Iterator[None]:
        if not self._turn.acquire(blocking=False):
            if not self._closing.is_set():
                raise ConcurrentConsumers
            # Held by a thread that ends its iteration or cleans up; it is soon free.
            self._turn.acquire()
        try:
            yield
        finally:
            self._turn.release()
            # After the release: whoever set this before it could not clean up himself.
            if self._closing.is_set():
                self.close()

    def _clean_up(self) -> None:
        self._core.close()
        try:
            self._drop()
        finally:
            if self._owns_client and self._client is not None:
                self._client.close()

    def _shut_down(self) -> None:
        """Wake the thread that reads: what it waits for is then the end of the connection."""
        response = self._response
        stream = None if response is None else response.extensions.get("network_stream")
        raw = None if stream is None else stream.get_extra_info("socket")
        if raw is not None:
            with contextlib.suppress(OSError):
                raw.shutdown(socket.SHUT_RDWR)

    def _take_step(self) -> None:
        core = self._core
        match core.step:
            case Step.TOKEN if self._get_token is not None:
                core.got_token(self._get_token())
            case Step.WAIT:
                if not self._closing.wait(core.delay):
                    core.waited()
            case Step.READ:
                self._read()
            case _:
                self._request()

    def _http(self) -> httpx.Client:
        if self._client is None:
            self._client = httpx.Client()
        return self._client

    def _request(self) -> None:
        core, client = self._core, self._http()
        preflight = core.step is Step.PREFLIGHT
        request = core.request()
        try:
            response = client.send(
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
        with contextlib.ExitStack() as stack:
            stack.callback(response.close)
            if preflight:
                try:
                    body = read_body_sync(response)
                except httpx.RequestError as error:
                    failed(core, error)
                    return
                core.got_capabilities(response.status_code, response.headers, body)
                return
            verdict = core.answered(response.status_code, response.headers)
            if verdict is Verdict.REFUSED:
                body = b""
                with contextlib.suppress(httpx.RequestError):
                    body = read_body_sync(response)
                raise core.refused(response.reason_phrase, body)
            if verdict is Verdict.OPEN:
                self._response, self._chunks = response, response.iter_bytes()
                stack.pop_all()

    def _read(self) -> None:
        core = self._core
        chunks = self._chunks
        try:
            chunk = None if chunks is None else next(chunks, None)
            if chunk is None:
                core.ended()
            else:
                core.feed(chunk)
        except httpx.RequestError as error:
            if not self._closing.is_set():
                core.failed(problem_of(error))
        finally:
            if core.step is not Step.READ:
                self._drop()

    def _drop(self) -> None:
        response, self._response, self._chunks = self._response, None, None
        if response is not None:
            with contextlib.suppress(httpx.RequestError):
                response.close()
