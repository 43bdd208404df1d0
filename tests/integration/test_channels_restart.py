"""Channels in a file, through kills of their server and through an older copy of the file."""

from __future__ import annotations

import asyncio
import shutil
import signal
from contextlib import AsyncExitStack

import httpx
import pytest

from tests.integration.followers import (
    ROOMS,
    curl,
    following,
    httpx_sse,
    npm_eventsource,
    python_client,
)
from tests.integration.proxy import proxy_to
from tests.servers import eventually, serve_process

pytestmark = pytest.mark.server

CLIENTS = (python_client, python_client, httpx_sse, httpx_sse, curl, npm_eventsource)
KILLS = 3
EVENTS = 320  # of each channel
BATCH = 5


class Server:
    """One life after the other of a server whose channels are in a folder, on one port."""

    def __init__(self, folder):
        self.folder = folder
        self._life = None
        self._served = None
        self._port = None

    @property
    def url(self):
        return str(self._served)

    @property
    def address(self):
        return self._served.address

    async def start(self):
        life = serve_process(
            "--dev",
            "--data",
            str(self.folder),
            port=self._port,
            env={"TIDEGATE__GATEWAY__RETRY_MS": "200"},
        )
        self._served = await asyncio.to_thread(life.__enter__)
        self._life = life
        self._port = self._served.address[1]

    async def end(self, how=signal.SIGTERM):
        life, self._life = self._life, None
        if life is not None:
            self._served.process.send_signal(how)
            await asyncio.to_thread(self._served.process.wait, 20)
            await asyncio.to_thread(life.__exit__, None, None, None)

    async def __aenter__(self):
        await self.start()
        return self

    async def __aexit__(self, *_):
        await self.end()


class Burst:
    """Publishers, one for each channel, that come again until they are told that it is stored.

    Attributes:
        acknowledged: by channel and number, where the event is stored.
        failures: how many requests got no answer.
    """

    def __init__(self, http):
        self._http = http
        self.acknowledged = {}
        self.failures = 0

    async def publish(self, channel):
        for first in range(1, EVENTS + 1, BATCH):
            numbers = range(first, first + BATCH)
            batch = [
                {"channel": channel, "type": "tick", "data": n, "idempotencyKey": f"key-{n}"}
                for n in numbers
            ]
            results = await self._until_answered(batch)
            for n, result in zip(numbers, results, strict=True):
                self.acknowledged[channel, n] = (result["id"], result["epoch"])

    async def _until_answered(self, batch):
        while True:
            try:
                answer = await self._http.post("/v1/publish", json=batch)
            except httpx.TransportError:
                self.failures += 1
                await asyncio.sleep(0.02)
            else:
                assert answer.status_code == 200, answer.text
                return answer.json()["results"]


async def history_of(http, channel):
    """All of a channel's history: the position, the epoch and the data of each event."""
    events, after = [], ""
    while True:
        answer = await http.get(
            f"/v1/channels/{channel}/history", params={"after": after, "limit": 100}
        )
        page = answer.json()
        events += page["events"]
        if page["complete"]:
            return [(event["id"], event["epoch"], event["data"]) for event in events]
        after = events[-1]["id"]


