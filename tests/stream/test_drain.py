import asyncio
import json
import signal
import threading
from functools import partial

import pytest

from tests.servers import eventually
from tidegate.sse import Decoder
from tidegate.stream.drain import STATE_KEY, Drain, drain_of


class Stream:
    """A stream that ends when it is told to, or only when it is cut, or never."""

    def __init__(self, drain, ends_at="farewell"):
        self.drain = drain
        self.ends_at = ends_at
        self.frames = []
        self.cuts = 0
        drain.add(self)

    def farewell(self, frame, seconds):
        self.frames.append(frame)
        if self.ends_at == "farewell":
            self.drain.discard(self)

    def cut(self):
        self.cuts += 1
        if self.ends_at == "cut":
            self.drain.discard(self)


@pytest.fixture
def signals():
    """Record SIGTERM and SIGINT instead of obeying them; put all back at the end."""
    received = []
    before = {
        number: signal.signal(number, lambda number, frame: received.append(number))
        for number in (signal.SIGTERM, signal.SIGINT)
    }
    yield received
    for number, handler in before.items():
        signal.signal(number, handler)


async def test_every_stream_gets_a_farewell_with_its_own_retry():
    draws = iter([0.0, 0.0, 1.0, 0.5])
    drain = Drain(retry_ms=1000, rng=lambda: next(draws), clock=lambda: 2.0)
    one, two = Stream(drain), Stream(drain)
    assert drain.open_streams == 2
    await drain.drain()
    assert drain.open_streams == 0
    decoder = Decoder()
    (event,) = decoder.feed(one.frames[0])
    assert decoder.retry == 800
    assert json.loads(event.data)["data"]["errorKind"] == "draining"
    assert json.loads(event.data)["_meta"]["serverTimestamp"] == 2000
    decoder.feed(two.frames[0])
    assert decoder.retry == 1200


async def test_calling_it_drains():
    drain = Drain()
    stream = Stream(drain)
    await drain()
    assert drain.draining
    assert len(stream.frames) == 1


async def test_new_streams_are_refused_from_the_first_moment_on():
    drain = Drain(farewell_seconds=5)
    assert not drain.draining
    stream = Stream(drain, ends_at="never")
    task = asyncio.ensure_future(drain.drain())
    await asyncio.sleep(0)
    assert drain.draining
    drain.discard(stream)
    await task
    assert drain.draining


async def test_a_stream_that_does_not_end_in_time_is_cut():
    drain = Drain(farewell_seconds=0.02)
    good, bad = Stream(drain), Stream(drain, ends_at="cut")
    await drain.drain()
    assert (good.cuts, bad.cuts) == (0, 1)


async def test_a_drain_is_bounded_even_if_a_stream_never_ends(caplog, monkeypatch):
    monkeypatch.setattr("tidegate.stream.drain._SETTLE_SECONDS", 0.02)
    drain = Drain(farewell_seconds=0.02)
    Stream(drain, ends_at="never")
    await drain.drain()
    assert "streams that did not end in time: 1" in caplog.text


async def test_the_ends_are_spread_over_the_time_given():
    drain = Drain(seconds=0.2, retry_ms=1000, rng=lambda: 0.5)
    times = []
    loop = asyncio.get_running_loop()
    streams = [Stream(drain) for _ in range(4)]
    for stream in streams:
        stream.farewell = lambda frame, seconds, stream=stream: (
            times.append(loop.time()),
            Stream.farewell(stream, frame, seconds),
        )
    began = loop.time()
    await drain.drain()
    assert [t - began >= 0.05 * n for n, t in enumerate(times)] == [True] * 4
    decoder = Decoder()
    decoder.feed(streams[0].frames[0])
    assert decoder.retry == 1100


async def test_a_spread_drain_returns_when_all_have_gone_by_themselves():
    drain = Drain(seconds=1000)
    streams = [Stream(drain, ends_at="never") for _ in range(3)]
    task = asyncio.ensure_future(drain.drain())
    await eventually(lambda: streams[0].frames)
    for stream in streams:
        drain.discard(stream)
    await asyncio.wait_for(task, 20)
    assert streams[2].frames == []


async def test_two_drains_at_once_wait_for_the_same_end():
    drain = Drain(farewell_seconds=5)
    stream = Stream(drain, ends_at="never")
    tasks = [asyncio.ensure_future(drain.drain()) for _ in range(2)]
    await eventually(lambda: len(stream.frames) == 2)
    assert not any(task.done() for task in tasks)
    drain.discard(stream)
    await asyncio.wait_for(asyncio.gather(*tasks), 20)


async def test_leaving_the_context_drains(signals):
    async with Drain() as drain:
        stream = Stream(drain)
    assert len(stream.frames) == 1


