"""The first real job, end to end: what is published over HTTP reaches every client, in order."""

from __future__ import annotations

import asyncio
import json
from contextlib import ExitStack

import httpx
import pytest

from tests.integration.proxy import proxy_to
from tests.integration.support import RawReader, numbered, serve_sessions
from tests.servers import eventually, serve_process, wait_until
from tidegate.client import SessionPublisher, SessionView, connect, load_session

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def server():
    """The product as it is installed: a process of ``tidegate serve``."""
    with serve_process("--event-ring-size", "1000") as served:
        yield served


@pytest.fixture
def http(server):
    with httpx.Client(base_url=server, timeout=20, trust_env=False) as client:
        yield client


def publish(http, session, events):
    """Publish an event or an array of them and return the id of the last one."""
    answer = http.post(f"/session/{session}/events", json=events)
    assert answer.status_code == 202, answer.text
    return answer.json()["lastEventId"]


async def collect(stream, last):
    """Read a stream of the client up to the event of this number."""
    events = []
    async with asyncio.timeout(30):
        async for event in stream:
            events.append(event)
            if event.id == last:
                return events
    raise AssertionError(f"the stream ended before event {last}")


# -- publish and follow --------------------------------------------------------------------


async def test_what_is_published_over_http_reaches_all_clients_in_order(server):
    async with SessionPublisher(server, client_id="me:1") as publisher:
        await publisher.create("order")
        streams = [connect(f"{server}/session/order", headers={"X-N": str(n)}) for n in range(3)]
        with RawReader(server.address, "/session/order/events") as raw:
            async with streams[0], streams[1], streams[2]:
                await asyncio.to_thread(wait_until, lambda: subscribers(server, "order") == 4)
                reading = [asyncio.ensure_future(collect(stream, 400)) for stream in streams]
                for first in range(1, 200, 10):  # arrays
                    await publisher.publish("order", numbered(first, first + 9))
                for n in range(201, 401):  # one by one
                    await publisher.publish("order", numbered(n, n))
                received = await asyncio.gather(*reading)
            await asyncio.to_thread(raw.until, "tick", 400)
        for events in received:
            assert [(e.id, e.type, e.data, e.originator_client_id) for e in events] == [
                (n, "tick", {"n": n}, "me:1") for n in range(1, 401)
            ]
        # Every client is told the same, to the byte.
        assert raw.envelopes == [dict(event.envelope) for event in received[0]]
        assert raw.ids == [str(n) for n in range(1, 401)]


def subscribers(server, name):
    listed = httpx.get(f"{server}/session", timeout=20, trust_env=False).json()["sessions"]
    return next(s["subscribers"] for s in listed if s["sessionId"] == name)


def test_a_client_that_returns_gets_what_it_missed_and_then_what_is_live(server, http):
    http.post("/session", json={"sessionId": "return"})
    with RawReader(server.address, "/session/return/events") as reader:
        wait_until(lambda: subscribers(server, "return") == 1)
        publish(http, "return", numbered(1, 120))
        reader.until("tick", 120)
        epoch = reader.head.partition("tidegate-epoch: ")[2].partition("\r\n")[0]
    wait_until(lambda: subscribers(server, "return") == 0)
    publish(http, "return", numbered(121, 300))
    cursor = ("Last-Event-ID: 120", f"Tidegate-Epoch: {epoch}")
    with RawReader(server.address, "/session/return/events", *cursor) as reader:
        reader.until("replay_complete")
        publish(http, "return", numbered(301, 310))
        reader.until("tick", 310)
        assert reader.ids == [str(n) for n in range(121, 311)]
        assert reader.envelopes[180]["type"] == "replay_complete"
        assert reader.envelopes[180]["data"] == {"replayedCount": 180, "lastReplayedEventId": 300}
        assert not reader.of_type("state_resync_required")


def test_a_deleted_session_says_so_and_ends_its_streams(server, http):
    http.post("/session", json={"sessionId": "gone"})
    with ExitStack() as stack:
        readers = [
            stack.enter_context(RawReader(server.address, "/session/gone/events", *cursor))
            for cursor in ([], ["Last-Event-ID: 0"])
        ]
        wait_until(lambda: subscribers(server, "gone") == 2)
        publish(http, "gone", numbered(1, 3))
        assert http.delete("/session/gone").status_code == 204
        for reader in readers:
            reader.to_end()
            assert reader.ids == ["1", "2", "3", "4"]
            last = reader.envelopes[-1]
            assert (last["type"], last["data"]) == ("session_closed", {"reason": "deleted"})
    assert http.get("/session/gone/events").status_code == 404
    assert http.post("/session/gone/events", json=numbered(5, 5)).status_code == 404


