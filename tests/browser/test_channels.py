"""Chromium's own EventSource on several channels at once, through cuts and restarts."""

from __future__ import annotations

import signal
from contextlib import ExitStack
from itertools import pairwise

import httpx
import pytest

from tests.browser.watched import Watched
from tests.integration.proxy import cursors, proxy_to
from tests.servers import serve_process

pytestmark = [pytest.mark.browser, pytest.mark.server]

TYPES = (
    "tick",
    "stream_open",
    "stream_cursor",
    "replay_complete",
    "state_resync_required",
    "slow_client_warning",
    "client_evicted",
    "stream_error",
)
ROOMS = ("room:1", "room:2", "user:7")


class Node:
    """A server process whose channels are in a folder, and its successors on the same port.

    Attributes:
        proxy: where pages find it.
        published: for each channel the data of its events, in order.
        epochs: for each channel its epoch, which no restart changes.
    """

    def __init__(self, folder, stack):
        self._arguments = ("--dev", "--data", str(folder))
        self._stack = stack
        self._port = None
        self._number = 0
        self.proxy = None
        self.published = {}
        self.epochs = {}

    def start(self):
        """Begin the first life, or the next one."""
        # Pages come back soon.
        env = {"TIDEGATE__GATEWAY__RETRY_MS": "500"}
        served = self._stack.enter_context(
            serve_process(*self._arguments, port=self._port, env=env)
        )
        if self.proxy is None:
            self.proxy = self._stack.enter_context(proxy_to(served.address))
        assert self._port in {None, served.address[1]}
        self._port = served.address[1]
        self.process = served.process
        self.http = self._stack.enter_context(
            httpx.Client(base_url=str(served), timeout=20, trust_env=False)
        )

    def end(self, how):
        """Send a signal, and wait until it has ended."""
        self.process.send_signal(how)
        self.process.wait(20)

    def publish(self, count, channels=ROOMS, **fields):
        """Publish so many events, the channels in turn, in requests of up to 50."""
        events = []
        for _ in range(count):
            channel = channels[self._number % len(channels)]
            self._number += 1
            data = {"n": self._number}
            events.append({"channel": channel, "type": "tick", "data": data, **fields})
            self.published.setdefault(channel, []).append(data)
        for first in range(0, count, 50):
            answer = self.http.post("/v1/publish", json=events[first : first + 50])
            assert answer.status_code == 200, answer.text
            for result in answer.json()["results"]:
                epoch = self.epochs.setdefault(result["channel"], result["epoch"])
                assert result["epoch"] == epoch

    @property
    def last(self):
        """The number of the newest event."""
        return self._number


@pytest.fixture
def node(tmp_path):
    with ExitStack() as stack:
        node = Node(tmp_path, stack)
        node.start()
        yield node


@pytest.fixture
def watched(page):
    return Watched(page, TYPES)


def stream(*channels, **query):
    pairs = [*(("channel", channel) for channel in channels), *query.items()]
    return f"/v1/stream?{httpx.QueryParams(pairs)}"


def check_chain(events):
    """Each event of a channel names the one before."""
    for before, event in pairwise(events):
        assert event["prev"] == before["id"]


def by_channel(watched):
    """The events that a page got, by channel, in order."""
    seen = {}
    for event in watched.of_type("tick"):
        seen.setdefault(event["channel"], []).append(event)
    return seen


def data_of(events):
    return {channel: [event["data"] for event in found] for channel, found in events.items()}


# -- restarts ------------------------------------------------------------------------------


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL], ids=lambda how: how.name)
async def test_through_restarts_each_event_of_three_channels_comes_once(node, watched, how):
    await watched.open(node.proxy.url, stream(*ROOMS))
    await watched.until_type("stream_open")
    # Before its first event: all that it has is where it began.
    node.proxy.down()
    await watched.until_state("connecting")
    node.publish(400)
    node.end(how)
    node.start()
    node.publish(300)
    node.proxy.up()
    await watched.until_tick(node.last)
    # Again, from where it is live. It is not let in until more was published.
    node.publish(50)
    node.proxy.refuse()
    node.end(how)
    node.start()
    node.publish(250)
    node.proxy.up()
    await watched.until_tick(node.last)
    node.publish(3)
    await watched.until_tick(node.last)
    events = by_channel(watched)
    assert data_of(events) == node.published
    assert node.last == 1003
    for channel, found in events.items():
        check_chain(found)
        assert found[0]["prev"] == ""
        assert {event["epoch"] for event in found} == {node.epochs[channel]}
    assert not watched.of_type("state_resync_required")
    assert len({event["cursor"] for event in watched.of_type("tick")}) == 1003
    # It was the browser that resumed: by the cursor of the last frame that had one.
    first, *given = cursors(node.proxy)
    assert first is None
    assert given[0] == watched.seen[0]["cursor"]
    assert None not in given
    assert watched.states.count("open") >= 3


