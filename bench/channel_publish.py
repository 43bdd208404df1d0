"""What a publish costs when the ring is large: it must not depend on how much history is kept.

The rings are full before the first pass, so each measured publish also drops the oldest event.
How long the filling took is reported beside it; it is one pass, and no goal.
"""

from __future__ import annotations

import gc
from functools import partial
from statistics import median
from typing import TYPE_CHECKING

from bench.harness import (
    Benchmark,
    Goal,
    Options,
    Report,
    Sample,
    Stopwatch,
    Summary,
    Table,
    interleave,
)
from tidegate.channel import Channel

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["BENCHMARK"]

SMALL = 1_000
GOAL = 1.6


def _publish(channel: Channel, count: int) -> Sample:
    """Publish ``count`` small events, each with a ``data`` of its own as a real publisher has."""
    publish = channel.publish
    with Stopwatch() as watch:
        for number in range(count):
            publish("tick", {"n": number})
    return watch.sample


def run(options: Options) -> Report:
    """Compare publishes into a ring of 1,000,000 with those into a ring of 1,000."""
    large = options.size(1_000_000, 20_000)
    per_pass = options.size(100_000, 5_000)
    sizes = {f"ring_size {size:,}": size for size in (SMALL, large)}

    channels: dict[str, Channel] = {}
    filling: dict[str, Sample] = {}
    cases: dict[str, Callable[[], Sample]] = {}
    for name, size in sizes.items():
        channel = channels[name] = Channel(name, ring_size=size)
        filling[name] = _publish(channel, size)
        cases[name] = partial(_publish, channel, per_pass)
    gc.collect()

    samples = interleave(cases, passes=options.passes)
    for channel in channels.values():
        channel.close()

    small_name, large_name = sizes
    # Neighbours in time, so that a slow moment of the machine weighs on both.
    ratios = [
        after.cpu / before.cpu
        for before, after in zip(samples[small_name], samples[large_name], strict=True)
    ]
    medians = {name: median(s.cpu for s in taken) for name, taken in samples.items()}
    rows = [
        (
            name,
            Summary.of([sample.cpu / per_pass * 1e6 for sample in taken]),
            Summary.of([sample.wall / per_pass * 1e6 for sample in taken]),
            filling[name].cpu / sizes[name] * 1e6,
        )
        for name, taken in samples.items()
    ]
    return Report(
        tables=[
            Table(
                title=f"Channel.publish, no subscriber, full ring, {per_pass:,} publishes a pass",
                columns=["", "CPU µs", "wall µs", "CPU µs while filling"],
                rows=rows,
            )
        ],
        goals=[
            Goal(
                what=f"median CPU time of {large_name} over that of {small_name}",
                measured=medians[large_name] / medians[small_name],
                at_most=GOAL,
            )
        ],
        notes=[f"pass by pass the ratio was {min(ratios):.2f} to {max(ratios):.2f}"],
        samples={**samples, **{f"filling {name}": [sample] for name, sample in filling.items()}},
    )


BENCHMARK = Benchmark(
    name="channel_publish",
    about="CPU time of a publish with a large ring against a small one",
    run=run,
)
