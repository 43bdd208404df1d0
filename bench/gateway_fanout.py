"""One event to many streams: from a publish to the bytes that each socket would be given.

The floor is a list for each stream to which the same ready bytes are appended, and that is joined
when it is read: no cursor of its own for each stream, no bound, no chain. Bursts are what a busy
channel does to a stream that is woken once for several events.
"""

from __future__ import annotations

import asyncio
from functools import partial
from statistics import median
from typing import TYPE_CHECKING

from bench.harness import Benchmark, Options, Report, Sample, Stopwatch, Summary, Table, interleave
from tidegate.gateway import Gateway
from tidegate.gateway.subscription import StreamRequest

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidegate.gateway.subscription import Subscription

__all__ = ["BENCHMARK"]

SHAPES = ((1, 1), (1, 100), (1, 1000), (1000, 1))
"""Channels, and streams of each."""
BURSTS = (1, 16)
DATA = {"n": 1, "text": "x" * 100}


async def _through_gateway(channels: int, streams: int, events: int, burst: int) -> Sample:
    names = [f"room:{number}" for number in range(channels)]
    ready: list[Subscription] = []

    def wakes(stream: Subscription) -> Callable[[], None]:
        return lambda: ready.append(stream)

    async with Gateway() as gateway:
        for name in names:
            for _ in range(streams):
                stream = gateway.node.subscribe(StreamRequest(channels=(name,)))
                await stream.joined()
                stream.take_bytes()
                stream.on_ready = wakes(stream)
                stream.arm()
        with Stopwatch() as watch:
            for start in range(0, events, burst):
                for _ in range(burst):
                    # A burst is of one channel.
                    await gateway.publish(names[start // burst % channels], "tick", DATA)
                for stream in ready:
                    while stream.take_bytes():
                        pass
                    stream.arm()
                ready.clear()
        return watch.sample


async def _through_lists(channels: int, streams: int, events: int, burst: int) -> Sample:
    body = b"id: 1ABCDE.%b\nevent: tick\ndata: %b\n\n" % (b"x" * 24, b"x" * 300)
    hub = [[[] for _ in range(streams)] for _ in range(channels)]  # type: list[list[list[bytes]]]
    with Stopwatch() as watch:
        for start in range(0, events, burst):
            lists = hub[start // burst % channels]
            for _ in range(burst):
                for one in lists:
                    one.append(body)
            for one in lists:
                b"".join(one)
                one.clear()
    return watch.sample


def _pass(system: str, channels: int, streams: int, events: int, burst: int) -> Sample:
    through = _through_gateway if system == "Gateway" else _through_lists
    return asyncio.run(through(channels, streams, events, burst))


def run(options: Options) -> Report:
    """Measure each shape, one event at a time and in bursts."""
    rows = []
    samples: dict[str, list[Sample]] = {}
    for channels, streams in SHAPES:
        for burst in BURSTS:
            events = options.size(max(10_000 // streams, 64), 64)
            events -= events % burst
            shape = f"{channels:,} x {streams:,}, bursts of {burst}"
            taken = interleave(
                {
                    f"{shape}, {system}": partial(_pass, system, channels, streams, events, burst)
                    for system in ("Gateway", "floor")
                },
                passes=options.passes,
            )
            floor = median(sample.cpu for sample in taken[f"{shape}, floor"])
            for name, of_case in taken.items():
                samples[name] = of_case
                rows.append(
                    (
                        name,
                        Summary.of([sample.cpu / events * 1e6 for sample in of_case]),
                        Summary.of([sample.cpu / events / streams * 1e6 for sample in of_case]),
                        median(sample.cpu for sample in of_case) / floor,
                    )
                )
    return Report(
        tables=[
            Table(
                title="Gateway.publish to the bytes of each stream; channels x streams of each",
                columns=["", "CPU µs an event", "CPU µs a delivery", "times the floor"],
                rows=rows,
            )
        ],
        notes=["floor: the same bytes in a list for each stream, joined when it is read."],
        samples=samples,
    )


BENCHMARK = Benchmark(
    name="gateway_fanout",
    about="CPU time from a publish to the bytes of 1 to 1,000 streams, beside bare lists",
    run=run,
)
