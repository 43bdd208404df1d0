"""The contract, by both brokers of one node; and the types that node and brokers share."""

import asyncio
from contextlib import asynccontextmanager

import msgspec
import pytest

from tests.gateway.brokers.model import Collector, request
from tidegate.errors import BrokerUnavailable, SnapshotAhead
from tidegate.gateway.brokers.base import (
    HISTORY_LIMIT,
    PAGE_BYTES,
    Head,
    HistoryPage,
    Publication,
    PublishError,
    PublishResult,
    Snapshot,
)
from tidegate.gateway.brokers.memory import MemoryBroker
from tidegate.gateway.brokers.sqlite import SqliteBroker
from tidegate.gateway.position import NONE, number_of


class Clock:
    now = 1_790_000_000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def sink():
    return Collector()


@pytest.fixture(params=["memory", "sqlite"])
async def broker(request, tmp_path, clock, sink):
    if request.param == "memory":
        made = MemoryBroker(clock=clock)
    else:
        made = SqliteBroker(tmp_path / "history.db", clock=clock)
    await made.start(sink)
    yield made
    await made.stop()


@asynccontextmanager
async def task_of(coroutine):
    task = asyncio.ensure_future(coroutine)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def publish(broker, count=1, channel="a", **options):
    results = await broker.publish([request(channel, **options) for _ in range(count)])
    assert all(isinstance(r, PublishResult) for r in results), results
    return results


def linked(publications, first=NONE):
    prevs = [first, *(p.position for p in publications)]
    return [p.prev for p in publications] == prevs[:-1]


async def test_events_are_linked_and_in_order(broker):
    results = await publish(broker, 5)
    page = await broker.history("a")
    assert [p.position for p in page.publications] == [r.position for r in results]
    assert [p.position for p in page.publications] == sorted(r.position for r in results)
    assert linked(results)
    assert linked(page.publications)
    assert page.complete
    assert page.head == Head(results[0].epoch, results[-1].position)
    assert {p.epoch for p in page.publications} == {page.epoch}


async def test_an_event_comes_back_as_it_was_published(broker):
    payload = '{"data":"ä\u2028","_meta":{"serverTimestamp":1}}'.encode()
    await broker.publish([request(payload=payload, tags={"k": "v"}, version=7)])
    (event,) = (await broker.history("a")).publications
    assert (event.type, event.payload, event.tags, event.version) == ("t", payload, {"k": "v"}, 7)
    assert isinstance(event.payload, bytes)


async def test_an_empty_batch_has_no_results(broker):
    assert await broker.publish([]) == []


async def test_a_batch_of_several_channels_has_its_results_in_order(broker):
    names = ["a", "b", "a", "c", "b"]
    results = await broker.publish([request(name) for name in names])
    assert [r.channel for r in results] == names
    assert results[2].prev == results[0].position
    assert results[1].prev == NONE


async def test_concurrent_publishes_are_appended_in_the_order_in_which_they_were_made(broker):
    payloads = [b'{"data":%d}' % number for number in range(300)]
    await asyncio.gather(*(broker.publish([request(payload=one)]) for one in payloads))
    page = await broker.history("a")
    assert [p.payload for p in page.publications] == payloads
    assert linked(page.publications)


async def test_a_subscribed_channel_is_told_in_order_after_its_head(broker, sink):
    await publish(broker, 3)
    heads = await broker.subscribe(["a", "b"])
    before = (await broker.history("a")).head
    assert heads["a"] == before
    assert heads["b"].position == NONE
    results = await publish(broker, 3)
    await publish(broker, 1, "c")
    (first_of_b,) = await publish(broker, 1, "b")
    assert sink.positions("a")[-3:] == [r.position for r in results]
    assert sink.positions("b") == [first_of_b.position]
    assert first_of_b.epoch == heads["b"].epoch
    assert sink.positions("c") == []


async def test_an_event_is_told_before_its_publish_returns_and_as_history_has_it(broker, sink):
    await broker.subscribe(["a"])
    for number in range(20):
        await publish(broker)
        assert len(sink.positions("a")) == number + 1
    page = await broker.history("a")
    assert [p for _, p in sink.told] == list(page.publications)


