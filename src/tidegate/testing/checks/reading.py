"""Checks of a broker: pages of history, and heads."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import msgspec

from tidegate.gateway.brokers.base import HISTORY_LIMIT, PAGE_BYTES
from tidegate.gateway.position import make_position, number_of
from tidegate.testing.bench import assert_linked, read_all, requests_for, stored

if TYPE_CHECKING:
    from tidegate.gateway.brokers.base import Broker, HistoryPage
    from tidegate.testing.bench import Bench

__all__ = [
    "CHECKS",
    "a_page_ends_by_its_bytes",
    "a_page_has_at_most_the_default_limit",
    "a_page_starts_after_a_position",
    "a_page_starts_before_a_position_newest_first",
    "a_page_tells_whether_it_is_complete",
    "an_unknown_channel_gets_an_epoch",
    "heads_are_those_of_the_history",
    "page_and_head_are_read_at_once",
]


async def _filled(bench: Bench, broker: Broker, many: int) -> tuple[str, list[str]]:
    channel = bench.channel()
    results = stored(await broker.publish(requests_for(channel, range(many))), many)
    return channel, [result.position for result in results]


def _positions(page: HistoryPage) -> list[str]:
    return [event.position for event in page.publications]


def _stranger(position: str, step: int) -> str:
    """A position that no event has, right beside one that has."""
    return make_position(number_of(position) + step, b"\xff\xff\xff\xff" if step < 0 else b"\0" * 4)


async def a_page_starts_after_a_position(bench: Bench) -> None:
    """history(after=) has the events that sort after it, oldest first; it need not exist."""
    async with bench.broker() as (broker, _):
        channel, positions = await _filled(bench, broker, 8)
        assert _positions(await broker.history(channel)) == positions, "not all, oldest first"
        assert _positions(await broker.history(channel, after="")) == positions, "after ''"
        assert _positions(await broker.history(channel, after="0" * 16)) == positions
        for index, position in enumerate(positions):
            page = await broker.history(channel, after=position)
            assert _positions(page) == positions[index + 1 :], "after a position"
            for stranger in (_stranger(position, -1), _stranger(position, 1)):
                wanted = [other for other in positions if other > stranger]
                page = await broker.history(channel, after=stranger)
                assert _positions(page) == wanted, "after a position that does not exist"
                assert page.head.position == positions[-1], "the head is that of the channel"
        page = await broker.history(channel, after="~" * 16)
        assert _positions(page) == [], "nothing sorts after the last possible position"
        assert page.complete, "nothing lies beyond the last possible position"
        assert page.head.position == positions[-1], "the head is that of the channel"


async def a_page_starts_before_a_position_newest_first(bench: Bench) -> None:
    """history(newest_first=True) goes backwards, from the newest or from before ``after``."""
    async with bench.broker() as (broker, _):
        channel, positions = await _filled(bench, broker, 6)
        backwards = positions[::-1]
        page = await broker.history(channel, newest_first=True)
        assert _positions(page) == backwards, "not from the newest backwards"
        assert page.complete, "all of it is complete"
        page = await broker.history(channel, newest_first=True, limit=2)
        assert _positions(page) == backwards[:2], "not the newest two"
        assert not page.complete, "older ones lie beyond"
        for index, position in enumerate(backwards):
            page = await broker.history(channel, after=position, newest_first=True)
            assert _positions(page) == backwards[index + 1 :], "before a position"
            assert page.complete, "nothing lies beyond the oldest"
            stranger = _stranger(position, 1)
            page = await broker.history(channel, after=stranger, newest_first=True, limit=3)
            wanted = [other for other in backwards if other < stranger]
            assert _positions(page) == wanted[:3], "before a position that does not exist"
            assert page.complete == (len(wanted) <= 3), "complete is wrong, newest first"


async def a_page_tells_whether_it_is_complete(bench: Bench) -> None:
    """complete says that nothing lies beyond the page; limit=0 reads the head alone."""
    async with bench.broker() as (broker, _):
        channel, positions = await _filled(bench, broker, 7)
        for limit in range(1, 10):
            page = await broker.history(channel, limit=limit)
            assert _positions(page) == positions[:limit], f"limit={limit}"
            assert page.complete == (limit >= 7), f"limit={limit} of 7: complete {page.complete}"
            page = await broker.history(channel, after=positions[3], limit=limit)
            assert _positions(page) == positions[4 : 4 + limit], f"after the fourth, limit={limit}"
            assert page.complete == (limit >= 3), f"limit={limit} of 3: complete {page.complete}"
        page = await broker.history(channel, limit=0)
        assert _positions(page) == [], "limit=0 reads no events"
        assert not page.complete, "with limit=0 all events lie beyond the page"
        assert page.head.position == positions[-1], "limit=0 reads the head"
        for limit in (1, 2, 3, 7):
            pages = await read_all(broker, channel, limit=limit)
            assert [p for page in pages for p in _positions(page)] == positions, "page by page"


async def a_page_has_at_most_the_default_limit(bench: Bench) -> None:
    """Without a limit a page has 1000 events at most."""
    async with bench.broker() as (broker, _):
        channel = bench.channel()
        many = HISTORY_LIMIT + 30
        stored(await broker.publish(requests_for(channel, range(many), size=2 * many)), many)
        page = await broker.history(channel)
        assert len(page.publications) == HISTORY_LIMIT, f"{len(page.publications)} in one page"
        assert not page.complete, "more lie beyond"
        events = [event for page in await read_all(broker, channel) for event in page.publications]
        assert len(events) == many, "not all of them, page by page"
        assert_linked(events, prev="")


async def a_page_ends_by_its_bytes(bench: Bench) -> None:
    """A page ends behind the event with which its payloads reach 4 MiB, and has at least one."""
    async with bench.broker() as (broker, _):
        channel = bench.channel()
        base = requests_for(channel, [""])[0]
        many = 9
        big = b'{"data":"' + b"x" * (700 * 1024) + b'","_meta":{}}'
        requests = [msgspec.structs.replace(base, payload=big)] * many
        for request in requests:
            stored(await broker.publish([request]), 1)
        for newest_first in (False, True):
            seen: list[str] = []
            after: str | None = None
            while True:
                page = await broker.history(channel, after=after, newest_first=newest_first)
                assert page.publications, "a page that is not the end has at least one event"
                before_last = sum(len(event.payload) for event in page.publications[:-1])
                assert before_last < PAGE_BYTES, f"a page has {before_last} bytes before its last"
                seen += _positions(page)
                if page.complete:
                    break
                after = seen[-1]
            assert len(seen) == many, f"{len(seen)} of {many} events"
            assert seen == sorted(seen, reverse=newest_first), "not in order"


async def an_unknown_channel_gets_an_epoch(bench: Bench) -> None:
    """history, subscribe and heads know every channel; its first event links to their heads."""
    async with bench.broker() as (broker, _):
        by_history, by_subscribe, by_heads = bench.channels(3)
        page = await broker.history(by_history)
        assert not page.publications, "a new channel has no events"
        assert page.complete, "nothing lies beyond nothing"
        heads = {
            by_history: page.head,
            **await broker.subscribe([by_subscribe]),
            **await broker.heads([by_heads]),
        }
        for channel in (by_history, by_subscribe, by_heads):
            head = heads[channel]
            assert head.position == "", "the head of a new channel is ''"
            if channel is not by_heads:
                assert head.epoch, "there is no epoch"
            again = (await broker.history(channel)).head
            assert not head.epoch or again == head, f"the head was {head}, then {again}"
            (result,) = stored(await broker.publish(requests_for(channel, ["first"])), 1)
            assert result.epoch == again.epoch, "the first event began another epoch"
            assert result.prev == "", "the first event of an epoch has prev ''"
        assert len({head.epoch for head in heads.values()}) == 3, "channels share an epoch"


async def heads_are_those_of_the_history(bench: Bench) -> None:
    """heads returns every channel's head in one call, whatever became of its events."""
    async with bench.broker() as (broker, _):
        names = bench.channels(40)
        for index, name in enumerate(names):
            if index % 4:
                size = 0 if index % 4 == 1 else 5
                stored(await broker.publish(requests_for(name, range(index), size=size)), index)
        heads = await broker.heads(iter(names))
        assert set(heads) == set(names), "heads does not name every channel"
        for index, name in enumerate(names):
            page = await broker.history(name)
            if index % 4:
                assert heads[name] == page.head, f"heads says {heads[name]}, history {page.head}"
                assert heads[name].position, "the head of a channel with events is not ''"
        assert await broker.heads([]) == {}, "no channels have no heads"
        assert len(await broker.heads([names[1], names[1]])) == 1, "one channel named twice"


