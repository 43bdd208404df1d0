"""Events through a Channel to in-process subscribers, beside an asyncio.Queue for each of them.

The queue is what one writes by hand: no ids, no replay, no byte bound, no eviction. It is the floor
to compare with, not a rival. Both sides get the same events and the same readers' loop. The
publisher sends a burst, then lets the readers finish; a burst of 1 is the case in which every
reader waits for every event.
"""

from __future__ import annotations

import asyncio
import itertools
from functools import partial
from typing import TYPE_CHECKING

from bench.harness import Benchmark, Options, Report, Sample, Stopwatch, Summary, Table, interleave
from tidegate.channel import Channel

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

__all__ = ["BENCHMARK"]

SUBSCRIBERS = (1, 100)
BURSTS = (1, 64)
BOUND = 256


class _Tally:
    """Counts what the readers took, and lets the publisher wait until they took all of it."""

    def __init__(self) -> None:
        self.taken = 0
        self._wanted = 0
        self._reached: asyncio.Future[None] | None = None

    def took(self) -> None:
        self.taken += 1
        if self.taken == self._wanted and self._reached is not None:
            self._reached.set_result(None)

    async def reach(self, wanted: int) -> None:
        self._wanted = wanted
        if self.taken < wanted:
            self._reached = asyncio.get_running_loop().create_future()
            await self._reached
            self._reached = None


async def _drive(
    tally: _Tally, publish: Callable[[int], None], readers: int, events: int, burst: int
) -> Sample:
    with Stopwatch() as watch:
        sent = 0
        while sent < events:
            for number in range(sent, min(sent + burst, events)):
                publish(number)
            sent = min(sent + burst, events)
            await tally.reach(sent * readers)
    return watch.sample


async def _through_channel(readers: int, events: int, burst: int) -> Sample:
    channel = Channel("bench", max_subscribers=readers, max_queued=BOUND)
    tally = _Tally()

    async def read(events: AsyncIterator[object]) -> None:
        async for _ in events:
            tally.took()

    def publish(number: int) -> None:
        channel.publish("tick", {"n": number})

    subscriptions = [channel.subscribe() for _ in range(readers)]
    async with asyncio.TaskGroup() as tasks:
        for subscription in subscriptions:
            tasks.create_task(read(subscription))
        await asyncio.sleep(0)
        sample = await _drive(tally, publish, readers, events, burst)
        channel.close()
    return sample


async def _through_queues(readers: int, events: int, burst: int) -> Sample:
    queues: list[asyncio.Queue[dict[str, object] | None]] = [
        asyncio.Queue(maxsize=BOUND) for _ in range(readers)
    ]
    tally = _Tally()

    async def read(queue: asyncio.Queue[dict[str, object] | None]) -> None:
        while await queue.get() is not None:
            tally.took()

    def publish(number: int) -> None:
        event: dict[str, object] = {"type": "tick", "data": {"n": number}}
        for queue in queues:
            queue.put_nowait(event)

    async with asyncio.TaskGroup() as tasks:
        for queue in queues:
            tasks.create_task(read(queue))
        await asyncio.sleep(0)
        sample = await _drive(tally, publish, readers, events, burst)
        for queue in queues:
            queue.put_nowait(None)
    return sample


KINDS = {"Channel": _through_channel, "asyncio.Queue": _through_queues}


def _pass(kind: str, readers: int, events: int, burst: int) -> Sample:
    return asyncio.run(KINDS[kind](readers, events, burst))


def run(options: Options) -> Report:
    """Measure 1 and 100 subscribers, one event at a time and in bursts."""
    rows = []
    samples: dict[str, list[Sample]] = {}
    for readers, burst in itertools.product(SUBSCRIBERS, BURSTS):
        # About the same number of deliveries in each row.
        events = options.size(200_000 if readers == 1 else 4_000, 2_000 if readers == 1 else 128)
        cases = {
            f"{kind}, {readers} subscriber{'s' * (readers > 1)}, bursts of {burst}": partial(
                _pass, kind, readers, events, burst
            )
            for kind in KINDS
        }
        for name, taken in interleave(cases, passes=options.passes).items():
            samples[name] = taken
            rows.append(
                (
                    name,
                    Summary.of([events / sample.wall for sample in taken]),
                    Summary.of([events * readers / sample.wall for sample in taken]),
                    Summary.of([sample.cpu / events / readers * 1e6 for sample in taken]),
                )
            )
    return Report(
        tables=[
            Table(
                title="Events through one process, publisher and readers on one event loop",
                columns=["", "events/s", "deliveries/s", "CPU µs a delivery"],
                rows=rows,
            )
        ],
        notes=["asyncio.Queue has no ids, no replay, no byte bound and no eviction: the floor."],
        samples=samples,
    )


BENCHMARK = Benchmark(
    name="channel_fanout",
    about="events/s to in-process subscribers, beside an asyncio.Queue each",
    run=run,
)
