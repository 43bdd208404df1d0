"""A client of `tests.integration.counted_gateway` whose link is slow, and what a server keeps."""

from __future__ import annotations

import re
import time
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from tests.servers import open_stream

if TYPE_CHECKING:
    from collections.abc import Sequence

    import httpx

__all__ = ["Publisher", "SlowLink", "memory", "shortest_pause"]

_TYPE = re.compile(rb"^event: (.+)$", re.MULTILINE)
_NUMBER = re.compile(rb'"data":\{"n":(\d+)')


class Publisher:
    """Publishes events that are numbered from 1, over HTTP.

    Args:
        client: of the server.
        channel: where.
        pad: bytes that each event carries along.

    Attributes:
        last: the number of the newest one.
    """

    def __init__(self, client: httpx.Client, channel: str, pad: int = 100) -> None:
        self._client = client
        self._channel = channel
        self._pad = "x" * pad
        self.last = 0

    def send(self, count: int = 1) -> None:
        """Publish so many, in batches."""
        while count:
            batch = min(count, 1000)
            items = [
                {"channel": self._channel, "type": "m", "data": {"n": number, "pad": self._pad}}
                for number in range(self.last + 1, self.last + 1 + batch)
            ]
            answer = self._client.post("/v1/publish", json=items)
            results: list[dict[str, Any]] = answer.json()["results"]
            assert all("id" in result for result in results), answer.text[:500]
            self.last += batch
            count -= batch

    def cursor(self) -> str:
        """Return what a client holds that has had all there is."""
        with self._client.stream("GET", "/v1/stream", params={"channel": self._channel}) as opened:
            return opened.headers["last-event-id"]


class SlowLink:
    """A client that reads at a bounded rate, and checks that each event comes once, in order.

    Args:
        address: of the server.
        channel: of which channel.
        cursor: to go on from.
        last: the number of the event that it has had last.
        bytes_a_second: how fast its link is.

    Attributes:
        last: the number of the event that came last.
        received: bytes so far.
        types: of the control frames that came.
    """

    def __init__(
        self,
        address: tuple[str, int],
        channel: str,
        cursor: str,
        *,
        last: int,
        bytes_a_second: float,
    ) -> None:
        self._socket = open_stream(
            address,
            f"/v1/stream?channel={channel}",
            f"Last-Event-ID: {cursor}",
            receive_buffer=16 * 1024,
        )
        self._rate = bytes_a_second
        self._rest = b""
        self._began = time.monotonic()
        self.received = 0
        self.last = last
        self.types: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def read(self) -> None:
        """Read what the link lets through.

        Raises:
            AssertionError: the stream has ended, or what came is not what follows.
        """
        data = self._socket.recv(16 * 1024)
        assert data, f"the stream ended behind event {self.last}: {self._rest[-500:]!r}"
        self.received += len(data)
        early = self._began + self.received / self._rate - time.monotonic()
        if early > 0:
            time.sleep(early)
        *frames, self._rest = (self._rest + data).split(b"\n\n")
        for frame in frames:
            found = _TYPE.search(frame)
            if found is None:
                continue
            if found[1] != b"m":
                self.types.append(found[1].decode())
                continue
            number = _NUMBER.search(frame)
            assert number is not None, frame
            assert int(number[1]) == self.last + 1, f"event {number[1]!r} came behind {self.last}"
            self.last += 1


def memory(pid: int, what: str = "VmRSS") -> int:
    """Return the bytes of memory that a process has, or, with ``VmHWM``, had at most."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    found = re.search(rf"^{what}:\s+(\d+) kB$", status, re.MULTILINE)
    assert found is not None, status
    return int(found[1]) * 1024


def shortest_pause(times: Sequence[float]) -> float:
    """Return the least number of seconds between two times that follow each other."""
    return min((later - earlier for earlier, later in pairwise(times)), default=float("inf"))
