"""Publishes with history, beside the least that could be called storing an event.

The floor of memory is a dict of bounded deques to which bytes are appended, that of SQLite a bare
transaction of as many rows, on the same disk and as durable. Neither has positions, a chain,
idempotency, an epoch or anybody who is told; a transaction of the broker is also made in a thread
of its own. Through `Gateway.publish` an event is checked and encoded as well.
"""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
from collections import deque
from contextlib import closing
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from bench.harness import Benchmark, Options, Report, Sample, Stopwatch, Summary, Table, interleave
from tidegate.gateway import Gateway
from tidegate.gateway.brokers.base import PublishRequest
from tidegate.gateway.brokers.memory import MemoryBroker
from tidegate.gateway.brokers.sqlite import SqliteBroker
from tidegate.gateway.namespaces import Namespace
from tidegate.gateway.publishing import Publishable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tidegate.gateway.brokers.base import Broker

__all__ = ["BENCHMARK"]

CHANNEL = "room:1"
PAYLOAD = b'{"data":{"n":1,"text":"%b"},"_meta":{"serverTimestamp":1700000000000}}' % (b"x" * 100)
DATA = {"n": 1, "text": "x" * 100}
CALLERS = 64
BATCH = 100
WAYS = {
    "1 caller, 1 at a time": 1,
    f"{CALLERS} callers, 1 at a time": CALLERS,
    f"1 caller, batches of {BATCH}": BATCH,
}
"""How events come, and how many of them a transaction can have."""


def _broker_of(kind: str, folder: Path) -> Broker:
    return MemoryBroker() if kind == "memory" else SqliteBroker(folder / "broker.sqlite3")


async def _drive(publish: Callable[[int], Awaitable[object]], way: str, events: int) -> Sample:
    """Publish so many events in one of the ways; ``publish`` takes how many at once."""

    async def caller(count: int) -> None:
        for _ in range(count):
            await publish(1)

    await publish(1)
    with Stopwatch() as watch:
        if way.startswith(str(CALLERS)):
            async with asyncio.TaskGroup() as tasks:
                for _ in range(CALLERS):
                    tasks.create_task(caller(events // CALLERS))
        elif "batches" in way:
            for _ in range(events // BATCH):
                await publish(BATCH)
        else:
            await caller(events)
    return watch.sample


async def _through_broker(kind: str, way: str, events: int, folder: Path) -> Sample:
    request = PublishRequest(
        channel=CHANNEL, type="tick", payload=PAYLOAD, policy=Namespace().policy
    )
    # A gateway for its node: somebody has to be there to be told.
    async with Gateway(broker := _broker_of(kind, folder)):

        async def publish(count: int) -> object:
            return await broker.publish([request] * count)

        return await _drive(publish, way, events)


async def _through_gateway(kind: str, way: str, events: int, folder: Path) -> Sample:
    many = [Publishable(channel=CHANNEL, type="tick", data=DATA)] * BATCH
    async with Gateway(_broker_of(kind, folder)) as gateway:

        async def publish(count: int) -> object:
            if count == 1:
                return await gateway.publish(CHANNEL, "tick", DATA)
            return await gateway.publish_many(many)

        return await _drive(publish, way, events)


async def _into_deques(way: str, events: int, _: Path) -> Sample:
    histories: dict[str, deque[bytes]] = {}

    async def publish(count: int) -> None:
        for _ in range(count):
            history = histories.get(CHANNEL)
            if history is None:
                history = histories[CHANNEL] = deque(maxlen=1000)
            history.append(PAYLOAD)

    return await _drive(publish, way, events)


async def _into_a_table(way: str, events: int, folder: Path) -> Sample:
    rows = WAYS[way]
    with closing(sqlite3.connect(folder / "floor.sqlite3", isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("CREATE TABLE events (id INTEGER PRIMARY KEY, payload BLOB)")

        async def publish(_: int) -> None:
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany("INSERT INTO events (payload) VALUES (?)", [(PAYLOAD,)] * rows)
            connection.execute("COMMIT")

        await publish(rows)
        with Stopwatch() as watch:
            for _ in range(events // rows):
                await publish(rows)
    return watch.sample


def _pass(kind: str, through: str, way: str, events: int) -> Sample:
    # Beside this file, not in a folder that may be in memory.
    with tempfile.TemporaryDirectory(dir=Path(__file__).resolve().parent / "results") as name:
        folder = Path(name)
        if through == "broker":
            return asyncio.run(_through_broker(kind, way, events, folder))
        if through == "Gateway":
            return asyncio.run(_through_gateway(kind, way, events, folder))
        if kind == "memory":
            return asyncio.run(_into_deques(way, events, folder))
        return asyncio.run(_into_a_table(way, events, folder))


def run(options: Options) -> Report:
    """Measure each broker in each of the ways, straight and through a `Gateway`."""
    (Path(__file__).resolve().parent / "results").mkdir(exist_ok=True)
    tables = []
    samples: dict[str, list[Sample]] = {}
    for kind in ("memory", "sqlite"):
        rows = []
        for way, together in WAYS.items():
            events = options.size(20_000, 640)
            if kind == "sqlite":
                events = options.size(400 * together, 10 * together)
            events -= events % max(CALLERS, BATCH) if together > 1 else 0
            names = {through: f"{way}, {through}" for through in ("floor", "broker", "Gateway")}
            taken = interleave(
                {
                    name: partial(_pass, kind, through, way, max(events, together))
                    for through, name in names.items()
                },
                passes=options.passes,
            )
            count = max(events, together)
            floor = median(sample.wall for sample in taken[names["floor"]])
            for name in names.values():
                samples[f"{kind}, {name}"] = taken[name]
                rows.append(
                    (
                        name,
                        Summary.of([count / sample.wall for sample in taken[name]]),
                        Summary.of([sample.cpu / count * 1e6 for sample in taken[name]]),
                        median(sample.wall for sample in taken[name]) / floor,
                    )
                )
        tables.append(
            Table(
                title=f"{kind}, {len(PAYLOAD)} bytes an event, history of 1,000, no subscriber",
                columns=["", "publishes/s", "CPU µs a publish", "times the floor"],
                rows=rows,
            )
        )
    return Report(
        tables=tables,
        notes=[
            f"floor: a dict of deques; sqlite: a bare transaction of 1, {CALLERS} or {BATCH} rows"
        ],
        samples=samples,
    )


BENCHMARK = Benchmark(
    name="gateway_publish",
    about="publishes/s with history on memory and SQLite, beside a bare append or transaction",
    run=run,
)
