"""Many clients that are behind, or one that is far behind: what they get, and what it costs."""

import asyncio
import sys
from collections import Counter
from contextlib import asynccontextmanager

import httpx
import pytest

from tests.integration.counted_gateway import CountedBroker
from tests.integration.slow_link import Publisher, SlowLink, memory, shortest_pause
from tests.servers import eventually, serve_command
from tidegate.gateway.brokers.base import PublishRequest
from tidegate.gateway.brokers.memory import MemoryBroker
from tidegate.gateway.brokers.sqlite import SqliteBroker
from tidegate.gateway.namespaces import Namespace, Namespaces
from tidegate.gateway.node import Node
from tidegate.gateway.subscription import StreamRequest

READ_PAUSE = 0.1
ROOM = "room"


class NoSink:
    """Nobody listens: a broker that is only filled."""

    def on_publication(self, channel, publication):
        pass

    on_reset = on_publication

    def on_disconnected(self):
        pass

    on_reconnected = on_disconnected


class Follower:
    """Takes the frames of a stream, and checks that every event follows the one before."""

    def __init__(self, stream, last):
        self.stream = stream
        self.last = last
        self.first = last + 1
        self.prev = None
        self.cursor = None
        self.controls = []

    def take(self):
        while frames := self.stream.take():
            for frame in frames:
                self.cursor = frame.cursor
                if frame.id is None:
                    self.controls.append(frame)
                    continue
                assert frame.data == self.last + 1, "an event is missing, doubled or out of order"
                assert self.prev is None or frame.prev == self.prev
                self.last = frame.data
                self.prev = frame.id
        return self

    @property
    def told(self):
        return [control.type for control in self.controls]


def all_at(followers, last):
    """Let all take what there is; tell whether each has got as far as ``last``."""
    return {follower.take().last for follower in followers} == {last}


async def publish(broker, first, last):
    """Publish events whose data is their number."""
    policy = Namespace(history_size=100_000).policy
    for start in range(first, last + 1, 100):
        batch = [
            PublishRequest(
                channel=ROOM, type="m", payload=b'{"data":%d,"_meta":{}}' % number, policy=policy
            )
            for number in range(start, min(start + 100, last + 1))
        ]
        await broker.publish(batch)
        await asyncio.sleep(0)


@asynccontextmanager
async def a_node(broker, **options):
    node = Node(broker, Namespaces([Namespace(history_size=100_000)]), **options)
    await node.start()
    try:
        yield node
    finally:
        await node.stop()


@asynccontextmanager
async def a_broker(kind, folder):
    inner = MemoryBroker() if kind == "memory" else SqliteBroker(folder / "history.sqlite3")
    broker = CountedBroker(inner)
    try:
        yield broker
    finally:
        await broker.stop()


async def cursors(node, broker, first, last):
    """Publish events one by one; return what a client holds behind each of them."""
    follower = Follower(node.subscribe(StreamRequest(channels=(ROOM,))), first - 1)
    await follower.stream.joined()
    held = [follower.take().cursor]
    for number in range(first, last + 1):
        await publish(broker, number, number)
        held.append(follower.take().cursor)
    follower.stream.abort()
    return held


def assert_spaced(reads):
    assert reads
    assert shortest_pause(reads) >= READ_PAUSE


@pytest.mark.slow
async def test_5000_clients_that_come_back_together_share_their_history_reads(tmp_path):
    newest = 30
    async with a_broker("memory", tmp_path) as broker, a_node(broker, unsubscribe_delay=0) as node:
        held = await cursors(node, broker, 1, 20)
        # All of them were cut, and the channel's ring has gone with the last one.
        await eventually(lambda: not node.channels())
        await publish(broker, 21, newest)
        assert broker.reads == []
        followers = []
        for number in range(5000):
            last = number % len(held)
            stream = node.subscribe(StreamRequest(channels=(ROOM,), cursor=held[last]))
            followers.append(Follower(stream, last))
            if number % 500 == 499:
                # They come in the course of a moment, not in one turn of the event loop, and
                # meanwhile the channel goes on.
                newest += 1
                await publish(broker, newest, newest)
                await asyncio.sleep(0.02)
        await eventually(lambda: all_at(followers, newest), 40)
        assert_spaced(broker.reads)
        for follower in followers:
            assert follower.told == ["stream_open", "replay_complete"]
            (start,) = follower.controls[0].data["channels"].values()
            assert start["recovered"]
        statistics = node.statistics()
        assert statistics.subscriptions == 5000
        assert not statistics.resyncs
        assert not statistics.evictions