async def test_kills_in_a_burst_of_publishes_lose_nothing_that_was_acknowledged(tmp_path):
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(asyncio.timeout(55))
        server = await stack.enter_async_context(Server(tmp_path))
        http = await stack.enter_async_context(
            httpx.AsyncClient(base_url=server.url, timeout=20, trust_env=False)
        )
        clients = [await stack.enter_async_context(following(make, server.url)) for make in CLIENTS]

        def running():
            return not any(task.done() for _, task in clients)

        await eventually(lambda: all(follower.events for follower, _ in clients) or not running())
        burst = Burst(http)
        async with asyncio.TaskGroup() as group:
            publishers = [group.create_task(burst.publish(channel)) for channel in ROOMS]
            for kill in range(1, KILLS + 1):
                goal = kill * len(ROOMS) * EVENTS // (KILLS + 1)
                await eventually(lambda goal=goal: len(burst.acknowledged) >= goal)
                assert not any(publisher.done() for publisher in publishers)
                await server.end(signal.SIGKILL)
                await server.start()
        assert burst.failures >= KILLS
        stored = {channel: await history_of(http, channel) for channel in ROOMS}
        for channel in ROOMS:
            # Each once, in order, in one life, where it was said to be.
            assert [data for _, _, data in stored[channel]] == [*range(1, EVENTS + 1)]
            assert len({epoch for _, epoch, _ in stored[channel]}) == 1
            for position, epoch, n in stored[channel]:
                assert burst.acknowledged[channel, n] == (position, epoch)
        everything = len(ROOMS) * EVENTS
        await eventually(
            lambda: (
                all(len(follower.ticks) >= everything for follower, _ in clients) or not running()
            )
        )
    for follower, _ in clients:
        assert follower.by_channel == stored
        assert len(follower.of_type("stream_open")) >= 2
        assert not follower.of_type("state_resync_required")


@pytest.mark.parametrize("more", [0, 30])
async def test_an_older_copy_of_the_file_is_noticed(tmp_path, more):
    """Also where more has been published since than was lost: no number tells, but the chain."""
    folder, copy = tmp_path / "data", tmp_path / "copy"

    async with AsyncExitStack() as stack:
        await stack.enter_async_context(asyncio.timeout(50))
        server = await stack.enter_async_context(Server(folder))
        proxy = stack.enter_context(proxy_to(server.address))
        http = await stack.enter_async_context(
            httpx.AsyncClient(base_url=server.url, timeout=20, trust_env=False)
        )

        async def publish(first, count):
            batch = [
                {"channel": channel, "type": "tick", "data": n}
                for n in range(first, first + count)
                for channel in ROOMS
            ]
            if batch:
                (await http.post("/v1/publish", json=batch)).raise_for_status()

        clients = [
            await stack.enter_async_context(following(make, proxy.url))
            for make in (python_client, httpx_sse, npm_eventsource)
        ]

        async def all_have(numbers):
            def have():
                assert not any(task.done() for _, task in clients)
                return all(
                    {data for _, _, data in events} >= numbers
                    for follower, _ in clients
                    for events in (follower.by_channel.get(channel, []) for channel in ROOMS)
                )

            await eventually(have)

        await publish(1, 20)
        await all_have({20})
        await server.end()
        shutil.copytree(folder, copy)
        await server.start()
        await publish(21, 20)
        await all_have({40})
        proxy.down()
        await server.end(signal.SIGKILL)
        shutil.rmtree(folder)
        shutil.copytree(copy, folder)
        await server.start()
        await publish(101, more)
        proxy.up()
        await eventually(
            lambda: all(
                len(follower.of_type("state_resync_required")) >= len(ROOMS)
                for follower, _ in clients
            )
        )
        await publish(201, 5)
        await all_have({205})
        stored = {channel: await history_of(http, channel) for channel in ROOMS}
    expected = [*range(1, 21), *range(101, 101 + more), *range(201, 206)]
    assert all([data for _, _, data in stored[channel]] == expected for channel in ROOMS)
    for follower, _ in clients:
        resyncs = follower.of_type("state_resync_required")
        assert sorted(resync["data"]["channel"] for resync in resyncs) == sorted(ROOMS)
        assert {resync["data"]["reason"] for resync in resyncs} == {"history_rewound"}
        kinds = [kind for kind, _, _ in follower.events]
        for channel, events in follower.by_channel.items():
            # What there was, and then, behind the resync, all that there is.
            assert [data for _, _, data in events[:40]] == [*range(1, 41)]
            assert events[40:] == stored[channel]
            assert events[:20] == stored[channel][:20]
        assert kinds[: kinds.index("state_resync_required")].count("tick") == 40 * len(ROOMS)