# -- channels ------------------------------------------------------------------------------


async def test_a_cursor_goes_on_in_a_url_of_other_channels(node, watched):
    node.publish(4, ("news:1", "room:2"))
    await watched.open(node.proxy.url, stream(*ROOMS))
    await watched.until_type("stream_open")
    node.publish(30)
    await watched.until_tick(node.last)
    cursor = watched.seen[-1]["cursor"]
    seen = by_channel(watched)
    node.proxy.down()
    node.publish(500, (*ROOMS, "news:1"))
    node.end(signal.SIGKILL)
    node.start()
    node.publish(497, (*ROOMS, "news:1"))
    node.proxy.up()
    # One more, one less, and in another order.
    watched.seen.clear()
    await watched.open(node.proxy.url, stream("news:1", "user:7", "room:1", lastEventId=cursor))
    await watched.until_type("replay_complete", 2)
    [opened] = watched.of_type("stream_open")
    states = opened["data"]["channels"]
    assert {name: state["recovered"] for name, state in states.items()} == {
        "news:1": False,
        "user:7": True,
        "room:1": True,
    }
    # Cut before the first event of the channel that is new to it, and back by its own means.
    assert node.proxy.cut() >= 1
    node.publish(20, (*ROOMS, "news:1"))
    newest = [node.published[channel][-1]["n"] for channel in ("news:1", "user:7", "room:1")]
    await watched.until(
        "(all) => all.every((n) => seen.some((e) => e.type === 'tick' && e.data.n === n))", *newest
    )
    events = by_channel(watched)
    assert set(events) == {"news:1", "user:7", "room:1"}
    for channel in ("user:7", "room:1"):
        assert data_of({channel: seen[channel] + events[channel]}) == {
            channel: node.published[channel]
        }
        check_chain(seen[channel] + events[channel])
    assert data_of(events)["news:1"] == node.published["news:1"][-5:]
    assert not watched.of_type("state_resync_required")
    # The URL still has the first cursor; the header says better.
    assert cursors(node.proxy)[:2] == [None, None]
    assert cursors(node.proxy)[2] not in {None, cursor}
    assert all(f"lastEventId={cursor}" in head for head in node.proxy.requests[1:])


# -- tags ----------------------------------------------------------------------------------


async def test_with_tags_only_their_events_come_each_once(node, watched):
    wanted = {}

    def publish(count):
        """Publish events of which a third is wanted."""
        for _ in range(0, count, 30):
            node.publish(10, tags={"lang": "de"})
            before = {channel: len(data) for channel, data in node.published.items()}
            node.publish(10, tags={"lang": "en", "kind": "x"})
            for channel, data in node.published.items():
                wanted.setdefault(channel, []).extend(data[before[channel] :])
            node.publish(10)

    await watched.open(node.proxy.url, stream(*ROOMS, tags="lang:en"))
    await watched.until_type("stream_open")
    # Nothing that it wants: it is told where it is all the same.
    node.publish(6, tags={"lang": "de"})
    await watched.until_type("stream_cursor")
    node.proxy.down()
    await watched.until_state("connecting")
    publish(510)
    node.end(signal.SIGKILL)
    node.start()
    publish(510)
    node.proxy.up()
    await watched.until_type("replay_complete", 3)
    publish(30)
    newest = max(data[-1]["n"] for data in wanted.values())
    await watched.until_tick(newest)
    events = by_channel(watched)
    assert data_of(events) == wanted
    assert {event["tags"]["lang"] for found in events.values() for event in found} == {"en"}
    assert not watched.of_type("state_resync_required")
    [first, *_] = watched.of_type("stream_cursor")
    start = watched.of_type("stream_open")[0]["cursor"]
    assert start != first["cursor"]
    assert cursors(node.proxy)[1] not in {None, start}
    for opened in watched.of_type("stream_open"):
        assert not any(state["linked"] for state in opened["data"]["channels"].values())
