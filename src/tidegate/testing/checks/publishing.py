"""Checks of a broker: what a publish does, and what it says."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import msgspec

from tidegate.gateway.brokers.base import PublishError, PublishResult
from tidegate.gateway.position import is_position, unpack
from tidegate.testing.bench import assert_linked, read_all, requests_for, stored

if TYPE_CHECKING:
    from tidegate.gateway.brokers.base import Publication, PublishRequest
    from tidegate.testing.bench import Bench

__all__ = [
    "CHECKS",
    "cancelled_publishes_leave_a_chain",
    "concurrent_publishes_keep_the_order_of_the_calls",
    "each_channel_has_a_chain_of_its_own",
    "each_request_has_its_result",
    "one_bad_item_does_not_touch_the_others",
    "positions_have_a_random_part",
    "prev_names_the_event_before",
    "the_same_key_gives_the_first_result",
    "versions_only_go_up",
    "what_was_published_is_stored_as_it_was",
]


async def each_request_has_its_result(bench: Bench) -> None:
    """publish returns one result for each request, in order, with a position and an epoch."""
    async with bench.broker() as (broker, _):
        assert await broker.publish([]) == [], "an empty batch has an empty list of results"
        one, other = bench.channels(2)
        batch = [
            *requests_for(one, range(3)),
            *requests_for(other, range(2)),
            *requests_for(one, range(3, 5)),
        ]
        results = stored(await broker.publish(batch), len(batch))
        for request, result in zip(batch, results, strict=True):
            assert result.channel == request.channel, "a result names another channel"
            assert is_position(result.position), f"{result.position!r} is no position"
            assert result.position, "the position of a stored event is not ''"
            assert result.epoch, "the epoch is not empty"
            assert not result.duplicate, "nothing was published twice"
            assert not result.suppressed, "nothing has a version"


async def prev_names_the_event_before(bench: Bench) -> None:
    """prev is the position of the channel's event before: in results and in the history."""
    async with bench.broker() as (broker, _):
        channel = bench.channel()
        head = (await broker.heads([channel]))[channel]
        results: list[PublishResult] = []
        for many in (1, 3, 1, 40, 2):
            results += stored(await broker.publish(requests_for(channel, range(many))), many)
        prev = ""
        for result in results:
            assert result.prev == prev, f"prev is {result.prev!r}, the event before is at {prev!r}"
            assert result.position > prev, f"{result.position} sorts before its prev {prev}"
            assert result.epoch == results[0].epoch, "the epoch changed without a reason"
            prev = result.position
        page = await broker.history(channel)
        assert_linked(page.publications, prev="", epoch=results[0].epoch)
        assert [event.position for event in page.publications] == [r.position for r in results]
        if head.epoch:
            assert head.epoch == results[0].epoch, "the first publish began another epoch"


async def each_channel_has_a_chain_of_its_own(bench: Bench) -> None:
    """What is published in one channel does not show in another one."""
    async with bench.broker() as (broker, _):
        names = bench.channels(5)
        batch = [requests_for(bench.rng.choice(names), [n])[0] for n in range(60)]
        results = stored(await broker.publish(batch), 60)
        for name in names:
            page = await broker.history(name)
            assert_linked(page.publications, prev="")
            wanted = [
                (result.position, request.payload)
                for request, result in zip(batch, results, strict=True)
                if request.channel == name
            ]
            assert [(e.position, e.payload) for e in page.publications] == wanted, (
                f"{name} has other events than were published in it"
            )


async def positions_have_a_random_part(bench: Bench) -> None:
    """A position ends in 4 random bytes, drawn for each event and never derived from it."""
    async with bench.broker() as (broker, _):
        channel, other = bench.channels(2)
        results = stored(await broker.publish(requests_for(channel, ["same"] * 150)))
        results += stored(await broker.publish(requests_for(other, ["same"] * 150)))
        parts = {unpack(result.position)[8:] for result in results}
        assert len(parts) > 290, f"of 300 events only {len(parts)} have random parts of their own"