async def test_a_subscribe_among_publishes_misses_nothing_after_its_head(broker, sink):
    async def publisher():
        for _ in range(50):
            await broker.publish([request(), request()])

    async def subscriber():
        await asyncio.sleep(0)
        return (await broker.subscribe(["a"]))["a"]

    _, head, _ = await asyncio.gather(publisher(), subscriber(), publisher())
    page = await broker.history("a", after=head.position)
    expected = [p.position for p in page.publications]
    told = sink.positions("a")
    assert told[len(told) - len(expected) :] == expected
    assert told == sorted(told)


async def test_subscribing_again_changes_nothing(broker, sink):
    first = await broker.subscribe(["a"])
    assert await broker.subscribe(["a", "a"]) == first
    await publish(broker)
    assert len(sink.positions("a")) == 1


async def test_after_unsubscribing_no_more_is_told_and_subscribing_goes_on(broker, sink):
    await broker.subscribe(["a", "b"])
    await broker.unsubscribe(["a", "unknown"])
    await broker.heads(["a"])
    await publish(broker)
    await publish(broker, 1, "b")
    assert sink.positions("a") == []
    assert len(sink.positions("b")) == 1
    await broker.unsubscribe([])
    heads = await broker.subscribe(["a"])
    (result,) = await publish(broker)
    assert result.prev == heads["a"].position
    assert sink.positions("a") == [result.position]


async def test_every_first_touch_makes_an_epoch_that_stays(broker):
    touches = {
        "history": lambda: broker.history("history"),
        "heads": lambda: broker.heads(["heads"]),
        "subscribe": lambda: broker.subscribe(["subscribe"]),
        "snapshot": lambda: broker.put_snapshot("snapshot", b"1", NONE),
        "publish": lambda: publish(broker, 1, "publish"),
    }
    for touch in touches.values():
        await touch()
    heads = await broker.heads(touches)
    assert list(heads) == list(touches)
    assert await broker.heads(touches) == heads
    epochs = {head.epoch for head in heads.values()}
    assert len(epochs) == len(touches)
    assert all(len(epoch) == 16 and int(epoch, 16) >= 0 for epoch in epochs)
    (result,) = await publish(broker, 1, "history")
    assert (result.epoch, result.prev) == (heads["history"].epoch, NONE)


async def test_no_channels_have_no_heads(broker):
    assert await broker.heads([]) == {}
    assert await broker.subscribe([]) == {}


async def test_the_number_is_exactly_what_the_policy_says(broker):
    for size in (1, 2, 5):
        results = await publish(broker, 12, f"c{size}", size=size)
        page = await broker.history(f"c{size}")
        assert [p.position for p in page.publications] == [r.position for r in results[-size:]]
        assert page.publications[0].prev == results[-size - 1].position


async def test_a_history_of_nought_keeps_nothing_and_its_chain_goes_on(broker, sink):
    await broker.subscribe(["a"])
    results = await publish(broker, 3, size=0)
    page = await broker.history("a")
    assert (list(page.publications), page.complete) == ([], True)
    assert page.head.position == results[-1].position
    assert linked(results)
    assert sink.positions("a") == [r.position for r in results]


async def test_events_expire_together_and_the_head_stays(broker, clock):
    await publish(broker, ttl=10.0)
    clock.now += 9.0
    (last,) = await publish(broker, ttl=10.0)
    clock.now += 9.9
    assert len((await broker.history("a")).publications) == 2
    clock.now += 0.2
    page = await broker.history("a")
    assert list(page.publications) == []
    assert page.head == Head(last.epoch, last.position)
    (after,) = await publish(broker, ttl=10.0)
    assert after.prev == last.position
    page = await broker.history("a")
    assert [p.position for p in page.publications] == [after.position]


async def test_a_clock_that_goes_back_does_not_break_the_order(broker, clock):
    (first,) = await publish(broker)
    clock.now -= 3600.0
    (second,) = await publish(broker)
    assert second.position > first.position
    assert number_of(second.position) == number_of(first.position) + 1


