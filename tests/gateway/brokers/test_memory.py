import copy
import sys

import pytest
from hypothesis import settings

from tests.gateway.brokers.model import Collector, StoreMachine, request
from tidegate.errors import BrokerUnavailable
from tidegate.gateway.brokers.base import HistoryPolicy, PublishError
from tidegate.gateway.brokers.memory import (
    KEEP_SECONDS,
    MemoryBroker,
    MemoryStore,
    keep_seconds,
    make_epoch,
)
from tidegate.gateway.position import number_of


class MemoryMachine(StoreMachine):
    def make(self):
        return MemoryStore()


TestMemoryStore = MemoryMachine.TestCase
TestMemoryStore.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)


def published(store, count, now=1000.0, **options):
    return [store.append(request(**options), now)[0] for _ in range(count)]


def test_a_store_can_be_copied_and_both_go_on_by_themselves():
    """What a backup is to a file: the copy hands out the same numbers, never the same position."""
    store = MemoryStore()
    published(store, 3)
    copied = copy.deepcopy(store)
    (one,), (other,) = published(store, 1), published(copied, 1)
    assert one.prev == other.prev
    assert one.epoch == other.epoch
    assert number_of(one.position) == number_of(other.position)
    assert one.position != other.position


def test_a_long_history_drops_the_oldest_one_by_one_and_keeps_its_slots_bounded():
    store = MemoryStore()
    positions = [r.position for r in published(store, 5000, size=100)]
    page = store.history("a", 1000.0)
    assert [p.position for p in page.publications] == positions[-100:]
    channel = store._channels["a"]
    assert len(channel.entries) <= 300
    assert [e for e in channel.entries[: channel.first] if e is not None] == []


def test_every_event_of_a_long_history_is_found_by_its_position():
    store = MemoryStore()
    positions = [r.position for r in published(store, 500, size=90)]
    for index in range(400, 500):
        page = store.history("a", 1000.0, after=positions[index])
        kept = [p for p in positions[-90:] if p > positions[index]]
        assert [p.position for p in page.publications] == kept


def test_a_smaller_policy_trims_at_once():
    store = MemoryStore()
    published(store, 10, size=10)
    published(store, 1, size=2)
    assert len(store.history("a", 1000.0).publications) == 2
    published(store, 1, size=0)
    page = store.history("a", 1000.0)
    assert page.publications == []
    assert page.head.position


def test_expired_keys_are_let_go_of_while_others_come():
    store = MemoryStore()
    for second in range(2000):
        store.append(request(idempotency_key=f"k{second}", idempotency_ttl=10.0), 1000.0 + second)
    assert len(store._channels["a"].keys) <= 12
    assert len(store._forget) <= 12


def test_a_key_that_expires_and_comes_again_is_forgotten_once():
    store = MemoryStore()
    for now in (0.0, 0.0, 5.0, 10.0, 10.0):
        store.append(request(idempotency_key="k", idempotency_ttl=5.0), now)
    store.append(request(idempotency_key="k", idempotency_ttl=0.0), 15.0)
    store.append(request(idempotency_key="k", idempotency_ttl=0.0), 15.0)
    assert store.sweep(15.0)
    assert store._channels["a"].keys == {}
    assert store._forget == []


def test_a_sweep_looks_at_a_bounded_number_of_channels():
    store = MemoryStore()
    for number in range(25):
        store.head(f"c{number}", 0.0)
    steps = [store.sweep(KEEP_SECONDS, limit=10) for _ in range(3)]
    assert steps == [False, False, True]
    assert len(store) == 0


def test_a_channel_is_kept_as_long_as_a_key_of_it_is():
    store = MemoryStore()
    published(store, 1, now=0.0, idempotency_key="k", idempotency_ttl=30 * KEEP_SECONDS)
    published(store, 1, now=1.0)
    store.sweep(20 * KEEP_SECONDS)
    assert len(store) == 1
    store.sweep(31 * KEEP_SECONDS)
    assert len(store) == 0


def test_keep_seconds_is_a_day_or_what_the_policy_needs():
    assert keep_seconds(HistoryPolicy()) == 24 * 3600
    assert keep_seconds(HistoryPolicy(ttl=100_000)) == 200_000
    assert keep_seconds(HistoryPolicy(idempotency_ttl=300_000)) == 300_000


def test_an_epoch_is_16_hexadecimal_digits_of_the_randomness_given():
    assert make_epoch(lambda n: b"\x01\xab" * (n // 2)) == "01ab01ab01ab01ab"


@pytest.mark.parametrize("now", [1e300, float("inf"), float("nan")])
def test_a_clock_without_sense_fails_the_publish_and_leaves_no_trace(now):
    store = MemoryStore()
    (first,) = published(store, 1)
    result, publication = store.append(request(), now)
    assert isinstance(result, PublishError)
    assert (result.code, result.certain, publication) == ("broker_error", True, None)
    (second,) = published(store, 1)
    assert second.prev == first.position


async def test_before_start_and_after_stop_nothing_is_published_and_all_else_raises():
    broker = MemoryBroker()
    for words in ("has not started", "has stopped"):
        (result,) = await broker.publish([request()])
        assert isinstance(result, PublishError)
        assert (result.code, result.certain) == ("broker_unavailable", True)
        assert words in result.error
        with pytest.raises(BrokerUnavailable, match=words):
            await broker.heads(["a"])
        await broker.stop()
        await broker.stop()
    with pytest.raises(RuntimeError):
        await broker.start(Collector())


async def test_it_starts_once():
    broker = MemoryBroker()
    await broker.start(Collector())
    with pytest.raises(RuntimeError):
        await broker.start(Collector())
    await broker.stop()


async def test_the_timer_sweeps_all_but_what_is_subscribed():
    now = 1000.0
    broker = MemoryBroker(clock=lambda: now)
    await broker.start(Collector())
    try:
        await broker.subscribe(["held"])
        await broker.heads(["idle"])
        now += 2 * KEEP_SECONDS
        broker._timer.cancel()
        broker._sweep()
        assert set(broker._store._channels) == {"held"}
    finally:
        await broker.stop()


async def test_stop_lets_go_of_its_memory():
    broker = MemoryBroker()
    sink = Collector()
    await broker.start(sink)
    before = sys.getrefcount(sink)
    await broker.subscribe(["a"])
    await broker.publish([request()])
    await broker.stop()
    assert len(broker._store) == 0
    assert sys.getrefcount(sink) < before
