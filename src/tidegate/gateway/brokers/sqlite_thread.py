"""A thread that does jobs in order, and an event loop that awaits them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections import deque
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final, Protocol

from tidegate.errors import BrokerUnavailable
from tidegate.gateway.pacing import TURN_BYTES, TURN_EVENTS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["Job", "JobThread", "Workshop"]

_logger = logging.getLogger(__name__)

_OPEN_SECONDS: Final = 60.0


class Job:
    """What a thread is to do, and who waits for it.

    Args:
        work: called in the thread, with what the workshop gives it; returns the outcome.
        finish: called in the event loop with the outcome, in the order of the jobs; returns the
            result. It is called whether anybody waits or not.
        deliver: called in the event loop before ``finish``, with the outcome and the number of
            an item, once for each of ``sizes`` in order; between two items the loop may get its
            turn. What it raises is raised at who waits. Without one the job is handed out in
            one piece.
        sizes: the bytes of each item that is delivered.
        fail: called in the event loop with a sentence, and whether it is certain that nothing
            was done; returns the result. Without one the caller gets `BrokerUnavailable`.
        items: how much there is to do.
        size: the bytes that it holds.
    """

    __slots__ = (
        "deadline",
        "deliver",
        "fail",
        "finish",
        "future",
        "items",
        "size",
        "sizes",
        "work",
    )

    def __init__(
        self,
        work: Callable[..., Any],
        *,
        finish: Callable[[Any], Any] | None = None,
        fail: Callable[[str, bool], Any] | None = None,
        deliver: Callable[[Any, int], None] | None = None,
        sizes: Sequence[int] = (),
        items: int = 1,
        size: int = 0,
    ) -> None:
        self.work = work
        self.finish = finish
        self.fail = fail
        self.deliver = deliver
        self.sizes = sizes
        self.items = items
        self.size = size
        self.deadline = 0.0
        self.future: asyncio.Future[Any] | None = None

    def done(self, outcome: object) -> None:
        """Hand out the outcome, in the event loop; an exception is raised at who waits."""
        if isinstance(outcome, _Failure):
            self.failed(outcome.problem, certain=outcome.certain)
            return
        if isinstance(outcome, BaseException):
            self.refuse(outcome)
            return
        try:
            result = outcome if self.finish is None else self.finish(outcome)
        except Exception as error:
            _logger.exception("handing out a result failed")
            self.refuse(error)
            return
        if self.future is not None and not self.future.done():
            self.future.set_result(result)

    def failed(self, problem: str, *, certain: bool) -> None:
        """Tell who waits, in the event loop, that it was not done or is not known to be."""
        if self.fail is None:
            self.refuse(BrokerUnavailable(problem))
        elif self.future is not None and not self.future.done():
            self.future.set_result(self.fail(problem, certain))

    def refuse(self, error: BaseException) -> None:
        """Raise an error at who waits and has not been answered, in the event loop."""
        if self.future is not None and not self.future.done():
            self.future.set_exception(error)


class _Failure:
    """The outcome of a job that was not done."""

    __slots__ = ("certain", "problem")

    def __init__(self, problem: str, certain: bool) -> None:
        self.problem = problem
        self.certain = certain


class Workshop(Protocol):
    """What a `JobThread` works with. Every call is made in the thread."""

    def open(self) -> None:
        """Make ready. What it raises is raised by `JobThread.start`."""

    def do(self, jobs: Sequence[Job]) -> list[Any]:
        """Do jobs; return an outcome, an exception or a `JobThread.failure` for each."""

    def idle(self) -> float:
        """Do a little of what can wait; return for how many seconds there is nothing to do."""

    def close(self) -> None:
        """Let go of everything, also after an `open` that failed. It does not raise."""


class JobThread:
    """Does jobs in a thread of its own, in the order in which they were submitted.

    All that wait when it is free are done together. It belongs to the event loop in which it
    was started. A job that was accepted is done, also when nobody waits for it any more.

    Args:
        workshop: what does them.
        name: of the thread.
        timeout: seconds after which who waits for a job is told that it is not known to be done.
        max_items: how many items may wait.
        max_bytes: how many bytes they may hold.
    """

    def __init__(
        self,
        workshop: Workshop,
        *,
        name: str,
        timeout: float = 10.0,
        max_items: int = 10_000,
        max_bytes: int = 64 * 1024 * 1024,
    ) -> None:
        self._workshop = workshop
        self._timeout = timeout
        self._max_items = max_items
        self._max_bytes = max_bytes
        self._queue: SimpleQueue[Job | None] = SimpleQueue()
        self._waiting: deque[Job] = deque()
        self._items = 0
        self._bytes = 0
        self._outcomes: deque[tuple[Job, Any]] = deque()
        self._begun = False
        self._next_item = 0
        self._turn_items = 0
        self._turn_bytes = 0
        self._turn_ends = False
        self._watchdog: asyncio.TimerHandle | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._loop: asyncio.AbstractEventLoop
        self._opened: asyncio.Future[None]
        self._ended: asyncio.Future[None] | None = None
        self._accepting = False

    @staticmethod
    def failure(problem: str, *, certain: bool) -> object:
        """Return the outcome of a job that was not done.

        Args:
            problem: a sentence.
            certain: it is known that nothing was done.
        """
        return _Failure(problem, certain)

    async def start(self) -> None:
        """Start the thread, and wait until the workshop is open. Once.

        Cancelled, or when the workshop does not open, the thread ends by itself.
        """
        self._loop = asyncio.get_running_loop()
        self._opened = self._loop.create_future()
        self._ended = self._loop.create_future()
        self._thread.start()
        try:
            await asyncio.wait_for(self._opened, _OPEN_SECONDS)
        except TimeoutError:
            self._queue.put(None)
            raise BrokerUnavailable("the disk has not answered in time") from None
        except BaseException:
            self._queue.put(None)
            raise
        self._accepting = True

    async def stop(self, seconds: float = 30.0) -> None:
        """Accept no more, and wait until all that was accepted is done and handed out.

        Idempotent. After ``seconds`` it is given up, with a warning in the log; the thread then
        goes on by itself, and those who wait are told.
        """
        self._accepting = False
        if self._ended is None:
            return
        self._queue.put(None)
        _, late = await asyncio.wait({self._ended}, timeout=seconds)
        if late:
            _logger.warning("%s has not ended within %g s", self._thread.name, seconds)
            for job in self._waiting:
                job.failed("the broker has stopped before this was done", certain=False)
        if self._watchdog is not None:
            self._watchdog.cancel()
            self._watchdog = None

    def submit(self, job: Job) -> bool:
        """Have a job done that nobody waits for; return whether it was accepted."""
        if not self._accepting or (
            self._items
            and (
                self._items + job.items > self._max_items
                or self._bytes + job.size > self._max_bytes
            )
        ):
            return False
        self._items += job.items
        self._bytes += job.size
        job.deadline = self._loop.time() + self._timeout
        self._waiting.append(job)
        if self._watchdog is None:
            self._watchdog = self._loop.call_at(job.deadline, self._watch)
        self._queue.put(job)
        return True

    async def do(self, job: Job) -> Any:
        """Have a job done and wait for its result.

        Cancelled, the job is done all the same.

        Raises:
            BrokerUnavailable: see `Job`.
            BaseException: what the work raised.
        """
        future = job.future = self._loop.create_future()
        if not self.submit(job):
            problem = "too much waits for the disk" if self._accepting else "the broker has stopped"
            job.failed(problem, certain=True)
        return await future

    def call(self, function: Callable[[], None]) -> None:
        """From the thread: have a function called in the event loop, in turn with the results."""
        self._hand_over([(Job(_nothing, finish=lambda _: function()), None)])

    def _watch(self) -> None:
        """Tell those who have waited too long; the oldest are first."""
        self._watchdog = None
        now = self._loop.time()
        for job in self._waiting:
            if job.deadline > now:
                self._watchdog = self._loop.call_at(job.deadline, self._watch)
                return
            job.failed("the disk has not answered in time", certain=False)
        # Those that come wait behind them.

    def _run(self) -> None:
        """The thread."""
        try:
            self._workshop.open()
        except BaseException as error:  # noqa: BLE001 - start() raises it
            self._workshop.close()
            self._tell(self._open_failed, error)
        else:
            self._tell(self._open_done)
            try:
                self._work()
            finally:
                self._workshop.close()
        self._tell(self._end)

    def _work(self) -> None:
        stopping = False
        while not stopping:
            try:
                pause = self._workshop.idle()
            except Exception:
                _logger.exception("%s: tidying up failed", self._thread.name)
                pause = 10.0
            jobs: list[Job] = []
            with contextlib.suppress(Empty):
                job = self._queue.get(timeout=max(pause, 0.001))
                while job is not None:
                    jobs.append(job)
                    job = self._queue.get_nowait()
                stopping = True
            if jobs:
                try:
                    outcomes = self._workshop.do(jobs)
                except Exception:
                    _logger.exception("%s: %d jobs failed", self._thread.name, len(jobs))
                    outcomes = [self.failure("the broker has failed", certain=False)] * len(jobs)
                self._hand_over(list(zip(jobs, outcomes, strict=True)))

    def _hand_over(self, outcomes: list[tuple[Job, Any]]) -> None:
        self._tell(self._take_outcomes, outcomes)

    def _tell(self, function: Callable[..., None], *args: Any) -> None:
        # A loop that was closed has nobody left who waits.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(function, *args)

    def _open_done(self) -> None:
        if not self._opened.done():
            self._opened.set_result(None)

    def _open_failed(self, error: BaseException) -> None:
        if not self._opened.done():
            self._opened.set_exception(error)

    def _end(self) -> None:
        if self._outcomes:
            self._loop.call_soon(self._end)
            return
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(None)

    def _take_outcomes(self, outcomes: list[tuple[Job, Any]]) -> None:
        self._outcomes.extend(outcomes)
        self._hand_out()

    def _hand_out(self) -> None:
        """Hand out results in their order, as many as one turn of the loop may see.

        Streams are served between the turns: what is delivered to them in one must not overflow
        the backlog of those who keep up, whether it comes of one job, of many, or of what the
        thread hands over at several times.
        """
        while self._outcomes:
            job, outcome = self._outcomes[0]
            if not self._begun:
                self._begun = True
                # What `call` brings was never submitted.
                if self._waiting and self._waiting[0] is job:
                    self._waiting.popleft()
                    self._items -= job.items
                    self._bytes -= job.size
            if not self._delivered(job, outcome):
                break
            self._outcomes.popleft()
            self._begun = False
            self._next_item = 0
            job.done(outcome)
        if self._turn_items and not self._turn_ends:
            # Also when nothing is left: more may come within the same turn.
            self._turn_ends = True
            self._loop.call_soon(self._end_turn)

    def _delivered(self, job: Job, outcome: object) -> bool:
        """Deliver what the turn still has room for; return whether that was all of it."""
        if job.deliver is None or isinstance(outcome, _Failure | BaseException):
            return self._fits(job.items, 0)
        while self._next_item < len(job.sizes):
            number = self._next_item
            if not self._fits(1, job.sizes[number]):
                return False
            self._next_item += 1
            try:
                job.deliver(outcome, number)
            except Exception as error:
                _logger.exception("delivering an event failed")
                job.refuse(error)
        return True

    def _fits(self, items: int, size: int) -> bool:
        """Count it, unless the turn has had enough; the first is let through in any case."""
        if self._turn_items and (
            self._turn_items + items > TURN_EVENTS or self._turn_bytes + size > TURN_BYTES
        ):
            return False
        self._turn_items += items
        self._turn_bytes += size
        return True

    def _end_turn(self) -> None:
        self._turn_ends = False
        self._turn_items = self._turn_bytes = 0
        self._hand_out()


def _nothing() -> None:
    return None
