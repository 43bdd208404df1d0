"""Chromium's own EventSource, with no code of ours in the page, against a real server."""

from __future__ import annotations

import signal

import httpx
import pytest

from tests.browser.watched import Watched
from tests.integration.proxy import cursors, proxy_to
from tests.integration.support import numbered, serve_sessions
from tests.servers import eventually, serve_process

pytestmark = [pytest.mark.browser, pytest.mark.server]

TYPES = (
    "tick",
    "replay_complete",
    "state_resync_required",
    "slow_client_warning",
    "client_evicted",
    "stream_error",
    "session_closed",
)


@pytest.fixture
def watched(page):
    return Watched(page, TYPES)


@pytest.fixture
def service():
    with serve_sessions() as service:
        yield service


@pytest.fixture
def proxy(service):
    """In front of the server: the page and its stream come from here."""
    with proxy_to(service.address) as proxy:
        yield proxy


@pytest.fixture
async def http(service):
    async with httpx.AsyncClient(base_url=service.url, timeout=20, trust_env=False) as client:
        yield client


async def publish(http, session, first, last, **data):
    answer = await http.post(f"/session/{session}/events", json=numbered(first, last, **data))
    assert answer.status_code == 202


# -- cuts ----------------------------------------------------------------------------------


@pytest.mark.parametrize("ids", ["plain", "epoch"])
async def test_after_each_cut_it_goes_on_where_it_was(service, proxy, http, watched, ids):
    epoch = service.create("cut")
    # The first by a reset within the head. (One that ends there as if it were whole is
    # taken for an answer of another content type, which is final.) The others behind it.
    proxy.cut_streams([40, *(500 + 337 * n % 4000 for n in range(1, 20))])
    await watched.open(proxy.url, f"/session/cut/events?lastEventId=0&ids={ids}")
    for first in range(1, 801, 20):
        await publish(http, "cut", first, first + 19)
        await watched.until_tick(first)  # not to the last of them: it is never at rest
    await watched.until_tick(800)
    prefix = f"{epoch}-" if ids == "epoch" else ""
    assert watched.ids == [f"{prefix}{n}" for n in range(1, 801)]
    assert [event["data"]["n"] for event in watched.of_type("tick")] == [*range(1, 801)]
    assert not watched.of_type("state_resync_required")
    assert proxy.cuts == 20
    # It was the browser that resumed: each request names the last event of the one before.
    given = [cursor for cursor in cursors(proxy) if cursor is not None]
    assert len(given) >= 10
    assert [int(cursor.removeprefix(prefix)) for cursor in given] == sorted(
        int(cursor.removeprefix(prefix)) for cursor in given
    )


async def test_a_reset_by_the_server_is_resumed_too(service, proxy, http, watched):
    service.create("reset")
    await watched.open(proxy.url, "/session/reset/events?lastEventId=0&ids=epoch&maxQueued=16")
    await watched.until_type("replay_complete")
    proxy.stall()
    number = 0
    while service.subscribers("reset"):
        number += 1
        assert number < 2000, "a stalled browser is not cut"
        await publish(http, "reset", number, number, text="x" * 16384)
    proxy.flow()
    await publish(http, "reset", number + 1, number + 5)
    await watched.until_tick(number + 5)
    assert [event["data"]["n"] for event in watched.of_type("tick")] == [*range(1, number + 6)]
    assert len(proxy.requests) >= 2


async def test_the_start_in_the_url_counts_until_there_is_a_cursor(service, proxy, http, watched):
    epoch = service.create("start")
    await publish(http, "start", 1, 5)
    await watched.open(proxy.url, f"/session/start/events?lastEventId={epoch}-2&ids=epoch")
    await watched.until_type("replay_complete")
    assert watched.ids == [f"{epoch}-{n}" for n in (3, 4, 5)]
    await publish(http, "start", 6, 7)
    await watched.until_tick(7)
    assert proxy.cut() >= 1
    await publish(http, "start", 8, 9)
    await watched.until_tick(9)
    # The URL still says 2; the header says better.
    assert watched.ids == [f"{epoch}-{n}" for n in range(3, 10)]
    assert cursors(proxy) == [None, f"{epoch}-7"]
    assert all(f"lastEventId={epoch}-2" in head for head in proxy.requests)


async def test_a_cut_before_the_first_event_loses_nothing(service, proxy, http, watched):
    epoch = service.create("early")
    await publish(http, "early", 1, 2)
    await watched.open(proxy.url, f"/session/early/events?lastEventId={epoch}-2&ids=epoch")
    await watched.until_type("replay_complete")
    assert watched.ids == []
    proxy.down()
    await watched.until_state("connecting")
    await publish(http, "early", 3, 6)
    proxy.up()
    await watched.until_tick(6)
    assert watched.ids == [f"{epoch}-{n}" for n in range(3, 7)]
    assert not watched.of_type("state_resync_required")
    assert set(cursors(proxy)) == {None}