async def what_was_published_is_stored_as_it_was(bench: Bench) -> None:
    """Type, payload, tags and version come back as they were given."""
    async with bench.broker() as (broker, sink):
        channel = bench.channel()
        await broker.subscribe([channel])
        base = requests_for(channel, ["x"])[0]
        payload = '{"data":"ä\U0001f30a\\u0000\\n\u2028","_meta":{"serverTimestamp":1}}'.encode()
        batch = [
            msgspec.structs.replace(base, type="a.b:c-d_9", payload=payload),
            msgspec.structs.replace(base, tags={"k": "v", "ö": "ä\U0001f30a", "e": ""}),
            msgspec.structs.replace(base, version=7),
            msgspec.structs.replace(base, payload=b"{}", tags={}, idempotency_key="key\u2028"),
        ]
        results = stored(await broker.publish(batch), len(batch))
        last = results[-1].position
        await sink.until(
            lambda: any(event.position == last for event in sink.of(channel)),
            bench.patience,
            "what was published is delivered",
        )
        page = await broker.history(channel)
        assert len(page.publications) == len(batch), "not as many events as were published"
        delivered = {event.position: event for event in sink.of(channel)}
        for request, result, event in zip(batch, results, page.publications, strict=True):
            _assert_same(request, result, event)
            if event.position in delivered:
                _assert_same(request, result, delivered[event.position])


def _assert_same(request: PublishRequest, result: PublishResult, event: Publication) -> None:
    assert event.type == request.type, f"type {request.type!r} became {event.type!r}"
    assert event.payload == request.payload, f"{request.payload!r} became {event.payload!r}"
    wanted = dict(request.tags or {})
    assert dict(event.tags or {}) == wanted, f"tags {wanted} became {event.tags}"
    assert event.version == request.version, f"version {request.version} became {event.version}"
    place = (event.position, event.prev, event.epoch)
    assert place == (result.position, result.prev, result.epoch), (
        f"the result says {result}, the event {place}"
    )


async def one_bad_item_does_not_touch_the_others(bench: Bench) -> None:
    """An item that cannot be stored has a PublishError of its own; the others are stored."""
    async with bench.broker() as (broker, _):
        base = requests_for("check:bad", ["x"])[0]
        for bad in (
            msgspec.structs.replace(base, type="\ud800"),
            msgspec.structs.replace(base, tags={"k": "\udfff"}),
            msgspec.structs.replace(base, idempotency_key="\ud800"),
            msgspec.structs.replace(base, version=2**80),
            msgspec.structs.replace(base, payload=b"0" * (9 * 1024 * 1024)),
        ):
            channel, other = bench.channels(2)
            first, last = requests_for(channel, ["first", "last"])
            batch = [
                first,
                msgspec.structs.replace(bad, channel=channel),
                last,
                *requests_for(other, ["other"]),
            ]
            results = await broker.publish(batch)
            assert len(results) == len(batch), "not one result for each request"
            what = results[1]
            good = stored([results[0], results[2], results[3]])
            before = good[0].position if isinstance(what, PublishError) else what.position
            assert good[1].prev == before, "the event behind the bad one does not link"
            assert good[2].prev == "", "another channel's event does not link"
            events = [
                event for page in await read_all(broker, channel) for event in page.publications
            ]
            assert_linked(events, prev="")
            wanted = 2 if isinstance(what, PublishError) else 3
            assert len(events) == wanted, f"{len(events)} events are stored, not {wanted}"
            if isinstance(what, PublishError):
                assert what.channel == channel, "the error names another channel"
                assert what.code, "an error has a code"
                assert what.error, "an error has a sentence"


async def concurrent_publishes_keep_the_order_of_the_calls(bench: Bench) -> None:
    """Concurrent calls are appended in the order in which they were made."""
    async with bench.broker() as (broker, _):
        channel, other = bench.channels(2)
        batches = [
            requests_for(channel, [f"{n}.{i}" for i in range(1 + n % 3)])
            + requests_for(other, [n])[: n % 2]
            for n in range(120)
        ]
        answers = await asyncio.gather(*(broker.publish(batch) for batch in batches))
        for name in (channel, other):
            results = [
                result for answer in answers for result in stored(answer) if result.channel == name
            ]
            positions = [result.position for result in results]
            assert positions == sorted(positions), "calls were overtaken by later ones"
            prev = ""
            for result in results:
                assert result.prev == prev, "concurrent publishes broke the chain"
                prev = result.position


async def cancelled_publishes_leave_a_chain(bench: Bench) -> None:
    """A cancelled publish may take effect or not; the chain is whole, and others go on."""
    async with bench.broker() as (broker, _):
        channel = bench.channel()
        kept: list[asyncio.Task[list[PublishResult | PublishError]]] = []
        for n in range(80):
            task = asyncio.ensure_future(broker.publish(requests_for(channel, [n])))
            for _ in range(bench.rng.randrange(4)):
                await asyncio.sleep(0)
            if n % 2:
                task.cancel()
            else:
                kept.append(task)
        answers = await asyncio.gather(*kept)
        results = [result for answer in answers for result in stored(answer, 1)]
        results += stored(await broker.publish(requests_for(channel, ["end"])), 1)
        page = await broker.history(channel)
        assert_linked(page.publications, prev="")
        places = {event.position: event.prev for event in page.publications}
        for result in results:
            assert places.get(result.position) == result.prev, "an acknowledged event is not there"
        assert page.head.position == results[-1].position, "the head is not the last event"


