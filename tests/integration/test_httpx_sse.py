"""httpx-sse, a client of another house, through cuts and restarts."""

from __future__ import annotations

import asyncio
import json
import random
from contextlib import aclosing

import httpx
import pytest
from httpx_sse import aconnect_sse

from tests.integration.proxy import proxy_to
from tests.integration.support import numbered, serve_sessions
from tests.servers import eventually, serve_process

pytestmark = pytest.mark.server

# What other readers take for ends of lines, and characters of two, three and four bytes.
TEXT = "é\u2028€\x0b\x85😀"


class Reader:
    """Reads a session's stream as the README of httpx-sse shows it, and comes back after cuts.

    Attributes:
        last_id: the id of the last event, to resume after it.
        epoch: what the last response said of its epoch.
        events: the type, the id and the envelope of all that came, over all connections.
    """

    def __init__(self, client, url, last_id, *, send_epoch):
        self._client = client
        self._url = url
        self._send_epoch = send_epoch
        self.last_id = last_id
        self.epoch = None
        self.events = []

    async def until(self, wanted, n=None):
        """Read until an event of a type has come, with this number in its data if one is given."""
        while True:
            headers = {"Last-Event-ID": self.last_id}
            if self._send_epoch and self.epoch is not None:
                headers["Tidegate-Epoch"] = self.epoch
            try:
                async with aconnect_sse(self._client, "GET", self._url, headers=headers) as source:
                    self.epoch = source.response.headers["Tidegate-Epoch"]
                    async with aclosing(source.aiter_sse()) as stream:
                        async for sse in stream:
                            if sse.data:  # it makes events of comments and of ``retry`` too
                                self.take(sse)
                                envelope = self.events[-1][2]
                                found = n is None or envelope["data"].get("n") == n
                                if sse.event == wanted and found:
                                    return
            except httpx.TransportError:
                pass
            # The loop's turn: what cuts the next stream is in another thread.
            await asyncio.sleep(0)

    def take(self, sse):
        envelope = json.loads(sse.data)
        assert envelope["type"] == sse.event
        self.events.append((sse.event, sse.id, envelope))
        if "id" in envelope:
            self.last_id = sse.id

    @property
    def ids(self):
        """The ids of the events, without the control frames."""
        return [id_ for _, id_, envelope in self.events if "id" in envelope]

    def of_type(self, wanted):
        return [envelope for kind, _, envelope in self.events if kind == wanted]


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("ids", ["", "?ids=epoch"])
async def test_a_cut_stream_is_resumed_exactly(ids, seed):
    rng = random.Random(seed)
    with serve_sessions() as service, proxy_to(service.address) as proxy:
        epoch = service.create("cut")
        proxy.cut_streams([rng.randrange(1, 4000) for _ in range(20)])
        proxy.split = rng.randrange(1, 100)  # also within a character
        async with (
            asyncio.timeout(40),
            httpx.AsyncClient(base_url=service.url, timeout=20, trust_env=False) as http,
            asyncio.TaskGroup() as group,
        ):
            url = f"{proxy.url}/session/cut/events{ids}"
            reader = Reader(http, url, "0", send_epoch=not ids)
            reading = group.create_task(reader.until("tick", 500))
            for first in range(1, 501, 10):
                events = numbered(first, first + 9, text=TEXT)
                await http.post("/session/cut/events", json=events)
                # It is never far behind: most cuts are in live streams.
                await eventually(lambda seen=first - 20: reading.done() or len(reader.ids) >= seen)
        prefix = f"{epoch}-" if ids else ""
        assert reader.ids == [f"{prefix}{n}" for n in range(1, 501)]
        assert {kind for kind, _, _ in reader.events} <= {"tick", "replay_complete"}
        ticks = reader.of_type("tick")
        assert [tick["data"] for tick in ticks] == [{"n": n, "text": TEXT} for n in range(1, 501)]
        assert proxy.cuts == 20


async def test_a_restart_is_seen_as_a_new_epoch():
    async with (
        asyncio.timeout(50),
        httpx.AsyncClient(timeout=20, trust_env=False) as http,
    ):
        with serve_process() as first_life:
            port = first_life.address[1]
            url = f"{first_life}/session/life"
            await http.post(f"{first_life}/session", json={"sessionId": "life"})
            await http.post(f"{url}/events", json=numbered(1, 5))
            plain = Reader(http, f"{url}/events", "0", send_epoch=True)
            epochs = Reader(http, f"{url}/events?ids=epoch", "0", send_epoch=False)
            readers = [plain, epochs]
            for reader in readers:
                await reader.until("tick", 5)
            first_epoch = plain.epoch
            assert plain.ids == ["1", "2", "3", "4", "5"]
            assert epochs.ids == [f"{first_epoch}-{n}" for n in range(1, 6)]
            # They came back, and are reading, when the server is told to stop.
            farewells = [asyncio.ensure_future(r.until("stream_error")) for r in readers]
            await eventually(lambda: all(r.of_type("replay_complete") for r in readers))
            assert await asyncio.to_thread(first_life.terminate) == 0
            await asyncio.gather(*farewells)
        with serve_process(port=port) as second_life:
            assert str(second_life) == str(first_life)
            await http.post(f"{second_life}/session", json={"sessionId": "life"})
            # More than the old life had: a number alone would pass for one of this life.
            await http.post(f"{url}/events", json=numbered(1, 8))
            for reader in readers:
                assert reader.of_type("stream_error")[-1]["data"]["errorKind"] == "draining"
                reader.events.clear()
                await reader.until("replay_complete")
            await http.post(f"{url}/events", json=numbered(9, 9))
            for reader in readers:
                await reader.until("tick", 9)
    assert plain.epoch != first_epoch
    assert plain.ids == [str(n) for n in range(1, 10)]
    assert epochs.ids == [f"{plain.epoch}-{n}" for n in range(1, 10)]
    for reader in readers:
        kinds = [kind for kind, _, _ in reader.events]
        assert kinds[0] == "state_resync_required"
        assert reader.of_type("state_resync_required")[0]["data"] == {
            "reason": "epoch_reset",
            "detail": "epoch_mismatch",
            "lastDeliveredId": 5,
            "earliestAvailableId": 1,
        }