async def page_and_head_are_read_at_once(bench: Bench) -> None:
    """A page and its head come from one atomic read, also while others publish and trim."""
    async with bench.broker() as (broker, _):
        for size in (3, 1000):
            channel = bench.channel()
            done = asyncio.Event()
            publisher = asyncio.ensure_future(_publish_many(bench, broker, channel, size, done))
            readers = [asyncio.ensure_future(_read_many(broker, channel, done)) for _ in range(3)]
            try:
                await publisher
                await asyncio.gather(*readers)
            finally:
                for task in (publisher, *readers):
                    task.cancel()


async def _publish_many(
    bench: Bench, broker: Broker, channel: str, size: int, done: asyncio.Event
) -> None:
    try:
        for n in range(120):
            batch = requests_for(channel, [f"{n}.{i}" for i in range(1 + n % 3)], size=size)
            stored(await broker.publish(batch))
            for _ in range(bench.rng.randrange(3)):
                await asyncio.sleep(0)
    finally:
        done.set()


async def _read_many(broker: Broker, channel: str, done: asyncio.Event) -> None:
    after = ""
    while not done.is_set():
        page = await broker.history(channel)
        assert_linked(page.publications, epoch=page.head.epoch)
        if page.complete and page.publications:
            last = page.publications[-1].position
            assert last == page.head.position, (
                f"the page ends at {last}, its head is {page.head.position}"
            )
        elif page.complete:
            assert not page.head.position, "the head has moved, and the page is empty"
        newest = await broker.history(channel, newest_first=True, limit=2)
        assert_linked(list(newest.publications)[::-1], epoch=newest.head.epoch)
        if newest.publications:
            first = newest.publications[0].position
            assert first == newest.head.position, (
                f"the newest event is {first}, the head {newest.head.position}"
            )
        page = await broker.history(channel, after=after, limit=5)
        assert_linked(page.publications)
        if page.publications:
            after = page.publications[-1].position
            if page.complete:
                assert after == page.head.position, "the rest does not end at the head"
        else:
            assert page.head.position == after, "nothing comes after the place, but the head does"
        await asyncio.sleep(0)


CHECKS: Final = (
    a_page_starts_after_a_position,
    a_page_starts_before_a_position_newest_first,
    a_page_tells_whether_it_is_complete,
    a_page_has_at_most_the_default_limit,
    a_page_ends_by_its_bytes,
    an_unknown_channel_gets_an_epoch,
    heads_are_those_of_the_history,
    page_and_head_are_read_at_once,
)