async def test_the_client_stops_at_the_end_of_a_session(server, http):
    http.post("/session", json={"sessionId": "over"})
    publish(http, "over", numbered(1, 2))
    async with asyncio.timeout(30), connect(f"{server}/session/over", last_event_id=0) as stream:
        assert (await anext(stream)).data == {"n": 1}
        http.delete("/session/over")
        rest = [event.type async for event in stream]
    assert rest == ["tick", "replay_complete", "session_closed"]
    assert stream.end_reason == "session_closed"
    assert stream.statistics().connects == 1


# -- slow clients --------------------------------------------------------------------------

BIG = "x" * 8192


def test_a_stalled_client_is_warned_and_cut_and_loses_nothing():
    told = []
    with (
        serve_sessions(on_diagnostic=lambda *report: told.append(report)) as service,
        httpx.Client(base_url=service.url, timeout=20, trust_env=False) as http,
    ):
        service.create("slow")
        path = "/session/slow/events"
        published = 0

        def publish_until(kind):
            nonlocal published
            while not any(report[1] == kind for report in told):
                assert published < 2000, "a client that reads nothing is neither warned nor cut"
                published += 1
                publish(http, "slow", numbered(published, published, text=BIG))
                quick.until("tick", published)
            return next(report[2] for report in told if report[1] == kind)

        with (
            RawReader(service.address, path) as quick,
            RawReader(service.address, f"{path}?maxQueued=16", receive_buffer=4096) as slow,
        ):
            wait_until(lambda: service.subscribers("slow") == 2)
            warning = publish_until("slow_client_warning")
            assert warning == {
                "queueSize": 12,
                "queuedBytes": warning["queuedBytes"],
                "maxQueued": 16,
                "maxQueuedBytes": 2 * 1024 * 1024,
                "lastEventId": published,
                "threshold": "frames",
            }
            assert warning["queuedBytes"] > 12 * len(BIG)
            # It reads on: the warning stands where it was given, and nothing is missing.
            assert slow.until("slow_client_warning")["data"] == warning
            assert slow.ids == [str(n) for n in range(1, published + 1)]
            # It stalls again, for good.
            eviction = publish_until("client_evicted")
            assert eviction["reason"] == "queue_overflow"
            assert eviction["firstDroppedId"] == published
            assert service.subscribers("slow") == 1
            # Its socket was full: it is cut, though what had arrived can still be read.
            with pytest.raises(ConnectionResetError):
                slow.to_end()
            assert slow.ids == [str(n) for n in range(1, len(slow.ids) + 1)]
            # The other one got everything, and is told nothing of it.
            quick.until("tick", published)
            assert quick.ids == [str(n) for n in range(1, published + 1)]
            assert {envelope["type"] for envelope in quick.envelopes} == {"tick"}
        assert [report[:2] for report in told].count(("slow", "client_evicted")) == 1
        cursor = f"Last-Event-ID: {slow.ids[-1]}"
        with RawReader(service.address, path, cursor) as returned:
            returned.until("replay_complete")
        assert slow.ids + returned.ids == [str(n) for n in range(1, published + 1)]


def test_a_client_that_a_burst_overruns_reads_its_warning_and_its_eviction(server, http):
    http.post("/session", json={"sessionId": "burst"})
    path = "/session/burst/events"
    with (
        RawReader(server.address, path) as wide,
        RawReader(server.address, f"{path}?maxQueued=16") as narrow,
    ):
        wait_until(lambda: subscribers(server, "burst") == 2)
        publish(http, "burst", numbered(1, 64))  # within one turn of the server's loop
        narrow.to_end()
        wide.until("tick", 64)
        assert wide.ids == [str(n) for n in range(1, 65)]
        assert not wide.of_type("client_evicted")
    # The first was handed over, sixteen waited, the next was one too many.
    assert narrow.ids == [str(n) for n in range(1, 18)]
    [warning] = narrow.of_type("slow_client_warning")
    assert warning["data"]["lastEventId"] == 13
    evicted = narrow.envelopes[-1]
    assert evicted["type"] == "client_evicted"
    sizes = [
        len(json.dumps(envelope, separators=(",", ":")))
        for envelope in narrow.envelopes
        if 2 <= envelope.get("id", 0) <= 17
    ]
    assert evicted["data"] == {
        "reason": "queue_overflow",
        "queueSize": 16,
        "queuedBytes": sum(sizes),
        "maxQueued": 16,
        "maxQueuedBytes": 2 * 1024 * 1024,
        "firstDroppedId": 18,
    }
    with RawReader(server.address, path, "Last-Event-ID: 17") as returned:
        returned.until("replay_complete")
    assert narrow.ids + returned.ids == wide.ids


