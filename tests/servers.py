"""Real servers for tests: in a thread, or in a process of their own."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Self

import httpx
import uvicorn

from tidegate.stream import DetachProtocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = [
    "ServedApp",
    "ServedProcess",
    "eventually",
    "open_stream",
    "read_to_end",
    "read_until",
    "serve_app",
    "serve_command",
    "serve_process",
    "unchunked",
    "wait_until",
]

SOURCE = Path(__file__).parents[1] / "src"


def wait_until(condition: Callable[[], object], seconds: float = 20.0) -> None:
    """Poll until the condition holds; fail when it does not within the time."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s: {condition}"
        time.sleep(0.005)


async def eventually(condition: Callable[[], object], seconds: float = 20.0) -> None:
    """Poll until the condition holds, giving the event loop its turns."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s: {condition}"
        await asyncio.sleep(0.005)


class ServedApp(str):
    """The base URL of an app that runs under uvicorn in a thread, and how to reach its loop."""

    __slots__ = ("address", "loop", "server")

    address: tuple[str, int]
    loop: asyncio.AbstractEventLoop
    server: uvicorn.Server

    def __new__(
        cls, address: tuple[str, int], server: uvicorn.Server, loop: asyncio.AbstractEventLoop
    ) -> Self:
        served = super().__new__(cls, f"http://{address[0]}:{address[1]}")
        served.address = address
        served.server = server
        served.loop = loop
        return served

    def call(self, function: Callable[[], Any]) -> Any:
        """Call a function, or await what it returns, in the server's loop."""

        async def run() -> Any:
            result = function()
            return await result if asyncio.iscoroutine(result) else result

        return asyncio.run_coroutine_threadsafe(run(), self.loop).result(30)


class _Server(uvicorn.Server):
    """uvicorn's server, which tells when it has started."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = threading.Event()
        self.loop: asyncio.AbstractEventLoop | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.loop = asyncio.get_running_loop()
        self.ready.set()


@contextmanager
def serve_app(
    app: Any,
    *,
    http: Any = DetachProtocol,
    loop: str = "uvloop",
    listener: socket.socket | None = None,
) -> Iterator[ServedApp]:
    """Run an ASGI app under uvicorn in a thread, on a free port of 127.0.0.1.

    Yields the base URL, a `ServedApp`. At the end open responses have a second to end.
    """
    if listener is None:
        listener = socket.create_server(("127.0.0.1", 0))
        # As the product's own server: a socket is full before megabytes are in it.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 64 * 1024)
    address = listener.getsockname()
    config = uvicorn.Config(
        app, http=http, loop=loop, log_config=None, access_log=False, timeout_graceful_shutdown=1
    )
    server = _Server(config)
    thread = threading.Thread(target=server.run, args=([listener],), name="uvicorn")
    thread.start()
    try:
        wait_until(lambda: server.ready.is_set() or not thread.is_alive())
        assert server.loop is not None, "the server did not start"
        yield ServedApp(address, server, server.loop)
    finally:
        server.should_exit = True
        thread.join(30)
        listener.close()
        assert not thread.is_alive(), "the server did not stop"


class _Reader(threading.Thread):
    """Reads what a process writes, all the time: a full pipe would stop it."""

    def __init__(self, stream: IO[str]) -> None:
        super().__init__()
        self.stream = stream
        self.lines: list[str] = []
        self.start()

    def run(self) -> None:
        for line in self.stream:
            self.lines.append(line)


class ServedProcess(str):
    """The base URL of a server process, and the process."""

    __slots__ = ("_reader", "address", "process")

    address: tuple[str, int]
    process: subprocess.Popen[str]
    _reader: _Reader

    def __new__(cls, port: int, process: subprocess.Popen[str], reader: _Reader) -> Self:
        served = super().__new__(cls, f"http://127.0.0.1:{port}")
        served.address = ("127.0.0.1", port)
        served.process = process
        served._reader = reader
        return served

    @property
    def lines(self) -> list[str]:
        """What it wrote so far, to stdout and stderr; all of it once it has ended."""
        if self.process.poll() is not None:
            self._reader.join(10)
        return list(self._reader.lines)

    @property
    def output(self) -> str:
        """The same as one text."""
        return "".join(self.lines)

    def terminate(self, seconds: float = 20.0) -> int:
        """Send SIGTERM and return the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(seconds)


