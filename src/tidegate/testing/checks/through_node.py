"""Checks of a broker: what the clients of a node over it see."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from tidegate.testing.sinks import MessageFaults
from tidegate.testing.site import Site
from tidegate.testing.watch import StreamWatch

if TYPE_CHECKING:
    from tidegate.testing.bench import Bench

__all__ = [
    "CHECKS",
    "bad_messages_are_healed",
    "clients_resume_where_they_stopped",
    "streams_are_told_of_a_new_epoch",
    "streams_are_told_of_a_trimmed_history",
    "streams_go_on_after_a_restart",
    "streams_start_at_any_moment",
]


def _assert_whole(watch: StreamWatch, resyncs: int | None = 0) -> None:
    assert not watch.problems, "; ".join(watch.problems[:3])
    if resyncs is not None:
        assert len(watch.resyncs) == resyncs, (
            f"{len(watch.resyncs)} resyncs instead of {resyncs}: {watch.resyncs[:3]}"
        )


async def bad_messages_are_healed(bench: Bench) -> None:
    """With messages lost, late, doubled and reordered clients see each event once, in order."""
    messages = MessageFaults(lose=0.15, delay=0.2, double=0.15, swap=0.15, max_delay=0.03)
    async with Site(bench, messages=messages) as site:
        names = bench.channels(3)
        watches = [StreamWatch() for _ in range(3)]
        for watch in watches:
            site.open(watch, names)
        await site.until(lambda: all(watch.held for watch in watches), "the streams open")
        for n in range(250):
            assert await site.publish(bench.rng.choice(names), [n]), "a publish failed"
            if n % 8 == 0:
                site.read()
                await asyncio.sleep(0.002)
        messages.stop()
        for name in names:
            # What was lost at the end shows by this; else the next comparison of heads would.
            await site.publish(name, ["last"])
        await site.until_at_heads(*watches)
        for watch in watches:
            _assert_whole(watch)
            assert sum(watch.events.values()) == 253, (
                f"{sum(watch.events.values())} events of 253 came"
            )
        assert site.broker.counts["lost"], "no message was lost; was the broker's sink told at all?"


async def clients_resume_where_they_stopped(bench: Bench) -> None:
    """Clients that are cut and come back with their cursor miss nothing and get nothing twice."""
    messages = MessageFaults(lose=0.1, delay=0.2, double=0.1, swap=0.1, max_delay=0.03)
    async with Site(bench, messages=messages) as site:
        names = bench.channels(3)
        watches = [StreamWatch() for _ in range(4)]
        away: set[StreamWatch] = set()
        for watch in watches:
            site.open(watch, names)
        await site.until(lambda: all(watch.held for watch in watches), "the streams open")
        for n in range(250):
            assert await site.publish(bench.rng.choice(names), [n]), "a publish failed"
            if n % 5:
                continue
            watch = bench.rng.choice(watches)
            if watch in away:
                away.discard(watch)
                site.open(watch, bench.rng.sample(names, 3))
            else:
                away.add(watch)
                site.cut(watch)
            site.read()
            await asyncio.sleep(0.001)
        messages.stop()
        for name in names:
            await site.publish(name, ["last"])
        for watch in away:
            site.open(watch, names)
        await site.until_at_heads(*watches)
        for watch in watches:
            _assert_whole(watch)
            assert sum(watch.events.values()) == 253, (
                f"{sum(watch.events.values())} events of 253 came"
            )


async def streams_start_at_any_moment(bench: Bench) -> None:
    """A stream that opens while others publish gets every event behind its start."""
    async with Site(bench) as site:
        names = bench.channels(12)
        watches: list[StreamWatch] = []
        publishing = asyncio.ensure_future(_publish_in_turn(bench, site, names))
        try:
            while not publishing.done():
                watch = StreamWatch()
                watches.append(watch)
                site.open(watch, bench.rng.sample(names, 2))
                for _ in range(bench.rng.randrange(8)):
                    await asyncio.sleep(0)
                    site.read()
                if len(watches) >= 40:
                    break
            await publishing
        finally:
            publishing.cancel()
        await site.until_at_heads(*watches)
        for watch in watches:
            _assert_whole(watch)


async def _publish_in_turn(bench: Bench, site: Site, names: list[str]) -> None:
    for n in range(200):
        assert await site.publish(names[n % len(names)], [n]), "a publish failed"
        for _ in range(bench.rng.randrange(3)):
            await asyncio.sleep(0)


async def streams_are_told_of_a_new_epoch(bench: Bench) -> None:
    """After remove_history open streams and returning clients get one resync, epoch_reset."""
    async with Site(bench) as site:
        channel, other = bench.channels(2)
        there, away = StreamWatch(), StreamWatch()
        for watch in (there, away):
            site.open(watch, (channel, other))
        await site.until(lambda: there.held and away.held, "the streams open")
        await site.publish(channel, range(5))
        await site.publish(other, range(5))
        await site.until_at_heads(there, away)
        site.cut(away)
        head = await site.broker.remove_history(channel)
        await site.until(lambda: there.resyncs, "the open stream is told of the new epoch")
        await site.publish(channel, range(3))
        site.open(away, (channel, other))
        await site.until_at_heads(there, away)
        for watch in (there, away):
            _assert_whole(watch, resyncs=1)
            resync = watch.resyncs[0]
            assert (resync.channel, resync.reason) == (channel, "epoch_reset"), f"{resync}"
            assert resync.at.epoch == head.epoch, "the resync names another epoch"
            assert watch.events[channel] == 8, f"{watch.events[channel]} events of 8 came"


async def streams_are_told_of_a_trimmed_history(bench: Bench) -> None:
    """A client that missed more than is kept gets one resync, ring_evicted, and the survivors."""
    async with Site(bench, size=3) as site:
        channel, other = bench.channels(2)
        watch = StreamWatch()
        site.open(watch, (channel, other))
        await site.until(lambda: watch.held, "the stream opens")
        await site.publish(channel, range(2))
        await site.publish(other, range(2))
        await site.until_at_heads(watch)
        site.cut(watch)
        results = await site.publish(channel, range(6))
        await site.publish(other, range(3))
        site.open(watch, (channel, other))
        await site.until_at_heads(watch)
        _assert_whole(watch, resyncs=1)
        resync = watch.resyncs[0]
        assert (resync.channel, resync.reason) == (channel, "ring_evicted"), f"{resync}"
        assert resync.at.position == results[2].position, "not the place before the survivors"
        assert watch.events == {channel: 2 + 3, other: 2 + 3}, f"{watch.events} came"


async def streams_go_on_after_a_restart(bench: Bench) -> None:
    """Clients of a durable broker resume on the next node, also when nobody was there for it."""
    bench.need_durable()
    names = bench.channels(3)
    watch = StreamWatch()
    wanted = 0
    for _ in range(4):
        async with Site(bench) as site:
            if wanted:
                wanted += len(await site.publish(bench.rng.choice(names), range(3)))
            site.open(watch, names)
            await site.until_at_heads(watch)
            for name in names:
                wanted += len(await site.publish(name, range(4)))
            await site.until_at_heads(watch)
            site.cut(watch)
            for name in names:
                wanted += len(await site.publish(name, range(4)))
    async with Site(bench) as site:
        site.open(watch, names)
        await site.until_at_heads(watch)
    _assert_whole(watch)
    assert sum(watch.events.values()) == wanted, (
        f"{sum(watch.events.values())} events of {wanted} came"
    )


CHECKS: Final = (
    bad_messages_are_healed,
    clients_resume_where_they_stopped,
    streams_start_at_any_moment,
    streams_are_told_of_a_new_epoch,
    streams_are_told_of_a_trimmed_history,
    streams_go_on_after_a_restart,
)
