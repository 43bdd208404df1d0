"""A TCP proxy that stands between a client and a server, and cuts, stalls and splits on command."""

from __future__ import annotations

import asyncio
import re
import socket
import struct
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from tests.servers import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

__all__ = ["Proxy", "cursors", "proxy_to"]

_LINGER_ZERO = struct.pack("ii", 1, 0)
_STREAM = re.compile(rb"GET \S*/events[? ]|(GET|POST) \S*/v1/stream[? ]")


class _Link:
    """One connection of a client, and the one to the server that was made for it.

    Attributes:
        client: the writer to the client.
        server: the writer to the server.
        left: how many bytes of a stream the client still gets; ``None``: all of them.
    """

    def __init__(self, client: asyncio.StreamWriter, server: asyncio.StreamWriter) -> None:
        self.client = client
        self.server = server
        self.left: int | None = None

    def reset(self) -> None:
        """Let both sides see a reset."""
        _reset(self.client)
        _reset(self.server)


class Proxy:
    """Forwards TCP connections in a thread of its own. Its methods may be called from any thread.

    Attributes:
        target: the address of the server; another one counts for the next connections.
        address: where the proxy listens.
        url: the same as a URL.
        split: the most bytes that are written to a client at once; ``None``: as they come.
        requests: the heads of all requests for a stream, in order.
        cuts: how many connections were cut.
    """

    def __init__(self, target: tuple[str, int]) -> None:
        self.target = target
        self.split: int | None = None
        self.requests: list[str] = []
        self.cuts = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self._listener.getsockname()
        self.url = f"http://{self.address[0]}:{self.address[1]}"
        self._sizes: Iterator[int] = iter(())
        self._up = True
        self._links: set[_Link] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._problems: list[BaseException] = []
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), name="proxy")

    # -- what may be asked of it -----------------------------------------------------------

    @property
    def connections(self) -> int:
        """How many connections are open."""
        return len(self._links)

    def cut(self) -> int:
        """Reset every open connection, both sides of it, and return how many those were."""
        return self._call(self._cut)

    def cut_streams(self, sizes: Iterable[int]) -> None:
        """Cut each of the next streams after as many bytes of its answer, head included.

        They are reset in turn with being closed as if all were said; after the last size
        streams are let be.
        """
        self._call(lambda: setattr(self, "_sizes", iter(sizes)))

    def refuse(self) -> None:
        """Reset each new connection at once, until `up`; let the open ones be."""
        self._call(lambda: setattr(self, "_up", False))

    def down(self) -> None:
        """Reset every open connection, and each new one at once, until `up`."""
        self.refuse()
        self.cut()

    def up(self) -> None:
        """Let connections through again."""
        self._call(lambda: setattr(self, "_up", True))

    def stall(self) -> None:
        """Forward nothing to any client until `flow`."""
        self._call(self._flowing.clear)

    def flow(self) -> None:
        """Forward again."""
        self._call(self._flowing.set)

    # -- in the thread ---------------------------------------------------------------------

    def _call(self, function: Callable[[], Any]) -> Any:
        async def run() -> Any:
            return function()

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(20)

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._stop = asyncio.Event()
        server = await asyncio.start_server(self._accept, sock=self._listener)
        self._ready.set()
        await self._stop.wait()
        server.close()
        self._cut()
        while self._tasks:
            for task in self._tasks:
                task.cancel()
            await asyncio.wait(self._tasks)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = self._loop.create_task(self._forward(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._problems.append(task.exception())

    async def _forward(self, reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        if not self._up:
            _reset(client)
            return
        try:
            answers, server = await asyncio.open_connection(*self.target)
        except OSError:
            _reset(client)
            return
        link = _Link(client, server)
        if not self._up:  # since then
            link.reset()
            return
        self._links.add(link)
        ways = [
            self._loop.create_task(self._to_server(link, reader)),
            self._loop.create_task(self._to_client(link, answers)),
        ]
        try:
            # The first side that has ended, well or badly, ends the other one too.
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._links.discard(link)
            client.close()
            server.close()
            for way in ways:
                way.cancel()
            await asyncio.wait(ways)
        for way in ways:
            if not way.cancelled():
                way.result()

    async def _to_server(self, link: _Link, reader: asyncio.StreamReader) -> None:
        head = b""
        with suppress(OSError):
            while data := await reader.read(65536):
                head += data
                while b"\r\n\r\n" in head:
                    request, _, head = head.partition(b"\r\n\r\n")
                    if _STREAM.search(request):
                        self.requests.append(request.decode("latin-1"))
                        link.left = next(self._sizes, None)
                link.server.write(data)
                await link.server.drain()
        _reset(link.server)

    async def _to_client(self, link: _Link, answers: asyncio.StreamReader) -> None:
        try:
            while data := await answers.read(65536):
                await self._flowing.wait()
                piece = self.split or len(data)
                for start in range(0, len(data), piece):
                    if not await self._write(link, data[start : start + piece]):
                        return
        except OSError:
            _reset(link.client)

    async def _write(self, link: _Link, data: bytes) -> bool:
        """Write to the client; ``False``: it was cut."""
        cut = link.left is not None and link.left <= len(data)
        if link.left is not None:
            data = data[: link.left]
            link.left -= len(data)
        link.client.write(data)
        await link.client.drain()
        if cut:
            self.cuts += 1
            if self.cuts % 2:
                link.reset()
        return not cut

    def _cut(self) -> int:
        links = list(self._links)
        for link in links:
            link.reset()
        self.cuts += len(links)
        return len(links)

    # -- its life --------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to listen."""
        self._thread.start()
        wait_until(self._ready.is_set)

    def stop(self) -> None:
        """End all, and raise what went wrong."""
        self._call(self._stop.set)
        self._thread.join(20)
        assert not self._thread.is_alive(), "the proxy does not end"
        if self._problems:
            raise self._problems[0]


def _reset(writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        # Closed with a zero linger time a socket discards what is unsent and resets.
        writer.get_extra_info("socket").setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_ZERO
        )
    writer.transport.abort()


def cursors(proxy: Proxy) -> list[str | None]:
    """The ``Last-Event-ID`` of each request for a stream, in order; ``None`` without."""
    found = [re.search(r"(?im)^last-event-id: ([^\r]*)", head) for head in proxy.requests]
    return [match and match[1] for match in found]


@contextmanager
def proxy_to(target: tuple[str, int]) -> Iterator[Proxy]:
    """Run a proxy in front of a server until the block ends."""
    proxy = Proxy(target)
    proxy.start()
    try:
        yield proxy
    finally:
        proxy.stop()
