"""What checks work with."""

import asyncio

import pytest

from tests.testing.planted import MemoryBroker
from tidegate.gateway.brokers.base import Publication, PublishError
from tidegate.testing import ManualClock
from tidegate.testing.bench import (
    Bench,
    assert_linked,
    linked_from,
    read_all,
    requests_for,
    stored,
    takes_clock,
)
from tidegate.testing.report import CheckSkipped


def bench(make_broker=MemoryBroker, **options):
    return Bench(make_broker, faults=None, seed=0, patience=0.05, **options)


def event(position, prev, epoch="e"):
    return Publication(position=position, prev=prev, epoch=epoch, type="t", payload=b"{}")


def test_a_clock_is_given_to_those_who_take_one():
    assert takes_clock(MemoryBroker)
    assert takes_clock(lambda clock: MemoryBroker(clock=clock))
    assert takes_clock(lambda **options: MemoryBroker(random_bytes=bytes, **options))
    assert not takes_clock(lambda: MemoryBroker(random_bytes=bytes))
    assert not takes_clock(lambda clock, /: MemoryBroker(clock=clock))


async def test_brokers_go_by_the_clock_that_is_moved():
    clock = ManualClock(1000.0)
    one = bench(clock=clock)
    assert one.need_clock() is clock
    async with one.broker() as (broker, _):
        await broker.publish(requests_for("a", ["x"], ttl=10.0))
        await one.pass_time(11.0)
        assert not (await broker.history("a")).publications
    with pytest.raises(CheckSkipped):
        bench().need_clock()


def test_no_name_comes_twice():
    one, other = bench(), bench()
    names = [*one.channels(20), *other.channels(20), one.channel()]
    assert len(set(names)) == 41


async def test_what_does_not_apply_is_skipped():
    with pytest.raises(CheckSkipped):
        bench().need_durable()
    with pytest.raises(CheckSkipped):
        bench().need_shared()
    with pytest.raises(CheckSkipped):
        _ = bench().faults


async def test_a_broker_is_stopped_whatever_happens():
    made = []

    def make():
        made.append(MemoryBroker())
        return made[-1]

    with pytest.raises(ValueError, match="on purpose"):
        async with bench(make).broker():
            raise ValueError("on purpose")
    assert made[0]._stopped


async def test_waiting_has_an_end():
    answers = iter([False, False, True])

    async def third_time():
        return next(answers)

    await bench().eventually(third_time, "it is so")

    async def never():
        await asyncio.sleep(0)
        return False

    with pytest.raises(AssertionError, match=r"not within 0\.05 s: it is so"):
        await bench().eventually(never, "it is so")


async def test_results_are_of_stored_events():
    async with bench().broker() as (broker, _):
        results = await broker.publish(requests_for("a", range(3)))
        assert stored(results, 3) == results
        with pytest.raises(AssertionError, match="3 results for 2 requests"):
            stored(results, 2)
        with pytest.raises(AssertionError, match="a publish failed"):
            stored([PublishError(channel="a", code="broker_error", error="no")])
        pages = await read_all(broker, "a", limit=2)
        assert [len(page.publications) for page in pages] == [2, 1]


def test_links_are_checked():
    chain = [event("1", ""), event("2", "1"), event("3", "2")]
    assert_linked(chain, prev="", epoch="e")
    assert_linked([])
    for wrong in (
        [event("1", ""), event("3", "2")],
        [event("1", ""), event("2", "1", "f")],
        [event("2", "3")],
    ):
        with pytest.raises(AssertionError):
            assert_linked(wrong)
    with pytest.raises(AssertionError):
        assert_linked(chain, prev="0")
    with pytest.raises(AssertionError):
        assert_linked(chain, epoch="f")


def test_what_was_delivered_is_put_in_order():
    chain = [event("1", ""), event("2", "1"), event("3", "2")]
    shuffled = [chain[2], chain[0], chain[1], chain[0], event("9", "8"), event("2", "1", "f")]
    assert linked_from(shuffled, "e", "", "3") == chain
    assert linked_from(shuffled, "e", "1", "3") == chain[1:]
    assert linked_from(shuffled, "e", "3", "3") == []
    assert linked_from(shuffled[:2], "e", "", "3") is None
