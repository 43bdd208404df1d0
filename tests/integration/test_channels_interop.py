"""Clients of other makes on ``/v1/stream``: several channels, through cuts."""

from __future__ import annotations

import asyncio
import random
from itertools import pairwise

import httpx
import pytest

from tests.integration.followers import (
    ROOMS,
    curl,
    fetch_event_source,
    fetch_event_source_by_post,
    following,
    httpx_sse,
    npm_eventsource,
)
from tests.integration.proxy import cursors, proxy_to
from tests.servers import eventually, serve_process

pytestmark = pytest.mark.server

EVENTS = 300
CUTS = 12
# What other readers take for ends of lines, and characters of two, three and four bytes.
TEXT = "é\u2028€\x0b\x85😀"


@pytest.fixture(scope="module")
def server():
    """The product as it is installed, but clients are told to come back soon."""
    with serve_process("--dev", env={"TIDEGATE__GATEWAY__RETRY_MS": "20"}) as server:
        yield server


@pytest.mark.parametrize(
    "make",
    [httpx_sse, npm_eventsource, fetch_event_source, fetch_event_source_by_post, curl],
    ids=lambda make: make.__name__,
)
async def test_cut_streams_of_three_channels_are_resumed_exactly(server, make):
    rng = random.Random(7)
    with proxy_to(server.address) as proxy:
        # Bytes, not frames: in the head, within a character, between two frames.
        proxy.cut_streams([rng.randrange(1, 8000) for _ in range(CUTS)])
        proxy.split = 97
        async with (
            asyncio.timeout(50),
            httpx.AsyncClient(base_url=str(server), timeout=20, trust_env=False) as http,
        ):
            for channel in ROOMS:  # of an earlier client
                assert (await http.delete(f"/v1/channels/{channel}/history")).status_code == 200
            published = {}
            async with following(make, proxy.url) as (follower, task):

                def seen(count):
                    assert not task.done()
                    return len(follower.ticks) >= count

                for first in range(1, EVENTS + 1, 10):
                    batch = [
                        {"channel": ROOMS[n % 3], "type": "tick", "data": {"n": n, "text": TEXT}}
                        for n in range(first, first + 10)
                    ]
                    answer = await http.post("/v1/publish", json=batch)
                    for event, result in zip(batch, answer.json()["results"], strict=True):
                        told = (result["id"], result["epoch"], event["data"])
                        published.setdefault(event["channel"], []).append(told)
                    # It is never far behind: most cuts are in live streams.
                    await eventually(lambda count=first - 20: seen(count))
                await eventually(lambda: seen(EVENTS))
                # What would come twice would have come by now.
                await http.post("/v1/publish", json={"channel": "room:1", "type": "tick"})
                await eventually(lambda: seen(EVENTS + 1))
                assert proxy.cuts == CUTS
    events = follower.by_channel
    assert events["room:1"].pop()[2] is None
    assert events == published
    kinds = {kind for kind, _, _ in follower.events}
    assert kinds == {"tick", "stream_open", "replay_complete"}
    # It came back by the id of the last frame that it had.
    ids = {id_ for _, id_, _ in follower.events}
    given = [cursor for cursor in cursors(proxy) if cursor is not None]
    assert len(given) >= CUTS // 2
    assert set(given) <= ids


@pytest.mark.parametrize("make", [npm_eventsource, fetch_event_source], ids=lambda m: m.__name__)
async def test_an_end_in_good_order_is_come_back_from(make, tmp_path):
    """A server that stops says so; its successor is asked for what follows."""
    arguments = ("--dev", "--data", str(tmp_path))
    env = {"TIDEGATE__GATEWAY__RETRY_MS": "500"}

    def publish(server, first, last):
        events = [{"channel": ROOMS[n % 3], "type": "tick", "data": n} for n in range(first, last)]
        httpx.post(f"{server}/v1/publish", json=events, trust_env=False).raise_for_status()

    async with asyncio.timeout(50):
        with serve_process(*arguments, env=env) as first_life:
            port = first_life.address[1]
            async with following(make, str(first_life)) as (follower, task):
                publish(first_life, 0, 30)
                await eventually(lambda: len(follower.ticks) >= 30 or task.done())
                assert await asyncio.to_thread(first_life.terminate) == 0
                with serve_process(*arguments, port=port, env=env) as second_life:
                    publish(second_life, 30, 60)
                    await eventually(lambda: len(follower.ticks) >= 60 or task.done())
    for number, channel in enumerate(ROOMS):
        found = [event for event in follower.ticks if event["channel"] == channel]
        assert [event["data"] for event in found] == list(range(number, 60, 3))
        assert all(event["prev"] == before["id"] for before, event in pairwise(found))
    errors = follower.of_type("stream_error")
    assert {error["data"]["errorKind"] for error in errors} == {"draining"}
