"""Each check of reading catches brokers that are wrong, and lets a right one pass."""

import asyncio

import msgspec
import pytest

from tests.testing.planted import MemoryBroker, failures
from tidegate.gateway.brokers import memory
from tidegate.gateway.brokers.base import Head, HistoryPage
from tidegate.testing.checks import reading

replace = msgspec.structs.replace


class IncludesThePlace(MemoryBroker):
    async def history(self, channel, *, after=None, **options):
        page = await super().history(channel, after=after, **options)
        whole = await super().history(channel)
        place = [event for event in whole.publications if event.position == after]
        return replace(page, publications=[*place, *page.publications])


class NeedsThePlace(MemoryBroker):
    async def history(self, channel, *, after=None, **options):
        whole = await super().history(channel)
        if after and after not in {event.position for event in whole.publications}:
            after = None
        return await super().history(channel, after=after, **options)


class IgnoresNewestFirst(MemoryBroker):
    async def history(self, channel, *, newest_first=False, **options):
        return await super().history(channel, **options)


class IsAlwaysComplete(MemoryBroker):
    async def history(self, channel, **options):
        return replace(await super().history(channel, **options), complete=True)


class IsNeverComplete(MemoryBroker):
    async def history(self, channel, **options):
        page = await super().history(channel, **options)
        return replace(page, complete=not page.publications)


class HasNoDefaultLimit(MemoryBroker):
    async def history(self, channel, *, limit=10_000, **options):
        return await super().history(channel, limit=limit, **options)


class CreatesNoEpoch(MemoryBroker):
    async def history(self, channel, **options):
        if channel not in self._store._channels:
            return HistoryPage(publications=[], head=Head("", ""), complete=True)
        return await super().history(channel, **options)


class NamesSomeHeads(MemoryBroker):
    async def heads(self, channels):
        heads = await super().heads(channels)
        return {name: head for name, head in heads.items() if head.position}


class ReadsTheHeadLater(MemoryBroker):
    async def history(self, channel, **options):
        page = await super().history(channel, **options)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return replace(page, head=(await self.heads([channel]))[channel])


@pytest.mark.parametrize(
    ("broker", "check"),
    [
        (IncludesThePlace, "a_page_starts_after_a_position"),
        (NeedsThePlace, "a_page_starts_after_a_position"),
        (IgnoresNewestFirst, "a_page_starts_before_a_position_newest_first"),
        (IsAlwaysComplete, "a_page_tells_whether_it_is_complete"),
        (IsNeverComplete, "a_page_tells_whether_it_is_complete"),
        (HasNoDefaultLimit, "a_page_has_at_most_the_default_limit"),
        (CreatesNoEpoch, "an_unknown_channel_gets_an_epoch"),
        (NamesSomeHeads, "heads_are_those_of_the_history"),
        (ReadsTheHeadLater, "page_and_head_are_read_at_once"),
    ],
)
async def test_a_wrong_broker_is_caught(broker, check):
    assert await failures(broker, check) == {check}


async def test_a_page_without_a_bound_of_bytes_is_caught(monkeypatch):
    monkeypatch.setattr(memory, "PAGE_BYTES", 1 << 40)
    check = "a_page_ends_by_its_bytes"
    assert await failures(MemoryBroker, check) == {check}


@pytest.mark.parametrize("check", [check.__name__ for check in reading.CHECKS])
async def test_a_right_broker_passes(check):
    assert await failures(MemoryBroker, check, patience=10.0) == set()