async def test_events_before_the_ring_are_said_to_be_gone(watched):
    with serve_sessions(ring_size=100) as service, proxy_to(service.address) as proxy:
        epoch = service.create("ring")
        async with httpx.AsyncClient(base_url=service.url, timeout=20, trust_env=False) as http:
            await publish(http, "ring", 1, 1)
            await watched.open(proxy.url, "/session/ring/events?lastEventId=0&ids=epoch")
            await watched.until_tick(1)
            proxy.down()
            await watched.until_state("connecting")
            await publish(http, "ring", 2, 200)
            proxy.up()
            await watched.until_tick(200)
    [resync] = watched.of_type("state_resync_required")
    assert resync["data"] == {
        "reason": "ring_evicted",
        "lastDeliveredId": 1,
        "earliestAvailableId": 101,
    }
    assert watched.ids == [f"{epoch}-{n}" for n in (1, *range(101, 201))]


# -- restarts ------------------------------------------------------------------------------


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL], ids=lambda how: how.name)
async def test_a_restart_is_seen_and_every_event_of_the_new_life_comes_once(watched, how):
    async with httpx.AsyncClient(timeout=20, trust_env=False) as http:

        async def begin(server, last):
            http.base_url = str(server)
            created = await http.post("/session", json={"sessionId": "life"})
            assert created.status_code == 201
            await publish(http, "life", 1, last)
            return created.json()["epoch"]

        with serve_process() as server, proxy_to(server.address) as proxy:
            first_life = await begin(server, 5)
            await watched.open(proxy.url, "/session/life/events?lastEventId=0&ids=epoch")
            await watched.until_tick(5)
            # Nobody answers until the session is there again: one that is unknown would be
            # final for an EventSource.
            proxy.refuse()
            server.process.send_signal(how)
            await watched.until_state("connecting")
            server.process.wait(20)
            with serve_process(port=server.address[1]) as restarted:
                assert str(restarted) == str(server)
                # More than the old life had: a number alone would pass for one of this life.
                second_life = await begin(restarted, 8)
                proxy.up()
                await watched.until_tick(8)
                await publish(http, "life", 9, 10)
                await watched.until_tick(10)
    assert second_life != first_life
    assert watched.ids == [
        *(f"{first_life}-{n}" for n in range(1, 6)),
        *(f"{second_life}-{n}" for n in range(1, 11)),
    ]
    [resync] = watched.of_type("state_resync_required")
    assert resync["data"] == {
        "reason": "epoch_reset",
        "detail": "epoch_mismatch",
        "lastDeliveredId": 5,
        "earliestAvailableId": 1,
    }
    # It stands between the two lives.
    order = [event["cursor"] if "id" in event else event["type"] for event in watched.seen]
    assert order.index("state_resync_required") == order.index(f"{second_life}-1") - 1
    said = [event["data"]["errorKind"] for event in watched.of_type("stream_error")]
    assert said == (["draining"] if how == signal.SIGTERM else [])


# -- refusals, evictions and ends ----------------------------------------------------------


async def test_over_the_limit_it_is_told_why_and_comes_back_by_itself(watched):
    # The least patience that is asked for: 10 s.
    with (
        serve_sessions(max_subscribers=1, rng=lambda: 0.0) as service,
        proxy_to(service.address) as proxy,
    ):
        service.create("full")
        taken = service.call(service.sessions.get("full").channel.subscribe)
        await watched.open(proxy.url, "/session/full/events?lastEventId=0&ids=epoch")
        await watched.until_type("stream_error")
        [refusal] = watched.of_type("stream_error")
        assert refusal["data"]["errorKind"] == "subscriber_limit"
        # To the browser that was an answer which has ended: it is not closed.
        await watched.until_state("connecting")
        assert watched.states == ["open", "connecting"]
        service.call(taken.abort)
        service.call(lambda: service.sessions.get("full").publish("tick", {"n": 1}))
        await watched.until_tick(1)
        assert watched.states == ["open", "connecting", "open"]
        assert len(proxy.requests) == 2


async def test_an_unknown_session_is_final(proxy, watched):
    await watched.open(proxy.url, "/session/nobody/events?ids=epoch")
    await watched.until_state("closed")
    assert watched.states == ["closed"]
    assert len(proxy.requests) == 1


async def test_the_end_of_a_session_is_said_and_final(service, proxy, http, watched):
    epoch = service.create("end")
    await publish(http, "end", 1, 2)
    await watched.open(proxy.url, "/session/end/events?lastEventId=0&ids=epoch")
    await watched.until_type("replay_complete")
    assert (await http.delete("/session/end")).status_code == 204
    # It comes back once, as it does after every end, and finds that there is nothing.
    await watched.until_state("closed")
    assert watched.states == ["open", "connecting", "closed"]
    assert watched.ids == [f"{epoch}-{n}" for n in (1, 2, 3)]
    assert watched.seen[-1]["type"] == "session_closed"
    assert cursors(proxy) == [None, f"{epoch}-3"]


async def test_an_evicted_page_reads_that_and_resumes(service, proxy, http, watched):
    epoch = service.create("burst")
    await watched.open(proxy.url, "/session/burst/events?maxQueued=16&ids=epoch")
    await watched.until_state("open")
    await eventually(lambda: service.subscribers("burst") == 1)
    await publish(http, "burst", 1, 64)  # within one turn of the server's loop
    await watched.until_tick(64)
    assert watched.ids == [f"{epoch}-{n}" for n in range(1, 65)]
    [evicted] = watched.of_type("client_evicted")
    assert evicted["data"]["reason"] == "queue_overflow"
    assert evicted["data"]["firstDroppedId"] == 18
    assert len(watched.of_type("slow_client_warning")) == 1
    assert cursors(proxy) == [None, f"{epoch}-17"]
