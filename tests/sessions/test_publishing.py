import asyncio

from tidegate.channel import Channel
from tidegate.sessions.payloads import PublishItem
from tidegate.sessions.publishing import publish_all


async def test_events_are_published_in_order_with_their_originator():
    channel = Channel()
    async with channel.subscribe() as events:
        items = [PublishItem("a", 1), PublishItem("b", 2, {"k": 3})]
        assert await publish_all(channel, items, "me") == 2
        first, second = events.take()
        assert (first.type, first.data, first.originator_client_id) == ("a", 1, "me")
        assert second.meta["k"] == 3


async def test_nothing_to_publish_answers_with_the_head():
    channel = Channel()
    channel.publish("a")
    assert await publish_all(channel, [], None) == 1


async def test_a_closed_channel_takes_nothing():
    channel = Channel()
    channel.close()
    assert await publish_all(channel, [PublishItem("a")], None) is None


async def test_a_channel_that_closes_on_the_way_is_told():
    channel = Channel()
    asyncio.get_running_loop().call_soon(channel.close)
    assert await publish_all(channel, [PublishItem("a")] * 65, None) is None
    assert channel.last_event_id == 64


async def test_a_long_array_evicts_no_reader_that_keeps_up():
    channel = Channel(max_queued=100)
    seen = []

    async def read():
        async with channel.subscribe() as events:
            seen.extend([event.id async for event in events])

    reader = asyncio.ensure_future(read())
    await asyncio.sleep(0)
    await publish_all(channel, [PublishItem("a")] * 5000, None)
    channel.close()
    await reader
    assert seen == list(range(1, 5001))