async def the_same_key_gives_the_first_result(bench: Bench) -> None:
    """The second publish of an idempotency key in a channel returns the first one's result."""
    async with bench.broker() as (broker, _):
        channel, other = bench.channels(2)
        # In one batch, in later ones, behind other events, and at the same time.
        keyed = requests_for(channel, ["keyed"], idempotency_key="k")
        plain = requests_for(channel, ["plain"])
        results = stored(await broker.publish([*keyed, *plain, *keyed]), 3)
        first = results[0]
        again = [results[2]]
        again += stored(await broker.publish(keyed), 1)
        stored(await broker.publish(plain * 5), 5)
        answers = await asyncio.gather(*(broker.publish(keyed) for _ in range(5)))
        again += [result for answer in answers for result in stored(answer, 1)]
        assert not first.duplicate, "the first of a key is no duplicate"
        for result in again:
            assert result.duplicate, "a key that is known says duplicate"
            assert (result.position, result.epoch, result.prev) == (
                first.position,
                first.epoch,
                first.prev,
            ), "a duplicate returns another place than the first had"
        events = (await broker.history(channel)).publications
        assert len(events) == 7, f"{len(events)} events are stored, not 7"
        assert_linked(events, prev="")
        # A key is one channel's; and it is remembered where no history is.
        elsewhere = stored(
            await broker.publish(requests_for(other, ["keyed"], idempotency_key="k", size=0)), 1
        )
        assert not elsewhere[0].duplicate, "a key of one channel is known in another one"
        repeated = stored(
            await broker.publish(requests_for(other, ["keyed"], idempotency_key="k", size=0)), 1
        )
        assert repeated[0].duplicate, "without history no key is remembered"
        assert repeated[0].position == elsewhere[0].position
        # At the same time, the first one too.
        fresh = requests_for(channel, ["fresh"], idempotency_key="fresh")
        answers = await asyncio.gather(*(broker.publish(fresh) for _ in range(10)))
        results = [result for answer in answers for result in stored(answer, 1)]
        assert len({result.position for result in results}) == 1, "one key has several positions"
        assert sum(not result.duplicate for result in results) == 1, "one key has several firsts"


async def versions_only_go_up(bench: Bench) -> None:
    """A publish whose version is not above the channel's last one is suppressed, and says so."""
    async with bench.broker() as (broker, _):
        channel = bench.channel()
        head = ""
        published = 0
        last: int | None = None
        for version in (5, 5, 4, None, 5, 6, 0, 6, None, 2**52, 2**52, 2**52 + 1):
            request = requests_for(channel, [version], version=version)
            (result,) = stored(await broker.publish(request), 1)
            suppressed = version is not None and last is not None and version <= last
            assert result.suppressed == suppressed, (
                f"version {version} after {last}: suppressed is {result.suppressed}"
            )
            if suppressed:
                assert result.position == head, "a suppressed publish returns the head"
            else:
                assert result.prev == head, "prev is not the event before"
                head = result.position
                published += 1
                last = last if version is None else version
        page = await broker.history(channel)
        assert page.head.position == head, "a suppressed publish moved the head"
        assert len(page.publications) == published, "a suppressed publish was stored"
        assert_linked(page.publications, prev="")
        # In one batch, and a known key goes before the version.
        other = bench.channel()
        keyed = requests_for(other, ["a"], version=3, idempotency_key="k")
        results = stored(
            await broker.publish([*keyed, *requests_for(other, ["b"], version=3), *keyed]), 3
        )
        assert [r.suppressed for r in results] == [False, True, False], "versions in one batch"
        assert [r.duplicate for r in results] == [False, False, True], "keys in one batch"
        low = requests_for(bench.channel(), ["a"], version=0)
        assert not stored(await broker.publish(low))[0].suppressed, (
            "a first version of 0 is above none"
        )


CHECKS: Final = (
    each_request_has_its_result,
    prev_names_the_event_before,
    each_channel_has_a_chain_of_its_own,
    positions_have_a_random_part,
    what_was_published_is_stored_as_it_was,
    one_bad_item_does_not_touch_the_others,
    concurrent_publishes_keep_the_order_of_the_calls,
    cancelled_publishes_leave_a_chain,
    the_same_key_gives_the_first_result,
    versions_only_go_up,
)