async def test_not_all_who_wait_for_a_page_are_woken_in_one_turn_of_the_loop(tmp_path):
    async with a_broker("memory", tmp_path) as broker, a_node(broker, unsubscribe_delay=0) as node:
        held = await cursors(node, broker, 1, 2)
        await eventually(lambda: not node.channels())
        turn = 0
        woken = Counter()

        def count_turns():
            nonlocal turn, turns
            turn += 1
            turns = loop.call_soon(count_turns)

        loop = asyncio.get_running_loop()
        turns = loop.call_soon(count_turns)
        streams = []
        for _ in range(500):
            stream = node.subscribe(StreamRequest(channels=(ROOM,), cursor=held[1]))
            stream.on_ready = lambda: woken.update([turn])
            streams.append(stream)
        for stream in streams:
            await stream.joined()
        turns.cancel()
        assert len(broker.reads) == 1
        assert sum(woken.values()) >= 500
        # Each is woken for its start, and for its page.
        assert max(woken.values()) <= 2 * 32


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_clients_far_behind_at_many_places_are_served_page_by_page(kind, tmp_path):
    newest = 3500
    async with a_broker(kind, tmp_path) as broker, a_node(broker) as node:
        held = await cursors(node, broker, 1, 10)
        await publish(broker, 11, newest)
        broker.reads.clear()
        followers = [
            Follower(
                node.subscribe(StreamRequest(channels=(ROOM,), cursor=held[number % len(held)])),
                number % len(held),
            )
            for number in range(100)
        ]

        await eventually(lambda: all_at(followers, newest))
        assert_spaced(broker.reads)
        # Pages of 1,000 that they share: one for each of them would be 400.
        assert len(broker.reads) <= 40
        # All of them are live.
        await publish(broker, newest + 1, newest + 1)
        assert all_at(followers, newest + 1)
        assert not node.statistics().resyncs


async def test_a_node_whose_ring_reaches_back_reads_nothing(tmp_path):
    async with a_broker("memory", tmp_path) as broker, a_node(broker) as node:
        held = await cursors(node, broker, 1, 200)
        stays = node.subscribe(StreamRequest(channels=(ROOM,)))
        await stays.joined()
        broker.reads.clear()
        followers = [
            Follower(node.subscribe(StreamRequest(channels=(ROOM,), cursor=cursor)), last)
            for last, cursor in enumerate(held)
        ]
        assert all(follower.take().last == 200 for follower in followers)
        assert broker.reads == []


async def test_a_client_that_takes_its_time_costs_a_page_and_no_more(tmp_path):
    """It holds no live event while it is behind, however many are published meanwhile."""
    async with a_broker("sqlite", tmp_path) as broker, a_node(broker) as node:
        held = await cursors(node, broker, 1, 1)
        await publish(broker, 2, 5000)
        newest = 5000
        stream = node.subscribe(StreamRequest(channels=(ROOM,), cursor=held[0]))
        follower = Follower(stream, 0)
        await stream.joined()
        while follower.last < newest - 1000:
            # 100 frames of history against 10 new events.
            for frame in stream.take(100):
                if frame.id is not None:
                    assert frame.data == follower.last + 1
                    follower.last = frame.data
            newest += 10
            await publish(broker, newest - 9, newest)
            assert stream.statistics().queued_frames == 0
        follower.prev = None
        await eventually(lambda: follower.take().last == newest)
        assert "client_evicted" not in follower.told
        assert not node.statistics().evictions
        assert_spaced(broker.reads)


@pytest.mark.server
@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_client_on_a_slow_link_catches_up_with_20000_events(tmp_path):
    command = [sys.executable, "-m", "tests.integration.counted_gateway"]
    options = ["--broker", f"sqlite:///{tmp_path}/history.sqlite3?synchronous=normal"]
    with (
        serve_command(*command, *options, "--history-size", "50000") as url,
        httpx.Client(base_url=str(url), trust_env=False, timeout=20) as client,
    ):
        publisher = Publisher(client, ROOM)
        publisher.send()
        cursor = publisher.cursor()
        publisher.send(20_000)
        before = memory(url.process.pid)
        with SlowLink(
            url.address, ROOM, cursor, last=publisher.last - 20_000, bytes_a_second=4_000_000
        ) as link:
            due = 200
            while link.last < publisher.last:
                link.read()
                if link.last >= due and link.last < 20_000:
                    due += 200
                    publisher.send()
            # It is live now: what is published comes without a further question.
            publisher.send()
            while link.last < publisher.last:
                link.read()
        assert link.types == ["stream_open", "replay_complete"]
        figures = client.get("/figures").json()
        assert not figures["node"]["evictions"]
        assert not figures["node"]["resyncs"]
        assert_spaced(figures["reads"])
        # Of what went through it kept a page, and what the socket had not taken.
        assert memory(url.process.pid) - before < 30 * 1024 * 1024