@contextmanager
def serve_command(
    *command: str,
    port: int | None = None,
    alive: str = "/healthz",
    env: dict[str, str] | None = None,
) -> Iterator[ServedProcess]:
    """Run a server process until the block ends, and wait until it answers.

    Args:
        command: the program and its arguments.
        port: where it listens; by default it is read from the first URL that it prints.
        alive: the path that answers when it is up.
        env: additions to the environment.
    """
    environment = {
        **os.environ,
        "PYTHONUNBUFFERED": "1",
        "PYTHONPATH": os.pathsep.join([str(SOURCE), str(SOURCE.parent)]),
        **(env or {}),
    }
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
        start_new_session=True,
    )
    assert process.stdout is not None
    reader = _Reader(process.stdout)
    try:
        if port is None:
            wait_until(lambda: _port(reader.lines) or process.poll() is not None)
            port = _port(reader.lines)
        assert port is not None, f"it did not start: {''.join(reader.lines)}"
        url = f"http://127.0.0.1:{port}{alive}"
        wait_until(lambda: process.poll() is not None or _answers(url))
        assert process.poll() is None, f"it did not start: {''.join(reader.lines)}"
        yield ServedProcess(port, process, reader)
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(10)
        reader.join(10)
        process.stdout.close()


def serve_process(
    *args: str, port: int | None = None, env: dict[str, str] | None = None
) -> AbstractContextManager[ServedProcess]:
    """Run ``python -m tidegate serve`` with these arguments; see `serve_command`.

    Without a ``port`` it takes a free one.
    """
    return serve_command(
        sys.executable,
        "-m",
        "tidegate",
        "serve",
        "--port",
        str(port or 0),
        *args,
        port=port,
        env=env,
    )


def open_stream(
    address: tuple[str, int], path: str, *headers: str, receive_buffer: int | None = None
) -> socket.socket:
    """Ask for a stream over a bare socket and return that, nothing read yet.

    Args:
        address: of the server.
        path: of the stream.
        headers: further request lines, as ``"Name: value"``.
        receive_buffer: the size of the socket's receive buffer, for a client that stalls.
    """
    sock = socket.socket()
    sock.settimeout(20)
    if receive_buffer is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    sock.connect(address)
    lines = [f"GET {path} HTTP/1.1", f"Host: {address[0]}:{address[1]}", *headers, "", ""]
    sock.sendall("\r\n".join(lines).encode())
    return sock


def read_until(client: socket.socket, text: bytes, seconds: float = 20.0) -> bytes:
    """Receive until ``text`` has come, and return all; fail when the connection ends first."""
    client.settimeout(seconds)
    received = bytearray()
    while text not in received[-len(text) - 65536 :]:
        chunk = client.recv(65536)
        assert chunk, f"the connection ended before {text!r}: {bytes(received[-500:])!r}"
        received += chunk
    return bytes(received)


def read_to_end(client: socket.socket) -> bytes:
    """Receive until the peer has ended the connection in good order, and return all."""
    received = bytearray()
    while chunk := client.recv(65536):
        received += chunk
    return bytes(received)


def unchunked(response: bytes) -> bytes:
    """Take head and chunked encoding off a response, as far as it was read."""
    _, _, rest = response.partition(b"\r\n\r\n")
    body = b""
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        body += rest[: int(size, 16)]
        rest = rest[int(size, 16) + 2 :]
    return body


def _port(lines: list[str]) -> int | None:
    found = re.search(r"http://[^:/\s]+:(\d+)", "".join(lines))
    return int(found[1]) if found else None


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=5, trust_env=False).status_code == 200
    except httpx.TransportError:
        return False
