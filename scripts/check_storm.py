"""Let 5,000 clients of one channel come back together, and print what that costs.

Starts a server, publishes, and opens 5,000 streams over bare sockets at once, each with a cursor
that the server's ring does not reach back to. The history must be read at most once in any 100 ms,
and every client must get exactly what it has missed, and what is published meanwhile. Ends with 1
if a promise is broken.
"""

from __future__ import annotations

import argparse
import re
import selectors
import socket
import sys
import time
from pathlib import Path

import httpx

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from scripts.check_stream import Report
from tests.integration.slow_link import Publisher, memory, shortest_pause
from tests.servers import ServedProcess, serve_command

CHANNEL = "room"
RING = 256
PLACES = 20
LIVE = 20
"""Events published meanwhile, spread over the storm by how many have caught up."""
TIMEOUT = 300.0

_NUMBER = re.compile(rb'"data":\{"n":(\d+)')


class Client:
    """One stream over a socket that does not block; checks the numbers of its events.

    Attributes:
        last: the number of the event that came last.
        wrong: what came that does not follow.
        head: the status line and headers have come, and say 200.
        complete: ``replay_complete`` has come.
        ended: the stream has ended.
    """

    __slots__ = ("_rest", "complete", "ended", "head", "last", "request", "socket", "wrong")

    def __init__(self, address: tuple[str, int], cursor: str, last: int) -> None:
        self.socket = socket.socket()
        self.socket.setblocking(False)
        self.socket.connect_ex(address)
        self.request = (
            f"GET /v1/stream?channel={CHANNEL} HTTP/1.1\r\nHost: {address[0]}:{address[1]}\r\n"
            f"Accept: text/event-stream\r\nLast-Event-ID: {cursor}\r\n\r\n"
        ).encode()
        self._rest = b""
        self.last = last
        self.wrong: list[int] = []
        self.head = self.complete = self.ended = False

    def read(self) -> None:
        """Take what has come."""
        try:
            data = self.socket.recv(65536)
        except BlockingIOError:
            return
        except ConnectionError:
            data = b""
        if not data:
            self.ended = True
            return
        data = self._rest + data
        self.head = self.head or data.startswith(b"HTTP/1.1 200 ")
        whole = data.rfind(b"\n\n") + 1
        frames, self._rest = data[:whole], data[whole:]
        for number in map(int, _NUMBER.findall(frames)):
            if number == self.last + 1:
                self.last = number
            else:
                self.wrong.append(number)
        self.complete = self.complete or b"event: replay_complete\n" in frames


class Storm:
    """All the clients, and the loop that serves them.

    Args:
        address: of the server.
        held: the cursors that they have, by the number of the event behind which that is.
        count: how many clients.

    Attributes:
        held: as given.
        clients: once they have been started.
        served: those that something was read for in the last turn.
    """

    def __init__(self, address: tuple[str, int], held: dict[int, str], count: int) -> None:
        self._selector = selectors.DefaultSelector()
        self.held = list(held.items())
        self._address = address
        self._count = count
        self.clients: list[Client] = []
        self.served: set[Client] = set()

    def start(self) -> None:
        """Connect them all."""
        for number in range(self._count):
            last, cursor = self.held[number % len(self.held)]
            client = Client(self._address, cursor, last)
            self._selector.register(client.socket, selectors.EVENT_WRITE, client)
            self.clients.append(client)

    def turn(self) -> None:
        """Serve those that have something to do; ``served`` are those that were."""
        self.served.clear()
        for key, events in self._selector.select(0.05):
            client: Client = key.data
            if events & selectors.EVENT_WRITE:
                try:
                    client.socket.send(client.request)
                except OSError:
                    client.ended = True
                self._selector.modify(client.socket, selectors.EVENT_READ, client)
            else:
                client.read()
                self.served.add(client)
            if client.ended:
                self._selector.unregister(client.socket)

    def close(self) -> None:
        """Leave."""
        for client in self.clients:
            client.socket.close()
        self._selector.close()


def storm(url: ServedProcess, client: httpx.Client, report: Report, count: int) -> None:
    """Let them come back, and say how it went."""
    publisher = Publisher(client, CHANNEL, pad=20)
    held = {}
    for _ in range(PLACES):
        publisher.send()
        held[publisher.last] = publisher.cursor()
    # One who stays holds the channel, and with it a ring that does not reach back to the cursors.
    with client.stream("GET", "/v1/stream", params={"channel": CHANNEL}):
        publisher.send(RING + 10)
        before = memory(url.process.pid)
        clients = Storm(url.address, held, count)
        try:
            run(clients, publisher, url.process.pid, before)
            judge(clients, publisher, report)
            figures = client.get("/figures").json()
        finally:
            clients.close()
    node = figures["node"]
    report.check(f"evictions: {node['evictions'] or 0}", good=not node["evictions"])
    report.check(f"resyncs: {node['resyncs'] or 0}", good=not node["resyncs"])
    print(f"     {len(figures['reads'])} history reads for {count:,} clients")
    spaced = shortest_pause(figures["reads"])
    report.check(f"shortest time between two of them: {spaced * 1000:.1f} ms", good=spaced >= 0.1)


def run(clients: Storm, publisher: Publisher, pid: int, before: int) -> None:
    """Connect all and read until each of them is live, while the channel goes on."""
    first = publisher.last
    began = time.perf_counter()
    clients.start()
    waiting = set(clients.clients)
    due = step = max(1, len(waiting) // LIVE)
    while waiting:
        assert time.perf_counter() < began + TIMEOUT, f"{len(waiting)} have not caught up in time"
        clients.turn()
        waiting -= {one for one in clients.served if one.complete or one.ended}
        while len(clients.clients) - len(waiting) >= due:
            due += step
            publisher.send()
    seconds = time.perf_counter() - began
    events = sum(publisher.last - number for number, _ in clients.held) // len(clients.held)
    count = len(clients.clients)
    print(
        f"     all {count:,} caught up with some {events:,} events in {seconds:.1f} s, "
        f"{count * events / seconds:,.0f} events/s, {publisher.last - first:,} live ones meanwhile"
    )
    print(f"     memory: {(memory(pid) - before) / count / 1024:.1f} KiB a client")
    publisher.send()
    waiting = {one for one in clients.clients if one.last < publisher.last and not one.ended}
    while waiting:
        assert time.perf_counter() < began + TIMEOUT, f"{len(waiting)} lack the last event"
        clients.turn()
        waiting -= {one for one in clients.served if one.last >= publisher.last or one.ended}


def judge(clients: Storm, publisher: Publisher, report: Report) -> None:
    """Say whether everybody got exactly what it had missed."""
    all_of_them = clients.clients
    good = [one for one in all_of_them if one.last == publisher.last and not one.wrong]
    report.check(
        f"got each event once, in order: {len(good):,} of {len(all_of_them):,}",
        good=len(good) == len(all_of_them),
    )
    ended = sum(one.ended for one in all_of_them)
    report.check(f"streams that ended: {ended}", good=not ended)
    report.check("all were answered with 200", good=all(one.head for one in all_of_them))


def main() -> int:
    """Run it and return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--clients", type=int, default=5000, help="how many (default 5,000)")
    asked = parser.parse_args()
    report = Report()
    command = [sys.executable, "-m", "tests.integration.counted_gateway"]
    with (
        serve_command(*command, "--history-size", "10000") as url,
        httpx.Client(base_url=str(url), trust_env=False, timeout=60) as client,
    ):
        storm(url, client, report, asked.clients)
    return 0 if report.kept else 1


if __name__ == "__main__":
    sys.exit(main())
