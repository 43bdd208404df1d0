"""A broker behind a bad relay is the same broker, but for what it tells."""

import random

from tidegate.gateway.brokers.memory import MemoryBroker
from tidegate.testing import BadRelay, MessageFaults, RecordingSink, check_broker
from tidegate.testing.bench import requests_for


async def test_without_faults_it_keeps_the_contract():
    def make():
        return BadRelay(MemoryBroker(), MessageFaults(), random.Random(0))

    report = await check_broker(make)
    assert len(report.passed) >= 35


async def test_messages_are_lost_and_the_history_is_whole():
    relay = BadRelay(MemoryBroker(), MessageFaults(lose=1.0), random.Random(0))
    assert relay.counts == {}
    sink = RecordingSink()
    await relay.start(sink)
    await relay.subscribe(["a"])
    await relay.publish(requests_for("a", range(5)))
    assert sink.of("a") == []
    assert len((await relay.history("a")).publications) == 5
    assert relay.counts["lost"] == 5
    await relay.unsubscribe(["a"])
    await relay.stop()