async def test_the_client_comes_back_by_itself_after_each_eviction():
    with serve_sessions() as service:
        service.create("evicted")
        url = f"{service.url}/session/evicted"
        async with (
            asyncio.timeout(40),
            connect(url, max_queued=16, random=lambda: 0.0) as stream,
            httpx.AsyncClient(base_url=service.url, timeout=20, trust_env=False) as http,
        ):
            events = []
            for first in range(1, 321, 64):
                answer = await http.post(
                    "/session/evicted/events", json=numbered(first, first + 63)
                )
                assert answer.status_code == 202
                async for event in stream:
                    events.append(event)
                    if event.id == first + 63:
                        break
        assert [event.id for event in events if event.id] == list(range(1, 321))
        kinds = [event.type for event in events]
        assert kinds.count("client_evicted") >= 1
        assert kinds.count("client_evicted") == stream.statistics().connects - 1


# -- state ---------------------------------------------------------------------------------


def add(total, event):
    return total + event.data["n"]


async def follow_to(view, states, number):
    """Follow a view up to the event of this number and return the states on the way."""
    seen = []
    async for state in states:
        seen.append(state)
        if view.place.number == number:
            return seen
    raise AssertionError(f"the view ended before event {number}")


async def test_a_view_loads_the_snapshot_when_the_ring_does_not_reach_back():
    with serve_sessions(ring_size=50) as service, proxy_to(service.address) as proxy:
        service.create("view")
        async with httpx.AsyncClient(base_url=service.url, timeout=20, trust_env=False) as http:
            await http.post("/session/view/events", json=numbered(1, 20))
            url = f"{proxy.url}/session/view"
            view = SessionView(lambda: load_session(url), add, initial=0)
            stream = connect(url, last_event_id=0, random=lambda: 0.0)
            async with asyncio.timeout(40), view.follow(stream) as states:
                await follow_to(view, states, 20)
                assert view.state == sum(range(21))

                proxy.down()
                for first in range(21, 201, 20):
                    await http.post("/session/view/events", json=numbered(first, first + 19))
                put = await http.put(
                    "/session/view/snapshot",
                    json={"state": sum(range(181)), "lastEventId": 180},
                )
                assert put.status_code == 204
                proxy.up()
                seen = await follow_to(view, states, 200)
                # The snapshot, and then what follows it, event by event.
                assert seen == [sum(range(n + 1)) for n in range(180, 201)]
                assert view.resyncs == 1
                assert view.last_resync.data == {
                    "reason": "ring_evicted",
                    "lastDeliveredId": 20,
                    "earliestAvailableId": 151,
                }
                assert view.complete
                assert not view.awaiting_resync

                # It is live again.
                await http.post("/session/view/events", json=numbered(201, 210))
                await follow_to(view, states, 210)
                assert view.state == sum(range(211))
                assert view.resyncs == 1


async def test_a_view_is_told_when_the_snapshot_is_older_than_the_ring():
    with serve_sessions(ring_size=50) as service, proxy_to(service.address) as proxy:
        service.create("old")
        async with httpx.AsyncClient(base_url=service.url, timeout=20, trust_env=False) as http:
            await http.post("/session/old/events", json=numbered(1, 20))
            put = {"state": sum(range(21)), "lastEventId": 20}
            await http.put("/session/old/snapshot", json=put)
            url = f"{proxy.url}/session/old"
            view = SessionView(lambda: load_session(url), add, initial=0)
            async with (
                asyncio.timeout(40),
                view.follow(connect(url, random=lambda: 0.0)) as states,
            ):
                assert await anext(states) == sum(range(21))
                await http.post("/session/old/events", json=numbered(21, 22))
                await follow_to(view, states, 22)
                proxy.down()
                for first in range(23, 203, 20):
                    await http.post("/session/old/events", json=numbered(first, first + 19))
                proxy.up()
                await follow_to(view, states, 202)
                # What is left is applied to what could be had, once, and said to be incomplete.
                assert view.state == sum(range(21)) + sum(range(153, 203))
                assert (view.complete, view.resyncs) == (False, 1)
        await eventually(lambda: proxy.connections == 0)
