"""Channels inside the process: an async iterator of events."""

import asyncio

import pytest

from tests.gateway.support import Namespace, hub, settled, unavailable
from tidegate.errors import BrokerUnavailable, ConcurrentConsumers, StreamDenied
from tidegate.gateway.iteration import GatewaySubscription
from tidegate.gateway.subscription import StreamRequest


def subscription(h, *channels, **options):
    return GatewaySubscription(
        lambda: h.node.subscribe(StreamRequest(channels=channels, **options))
    )


async def test_a_subscription_in_the_process_iterates_events():
    async with hub() as h, subscription(h, "a", "b") as events:
        await h.publish("a", 1, tags={"k": "v"}, version=3)
        opened = await anext(events)
        assert (opened.id, opened.type, opened.channel) == (None, "stream_open", None)
        (position,) = [p.position for p in (await h.broker.history("a")).publications]
        event = await anext(events)
        assert (event.id, event.channel, event.data) == (position, "a", 1)
        assert (event.tags, event.version, event.prev) == ({"k": "v"}, 3, "")
        assert event.meta == {"serverTimestamp": 1}
        assert events.cursor == event.cursor


async def test_a_cancelled_iteration_loses_nothing():
    async with hub() as h, subscription(h, "a") as events:
        await anext(events)
        for number in range(50):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0):
                    await anext(events)
            waiting = asyncio.ensure_future(anext(events))
            await settled(3)
            await h.publish("a", number)
            if number % 2:
                waiting.cancel()
                await asyncio.wait([waiting])
                if not waiting.cancelled():
                    assert waiting.result().data == number
                    continue
                waiting = asyncio.ensure_future(anext(events))
            assert (await waiting).data == number


async def test_only_one_task_may_iterate():
    async with hub() as h, subscription(h, "a") as events:
        await anext(events)
        waiting = asyncio.ensure_future(anext(events))
        await settled()
        with pytest.raises(ConcurrentConsumers):
            await anext(events)
        waiting.cancel()


async def test_iteration_ends_behind_an_eviction():
    async with hub() as h, subscription(h, "a", max_queued=4) as events:
        await anext(events)
        waiting = asyncio.ensure_future(anext(events))
        await settled()
        await h.publish("a", *range(20))
        types = [(await waiting).type] + [event.type async for event in events]
        assert types[-1] == "client_evicted"


async def test_a_denied_subscription_says_so_when_it_is_entered():
    async with hub(Namespace(name="room")) as h:
        with pytest.raises(StreamDenied):
            async with subscription(h, "other:1"):
                pass
        assert h.node.statistics().streams == 0


async def test_a_subscription_is_entered_before_it_is_read_and_only_once():
    async with hub() as h:
        events = subscription(h, "a")
        with pytest.raises(RuntimeError, match="async with"):
            await anext(events)
        async with events:
            pass
        with pytest.raises(RuntimeError, match="subscribe again"):
            await events.__aenter__()


async def test_a_subscription_whose_broker_is_away_says_so_when_it_is_entered():
    async with hub() as h:
        h.broker.failures["subscribe"] = unavailable()
        with pytest.raises(BrokerUnavailable):
            async with subscription(h, "a"):
                pass
