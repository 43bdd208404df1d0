"""Who is subscribed to what: sharing, failures, delayed unsubscribes, checks, reconnects."""

import asyncio

import pytest

from tests.gateway.support import HeldBroker, Namespace, Reader, hub, unavailable
from tests.servers import eventually
from tidegate.errors import StreamDenied
from tidegate.gateway.namespaces import Namespaces
from tidegate.gateway.node import Node


async def test_a_full_channel_is_denied_and_the_others_are_served():
    async with hub(Namespace(max_subscribers=2)) as h:
        first = await h.joined("a")
        await h.joined("a")
        third = await h.joined("a", "b")
        assert third.denied == {"a": "subscriber_limit"}
        assert Reader(third).take().frames[0].data["denied"] == {"a": "subscriber_limit"}
        with pytest.raises(StreamDenied) as denied:
            await h.joined("a")
        assert denied.value.denied == {"a": "subscriber_limit"}
        first.abort()
        await h.joined("a")


async def test_a_channel_of_no_configured_namespace_is_denied():
    async with hub(Namespace(name="room")) as h:
        stream = await h.joined("room:1", "other:1")
        assert stream.denied == {"other:1": "unknown_namespace"}
        with pytest.raises(StreamDenied):
            await h.joined("other:1")


async def test_idle_channels_are_compared_with_the_broker_in_one_call():
    async with hub() as h:
        stream = await h.joined("a", "b", "c")
        for channel in h.node.channels():
            channel.verified -= 60
        await eventually(
            lambda: any(name == "heads" and len(what) == 3 for name, what in h.broker.calls)
        )
        stream.abort()


async def test_behind_a_reconnect_every_head_is_compared():
    async with hub() as h:
        reader = Reader(await h.joined("a", "b")).take()
        h.node.on_disconnected()
        assert not h.node.available
        h.broker.holding = True
        await h.publish("a", 1, 2)
        await h.publish("b", 3)
        h.node.on_reconnected()
        assert h.node.available
        await reader.until(lambda r: len(r.data) == 3)
        assert reader.resyncs == []


async def test_a_broker_that_does_not_answer_is_noticed_without_any_channel():
    async with hub() as h:
        assert h.node.available
        h.broker.failures["heads"] = unavailable()
        h.node._probed = float("-inf")
        await eventually(lambda: not h.node.available)
        h.broker.failures.clear()
        h.node._probed = float("-inf")
        await eventually(lambda: h.node.available)


async def test_a_broker_that_fails_in_an_unknown_way_is_not_asked_all_the_time():
    async with hub() as h:
        (await h.joined("a")).take()
        h.broker.failures["heads"] = ValueError("a bug")
        h.node.channels()[0].verified -= 60
        await eventually(lambda: not h.node.available)
        asked = h.broker.count("heads")
        await asyncio.sleep(0.6)
        assert h.broker.count("heads") <= asked + 1


async def test_stopping_ends_all_streams_and_tasks():
    broker = HeldBroker()
    node = Node(broker, Namespaces())
    await node.start()
    before = len(asyncio.all_tasks())
    from tidegate.gateway.subscription import StreamRequest

    streams = [node.subscribe(StreamRequest(channels=("a",))) for _ in range(3)]
    await node.stop()
    assert all(stream.ended for stream in streams)
    assert len(asyncio.all_tasks()) < before
    with pytest.raises(RuntimeError):
        node.subscribe(StreamRequest(channels=("a",)))
    await node.stop()
    await broker.stop()
