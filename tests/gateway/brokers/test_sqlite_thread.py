import asyncio
import threading

import pytest

from tests.servers import eventually
from tidegate.errors import BrokerUnavailable
from tidegate.gateway.brokers.sqlite_thread import Job, JobThread


class Bench:
    """A workshop that keeps what happened."""

    def __init__(self, *, problem=None):
        self.problem = problem
        self.happened = []
        self.pause = 60.0

    def open(self):
        self.happened.append("open")
        if self.problem:
            raise self.problem

    def do(self, jobs):
        self.happened.append(len(jobs))
        return [self.one(job) for job in jobs]

    def one(self, job):
        try:
            return job.work()
        except LookupError as error:
            return error

    def idle(self):
        return self.pause

    def close(self):
        self.happened.append("close")


@pytest.fixture
async def bench():
    return Bench()


@pytest.fixture
async def thread(bench):
    made = JobThread(bench, name="test", max_items=5, max_bytes=100)
    await made.start()
    yield made
    await made.stop()


class Gate:
    def __init__(self, thread):
        self.entered = threading.Event()
        self.release = threading.Event()
        assert thread.submit(Job(self.wait))

    def wait(self):
        self.entered.set()
        assert self.release.wait(30)


async def test_a_job_is_done_in_the_thread_and_its_result_finished_in_the_loop(thread):
    where = []

    def work():
        where.append(threading.current_thread().name)
        return 1

    def finish(outcome):
        where.append(asyncio.get_running_loop())
        return outcome + 1

    assert await thread.do(Job(work, finish=finish)) == 2
    assert where == ["test", asyncio.get_running_loop()]


async def test_jobs_that_wait_are_done_together_and_finished_in_order(thread, bench):
    gate = Gate(thread)
    await eventually(gate.entered.is_set)
    finished = []
    for number in range(4):
        assert thread.submit(Job(lambda number=number: number, finish=finished.append))
    gate.release.set()
    await eventually(lambda: finished == [0, 1, 2, 3])
    assert bench.happened[-1] == 4


async def test_what_the_work_raises_reaches_who_waits(thread):
    def work():
        raise LookupError("gone")

    with pytest.raises(LookupError, match="gone"):
        await thread.do(Job(work))
    assert thread.submit(Job(work))
    assert await thread.do(Job(lambda: 1)) == 1


async def test_a_failure_is_told_as_the_job_says(thread):
    def work():
        return JobThread.failure("broken", certain=True)

    assert await thread.do(Job(work, fail=lambda *told: told)) == ("broken", True)
    with pytest.raises(BrokerUnavailable, match="broken"):
        await thread.do(Job(work))


async def test_a_workshop_that_breaks_down_fails_its_jobs_and_goes_on(thread, bench, caplog):
    def work():
        raise RuntimeError("a bug")

    told = await thread.do(Job(work, fail=lambda *told: told))
    assert told == ("the broker has failed", False)
    assert "a bug" in caplog.text
    assert await thread.do(Job(lambda: 1)) == 1


async def test_tidying_up_that_fails_does_not_end_the_thread(thread, bench, caplog):
    def idle():
        raise RuntimeError("a bug")

    bench.idle = idle
    assert await thread.do(Job(lambda: 1)) == 1
    assert await thread.do(Job(lambda: 1)) == 1
    assert "tidying up failed" in caplog.text


async def test_the_queue_is_bounded_in_items_and_bytes(thread):
    gate = Gate(thread)
    assert thread.submit(Job(int, items=3))
    assert not thread.submit(Job(int, items=2))
    assert thread.submit(Job(int, size=100))
    assert not thread.submit(Job(int))
    with pytest.raises(BrokerUnavailable, match="too much waits"):
        await thread.do(Job(int))
    gate.release.set()
    await eventually(lambda: thread.submit(Job(int, items=1000, size=1000)))


async def test_who_waits_too_long_is_told_and_the_job_is_finished_all_the_same(bench):
    thread = JobThread(bench, name="test", timeout=0.05)
    await thread.start()
    gate = Gate(thread)
    finished = []
    job = Job(lambda: 1, finish=finished.append, fail=lambda *told: told)
    assert await thread.do(job) == ("the disk has not answered in time", False)
    with pytest.raises(BrokerUnavailable):
        await thread.do(Job(int))
    gate.release.set()
    await eventually(lambda: finished == [1])
    assert await thread.do(Job(lambda: 2)) == 2
    await thread.stop()


async def test_a_cancelled_caller_does_not_cancel_the_job(thread):
    gate = Gate(thread)
    finished = []
    task = asyncio.ensure_future(thread.do(Job(lambda: 1, finish=finished.append)))
    await asyncio.sleep(0)
    task.cancel()
    gate.release.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    await eventually(lambda: finished == [1])


async def test_many_results_are_handed_out_in_slices(bench):
    thread = JobThread(bench, name="test")
    await thread.start()
    gate = Gate(thread)
    finished = []
    seen = set()

    def turn():
        seen.add(len(finished))
        if len(finished) < 2000:
            asyncio.get_running_loop().call_soon(turn)

    for number in range(2000):
        assert thread.submit(Job(lambda number=number: number, finish=finished.append))
    turn()
    gate.release.set()
    await eventually(lambda: len(finished) == 2000)
    assert finished == list(range(2000))
    # Others had their turns in between.
    assert len(seen) > 5
    await thread.stop()


async def test_what_the_thread_calls_comes_in_turn_with_the_results(thread):
    happened = []

    def work():
        thread.call(lambda: happened.append("called"))

    await thread.do(Job(work, finish=lambda _: happened.append("finished")))
    assert happened == ["called", "finished"]


async def test_stop_does_what_was_accepted_and_no_more(thread, bench):
    gate = Gate(thread)
    finished = []
    assert thread.submit(Job(lambda: 1, finish=finished.append))
    stopping = asyncio.ensure_future(thread.stop())
    await asyncio.sleep(0)
    assert not thread.submit(Job(int))
    with pytest.raises(BrokerUnavailable, match="has stopped"):
        await thread.do(Job(int))
    assert finished == []
    gate.release.set()
    await stopping
    assert finished == [1]
    assert bench.happened[-1] == "close"
    await thread.stop()


async def test_stop_gives_up_on_a_thread_that_hangs_and_tells_who_waits(thread, caplog):
    gate = Gate(thread)
    waiting = asyncio.ensure_future(thread.do(Job(int, fail=lambda *told: told)))
    await asyncio.sleep(0)
    await thread.stop(0.05)
    assert await waiting == ("the broker has stopped before this was done", False)
    assert "has not ended" in caplog.text
    gate.release.set()
    await thread.stop()


async def test_a_workshop_that_does_not_open_is_closed_and_says_why():
    bench = Bench(problem=LookupError("no bench"))
    thread = JobThread(bench, name="test")
    with pytest.raises(LookupError, match="no bench"):
        await thread.start()
    assert bench.happened == ["open", "close"]
    await thread.stop()


async def test_it_may_be_stopped_before_it_was_started():
    await JobThread(Bench(), name="test").stop()


def test_the_end_of_the_loop_ends_nothing_but_the_waiting():
    bench = Bench()

    async def main():
        thread = JobThread(bench, name="test")
        await thread.start()
        gate = Gate(thread)
        return thread, gate

    thread, gate = asyncio.run(main())
    gate.release.set()
    thread._queue.put(None)
    thread._thread.join(20)
    assert not thread._thread.is_alive()
    assert bench.happened[-1] == "close"
