"""Measure what streams promise, against a real server, and print the figures.

Starts ``tidegate serve`` on a free port and talks to it with bare sockets and curl. Ends
with 1 if a promise is broken. Figures depend on the machine; the promises leave room.
"""

from __future__ import annotations

import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path

import httpx

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.servers import (
    ServedProcess,
    open_stream,
    read_to_end,
    read_until,
    serve_process,
    wait_until,
)

STREAMS = 100
ROUNDS = 20


class Report:
    """Prints figures beside their promises and remembers whether all were kept."""

    def __init__(self) -> None:
        self.kept = True

    def say(self, what: str, figure: float, promise: float, unit: str = "s") -> None:
        """Print one figure; it must be below its promise."""
        good = figure < promise
        self.kept &= good
        mark = "ok  " if good else "FAIL"
        print(f"{mark} {what}: {figure:.3f} {unit} (promised: under {promise:g} {unit})")

    def check(self, what: str, *, good: bool) -> None:
        """Print whether something holds."""
        self.kept &= good
        print(f"{'ok  ' if good else 'FAIL'} {what}")


def first_byte(url: ServedProcess, report: Report) -> None:
    """How long curl waits for the first byte of a silent stream."""
    times = []
    for _ in range(ROUNDS):
        command = ["curl", "-sN", "--max-time", "5", f"{url}/session/idle/events"]
        began = time.perf_counter()
        with subprocess.Popen(command, stdout=subprocess.PIPE) as curl:
            assert curl.stdout is not None
            first = curl.stdout.read(1)
            times.append(time.perf_counter() - began)
            assert first == b"r", first
            curl.terminate()
    report.say("first byte with curl -N, its start included, median", statistics.median(times), 0.2)


def head(url: ServedProcess, client: httpx.Client, report: Report) -> None:
    """Whether HEAD takes a place, and what the connection is good for afterwards."""
    with socket.create_connection(url.address, timeout=20) as sock:
        request = f"HEAD /session/idle/events HTTP/1.1\r\nHost: {url.address[0]}\r\n\r\n"
        sock.sendall(request.encode())
        answer = read_until(sock, b"\r\n\r\n")
        report.check("HEAD answers 200", good=answer.startswith(b"HTTP/1.1 200 "))
        report.check("HEAD takes no place", good=subscribers(client, "idle") == 0)
        sock.sendall(f"GET /healthz HTTP/1.1\r\nHost: {url.address[0]}\r\n\r\n".encode())
        report.check("after HEAD the connection is usable", good=b"alive" in read_until(sock, b"}"))


def disconnect(url: ServedProcess, client: httpx.Client, report: Report) -> None:
    """How long a client that left an idle stream keeps its place."""
    times = []
    for _ in range(ROUNDS):
        stream = open_stream(url.address, "/session/idle/events")
        read_until(stream, b"retry: ")
        stream.close()
        began = time.perf_counter()
        while subscribers(client, "idle"):
            pass
        times.append(time.perf_counter() - began)
    report.say("an idle stream's client has left, worst", max(times), 0.2)


def resets(url: ServedProcess, client: httpx.Client, report: Report) -> None:
    """Whether clients that reset before their first byte leave anything behind."""
    for _ in range(200):
        stream = open_stream(url.address, "/session/idle/events")
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        stream.close()
    wait_until(lambda: subscribers(client, "idle") == 0)
    report.check("200 connects reset before their first byte leave 0 subscribers", good=True)


def stop(url: ServedProcess, client: httpx.Client, report: Report) -> None:
    """How long SIGTERM takes with many open streams, one of them stalled."""
    stalled = open_stream(url.address, "/session/busy/events", receive_buffer=4096)
    read_until(stalled, b"retry: ")
    names = [f"s{number % 4}" for number in range(STREAMS - 1)]
    for name in sorted(set(names)):
        client.post("/session", json={"sessionId": name})
    streams = [open_stream(url.address, f"/session/{name}/events") for name in names]
    for stream in streams:
        read_until(stream, b"retry: ")
    for _ in range(10):
        client.post("/session/busy/events", json={"type": "m", "data": "x" * 100_000})
    began = time.perf_counter()
    url.process.terminate()
    farewells = 0
    for stream in streams:
        farewells += b'"errorKind":"draining"' in read_to_end(stream)
        stream.close()
    code = url.process.wait(20)
    seconds = time.perf_counter() - began
    report.say(f"SIGTERM with {STREAMS} streams, one stalled: the process has ended", seconds, 2)
    report.check(f"farewells seen: {farewells} of {len(streams)}", good=farewells == len(streams))
    report.check(f"exit code {code}", good=code == 0)
    try:
        read_to_end(stalled)
    except ConnectionResetError:
        report.check("the stalled client was reset", good=True)
    else:
        report.check("the stalled client was reset", good=False)
    stalled.close()


def subscribers(client: httpx.Client, session_id: str) -> int:
    """How many subscribers a session has."""
    sessions = client.get("/session").json()["sessions"]
    return next(int(s["subscribers"]) for s in sessions if s["sessionId"] == session_id)


def main() -> int:
    """Take all measurements and return the exit code."""
    report = Report()
    with (
        serve_process() as url,
        httpx.Client(base_url=str(url), trust_env=False, timeout=20) as client,
    ):
        for name in ("idle", "busy"):
            client.post("/session", json={"sessionId": name})
        first_byte(url, report)
        wait_until(lambda: subscribers(client, "idle") == 0)
        head(url, client, report)
        disconnect(url, client, report)
        resets(url, client, report)
        stop(url, client, report)
    return 0 if report.kept else 1


if __name__ == "__main__":
    sys.exit(main())
