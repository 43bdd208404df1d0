"""What the broker is subscribed to: sharing, failures, delayed unsubscribes."""

import asyncio

import pytest

from tests.gateway.support import Reader, hub, settled, unavailable
from tests.servers import eventually
from tidegate.errors import BrokerUnavailable


async def test_concurrent_first_subscribers_share_one_subscribe():
    async with hub() as h:
        h.broker.gates["subscribe"] = asyncio.Event()
        streams = [h.stream("a", "b") for _ in range(10)]
        await settled()
        h.broker.gates["subscribe"].set()
        for stream in streams:
            await stream.joined()
        assert h.broker.calls[:1] == [("subscribe", ["a", "b"])]
        assert h.broker.count("subscribe") == 1


async def test_what_becomes_wanted_at_once_is_subscribed_in_one_call():
    async with hub() as h:
        streams = [h.stream(f"c:{number}") for number in range(100)]
        for stream in streams:
            await stream.joined()
        assert h.broker.count("subscribe") == 1


async def test_a_failed_subscribe_reaches_all_who_wait_and_leaves_nothing_behind():
    async with hub() as h:
        h.broker.failures["subscribe"] = unavailable()
        streams = [h.stream("a") for _ in range(3)]
        for stream in streams:
            with pytest.raises(BrokerUnavailable):
                await stream.joined()
            frames = Reader(stream).take().frames
            assert [frame.data["errorKind"] for frame in frames] == ["broker_unavailable"]
            assert stream.ended
        del h.broker.failures["subscribe"]
        statistics = h.node.statistics()
        assert (statistics.streams, statistics.channels, statistics.subscriptions) == (0, 0, 0)
        again = await h.joined("a")
        await h.publish("a", 1)
        await Reader(again).events(1)


async def test_a_broker_that_raises_something_else_is_unavailable_too():
    async with hub() as h:
        h.broker.failures["subscribe"] = ValueError("a bug")
        with pytest.raises(BrokerUnavailable):
            await h.joined("a")


async def test_one_channel_that_hangs_does_not_hold_up_another():
    async with hub() as h:
        h.broker.gates["subscribe"] = gate = asyncio.Event()
        slow = h.stream("a")
        await settled()
        del h.broker.gates["subscribe"]
        quick = await h.joined("b")
        await h.publish("b", 1)
        await Reader(quick).events(1)
        with pytest.raises(TimeoutError):
            await slow.joined(0.01)
        gate.set()
        await slow.joined()


async def test_the_last_one_leaves_and_after_a_while_the_broker_is_told():
    async with hub(unsubscribe_delay=0.05) as h:
        stream = await h.joined("a")
        stream.abort()
        assert h.broker.count("unsubscribe") == 0
        await eventually(lambda: h.broker.count("unsubscribe") == 1)
        await eventually(lambda: h.node.statistics().channels == 0)


async def test_somebody_who_comes_within_the_delay_finds_the_channel_as_it_was():
    async with hub(unsubscribe_delay=0.4) as h:
        (await h.joined("a")).abort()
        stream = await h.joined("a")
        await asyncio.sleep(0.9)
        await h.publish("a", 1)
        await Reader(stream).events(1)
        assert (h.broker.count("subscribe"), h.broker.count("unsubscribe")) == (1, 0)


async def test_a_subscribe_that_crosses_a_delayed_unsubscribe_wins():
    async with hub(unsubscribe_delay=0.01) as h:
        h.broker.gates["unsubscribe"] = asyncio.Event()
        (await h.joined("a")).abort()
        await eventually(lambda: h.broker.count("unsubscribe") == 1)
        stream = h.stream("a")
        await settled()
        h.broker.gates["unsubscribe"].set()
        await stream.joined()
        await h.publish("a", 1)
        await Reader(stream).events(1)


@pytest.mark.parametrize("carried_out", [False, True])
async def test_an_unsubscribe_that_fails_is_tried_again(carried_out):
    async with hub(unsubscribe_delay=0.01) as h:
        (h.broker.lost if carried_out else h.broker.failures)["unsubscribe"] = unavailable()
        (await h.joined("a")).abort()
        await eventually(lambda: h.broker.count("unsubscribe") >= 2)
        stream = await h.joined("a")
        await h.publish("a", 1)
        await Reader(stream).events(1)
        stream.abort()
        h.broker.lost.clear()
        h.broker.failures.clear()
        await eventually(lambda: h.node.statistics().channels == 0)


async def test_a_stream_that_leaves_before_it_has_joined_leaves_nothing_behind():
    async with hub(unsubscribe_delay=0.01) as h:
        h.broker.gates["subscribe"] = asyncio.Event()
        stream = h.stream("a")
        await settled()
        stream.abort()
        h.broker.gates["subscribe"].set()
        await eventually(lambda: h.node.statistics().channels == 0)
        assert h.node.statistics().streams == 0


async def test_somebody_who_comes_and_goes_while_a_channel_leaves_does_not_hurt_the_next():
    async with hub(unsubscribe_delay=0.01) as h:
        h.broker.gates["unsubscribe"] = asyncio.Event()
        (await h.joined("a")).abort()
        await eventually(lambda: h.broker.count("unsubscribe") == 1)
        brief = h.stream("a")
        brief.abort()
        h.broker.gates["unsubscribe"].set()
        await eventually(lambda: h.node.statistics().channels == 0)
        stream = await h.joined("a")
        await asyncio.sleep(0.6)
        await h.publish("a", 1)
        await Reader(stream).events(1)
        assert h.broker.count("unsubscribe") == 1


async def test_churn_leaves_nothing_behind():
    async with hub(unsubscribe_delay=0.01) as h:
        for round_ in range(20):
            streams = [h.stream(f"c:{number}", f"c:{number + round_}") for number in range(20)]
            for stream in streams[::2]:
                await stream.joined()
            for stream in streams:
                stream.abort()
        await eventually(lambda: h.node.statistics().channels == 0)
        await eventually(lambda: len(h.node._tasks) == 1)
        assert h.node.statistics().subscriptions == 0
