"""A scripted HTTP server on real sockets, for what no decent server does on demand."""

from __future__ import annotations

import contextlib
import json
import random
import socket
import struct
import threading
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

from tidegate.sse import encode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = [
    "START",
    "Cutter",
    "Peer",
    "ScriptedServer",
    "control",
    "frame",
    "moving",
    "opened",
    "published",
    "scripted",
]

_REASONS = {200: "OK", 204: "No Content", 404: "Not Found", 503: "Service Unavailable"}


def frame(number: int, kind: str = "tick", data: Any = None, *, epoch: str = "e1") -> bytes:
    """An event as a session's stream has it with ``?ids=epoch``."""
    envelope = {"id": number, "v": 1, "type": kind, "data": number if data is None else data}
    return encode(id=f"{epoch}-{number}", event=kind, data=json.dumps(envelope))


def control(kind: str, **data: Any) -> bytes:
    """A control frame."""
    return encode(event=kind, data=json.dumps({"v": 1, "type": kind, "data": data}))


class Peer:
    """One request, and the means to answer it well or badly."""

    def __init__(self, sock: socket.socket, head: bytes, body: bytes) -> None:
        self.sock = sock
        lines = head.decode("latin-1").split("\r\n")
        self.method, self.target, _ = lines[0].split(" ")
        self.path = urlsplit(self.target).path
        self.query = dict(parse_qsl(urlsplit(self.target).query))
        fields = [line.partition(":") for line in lines[1:]]
        self.headers = {name.lower(): value.strip() for name, _, value in fields}
        self.body = body

    @property
    def cursor(self) -> str | None:
        """What the client wants to resume from."""
        return self.headers.get("last-event-id")

    def answer(self, status: int = 200, body: Any = b"", **headers: str) -> None:
        """Answer at once; anything but bytes goes out as JSON."""
        if not isinstance(body, bytes):
            body = json.dumps(body).encode()
            headers.setdefault("content_type", "application/json")
        self.head(status, content_length=str(len(body)), **headers)
        self.sock.sendall(body)

    def stream(self, *frames: bytes, **headers: str) -> None:
        """Send the head of a stream and its first frames."""
        headers.setdefault("content_type", "text/event-stream")
        self.head(200, transfer_encoding="chunked", **headers)
        for one in frames:
            self.write(one)

    def head(self, status: int, **headers: str) -> None:
        lines = [f"HTTP/1.1 {status} {_REASONS.get(status, 'Whatever')}", "Connection: close"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        self.sock.sendall("\r\n".join([*lines, "", ""]).encode("latin-1"))

    def write(self, data: bytes) -> None:
        """Write one chunk of the body."""
        self.sock.sendall(b"%x\r\n%s\r\n" % (len(data), data))

    def end(self) -> None:
        """End the body as it should end."""
        self.sock.sendall(b"0\r\n\r\n")

    def cut(self) -> None:
        """Reset the connection."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()

    def wait_gone(self) -> None:
        """Wait until the client has closed its side."""
        try:
            while self.sock.recv(4096):
                pass
        except ConnectionError:
            pass
        except TimeoutError:
            raise AssertionError("the client does not leave") from None


class ScriptedServer:
    """Runs ``script`` for each request, each in its own thread."""

    def __init__(self, script: Callable[[Peer], None], port: int = 0) -> None:
        self.script = script
        self.requests: list[Peer] = []
        self.open: set[socket.socket] = set()
        self.problems: list[Exception] = []
        self.listener = socket.create_server(("127.0.0.1", port))
        self.port: int = self.listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.session = f"{self.url}/session/a1"
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    def streams(self) -> list[Peer]:
        """The requests for a stream."""
        return [peer for peer in self.requests if peer.path.endswith("/events")]

    def close(self) -> None:
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for sock in list(self.open):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(20)
            assert not thread.is_alive(), "a script does not end"
        if self.problems:
            raise self.problems[0]

    def _start(self, target: Callable[..., None], *args: Any) -> None:
        thread = threading.Thread(target=target, args=args, name="scripted")
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return
            sock.settimeout(20)
            self.open.add(sock)
            self._start(self._serve, sock)

    def _serve(self, sock: socket.socket) -> None:
        try:
            data = b""
            while b"\r\n\r\n" not in data:
                more = sock.recv(65536)
                if not more:
                    return
                data += more
            head, _, body = data.partition(b"\r\n\r\n")
            peer = Peer(sock, head, body)
            while len(peer.body) < int(peer.headers.get("content-length", 0)):
                more = sock.recv(65536)
                if not more:
                    return
                peer.body += more
            self.requests.append(peer)
            self.script(peer)
        except (ConnectionError, TimeoutError):
            pass  # the client has left, as clients do
        except Exception as problem:  # noqa: BLE001 - raised again by close()
            self.problems.append(problem)
        finally:
            sock.close()
            self.open.discard(sock)


@contextlib.contextmanager
def scripted(script: Callable[[Peer], None], port: int = 0) -> Iterator[ScriptedServer]:
    """Run a scripted server until the block ends; what a script raises is raised there."""
    server = ScriptedServer(script, port)
    try:
        yield server
    finally:
        server.close()


class Cutter:
    """A session of ``events`` events; each stream of it is cut at a random byte, ``cuts`` times."""

    def __init__(self, events: int, cuts: int, seed: int) -> None:
        self.events = events
        self.cuts = cuts
        self.random = random.Random(seed)
        self.resumed_at: list[str | None] = []

    def __call__(self, peer: Peer) -> None:
        self.resumed_at.append(peer.cursor)
        after = int((peer.cursor or "e1-0").rpartition("-")[2])
        data = b"retry: 0\n\n" + b"".join(frame(n) for n in range(after + 1, self.events + 1))
        peer.stream()
        if self.cuts == 0:
            peer.write(data + frame(self.events + 1, "session_closed"))
            peer.end()
            return
        self.cuts -= 1
        whole = 2 * self.events // 50 * len(frame(self.events))
        data = data[: self.random.randrange(whole)]
        while data:
            size = self.random.randint(1, 500)
            peer.write(data[:size])
            data = data[size:]
        # A reset may take what was just sent with it; an end without the last chunk does not.
        self.random.choice([peer.cut, peer.end, lambda: None])()


START = "p00"
"""Where a scripted channel begins."""


def opened(*channels: str, position: str = START, **options: Any) -> bytes:
    """The first frame of a stream of channels."""
    start = {"epoch": "e1", "position": position, "recovered": False, "linked": True, **options}
    data = {
        "streamId": "s1",
        "node": "n1",
        "channels": dict.fromkeys(channels, start),
        "denied": {},
    }
    return moving("stream_open", f"c.{position}", **data)


def moving(kind: str, cursor: str, **data: Any) -> bytes:
    """A control frame that moves the cursor."""
    envelope = {"v": 1, "type": kind, "data": data, "_meta": {"serverTimestamp": 1}}
    return encode(id=cursor, event=kind, data=json.dumps(envelope))


def published(number: int, channel: str = "a", *, prev: str | None = None) -> bytes:
    """An event of a channel, at position ``pNN``, with a cursor that says the same."""
    envelope = {
        "id": f"p{number:02}",
        "v": 1,
        "type": "tick",
        "channel": channel,
        "epoch": "e1",
        "prev": f"p{number - 1:02}" if prev is None else prev,
        "data": number,
        "_meta": {"serverTimestamp": 1},
    }
    return encode(id=f"c.p{number:02}", event="tick", data=json.dumps(envelope))