async def test_a_drain_serves_one_lifespan(signals):
    async with Drain() as drain:
        pass
    with pytest.raises(RuntimeError, match="one lifespan"):
        async with drain:
            pass


async def test_the_former_handlers_come_back(signals):
    before = signal.getsignal(signal.SIGTERM)
    async with Drain():
        assert signal.getsignal(signal.SIGTERM) is not before
        assert signal.getsignal(signal.SIGINT) is not before
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_the_first_signal_drains_and_then_reaches_the_former_handler(signals, number):
    async with Drain(farewell_seconds=5) as drain:
        stream = Stream(drain, ends_at="never")
        signal.raise_signal(number)
        await eventually(lambda: stream.frames)
        assert drain.draining
        assert signals == []
        drain.discard(stream)
        await eventually(lambda: signals == [number])


async def test_a_second_signal_cuts_and_goes_straight_through(signals):
    async with Drain(farewell_seconds=5) as drain:
        stream = Stream(drain, ends_at="cut")
        signal.raise_signal(signal.SIGTERM)
        await eventually(lambda: stream.frames)
        signal.raise_signal(signal.SIGINT)
        assert signals == [signal.SIGINT]
        await eventually(lambda: stream.cuts == 1)
        await eventually(lambda: drain.open_streams == 0)
    assert signals == [signal.SIGINT]


async def test_an_ignored_signal_stays_ignored(signals):
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    async with Drain() as drain:
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        signal.raise_signal(signal.SIGINT)
        await asyncio.sleep(0)
        assert not drain.draining


async def test_a_handler_that_python_cannot_call_is_left_alone(signals, monkeypatch):
    monkeypatch.setattr(signal, "getsignal", lambda number: None)
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, before)
    async with Drain() as drain:
        signal.raise_signal(signal.SIGTERM)
        await asyncio.sleep(0)
        assert not drain.draining
        assert signals == [signal.SIGTERM]


async def test_who_chained_in_front_of_it_keeps_its_place_and_is_served(signals):
    async with Drain():
        ours = signal.getsignal(signal.SIGTERM)
        theirs = partial(ours)
        signal.signal(signal.SIGTERM, theirs)
    assert signal.getsignal(signal.SIGTERM) is theirs
    signal.raise_signal(signal.SIGTERM)
    assert signals == [signal.SIGTERM]


def test_after_its_loop_has_closed_signals_go_straight_through(signals):
    async def leave_a_chain():
        async with Drain():
            ours = signal.getsignal(signal.SIGTERM)
            signal.signal(signal.SIGTERM, partial(ours))

    asyncio.run(leave_a_chain())
    signal.raise_signal(signal.SIGTERM)
    assert signals == [signal.SIGTERM]


async def test_a_former_handler_that_is_the_systems_default_gets_the_signal(signals, monkeypatch):
    raised = []
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    async with Drain() as drain:
        handler = signal.getsignal(signal.SIGTERM)
        monkeypatch.setattr(signal, "raise_signal", raised.append)
        handler(signal.SIGTERM, None)
        await eventually(lambda: raised == [signal.SIGTERM])
        assert drain.draining
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


async def test_leaving_waits_for_a_drain_that_a_signal_began(signals):
    async with Drain(farewell_seconds=5) as drain:
        Stream(drain, ends_at="cut")
        signal.raise_signal(signal.SIGTERM)
        await eventually(lambda: drain.draining)
        asyncio.get_running_loop().call_later(0.02, drain.cut)
    assert drain.open_streams == 0
    await eventually(lambda: signals == [signal.SIGTERM])


def test_in_another_thread_no_handler_is_touched():
    before = signal.getsignal(signal.SIGTERM)
    seen = []

    async def use_one():
        async with Drain() as drain:
            seen.append(signal.getsignal(signal.SIGTERM))
            stream = Stream(drain)
            await drain.drain()
            seen.append(len(stream.frames))

    thread = threading.Thread(target=lambda: asyncio.run(use_one()))
    thread.start()
    thread.join(20)
    assert seen == [before, 1]


def test_three_loops_in_turn_and_two_threads_at_once_have_drains_of_their_own():
    async def use_one():
        async with Drain() as drain:
            stream = Stream(drain)
            await drain.drain()
            return len(stream.frames)

    assert [asyncio.run(use_one()) for _ in range(3)] == [1, 1, 1]
    results = []
    threads = [
        threading.Thread(target=lambda: results.append(asyncio.run(use_one()))) for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert results == [1, 1]


def test_it_is_found_in_the_lifespans_state():
    drain = Drain()
    assert drain_of({"state": {STATE_KEY: drain}}) is drain
    assert drain_of({"state": {STATE_KEY: "something else"}}) is None
    assert drain_of({"state": {}}) is None
    assert drain_of({"state": None}) is None
    assert drain_of({}) is None
