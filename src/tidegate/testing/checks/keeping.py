"""Checks of a broker: what is kept of a channel, how long, and across restarts."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from tidegate.gateway.position import number_of
from tidegate.testing.bench import assert_linked, requests_for, stored
from tidegate.testing.report import CheckSkipped

if TYPE_CHECKING:
    from tidegate.testing.bench import Bench

__all__ = [
    "CHECKS",
    "a_clock_that_goes_back_breaks_nothing",
    "a_key_is_remembered_for_its_time",
    "a_restart_keeps_what_was_acknowledged",
    "a_restart_of_a_broker_that_keeps_nothing_is_a_new_epoch",
    "history_has_exactly_its_size",
    "history_is_dropped_after_its_ttl",
    "stop_is_idempotent",
    "stop_leaves_no_task_behind",
    "the_last_policy_holds",
    "the_ttl_counts_from_the_last_publish",
    "without_history_the_chain_goes_on",
]


async def history_has_exactly_its_size(bench: Bench) -> None:
    """policy.size is how many of the newest events are kept, no more and no less."""
    async with bench.broker() as (broker, _):
        for size in (1, 4, 100):
            channel = bench.channel()
            results = stored(await broker.publish(requests_for(channel, range(3), size=size)))
            for many in (1, 1, 130, 2):
                results += stored(
                    await broker.publish(requests_for(channel, range(many), size=size))
                )
                page = await broker.history(channel)
                wanted = [result.position for result in results[-size:]]
                found = [event.position for event in page.publications]
                assert found == wanted, (
                    f"{len(found)} events are kept, not the newest {len(wanted)}"
                )
                assert page.complete, "nothing lies beyond what is kept"
                first = page.publications[0]
                before = results[-size - 1].position if len(results) > size else ""
                assert first.prev == before, (
                    "the oldest event names another predecessor than it had"
                )


async def the_last_policy_holds(bench: Bench) -> None:
    """Each publish brings its policy: a smaller size drops events, a larger one keeps more."""
    async with bench.broker() as (broker, _):
        channel = bench.channel()
        kept = 0
        for size, many in ((4, 6), (2, 1), (5, 1), (5, 4), (0, 1), (3, 2), (1, 1)):
            stored(await broker.publish(requests_for(channel, range(many), size=size)), many)
            kept = min(kept + many, size)
            page = await broker.history(channel)
            assert len(page.publications) == kept, (
                f"{len(page.publications)} events are kept at size {size}, not {kept}"
            )
            assert_linked(page.publications, epoch=page.head.epoch)


async def without_history_the_chain_goes_on(bench: Bench) -> None:
    """policy.size 0 keeps no event: positions are handed out, linked and delivered."""
    async with bench.broker() as (broker, sink):
        channel = bench.channel()
        head = (await broker.subscribe([channel]))[channel]
        results = stored(await broker.publish(requests_for(channel, range(5), size=0)), 5)
        results += stored(await broker.publish(requests_for(channel, range(1), size=0)), 1)
        prev = ""
        for result in results:
            assert result.prev == prev, "prev is not the event before"
            assert result.epoch == head.epoch, "another epoch than that of the subscribe"
            prev = result.position
        page = await broker.history(channel)
        assert not page.publications, "with size 0 nothing is kept"
        assert page.complete, "nothing lies beyond nothing"
        assert page.head.position == prev, "the head is not the last event"
        await sink.until(
            lambda: (
                {result.position for result in results}
                <= {event.position for event in sink.of(channel)}
            ),
            bench.patience,
            "events without history are delivered",
        )


async def history_is_dropped_after_its_ttl(bench: Bench) -> None:
    """After policy.ttl all events are dropped; epoch, head and the chain stay."""
    async with bench.broker() as (broker, _):
        channel, other = bench.channels(2)
        ttl = 1.0 if bench.clock is None else 600.0
        results = stored(await broker.publish(requests_for(channel, range(5), ttl=ttl)), 5)
        stored(await broker.publish(requests_for(other, range(2))), 2)
        assert len((await broker.history(channel)).publications) == 5, "dropped before its time"
        await bench.pass_time(ttl * 1.05)

        async def dropped() -> bool:
            return not (await broker.history(channel)).publications

        await bench.eventually(dropped, "the events are dropped")
        page = await broker.history(channel)
        assert page.complete, "nothing lies beyond nothing"
        head = page.head
        assert head.position == results[-1].position, "the head went with the events"
        assert head.epoch == results[-1].epoch, "the epoch went with the events"
        assert (await broker.heads([channel]))[channel] == head, "heads says otherwise"
        (result,) = stored(await broker.publish(requests_for(channel, ["new"])), 1)
        assert result.prev == head.position, "the next event does not link to the head"
        assert result.epoch == head.epoch, "the next event began another epoch"
        page = await broker.history(channel)
        assert [event.position for event in page.publications] == [result.position], (
            "an event that was dropped is there again"
        )
        assert len((await broker.history(other)).publications) == 2, "others were dropped, too"


async def the_ttl_counts_from_the_last_publish(bench: Bench) -> None:
    """Each publish keeps all events of its channel for another ttl."""
    clock = bench.need_clock()
    async with bench.broker() as (broker, _):
        channel = bench.channel()
        for _ in range(4):
            stored(await broker.publish(requests_for(channel, ["x"], ttl=100.0)), 1)
            clock.advance(70.0)
        page = await broker.history(channel)
        assert len(page.publications) == 4, "dropped though the channel was in use"
        assert_linked(page.publications, prev="")
        clock.advance(25.0)
        assert len((await broker.history(channel)).publications) == 4, "dropped before its time"
        clock.advance(10.0)

        async def dropped() -> bool:
            return not (await broker.history(channel)).publications

        await bench.eventually(dropped, "the events are dropped")


async def a_key_is_remembered_for_its_time(bench: Bench) -> None:
    """policy.idempotency_ttl is how long a key is known, whatever became of the event."""
    clock = bench.need_clock()
    async with bench.broker() as (broker, _):
        channel = bench.channel()
        keyed = requests_for(
            channel, ["x"], size=2, ttl=10.0, idempotency_ttl=1000.0, idempotency_key="k"
        )
        (first,) = stored(await broker.publish(keyed), 1)
        stored(await broker.publish(requests_for(channel, range(5), size=2)), 5)
        clock.advance(900.0)
        (again,) = stored(await broker.publish(keyed), 1)
        assert again.duplicate, "a key was forgotten before its time"
        assert (again.position, again.prev) == (first.position, first.prev), "another result"
        clock.advance(200.0)

        async def forgotten() -> bool:
            (result,) = stored(await broker.publish(keyed), 1)
            return not result.duplicate

        await bench.eventually(forgotten, "the key is forgotten")


async def a_clock_that_goes_back_breaks_nothing(bench: Bench) -> None:
    """When the clock goes back positions grow all the same, and the chain holds."""
    clock = bench.need_clock()
    now = clock.now
    try:
        async with bench.broker() as (broker, sink):
            channel = bench.channel()
            await broker.subscribe([channel])
            results = []
            for step in (0.0, -3600.0, 1.0, -86400.0 * 400, 2.0, -now, 0.5):
                clock.now = max(clock.now + step, 1.0)
                results += stored(await broker.publish(requests_for(channel, range(3))), 3)
            prev = ""
            for result in results:
                assert result.prev == prev, "the chain broke"
                assert number_of(result.position) > number_of(prev), "a position does not grow"
                assert result.epoch == results[0].epoch, "a new epoch began"
                prev = result.position
            page = await broker.history(channel)
            assert_linked(page.publications, prev="")
            assert page.head.position == prev, "the head is not the last event"
            assert len(page.publications) == len(results), "events were lost"
            await sink.until(
                lambda: (
                    {event.position for event in sink.of(channel)} >= {r.position for r in results}
                ),
                bench.patience,
                "the events are delivered",
            )
    finally:
        clock.now = now


async def a_restart_keeps_what_was_acknowledged(bench: Bench) -> None:
    """A durable broker goes on where it stopped: epoch, events, keys, versions, snapshots."""
    bench.need_durable()
    channel, empty, removed = bench.channels(3)
    async with bench.broker() as (broker, _):
        empty_head = (await broker.subscribe([empty]))[empty]
        results = stored(await broker.publish(requests_for(channel, range(6), size=4)), 6)
        (keyed,) = stored(
            await broker.publish(
                requests_for(channel, ["k"], size=4, idempotency_key="k", version=9)
            ),
            1,
        )
        stored(await broker.publish(requests_for(removed, ["x"])), 1)
        removed_head = await broker.remove_history(removed)
        await broker.put_snapshot(channel, b'{"n":1}', results[2].position)
        before = await broker.history(channel)
    async with bench.broker() as (broker, sink):
        assert await broker.history(channel) == before, "the history is another one"
        heads = await broker.subscribe([channel, empty, removed])
        assert heads[channel] == before.head, "the head is another one"
        assert heads[empty] == empty_head, "an epoch without events was lost"
        assert heads[removed] == removed_head, "the epoch of a removed history was lost"
        snapshot = await broker.get_snapshot(channel)
        assert snapshot is not None, "the snapshot was lost"
        assert (snapshot.state, snapshot.position) == (b'{"n":1}', results[2].position)
        (again,) = stored(
            await broker.publish(requests_for(channel, ["k"], size=4, idempotency_key="k")), 1
        )
        assert again.duplicate, "a key was forgotten"
        assert again.position == keyed.position, "a duplicate returns another place"
        (old,) = stored(await broker.publish(requests_for(channel, ["v"], size=4, version=9)), 1)
        assert old.suppressed, "a version was forgotten"
        (new,) = stored(await broker.publish(requests_for(channel, ["new"], size=4)), 1)
        assert new.prev == before.head.position, "the next event does not link"
        assert new.epoch == before.head.epoch, "the next event began another epoch"
        await sink.until(lambda: sink.of(channel), bench.patience, "the next event is delivered")


async def a_restart_of_a_broker_that_keeps_nothing_is_a_new_epoch(bench: Bench) -> None:
    """Where the history dies with its broker, the next one has another epoch."""
    capabilities = bench.make().capabilities
    if capabilities.durable or capabilities.shared:
        raise CheckSkipped("the broker's history outlives it")
    channel = bench.channel()
    epochs = set()
    for _ in range(3):
        async with bench.broker() as (broker, _):
            (result,) = stored(await broker.publish(requests_for(channel, ["x"])), 1)
            epochs.add(result.epoch)
    assert len(epochs) == 3, "a new life has the epoch of an old one"


async def stop_is_idempotent(bench: Bench) -> None:
    """stop may be called before start, twice, and after a restart of others."""
    broker = bench.make()
    await broker.stop()
    await broker.stop()
    async with bench.broker() as (broker, _):
        await broker.publish(requests_for(bench.channel(), ["x"]))
        await asyncio.gather(broker.stop(), broker.stop())
        await broker.stop()


async def stop_leaves_no_task_behind(bench: Bench) -> None:
    """stop lets go of everything: tasks are done, and the sink is told no more."""
    before = asyncio.all_tasks()
    async with bench.broker() as (broker, sink):
        channel = bench.channel()
        await broker.subscribe([channel])
        for n in range(5):
            stored(await broker.publish(requests_for(channel, [n])), 1)
        await sink.until(lambda: len(sink.of(channel)) >= 5, bench.patience, "events are delivered")
        assert sink.strangers == 0, "the sink was called in another thread than the loop's"
    for _ in range(3):
        await asyncio.sleep(0)
    left = [task for task in asyncio.all_tasks() - before if not task.done()]
    assert not left, f"{len(left)} tasks are left: {left[0]!r}"


CHECKS: Final = (
    history_has_exactly_its_size,
    the_last_policy_holds,
    without_history_the_chain_goes_on,
    history_is_dropped_after_its_ttl,
    the_ttl_counts_from_the_last_publish,
    a_key_is_remembered_for_its_time,
    a_clock_that_goes_back_breaks_nothing,
    a_restart_keeps_what_was_acknowledged,
    a_restart_of_a_broker_that_keeps_nothing_is_a_new_epoch,
    stop_is_idempotent,
    stop_leaves_no_task_behind,
)
