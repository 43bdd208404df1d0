"""Sessions in a real server, and how to read their streams off a bare socket."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.responses import HTMLResponse
from starlette.routing import Route

from tests.servers import open_stream, serve_app
from tidegate.sessions import Sessions
from tidegate.sse import Decoder

if TYPE_CHECKING:
    import concurrent.futures
    import socket
    from collections.abc import Callable, Coroutine, Iterator

    from tests.servers import ServedApp
    from tidegate.sse import ServerSentEvent

__all__ = ["RawReader", "Service", "numbered", "serve_sessions"]


class Service:
    """An application with sessions, as a user would write it, that runs in a thread.

    Attributes:
        sessions: its sessions; they belong to the server's loop, see `call`.
        url: where it is.
        address: the same as an address.
    """

    def __init__(self, served: ServedApp, sessions: Sessions) -> None:
        self.sessions = sessions
        self.url = str(served)
        self.address = served.address
        self.call = served.call
        self._loop = served.loop

    def create(self, name: str) -> str:
        """Create a session and return its epoch."""
        return self.call(lambda: self.sessions.create(name).channel.epoch)

    def start(self, coroutine: Coroutine[Any, Any, Any]) -> concurrent.futures.Future[Any]:
        """Run a coroutine in the server's loop, and do not wait for it."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def soon(self, function: Callable[..., Any], *args: Any) -> None:
        """Call a function in the server's loop, and do not wait for it."""
        self._loop.call_soon_threadsafe(function, *args)

    def subscribers(self, name: str) -> int:
        """How many streams of a session are open."""
        return self.call(lambda: self.sessions.get(name).channel.statistics().subscribers)


@contextmanager
def serve_sessions(**options: Any) -> Iterator[Service]:
    """Run an application of sessions, with an empty page at ``/``, until the block ends.

    Clients are told to come back at once, if ``options`` do not say otherwise.
    """
    sessions = Sessions(**{"retry_ms": 1, **options})

    @asynccontextmanager
    async def lifespan(_: Starlette):
        async with sessions:
            yield

    async def page(_: Any) -> HTMLResponse:
        return HTMLResponse("<!doctype html><title>a page</title>")

    app = Starlette(routes=[Route("/", page), *sessions.routes], lifespan=lifespan)
    with serve_app(app) as served:
        yield Service(served, sessions)


def numbered(first: int, last: int, **data: Any) -> list[dict[str, Any]]:
    """Events of type ``tick`` whose data says their number, to be published."""
    return [{"type": "tick", "data": {"n": n, **data}} for n in range(first, last + 1)]


class RawReader:
    """A stream over a bare socket: reads when told to, and no byte more than it is given.

    Use it as a context manager; leaving closes the socket.

    Attributes:
        head: the head of the response, after the first frame was read.
        frames: all frames read so far, as they came.
        ended: the response has ended as it should.
    """

    def __init__(self, address: tuple[str, int], path: str, *headers: str, **options: Any) -> None:
        self._socket: socket.socket = open_stream(address, path, *headers, **options)
        self._decoder = Decoder()
        self._raw = b""
        self.head = ""
        self.frames: list[ServerSentEvent] = []
        self.ended = False

    def __enter__(self) -> RawReader:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    @property
    def envelopes(self) -> list[dict[str, Any]]:
        """What stood in the data of the frames read so far."""
        return [json.loads(frame.data) for frame in self.frames]

    @property
    def ids(self) -> list[str]:
        """The ids of the events read so far, without the control frames."""
        ids = zip(self.frames, self.envelopes, strict=True)
        return [frame.id for frame, envelope in ids if "id" in envelope]

    def of_type(self, wanted: str) -> list[dict[str, Any]]:
        """The envelopes of one type read so far."""
        return [envelope for envelope in self.envelopes if envelope["type"] == wanted]

    def until(self, wanted: str, n: int | None = None) -> dict[str, Any]:
        """Read until a frame of a type has come, with this number in its data if one is given."""
        while True:
            for envelope in self.of_type(wanted):
                if n is None or envelope["data"].get("n") == n:
                    return envelope
            assert self._more(), f"the stream ended without {wanted} {n or ''}: {self.envelopes}"

    def to_end(self) -> None:
        """Read until the response has ended as it should.

        Raises:
            ConnectionError: the connection was reset.
        """
        while self._more():
            pass

    def _more(self) -> bool:
        """Read some of the response; ``False``: that was its end."""
        if self.ended:
            return False
        data = self._socket.recv(65536)
        assert data, f"the connection ended within the response: {self._raw[-200:]!r}"
        self._raw += data
        if not self.head:
            head, found, rest = self._raw.partition(b"\r\n\r\n")
            if not found:
                return True
            self.head, self._raw = head.decode("latin-1").lower(), rest
            assert self.head.startswith("http/1.1 200 "), self.head
        while True:
            size, found, rest = self._raw.partition(b"\r\n")
            if not found or len(rest) < int(size, 16) + 2:
                return True
            self.frames += self._decoder.feed(rest[: int(size, 16)])
            self._raw = rest[int(size, 16) + 2 :]
            if int(size, 16) == 0:
                self.ended = True
                return False
