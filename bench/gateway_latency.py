"""From a publish to a subscriber in the same process: how long an event takes.

Closed loop: the next event is published when the one before has come. Open loop: events are
published when they are due, whether the one before has come or not, and what counts is the time
since it was due, so that a publisher that is late hides nothing. The floor is an asyncio.Queue,
with SQLite behind a bare transaction in a thread: an event that is not stored is not published.
"""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from bench.harness import Benchmark, Options, Report, Sample, Stopwatch, Summary, Table, interleave
from tidegate.gateway import Gateway

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

__all__ = ["BENCHMARK"]

CHANNEL = "room:1"
RESULTS = Path(__file__).resolve().parent / "results"
RATES = {"memory": 1_000, "sqlite": 100}
"""Events a second of the open loop: far below what can be done, so that none waits for another."""


class _Clock:
    """When each event was due, and how long it took to come."""

    def __init__(self) -> None:
        self.due: dict[int, float] = {}
        self.took: list[float] = []
        self._waiter: asyncio.Future[None] | None = None

    def came(self, number: int) -> None:
        self.took.append(time.perf_counter() - self.due.pop(number))
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def until(self, count: int) -> None:
        """Wait until so many have come."""
        while len(self.took) < count:
            self._waiter = asyncio.get_running_loop().create_future()
            await asyncio.wait_for(self._waiter, 30)


@asynccontextmanager
async def _gateway(
    kind: str, folder: Path, clock: _Clock
) -> AsyncIterator[Callable[[int], Awaitable[object]]]:
    broker = "memory:" if kind == "memory" else f"sqlite:///{folder}/history.sqlite3"
    async with Gateway(broker) as gateway, gateway.subscribe(CHANNEL) as events:

        async def read() -> None:
            async for event in events:
                if event.id is not None:
                    clock.came(event.data["n"])

        async with asyncio.TaskGroup() as tasks:
            reader = tasks.create_task(read())
            yield lambda number: gateway.publish(CHANNEL, "tick", {"n": number})
            reader.cancel()


@asynccontextmanager
async def _floor(
    kind: str, folder: Path, clock: _Clock
) -> AsyncIterator[Callable[[int], Awaitable[object]]]:
    queue: asyncio.Queue[int] = asyncio.Queue()
    loop = asyncio.get_running_loop()

    async def read() -> None:
        while True:
            clock.came(await queue.get())

    def store(connection: sqlite3.Connection, number: int) -> None:
        connection.execute("INSERT INTO events (payload) VALUES (?)", (str(number),))

    def connect() -> sqlite3.Connection:
        connection = sqlite3.connect(folder / "floor.sqlite3", isolation_level=None)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("CREATE TABLE events (id INTEGER PRIMARY KEY, payload TEXT)")
        return connection

    with ThreadPoolExecutor(1) as thread:
        connection = None
        if kind == "sqlite":
            connection = await loop.run_in_executor(thread, connect)

        async def publish(number: int) -> None:
            if connection is not None:
                await loop.run_in_executor(thread, store, connection, number)
            queue.put_nowait(number)

        async with asyncio.TaskGroup() as tasks:
            reader = tasks.create_task(read())
            yield publish
            reader.cancel()
        if connection is not None:
            await loop.run_in_executor(thread, connection.close)


SYSTEMS = {"Gateway": _gateway, "floor": _floor}


async def _measure(
    kind: str, system: str, loop_kind: str, events: int, folder: Path
) -> tuple[Sample, Sequence[float]]:
    clock = _Clock()
    async with SYSTEMS[system](kind, folder, clock) as publish:
        clock.due[-1] = time.perf_counter()
        await publish(-1)
        await clock.until(1)
        clock.took.clear()
        with Stopwatch() as watch:
            if loop_kind == "closed":
                for number in range(events):
                    clock.due[number] = time.perf_counter()
                    await publish(number)
                    await clock.until(number + 1)
            else:
                await _open_loop(publish, clock, events, RATES[kind])
        return watch.sample, clock.took


async def _open_loop(
    publish: Callable[[int], Awaitable[object]], clock: _Clock, events: int, rate: int
) -> None:
    began = time.perf_counter()
    async with asyncio.TaskGroup() as tasks:
        for number in range(events):
            due = began + number / rate
            clock.due[number] = due
            early = due - time.perf_counter()
            if early > 0:
                await asyncio.sleep(early)
            tasks.create_task(_awaited(publish(number)))
    await clock.until(events)


async def _awaited(publishing: Awaitable[object]) -> None:
    await publishing


def _percentile(sorted_values: Sequence[float], share: float) -> float:
    return sorted_values[min(len(sorted_values) - 1, int(share * len(sorted_values)))]


def run(options: Options) -> Report:
    """Measure both loops on both brokers."""
    RESULTS.mkdir(exist_ok=True)
    tables = []
    samples: dict[str, list[Sample]] = {}
    for kind in ("memory", "sqlite"):
        events = options.size(2_000 if kind == "memory" else 200, 50)
        times: dict[str, list[list[float]]] = defaultdict(list)

        def one_pass(kind: str, system: str, loop_kind: str, events: int) -> Sample:
            with tempfile.TemporaryDirectory(dir=RESULTS) as folder:
                sample, took = asyncio.run(_measure(kind, system, loop_kind, events, Path(folder)))
            times[f"{loop_kind}, {system}"].append(sorted(took))  # noqa: B023 - called at once
            return sample

        taken = interleave(
            {
                f"{loop_kind}, {system}": partial(one_pass, kind, system, loop_kind, events)
                for loop_kind in ("closed", "open")
                for system in SYSTEMS
            },
            passes=options.passes,
            warm_up=False,
        )
        rows = []
        for name in taken:
            samples[f"{kind}, {name}"] = taken[name]
            floor = f"{name.partition(',')[0]}, floor"
            p50, p99, floor_p50, floor_p99 = (
                Summary.of([_percentile(one, share) * 1e6 for one in times[which]])
                for which in (name, floor)
                for share in (0.5, 0.99)
            )
            rows.append(
                (name, p50, p99, p50.median / floor_p50.median, p99.median / floor_p99.median)
            )
        tables.append(
            Table(
                title=f"{kind}, {events:,} events a pass, open loop at {RATES[kind]:,} a second",
                columns=["", "p50 µs", "p99 µs", "p50, times the floor", "p99, times the floor"],
                rows=rows,
            )
        )
    return Report(
        tables=tables,
        notes=["floor: an asyncio.Queue; with sqlite behind a bare transaction in a thread."],
        samples=samples,
    )


BENCHMARK = Benchmark(
    name="gateway_latency",
    about="publish to in-process subscriber, p50 and p99, beside a queue",
    run=run,
)
