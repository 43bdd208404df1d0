import asyncio
import contextlib

import pytest

from tests.servers import eventually
from tidegate.channel import Channel
from tidegate.errors import RunCancelled
from tidegate.sessions.run import Run, Runs, event_of


@pytest.mark.parametrize(
    ("item", "event"),
    [
        (("a", 1), ("a", 1, None)),
        (("a", None), ("a", None, None)),
        ({"type": "a"}, ("a", None, None)),
        ({"type": "a", "data": 1, "meta": {"k": 2}}, ("a", 1, {"k": 2})),
        ("text", ("message", "text", None)),
        (None, ("message", None, None)),
        ((1, 2), ("message", (1, 2), None)),
        (("a",), ("message", ("a",), None)),
        (("a", 1, 2), ("message", ("a", 1, 2), None)),
        (["a", 1], ("message", ["a", 1], None)),
        ({"type": 1}, ("message", {"type": 1}, None)),
        ({"data": 1}, ("message", {"data": 1}, None)),
        ({"type": "a", "more": 1}, ("message", {"type": "a", "more": 1}, None)),
        ({}, ("message", {}, None)),
    ],
)
def test_what_a_yielded_object_stands_for(item, event):
    assert event_of(item) == event


class Source:
    """A generator of numbers that waits before each one until it may go on."""

    def __init__(self, count=3, fail=None):
        self.gate = asyncio.Semaphore(0)
        self.closed = False
        self.count = count
        self.fail = fail

    async def numbers(self):
        try:
            for number in range(self.count):
                await self.gate.acquire()
                yield "n", number
            if self.fail is not None:
                raise self.fail
        finally:
            self.closed = True


@pytest.fixture
async def runs():
    async with Runs() as runs:
        yield runs


@pytest.fixture
def channel():
    return Channel("s")


async def test_what_is_yielded_is_published(runs, channel):
    async with channel.subscribe() as events:
        source = Source(3)
        run = runs.start("s", channel, source.numbers())
        assert not run.done
        for _ in range(3):
            source.gate.release()
        await run.wait()
        assert [(event.type, event.data) for event in events.take()] == [
            ("n", 0),
            ("n", 1),
            ("n", 2),
        ]
        assert run.done
        assert run.published == 3
        assert source.closed


async def test_a_generator_that_never_suspends_lets_its_readers_read(runs):
    channel = Channel("s", max_queued=4)
    seen = []

    async def many():
        for number in range(1000):
            yield number

    async def read():
        async with channel.subscribe() as events:
            seen.extend([event.data async for event in events])

    reader = asyncio.ensure_future(read())
    await asyncio.sleep(0)
    await runs.start("s", channel, many()).wait()
    channel.close()
    await reader
    assert seen == list(range(1000))


async def test_who_waits_may_be_cancelled_and_the_run_goes_on(runs, channel):
    source = Source(2)
    run = runs.start("s", channel, source.numbers())
    waiting = asyncio.ensure_future(run.wait())
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    source.gate.release()
    source.gate.release()
    await run.wait()
    assert channel.last_event_id == 2


async def test_a_failure_is_logged_published_and_raised_to_everyone_who_waits(
    runs, channel, caplog
):
    async with channel.subscribe() as events:
        run = runs.start("s", channel, Source(0, KeyError("secret")).numbers())
        for _ in range(2):
            with pytest.raises(KeyError, match="secret"):
                await run.wait()
        (event,) = events.take()
        assert (event.type, event.data) == ("run_failed", {"error": "KeyError"})
        assert isinstance(run.error, KeyError)
    assert "secret" in caplog.text


async def test_a_failure_that_nobody_waits_for_is_no_warning(runs, channel):
    run = runs.start("s", channel, Source(0, KeyError()).numbers())
    await eventually(lambda: run.done)


async def test_a_cancelled_run_closes_its_generator_and_says_so(runs, channel):
    source = Source()
    run = runs.start("s", channel, source.numbers())
    await asyncio.sleep(0)
    run.cancel()
    with pytest.raises(RunCancelled) as caught:
        await run.wait()
    assert caught.value.session_id == "s"
    assert str(caught.value) == "the run was cancelled, or its session s ended first"
    assert source.closed
    assert channel.last_event_id == 0


async def test_a_generator_under_which_something_was_cancelled_has_failed(runs, channel):
    async def broken():
        yield 1
        raise asyncio.CancelledError

    run = runs.start("s", channel, broken())
    with pytest.raises(RunCancelled):
        await run.wait()
    assert channel.last_event_id == 2


async def test_an_iterator_without_aclose_will_do(runs, channel):
    class Iterator:
        def __init__(self):
            self.left = 2

        def __aiter__(self):
            return self

        async def __anext__(self):
            if not self.left:
                raise StopAsyncIteration
            self.left -= 1
            return self.left

    await runs.start("s", channel, Iterator()).wait()
    assert channel.last_event_id == 2


async def test_a_generator_that_fails_while_it_is_closed_has_failed(runs, channel):
    class Source:
        def __aiter__(self):
            return self

        async def __anext__(self):
            raise StopAsyncIteration

        async def aclose(self):
            raise RuntimeError("of aclose")

    with pytest.raises(RuntimeError, match="of aclose"):
        await runs.start("s", channel, Source()).wait()


async def test_leaving_cancels_and_awaits_what_runs(channel):
    source = Source()
    async with Runs() as runs:
        run = runs.start("s", channel, source.numbers())
        await asyncio.sleep(0)
    assert run.done
    assert source.closed


async def test_a_run_that_does_not_stop_is_left_behind_with_a_warning(channel, caplog, monkeypatch):
    monkeypatch.setattr("tidegate.sessions.run._STOP_SECONDS", 0.02)
    release = asyncio.Event()

    async def stubborn():
        try:
            await asyncio.Event().wait()
        finally:
            await release.wait()
        yield 1

    async with Runs() as runs:
        run = runs.start("s", channel, stubborn())
        await asyncio.sleep(0)
    assert "1 runs did not stop" in caplog.text
    release.set()
    await eventually(lambda: run.done)


async def test_runs_start_only_within_the_context():
    runs = Runs()
    with pytest.raises(RuntimeError, match="async with sessions"):
        runs.check_open()
    async with runs:
        runs.check_open()
    with pytest.raises(RuntimeError, match="async with sessions"):
        runs.check_open()


async def test_a_run_alone_is_a_task(channel):
    run = Run("s", channel, Source(0).numbers())
    await run.wait()
    assert run.task.done()


class Panic(BaseException):
    """No `Exception`, and no cancellation either."""


@pytest.mark.parametrize(
    "error", [Panic(), BaseExceptionGroup("x", [asyncio.CancelledError()])], ids=["panic", "group"]
)
async def test_whatever_a_generator_raises_is_a_failure_that_is_told(error, caplog):
    async def source():
        yield 1
        raise error

    channel = Channel()
    async with Runs() as runs, channel.subscribe() as subscription:
        run = runs.start("a", channel, source())
        with pytest.raises(type(error)):
            await run.wait()
        assert [e.type for e in subscription.take()] == ["message", "run_failed"]
    assert "a run of session a failed" in caplog.text


async def test_a_generator_that_ignores_cancellation_does_not_outlive_its_session():
    async def source():
        while True:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0)
            yield 1

    channel = Channel()
    async with Runs() as runs:
        run = runs.start("a", channel, source())
        async with asyncio.timeout(20):
            while run.published < 3:  # noqa: ASYNC110 - a turn of the loop each
                await asyncio.sleep(0)
            channel.close()
            run.cancel()
            with pytest.raises(RunCancelled):
                await run.wait()
