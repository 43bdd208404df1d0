"""The store on a bad day: each fault happens when asked for, is counted, and can be stopped."""

import asyncio

import pytest

from tidegate.errors import BrokerUnavailable
from tidegate.gateway.brokers.base import PublishError, PublishResult
from tidegate.testing import (
    FaultyStore,
    MessageFaults,
    RecordingSink,
    SimulatedClock,
    StoreFaults,
    check_broker,
    run_simulated,
)
from tidegate.testing.bench import assert_linked, requests_for


async def started(store, name="node"):
    broker, sink = store.broker(name), RecordingSink()
    await broker.start(sink)
    return broker, sink


async def publish(broker, channel="a", many=1, **options):
    return await broker.publish(requests_for(channel, range(many), **options))


async def test_on_a_good_day_it_keeps_the_contract():
    store = FaultyStore()
    report = await check_broker(store.broker)
    assert len(report.passed) >= 35
    assert set(store.counts) >= {"trimmed", "tails_lost"}


async def test_latency_changes_nothing_of_the_contract():
    report = await check_broker(
        FaultyStore(faults=StoreFaults(latency=0.001)).broker,
        only=[
            "concurrent_publishes_keep_the_order_of_the_calls",
            "a_subscriber_gets_every_event_after_the_head",
            "page_and_head_are_read_at_once",
            "nodes_share_one_history",
        ],
    )
    assert len(report.passed) == 4


async def test_it_knows_what_truly_happened():
    store = FaultyStore()
    broker, _ = await started(store)
    await publish(broker, "a", 2)
    await publish(broker, "b", 1)
    await publish(broker, "a", 1)
    assert [(one.serial, one.parent, one.channel) for one in store.appended] == [
        (0, None, "a"),
        (1, 0, "a"),
        (2, None, "b"),
        (3, 1, "a"),
    ]
    assert store.tip("a") == 3
    assert store.tip("c") is None
    await broker.stop()


async def test_a_lost_tail_repeats_numbers_but_not_positions():
    store = FaultyStore(clock=lambda: 1000.0)
    broker, _ = await started(store)
    assert not store.lose_tail()
    await publish(broker, "a", 3)
    store.checkpoint()
    lost = await publish(broker, "a", 2)
    for _ in range(2):
        assert store.lose_tail()
        again = await publish(broker, "a", 2)
        assert [result.position[:10] for result in again] == [
            result.position[:10] for result in lost
        ]
        assert {result.position for result in again}.isdisjoint(r.position for r in lost)
        assert again[0].epoch == lost[0].epoch
        assert again[0].prev == lost[0].prev
        assert store.appended[-2].parent == 2
    assert store.counts["tails_lost"] == 2
    assert_linked((await broker.history("a")).publications, prev="")
    await broker.stop()


async def test_histories_are_trimmed_removed_and_forgotten():
    store = FaultyStore()
    broker, sink = await started(store)
    start = (await broker.subscribe(["a"]))["a"]
    results = await publish(broker, "a", 5)
    store.trim("a", 2)
    page = await broker.history("a")
    assert [event.position for event in page.publications] == [r.position for r in results[3:]]
    assert page.head.position == results[-1].position
    head = store.new_epoch("a")
    assert head.epoch != start.epoch
    assert sink.resets == {"a": [head]}
    (first,) = await publish(broker, "a")
    assert first.prev == ""
    assert store.appended[-1].parent is None
    store.forget("a")
    assert sink.resets == {"a": [head]}
    assert store.head("a").epoch not in {head.epoch, start.epoch}
    await publish(broker, "a", 1, idempotency_key="k")
    store.forget("a")
    (again,) = await publish(broker, "a", 1, idempotency_key="k")
    assert not again.duplicate
    store.trim("unknown", 0)
    await broker.stop()


async def test_the_clock_goes_back():
    store = FaultyStore(clock=lambda: 1_700_000_000.0)
    broker, _ = await started(store)
    (before,) = await publish(broker)
    store.clock_back(3600.0)
    assert store.now() == 1_700_000_000.0 - 3600.0
    (after,) = await publish(broker)
    assert after.position > before.position
    await broker.stop()


