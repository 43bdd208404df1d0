"""A publisher's way straight to a broker."""

import asyncio

import pytest

from tidegate.client import Published, PublishItem
from tidegate.client.broker_door import BrokerDoor, NullSink
from tidegate.errors import ClientError, ConfigError, ItemRefused
from tidegate.gateway.brokers.base import Head, Publication, PublishError
from tidegate.gateway.brokers.memory import MemoryBroker


class Away(MemoryBroker):
    """A memory broker that is away for the first calls, or has one bad channel."""

    def __init__(self, failures=0, bad=()):
        super().__init__()
        self.failures, self.bad, self.calls = failures, set(bad), 0

    async def publish(self, batch):
        self.calls += 1
        if self.failures:
            self.failures -= 1
            await super().publish(batch)  # it was stored, and the answer was lost
            return [self._away(request) for request in batch]
        results = await super().publish(batch)
        return [
            self._away(request) if request.channel in self.bad else result
            for request, result in zip(batch, results, strict=True)
        ]

    @staticmethod
    def _away(request):
        return PublishError(channel=request.channel, code="broker_unavailable", error="away")


def door(broker, **options):
    return BrokerDoor(
        broker, (), **{"retries": True, "random": lambda: 0.0, "now": lambda: 5.0, **options}
    )


def item(channel="a", key="k"):
    return PublishItem(channel, "x", 1, idempotency_key=key)


async def test_a_publish_whose_answer_was_lost_is_repeated_and_stored_once():
    broker = Away(failures=2)
    made = door(broker)
    await made.start()
    try:
        (result,) = await made.publish([item()], 20.0)
        assert isinstance(result, Published)
        assert result.duplicate
        assert broker.calls == 3
        assert len((await broker.history("a")).publications) == 1
    finally:
        await made.stop()


async def test_where_some_are_stored_the_rest_is_told_and_not_repeated():
    broker = Away(bad=["b"])
    made = door(broker)
    await made.start()
    first, second = await made.publish([item("a"), item("b")], 20.0)
    await made.stop()
    assert isinstance(first, Published)
    assert isinstance(second, ItemRefused)
    assert (second.channel, second.code, second.status) == ("b", "broker_unavailable", 0)
    assert broker.calls == 1


@pytest.mark.parametrize(("retries", "deadline"), [(False, 20.0), (True, 0.01)])
async def test_a_broker_that_stays_away_is_told(retries, deadline):
    broker = Away(failures=1000)
    made = door(broker, retries=retries, random=lambda: 1.0)
    await made.start()
    (result,) = await made.publish([item()], deadline)
    await made.stop()
    assert isinstance(result, ItemRefused)
    assert broker.calls == 1


async def test_a_broker_that_does_not_answer_is_told():
    class Silent(MemoryBroker):
        async def publish(self, batch):
            await asyncio.Event().wait()

    made = door(Silent())
    await made.start()
    with pytest.raises(ClientError, match=r"did not answer within 0\.01 s"):
        await made.publish([item()], 0.01)
    await made.stop()


async def test_a_broker_that_does_not_start_is_stopped():
    class Broken(MemoryBroker):
        stopped = False

        async def start(self, sink):
            raise OSError("no")

        async def stop(self):
            self.stopped = True

    broker = Broken()
    with pytest.raises(OSError, match="no"):
        await door(broker).start()
    assert broker.stopped


async def test_a_door_is_opened_once_and_before_it_is_used():
    made = door("memory:")
    with pytest.raises(RuntimeError, match="async with Publisher"):
        await made.publish([item()], 1.0)
    await made.stop()
    await made.start()
    with pytest.raises(RuntimeError, match="entered once"):
        await made.start()
    await made.stop()
    with pytest.raises(ConfigError):
        await door("nonsense:").start()


def test_who_only_publishes_wants_to_know_nothing():
    sink = NullSink()
    publication = Publication(position="p", prev="", epoch="e", type="x", payload=b"{}")
    assert sink.on_publication("a", publication) is None
    assert sink.on_reset("a", Head("e", "")) is None
    assert sink.on_disconnected() is None
    assert sink.on_reconnected() is None
