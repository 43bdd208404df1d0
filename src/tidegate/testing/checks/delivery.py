"""Checks of a broker: who is told of what, from when on, and of removed histories."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from tidegate.gateway.position import number_of
from tidegate.testing.bench import assert_linked, linked_from, requests_for, stored

if TYPE_CHECKING:
    from tidegate.gateway.brokers.base import Broker, Head, HistoryPage
    from tidegate.testing.bench import Bench
    from tidegate.testing.sinks import RecordingSink

__all__ = [
    "CHECKS",
    "a_removed_history_is_a_new_epoch",
    "a_subscriber_gets_every_event_after_the_head",
    "nobody_is_told_of_other_channels",
    "nodes_share_one_history",
    "removing_while_others_publish_leaves_one_chain",
    "subscribe_takes_many_channels",
    "subscribing_again_is_harmless",
    "unsubscribe_ends_the_delivery",
]


async def _arrived(
    bench: Bench, broker: Broker, sink: RecordingSink, channel: str, start: Head
) -> None:
    """Wait until all events from a head on have been delivered, in whatever order."""
    end = (await broker.heads([channel]))[channel]
    await sink.until(
        lambda: (
            linked_from(sink.of(channel), start.epoch, start.position, end.position) is not None
        ),
        bench.patience,
        f"every event of {channel} from {start.position!r} to {end.position!r} is delivered; "
        f"{len(sink.of(channel))} were",
    )


async def subscribe_takes_many_channels(bench: Bench) -> None:
    """subscribe returns the head of each channel and creates the epoch where there is none."""
    async with bench.broker() as (broker, sink):
        names = bench.channels(60)
        for name in names[::2]:
            stored(await broker.publish(requests_for(name, range(2))), 2)
        heads = await broker.subscribe(name for name in names)
        assert set(heads) == set(names), "subscribe does not return every channel's head"
        assert await broker.subscribe([]) == {}, "no channels have no heads"
        for index, name in enumerate(names):
            assert heads[name].epoch, "there is no epoch"
            assert bool(heads[name].position) == (index % 2 == 0), "not the head"
        results = stored(
            await broker.publish(
                [request for name in names for request in requests_for(name, ["x"])]
            )
        )
        for result in results:
            assert result.epoch == heads[result.channel].epoch, "the event began another epoch"
            assert result.prev == heads[result.channel].position, "the event does not link"
        for name in names:
            await _arrived(bench, broker, sink, name, heads[name])


async def a_subscriber_gets_every_event_after_the_head(bench: Bench) -> None:
    """Every event after the head that subscribe returned is delivered, whenever it is published."""
    async with bench.broker() as (broker, sink):
        for size in (0, 1000):
            names = bench.channels(16)
            done = asyncio.Event()
            publishers = [
                asyncio.ensure_future(_publish_until(bench, broker, name, size, done))
                for name in names
            ]
            heads: dict[str, Head] = {}
            try:
                for name in names:
                    for _ in range(bench.rng.randrange(4)):
                        await asyncio.sleep(0)
                    if bench.rng.random() < 0.4:
                        # One that left a moment ago, and comes back.
                        await broker.subscribe([name])
                        await broker.unsubscribe([name])
                    heads |= await broker.subscribe([name])
                for _ in range(5):
                    await asyncio.sleep(0)
            finally:
                done.set()
            for publisher in publishers:
                await publisher
            for name in names:
                await _arrived(bench, broker, sink, name, heads[name])


async def _publish_until(
    bench: Bench, broker: Broker, channel: str, size: int, done: asyncio.Event
) -> None:
    for n in range(400):
        if done.is_set():
            return
        stored(await broker.publish(requests_for(channel, [n], size=size)), 1)
        for _ in range(bench.rng.randrange(3)):
            await asyncio.sleep(0)


async def subscribing_again_is_harmless(bench: Bench) -> None:
    """A second subscribe returns the head of that moment, and delivery goes on."""
    async with bench.broker() as (broker, sink):
        channel = bench.channel()
        start = (await broker.subscribe([channel]))[channel]
        for n in range(5):
            stored(await broker.publish(requests_for(channel, [n])), 1)
            head = (await broker.subscribe([channel, channel]))[channel]
            assert head == (await broker.heads([channel]))[channel], "not the head of now"
        await _arrived(bench, broker, sink, channel, start)
        await broker.unsubscribe([channel])
        stored(await broker.publish(requests_for(channel, ["unseen"])), 1)
        start = (await broker.subscribe([channel]))[channel]
        stored(await broker.publish(requests_for(channel, ["seen"])), 1)
        await _arrived(bench, broker, sink, channel, start)


async def unsubscribe_ends_the_delivery(bench: Bench) -> None:
    """After unsubscribe messages may come a little longer, not for ever."""
    async with bench.broker() as (broker, sink):
        channel, marker = bench.channels(2)
        await broker.subscribe([channel, marker])
        await broker.unsubscribe([channel, bench.channel()])
        await broker.unsubscribe([])

        async def silent() -> bool:
            return not await _is_told(bench, broker, sink, channel, marker)

        await bench.eventually(silent, "an event of an unsubscribed channel is not delivered")


async def nobody_is_told_of_other_channels(bench: Bench) -> None:
    """Only events of subscribed channels are delivered."""
    async with bench.broker() as (broker, sink):
        channel, marker = bench.channels(2)
        await broker.subscribe([marker])
        await broker.history(channel)
        await broker.heads([channel])
        for _ in range(3):
            assert not await _is_told(bench, broker, sink, channel, marker), (
                "an event of a channel that was never subscribed is delivered"
            )


async def _is_told(
    bench: Bench, broker: Broker, sink: RecordingSink, channel: str, marker: str
) -> bool:
    """Publish in a channel, then in a subscribed one, and see what has come with the latter."""
    (result,) = stored(await broker.publish(requests_for(channel, ["x"])), 1)
    (mark,) = stored(await broker.publish(requests_for(marker, ["x"])), 1)
    await sink.until(
        lambda: any(event.position == mark.position for event in sink.of(marker)),
        bench.patience,
        "the marker is delivered",
    )
    return any(event.position == result.position for event in sink.of(channel))


async def a_removed_history_is_a_new_epoch(bench: Bench) -> None:
    """remove_history drops events and snapshot; a new epoch begins, and nodes are told."""
    async with bench.broker() as (broker, sink):
        channel, other = bench.channels(2)
        await broker.subscribe([channel, other])
        stored(await broker.publish(requests_for(other, ["x"])), 1)
        positions: list[str] = []
        epochs: set[str] = set()
        for life in range(3):
            results = stored(await broker.publish(requests_for(channel, range(4))), 4)
            if positions:
                assert number_of(results[0].position) > number_of(positions[-1]), (
                    "the positions of the new epoch begin among those of the old one"
                )
            assert results[0].prev == "", "the first event of an epoch has prev ''"
            epochs.add(results[0].epoch)
            assert len(epochs) == life + 1, "the epoch is an old one"
            positions += [result.position for result in results]
            await broker.put_snapshot(channel, b"[]", positions[-1])
            head = await broker.remove_history(channel)
            assert head.position == "", "the head of a new epoch is ''"
            assert head.epoch not in epochs, "remove_history returned an old epoch"
            page = await broker.history(channel)
            assert not page.publications, "events are left"
            assert page.complete, "nothing lies beyond nothing"
            assert page.head == head, "the head is not the one that was returned"
            assert (await broker.heads([channel]))[channel] == head, "heads says otherwise"
            assert await broker.get_snapshot(channel) is None, "the snapshot is left"
            await sink.until(
                lambda head=head: head in sink.resets.get(channel, []),  # type: ignore[misc]
                bench.patience,
                "on_reset tells of the new epoch",
            )
        assert len(set(positions)) == len(positions), "a position was handed out twice"
        assert len((await broker.history(other)).publications) == 1, "another channel was touched"
        assert other not in sink.resets, "another channel was reset"
        unknown = bench.channel()
        head = await broker.remove_history(unknown)
        assert (await broker.history(unknown)).head == head, "an unknown channel"
        # The version of the old life does not hold back the new one's events.
        await broker.publish(requests_for(channel, ["x"], version=9))
        await broker.remove_history(channel)
        (result,) = stored(await broker.publish(requests_for(channel, ["x"], version=1)), 1)
        assert not result.suppressed, "a version of a removed life is remembered"


async def removing_while_others_publish_leaves_one_chain(bench: Bench) -> None:
    """Whatever crosses a remove_history is of one epoch or of the other."""
    async with bench.broker() as (broker, sink):
        channel = bench.channel()
        start = (await broker.subscribe([channel]))[channel]
        done = asyncio.Event()
        publishers = [
            asyncio.ensure_future(_publish_until(bench, broker, channel, 1000, done))
            for _ in range(2)
        ]
        try:
            for _ in range(8):
                for _ in range(bench.rng.randrange(6)):
                    await asyncio.sleep(0)
                start = await broker.remove_history(channel)
                _assert_whole_life(await broker.history(channel))
        finally:
            done.set()
        for publisher in publishers:
            await publisher
        page = await broker.history(channel)
        assert page.head.epoch == start.epoch, "another epoch than the last remove_history's"
        _assert_whole_life(page)
        await _arrived(bench, broker, sink, channel, start)


def _assert_whole_life(page: HistoryPage) -> None:
    """All of an epoch is there, from its first event to its head."""
    assert_linked(page.publications, epoch=page.head.epoch, prev="")
    last = page.publications[-1].position if page.publications else ""
    assert last == page.head.position, (
        f"the history of the new epoch ends at {last!r}, its head is {page.head.position!r}"
    )


async def nodes_share_one_history(bench: Bench) -> None:
    """Of a shared broker every node sees the same chain, and is told of what others do."""
    bench.need_shared()
    async with bench.broker() as (one, one_sink), bench.broker() as (two, two_sink):
        channel = bench.channel()
        start = (await one.subscribe([channel]))[channel]
        assert (await two.subscribe([channel]))[channel] == start, "two nodes have two heads"
        done = asyncio.Event()
        publishers = [
            asyncio.ensure_future(_publish_until(bench, broker, channel, 1000, done))
            for broker in (one, two, one)
        ]
        await asyncio.sleep(0.05)
        done.set()
        for publisher in publishers:
            await publisher
        keyed = requests_for(channel, ["k"], idempotency_key="k")
        (first,) = stored(await one.publish(keyed), 1)
        (again,) = stored(await two.publish(keyed), 1)
        assert again.duplicate, "a key is known to one node only"
        assert again.position == first.position, "a duplicate returns another place"
        await _arrived(bench, one, one_sink, channel, start)
        await _arrived(bench, two, two_sink, channel, start)
        head = await one.remove_history(channel)
        await two_sink.until(
            lambda: head in two_sink.resets.get(channel, []),
            bench.patience,
            "the other node is told of the new epoch",
        )
        assert (await two.heads([channel]))[channel] == head, "two nodes have two heads"


CHECKS: Final = (
    subscribe_takes_many_channels,
    a_subscriber_gets_every_event_after_the_head,
    subscribing_again_is_harmless,
    unsubscribe_ends_the_delivery,
    nobody_is_told_of_other_channels,
    a_removed_history_is_a_new_epoch,
    removing_while_others_publish_leaves_one_chain,
    nodes_share_one_history,
)
