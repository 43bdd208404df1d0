import asyncio
import threading

import pytest

from tests.servers import eventually
from tidegate.errors import BrokerUnavailable
from tidegate.gateway.brokers.sqlite_thread import Job, JobThread
from tidegate.gateway.pacing import TURN_BYTES, TURN_EVENTS


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


class Turns:
    """Counts what is handed out in each turn of the loop."""

    def __init__(self):
        self.counts = [0]
        self.order = []
        self.running = True
        self._turn()

    def _turn(self):
        self.counts.append(0)
        if self.running:
            asyncio.get_running_loop().call_soon(self._turn)

    def note(self, what):
        self.order.append(what)
        self.counts[-1] += 1


@pytest.fixture
async def turns():
    turns = Turns()
    yield turns
    turns.running = False


@pytest.fixture
async def wide(bench):
    made = JobThread(bench, name="test")
    await made.start()
    yield made
    await made.stop()


def batch(turns, name, sizes, **options):
    """A job of several items that are delivered one by one."""
    return Job(
        lambda: name,
        deliver=lambda outcome, number: turns.note((outcome, number)),
        sizes=sizes,
        items=len(sizes),
        size=sum(sizes),
        **options,
    )


@pytest.mark.parametrize(("jobs", "items"), [(500, 1), (60, 10), (20, 30), (12, 50), (3, 300)])
async def test_no_turn_of_the_loop_sees_more_than_its_share(wide, turns, jobs, items):
    gate = Gate(wide)
    finished = []
    for name in range(jobs):
        job = batch(turns, name, [10] * items, finish=finished.append)
        assert wide.submit(job)
    gate.release.set()
    await eventually(lambda: len(finished) == jobs)
    assert finished == list(range(jobs))
    assert turns.order == [(name, number) for name in range(jobs) for number in range(items)]
    # A turn of the loop ends somewhere within a turn as it is counted here.
    assert max(turns.counts) <= 2 * TURN_EVENTS


async def test_results_that_are_handed_over_at_several_times_share_a_turn(wide, turns):
    given = []
    for number in range(6):
        job = Job(lambda: None, finish=lambda _, number=number: turns.note(number), items=30)
        given.append((job, None))
    # As the thread does it, twice and more within one turn of the loop, the queue empty between.
    for one in given:
        wide._take_outcomes([one])
    assert turns.order == [0, 1]
    await eventually(lambda: turns.order == list(range(6)))
    assert max(turns.counts) <= 2


async def test_a_turn_is_bounded_in_bytes_and_the_first_goes_in_any_case(wide, turns):
    sizes = [10 * TURN_BYTES, 10 * TURN_BYTES, TURN_BYTES // 2, TURN_BYTES // 2, 1]
    wide._take_outcomes([(batch(turns, "a", sizes), "a")])
    assert turns.order == [("a", 0)]
    await eventually(lambda: len(turns.order) == 5)
    assert max(turns.counts) <= 3


async def test_who_waits_for_a_batch_hears_when_all_of_it_was_delivered(wide, turns):
    count = 3 * TURN_EVENTS
    assert await wide.do(batch(turns, "a", [1] * count, finish=lambda _: len(turns.order))) == count
    assert turns.order == [("a", number) for number in range(count)]


async def test_a_delivery_that_fails_is_raised_at_who_waits_and_the_others_come(wide, caplog):
    delivered = []

    def deliver(_, number):
        if number == 1:
            raise LookupError("the second")
        delivered.append(number)

    with pytest.raises(LookupError, match="the second"):
        await wide.do(Job(int, deliver=deliver, sizes=[1, 1, 1], items=3))
    assert delivered == [0, 2]
    assert "delivering an event failed" in caplog.text
    assert await wide.do(Job(lambda: 1)) == 1


async def test_of_a_job_that_failed_nothing_is_delivered(wide, turns):
    def work():
        raise LookupError("gone")

    def failed():
        return JobThread.failure("broken", certain=True)

    options = {"deliver": lambda *_: turns.note("delivered"), "sizes": [1]}
    with pytest.raises(LookupError):
        await wide.do(Job(work, **options))
    with pytest.raises(BrokerUnavailable):
        await wide.do(Job(failed, **options))
    assert turns.order == []


async def test_stop_waits_until_the_last_slice_is_handed_out(wide, turns):
    finished = []
    assert wide.submit(batch(turns, "a", [1] * 5 * TURN_EVENTS, finish=finished.append))
    await wide.stop()
    assert finished == ["a"]


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
