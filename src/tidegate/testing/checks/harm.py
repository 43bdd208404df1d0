"""Checks of a broker whose store is hurt from outside: never a silent gap."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final

from tidegate.errors import BrokerUnavailable
from tidegate.gateway.brokers.base import PublishResult
from tidegate.testing.bench import assert_linked, read_all, requests_for
from tidegate.testing.report import CheckSkipped
from tidegate.testing.site import Site
from tidegate.testing.watch import StreamWatch

if TYPE_CHECKING:
    from tidegate.gateway.brokers.base import Broker
    from tidegate.testing.bench import Bench

__all__ = [
    "CHECKS",
    "a_forgotten_channel_is_a_new_epoch",
    "a_frozen_store_loses_nothing",
    "a_killed_store_keeps_what_it_acknowledged",
    "a_lost_tail_is_told_to_those_who_saw_it",
    "a_trimmed_history_is_told_to_those_who_missed_it",
]


def _need(bench: Bench, *methods: str) -> None:
    if not bench.faults.can(*methods):
        raise CheckSkipped(f"the faults do not define {', '.join(methods)}")


def _assert_whole(watch: StreamWatch) -> None:
    assert not watch.problems, "; ".join(watch.problems[:3])


async def _publish_steadily(
    bench: Bench, broker: Broker, channel: str, over: asyncio.Event
) -> list[PublishResult]:
    """Publish until told to stop, whatever comes; return what was acknowledged."""
    done: list[PublishResult] = []
    number = 0
    while not over.is_set():
        number += 1
        (result,) = await broker.publish(requests_for(channel, [number], size=100_000))
        if isinstance(result, PublishResult):
            done.append(result)
        await asyncio.sleep(bench.rng.choice((0.0, 0.001, 0.01)))
    return done


async def _hurt_in_a_burst(bench: Bench, hurt: str, heal: str) -> None:
    async with Site(bench) as site:
        channel = bench.channel()
        watch = StreamWatch()
        site.open(watch, [channel])
        await site.until(lambda: watch.held, "the stream opens")
        over = asyncio.Event()
        publishing = asyncio.ensure_future(_publish_steadily(bench, site.broker, channel, over))
        try:
            await site.until(lambda: watch.events.get(channel, 0) >= 20, "events come")
            await getattr(bench.faults, hurt)()
            reading = asyncio.ensure_future(site.broker.history(channel, limit=1))
            await asyncio.wait([reading], timeout=0.3)
            await getattr(bench.faults, heal)()
            with contextlib.suppress(BrokerUnavailable, asyncio.CancelledError):
                await asyncio.wait_for(reading, bench.patience)
            seen = watch.events[channel]

            async def reachable() -> bool:
                try:
                    await site.broker.heads([channel])
                except BrokerUnavailable:
                    return False
                return True

            await bench.eventually(reachable, "the store can be reached again")
            await site.until(lambda: watch.events[channel] >= seen + 20, "events come again")
        finally:
            over.set()
            done = await publishing
        await site.until_at_heads(watch)
        _assert_whole(watch)
        pages = await read_all(site.broker, channel)
        events = [event for page in pages for event in page.publications]
        assert_linked(events, prev="")
        kept = {event.position: event.prev for event in events}
        for result in done:
            assert kept.get(result.position) == result.prev, (
                f"an acknowledged event is not in the history: {result}"
            )
        assert not watch.resyncs, f"nothing was lost, and clients were told {watch.resyncs}"


async def a_killed_store_keeps_what_it_acknowledged(bench: Bench) -> None:
    """After a kill in a burst and a restart all acknowledged events are there; streams go on."""
    _need(bench, "kill", "restart")
    await _hurt_in_a_burst(bench, "kill", "restart")


async def a_frozen_store_loses_nothing(bench: Bench) -> None:
    """While the store is frozen calls end with BrokerUnavailable in time; then all goes on."""
    _need(bench, "freeze", "thaw")
    await _hurt_in_a_burst(bench, "freeze", "thaw")


async def a_lost_tail_is_told_to_those_who_saw_it(bench: Bench) -> None:
    """A client that saw events which the store has lost gets a resync, and nobody else does."""
    _need(bench, "checkpoint", "lose_tail")
    faults = bench.faults
    channel, other = bench.channels(2)
    ahead, behind = StreamWatch(), StreamWatch()

    async with Site(bench) as site:
        for watch in (ahead, behind):
            site.open(watch, (channel, other))
        await site.until(lambda: ahead.held and behind.held, "the streams open")
        await site.publish(channel, range(6))
        await site.publish(other, range(6))
        await site.until_at_heads(ahead, behind)
        site.cut(behind)
        if not faults.offline:
            await faults.checkpoint()
            await _lose(bench, site, ahead=ahead, behind=behind, channel=channel, other=other)
            return
    await faults.checkpoint()
    async with Site(bench) as site:
        site.open(ahead, (channel, other))
        await site.publish(channel, ["lost", "lost"])
        await site.until_at_heads(ahead)
    await faults.lose_tail()
    async with Site(bench) as site:
        # As many as were lost: plain numbers would be the same again.
        await site.publish(channel, ["new", "new"])
        await site.publish(other, ["new"])
        for watch in (ahead, behind):
            site.open(watch, (channel, other))
        await _assert_told(site, ahead, behind, channel)


async def _lose(
    bench: Bench, site: Site, *, ahead: StreamWatch, behind: StreamWatch, channel: str, other: str
) -> None:
    await site.publish(channel, ["lost", "lost"])
    await site.until_at_heads(ahead)
    await bench.faults.lose_tail()
    for name, texts in ((channel, ["new", "new"]), (other, ["new"])):
        for text in texts:
            requests = requests_for(name, [text])

            async def published(requests: list = requests) -> bool:  # type: ignore[type-arg]
                (result,) = await site.broker.publish(requests)
                return isinstance(result, PublishResult)

            await bench.eventually(published, "the store takes events again")
    site.open(behind, (channel, other))
    await _assert_told(site, ahead, behind, channel)


async def _assert_told(site: Site, ahead: StreamWatch, behind: StreamWatch, channel: str) -> None:
    await site.until(lambda: ahead.resyncs, "the client that saw lost events is told")
    await site.until_at_heads(ahead, behind)
    for watch in (ahead, behind):
        _assert_whole(watch)
    reasons = {(resync.channel, resync.reason) for resync in ahead.resyncs}
    assert reasons <= {(channel, "history_rewound"), (channel, "epoch_reset")}, (
        f"it was told {ahead.resyncs}"
    )
    others = [resync for resync in behind.resyncs if resync.reason != "epoch_reset"]
    assert not others, f"a client that missed nothing was told {others}"


async def a_trimmed_history_is_told_to_those_who_missed_it(bench: Bench) -> None:
    """A client that was away while the store dropped events gets a resync, and the survivors."""
    _need(bench, "trim")
    channel = bench.channel()
    away, whole = StreamWatch(), StreamWatch()
    # A node that was there knows the events by itself; another one has to ask.
    async with Site(bench) as site:
        for watch in (away, whole):
            site.open(watch, [channel])
        await site.until(lambda: away.held and whole.held, "the streams open")
        await site.publish(channel, range(3))
        await site.until_at_heads(away, whole)
        site.cut(away)
        await site.publish(channel, range(6))
        await site.until_at_heads(whole)
    if not site.broker.capabilities.durable:
        raise CheckSkipped("the broker is not durable")
    await bench.faults.trim(channel, 2)
    async with Site(bench) as site:
        for watch in (away, whole):
            site.open(watch, [channel])
        await site.until_at_heads(away, whole)
    for watch in (away, whole):
        _assert_whole(watch)
    assert [resync.reason for resync in away.resyncs] == ["ring_evicted"], f"{away.resyncs}"
    assert away.events[channel] == 3 + 2, "the survivors did not follow"
    assert not whole.resyncs, "a client that missed nothing was told of a gap"


async def a_forgotten_channel_is_a_new_epoch(bench: Bench) -> None:
    """When the store has lost a channel, clients get a resync, at the next event at the latest."""
    _need(bench, "forget")
    async with Site(bench) as site:
        channel = bench.channel()
        there, away = StreamWatch(), StreamWatch()
        for watch in (there, away):
            site.open(watch, [channel])
        await site.until(lambda: there.held and away.held, "the streams open")
        await site.publish(channel, range(5))
        await site.until_at_heads(there, away)
        site.cut(away)
        await bench.faults.forget(channel)
        await site.publish(channel, range(5))
        site.open(away, [channel])
        await site.until_at_heads(there, away)
        for watch in (there, away):
            _assert_whole(watch)
            reasons = {resync.reason for resync in watch.resyncs}
            assert reasons == {"epoch_reset"}, f"a client was told {watch.resyncs}"


CHECKS: Final = (
    a_killed_store_keeps_what_it_acknowledged,
    a_frozen_store_loses_nothing,
    a_lost_tail_is_told_to_those_who_saw_it,
    a_trimmed_history_is_told_to_those_who_missed_it,
    a_forgotten_channel_is_a_new_epoch,
)
