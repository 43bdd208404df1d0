"""A node over a broker that is checked, and its clients."""

import pytest

from tests.testing.planted import MemoryBroker
from tidegate.errors import BrokerUnavailable
from tidegate.testing import StreamWatch
from tidegate.testing.bench import Bench
from tidegate.testing.site import Site


def bench(make_broker=MemoryBroker, patience=10.0):
    return Bench(make_broker, faults=None, seed=0, patience=patience)


async def test_clients_read_what_is_published():
    async with Site(bench()) as site:
        watch = StreamWatch()
        site.open(watch, ["check:a", "check:b"])
        await site.until(lambda: watch.held, "the stream opens")
        assert len(await site.publish("check:a", range(3))) == 3
        await site.until_at_heads(watch)
        assert watch.events == {"check:a": 3}
        site.cut(watch)
        await site.publish("check:b", range(2))
        site.open(watch, ["check:a", "check:b"])
        await site.until_at_heads(watch)
        assert watch.events == {"check:a": 3, "check:b": 2}
        assert watch.problems == []


async def test_waiting_has_an_end():
    async with Site(bench(patience=0.05)) as site:
        watch = StreamWatch()
        site.open(watch, ["check:a"])
        with pytest.raises(AssertionError, match=r"not within 0\.05 s: the impossible"):
            await site.until(lambda: False, "the impossible")


async def test_a_broker_that_does_not_start_is_stopped():
    made = []

    class Away(MemoryBroker):
        async def start(self, sink):
            made.append(self)
            raise BrokerUnavailable("away")

    with pytest.raises(BrokerUnavailable):
        async with Site(bench(Away)):
            pass
    assert made[0]._stopped