async def test_pages_go_forwards_and_backwards(broker):
    positions = [r.position for r in await publish(broker, 10)]

    async def read(**options):
        page = await broker.history("a", **options)
        return [positions.index(p.position) for p in page.publications], page.complete

    assert await read(limit=4) == ([0, 1, 2, 3], False)
    assert await read(limit=4, after=positions[3]) == ([4, 5, 6, 7], False)
    assert await read(limit=4, after=positions[5]) == ([6, 7, 8, 9], True)
    assert await read(after=positions[9]) == ([], True)
    assert await read(limit=3, newest_first=True) == ([9, 8, 7], False)
    assert await read(limit=3, newest_first=True, after=positions[3]) == ([2, 1, 0], True)
    assert await read(newest_first=True, after=positions[0]) == ([], True)
    assert await read(limit=0) == ([], False)
    assert await read(limit=0, after=positions[9]) == ([], True)
    assert await read(after=NONE) == (list(range(10)), True)


async def test_a_page_has_its_limit_of_events_by_default(broker):
    await publish(broker, HISTORY_LIMIT + 1, size=2 * HISTORY_LIMIT)
    page = await broker.history("a")
    assert len(page.publications) == HISTORY_LIMIT
    assert not page.complete


async def test_a_page_ends_behind_the_event_that_fills_its_bytes(broker):
    third = b'"' + b"x" * (PAGE_BYTES // 3 + 10) + b'"'
    await publish(broker, 5, payload=third)
    page = await broker.history("a")
    assert (len(page.publications), page.complete) == (3, False)
    await publish(broker, 1, payload=b'"' + b"x" * (PAGE_BYTES + 1) + b'"')
    page = await broker.history("a", newest_first=True)
    assert (len(page.publications), page.complete) == (1, False)


async def test_an_old_version_is_suppressed_and_tells_the_head(broker, sink):
    await broker.subscribe(["a"])
    first, second = await broker.publish([request(version=5), request()])
    old, same, new = await broker.publish([request(version=v) for v in (4, 5, 6)])
    for result in (old, same):
        assert result.suppressed
        assert (result.position, result.prev) == (second.position, first.position)
    assert not new.suppressed
    assert new.prev == second.position
    assert sink.positions("a") == [r.position for r in (first, second, new)]


async def test_a_key_returns_the_first_result_also_within_a_batch(broker, sink, clock):
    await broker.subscribe(["a"])
    first, again, other = await broker.publish(
        [request(idempotency_key=key, idempotency_ttl=10.0) for key in ("k", "k", "l")]
    )
    (late,) = await broker.publish([request(idempotency_key="k", version=1)])
    (elsewhere,) = await broker.publish([request("b", idempotency_key="k")])
    for result in (again, late):
        assert result.duplicate
        assert (result.position, result.epoch, result.prev) == (
            first.position,
            first.epoch,
            first.prev,
        )
    assert not first.duplicate
    assert not elsewhere.duplicate
    assert len(sink.positions("a")) == 2
    clock.now += 10.0
    (renewed,) = await broker.publish([request(idempotency_key="k", idempotency_ttl=10.0)])
    assert not renewed.duplicate
    assert renewed.prev == other.position


async def test_a_key_remembers_that_its_publish_was_suppressed(broker):
    await publish(broker, version=3)
    first, again = await broker.publish([request(version=3, idempotency_key="k")] * 2)
    assert (first.suppressed, first.duplicate) == (True, False)
    assert (again.suppressed, again.duplicate) == (True, True)
    assert again.position == first.position


async def test_removing_a_history_begins_an_epoch_that_all_are_told_of(broker, sink):
    await broker.subscribe(["a"])
    (old,) = await publish(broker, version=9, idempotency_key="k")
    await broker.put_snapshot("a", b"1", old.position)
    head = await broker.remove_history("a")
    assert head.position == NONE
    assert head.epoch != old.epoch
    assert sink.told[-1] == ("a", head)
    page = await broker.history("a")
    assert (list(page.publications), page.head) == ([], head)
    assert await broker.get_snapshot("a") is None
    duplicate, new = await broker.publish([request(idempotency_key="k"), request(version=1)])
    assert duplicate.duplicate
    assert (duplicate.position, duplicate.epoch) == (old.position, old.epoch)
    assert (new.prev, new.epoch) == (NONE, head.epoch)
    assert new.position > old.position
    await broker.remove_history("b")
    assert sink.told[-1] != ("b", (await broker.heads(["b"]))["b"])


async def test_the_numbers_go_on_growing_over_epochs_that_have_no_event(broker, clock):
    (old,) = await publish(broker)
    clock.now -= 100.0
    await broker.remove_history("a")
    await broker.remove_history("a")
    (new,) = await publish(broker)
    assert number_of(new.position) == number_of(old.position) + 1


async def test_a_snapshot_stands_at_a_position_of_the_epoch_and_moves_forward_only(broker):
    first, second = await publish(broker, 2)
    stored = await broker.put_snapshot("a", b'{"n":1}', first.position)
    assert stored == Snapshot(state=b'{"n":1}', position=first.position, epoch=first.epoch)
    assert await broker.get_snapshot("a") == stored
    assert stored.decoded() == {"n": 1}
    await broker.put_snapshot("a", b"2", second.position)
    for position in (first.position, NONE, second.position[:-1] + "~", "nonsense"):
        with pytest.raises(SnapshotAhead):
            await broker.put_snapshot("a", b"3", position)
    await broker.put_snapshot("a", b"4", second.position)
    assert (await broker.get_snapshot("a")).state == b"4"
    await broker.remove_history("a")
    with pytest.raises(SnapshotAhead):
        await broker.put_snapshot("a", b"5", second.position)
    await publish(broker)
    with pytest.raises(SnapshotAhead):
        await broker.put_snapshot("a", b"5", second.position)
    assert await broker.get_snapshot("unknown") is None


async def test_a_snapshot_outlives_its_events(broker, clock):
    (result,) = await publish(broker, ttl=10.0)
    await broker.put_snapshot("a", b"1", result.position)
    clock.now += 100.0
    assert (await broker.get_snapshot("a")).position == result.position


async def test_an_item_that_cannot_be_stored_does_not_touch_the_others(broker, clock, sink):
    await broker.subscribe(["a", "b"])
    await publish(broker)
    now, clock.now = clock.now, 1e300
    results = await broker.publish([request(), request("b", idempotency_key="k")])
    assert [(r.code, r.certain) for r in results] == [("broker_error", True)] * 2
    clock.now = now
    good, again = await broker.publish([request(), request("b", idempotency_key="k")])
    assert isinstance(good, PublishResult)
    assert not again.duplicate
    assert len(sink.positions("a")) == 2


async def test_a_cancelled_publish_that_was_begun_is_stored_and_told(broker, sink):
    await broker.subscribe(["a"])
    async with task_of(broker.publish([request()])) as task:
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    (second,) = await publish(broker)
    page = await broker.history("a")
    assert len(page.publications) == 2
    assert sink.positions("a") == [page.publications[0].position, second.position]


async def test_after_stop_nothing_is_taken(broker):
    await publish(broker)
    await broker.stop()
    await broker.stop()
    (result,) = await broker.publish([request()])
    assert isinstance(result, PublishError)
    assert (result.code, result.certain) == ("broker_unavailable", True)
    for call in (
        broker.history("a"),
        broker.heads(["a"]),
        broker.subscribe(["a"]),
        broker.unsubscribe(["a"]),
        broker.remove_history("a"),
        broker.put_snapshot("a", b"1", NONE),
        broker.get_snapshot("a"),
    ):
        with pytest.raises(BrokerUnavailable, match="has stopped"):
            await call


async def test_both_brokers_are_for_one_node(broker):
    assert broker.capabilities.durable == isinstance(broker, SqliteBroker)
    assert not broker.capabilities.shared


def test_a_page_says_the_epoch_of_its_head():
    page = HistoryPage(publications=[], head=Head("e", NONE), complete=True)
    assert page.epoch == "e"


def test_a_publication_says_roughly_what_it_takes():
    event = Publication(position="p", prev="", epoch="e", type="t", payload=b"x" * 1000)
    assert 1000 < event.size < 2000


def test_what_was_published_cannot_be_changed():
    asked = request()
    with pytest.raises(AttributeError):
        asked.type = "other"
    assert msgspec.structs.replace(asked, type="other").type == "other"