async def test_calls_are_refused_or_their_answers_lost():
    store = FaultyStore(faults=StoreFaults(refuse=1.0))
    broker, _ = await started(store)
    for call in (
        broker.subscribe(["a"]),
        broker.unsubscribe(["a"]),
        broker.history("a"),
        broker.heads(["a"]),
        broker.remove_history("a"),
        broker.put_snapshot("a", b"1", ""),
        broker.get_snapshot("a"),
    ):
        with pytest.raises(BrokerUnavailable):
            await call
    (refused,) = await publish(broker)
    assert isinstance(refused, PublishError)
    assert refused.certain
    assert store.appended == []
    store.faults.refuse = 0.0
    store.faults.lose_answer = 1.0
    (lost,) = await publish(broker)
    assert isinstance(lost, PublishError)
    assert not lost.certain
    assert len(store.appended) == 1
    assert store.counts["refused"] == 8
    assert store.counts["answers_lost"] == 1
    store.faults.stop()
    (stored,) = await publish(broker)
    assert isinstance(stored, PublishResult)
    assert stored.prev == store.appended[0].publication.position
    await broker.stop()


async def test_a_node_that_is_cut_off_is_told_and_misses_what_happens():
    store = FaultyStore()
    broker, sink = await started(store)
    other, _ = await started(store, "other")
    await broker.subscribe(["a"])
    store.disconnect(broker, 0.02)
    assert not sink.connected
    with pytest.raises(BrokerUnavailable):
        await broker.heads(["a"])
    await publish(other)
    await sink.until(lambda: sink.connected, 10.0, "it is connected again")
    await publish(other)
    assert len(sink.of("a")) == 1
    assert store.counts["disconnected"] == 1
    await broker.stop()
    await other.stop()


async def test_pages_end_early():
    store = FaultyStore(faults=StoreFaults(short_page=1.0))
    broker, _ = await started(store)
    await publish(broker, "a", 50)
    page = await broker.history("a")
    assert 1 <= len(page.publications) <= 8
    assert not page.complete
    assert store.counts["short_pages"] == 1
    assert len((await broker.history("a", limit=1)).publications) == 1
    await broker.stop()


async def test_a_broker_starts_once_and_stops_for_good():
    store = FaultyStore()
    broker, sink = await started(store)
    with pytest.raises(RuntimeError):
        await broker.start(sink)
    await broker.subscribe(["a"])
    store.disconnect(broker, 10.0)
    await broker.stop()
    await broker.stop()
    with pytest.raises(RuntimeError):
        await broker.start(sink)
    with pytest.raises(BrokerUnavailable):
        await broker.history("a")


def a_bad_day(seed):
    async def main():
        faults = StoreFaults(
            messages=MessageFaults(lose=0.1, delay=0.1, double=0.1, swap=0.1),
            latency=0.01,
            refuse=0.05,
            lose_answer=0.05,
            trim=0.02,
            new_epoch=0.02,
            clock_back=0.02,
            lose_tail=0.02,
            copy=0.1,
            disconnect=0.02,
        )
        store = FaultyStore(seed, faults=faults, clock=SimulatedClock())
        nodes = [await started(store, name) for name in ("one", "two")]
        for broker, _ in nodes:
            for _ in range(100):
                try:
                    await broker.subscribe(["a", "b"])
                    break
                except BrokerUnavailable:
                    pass
        for n in range(400):
            await publish(nodes[n % 2][0], "ab"[n % 3 % 2])
        await asyncio.sleep(5.0)
        messages = store.message_counts()
        for broker, _ in nodes:
            await broker.stop()
        told = [[event.position for event in sink.of("a")] for _, sink in nodes]
        return told, store.counts, messages, [one.publication for one in store.appended]

    return run_simulated(main())


def test_a_seed_is_the_same_day_again():
    told, counts, messages, appended = a_bad_day(5)
    assert a_bad_day(5) == (told, counts, messages, appended)
    assert a_bad_day(6)[3] != appended
    assert all(counts[kind] for kind in counts if kind != "short_pages"), counts
    assert all(messages.values()), messages
