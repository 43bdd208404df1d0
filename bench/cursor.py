"""What the id of an event costs: a stream's cursor, written anew as one of its channels moves on.

The slot is made once for each event and shared by all streams that take it; the figure is what
remains to be done for each event and stream.
"""

from __future__ import annotations

import random
from functools import partial
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
from tidegate.gateway.cursor import CursorWriter, epoch_hash, make_slot, name_hash, parse_cursor
from tidegate.gateway.position import make_position

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tidegate.gateway.cursor import Slot

__all__ = ["BENCHMARK"]

CHANNELS = (1, 3, 5, 20, 100)
EVENTS = 1_000
GOAL_US = 6.0


def _slots(rng: random.Random, channel: int, count: int) -> list[Slot]:
    """The places that a channel goes through, one for each of its events."""
    name, epoch = name_hash(f"room:{channel}"), epoch_hash(f"epoch {channel}")
    return [
        make_slot(name, epoch, make_position(number, rng.randbytes(4)))
        for number in range(1, count + 1)
    ]


def _write(writer: CursorWriter, slots: Sequence[Slot], rounds: int) -> Sample:
    """One event after the other: replace the slot, write the cursor."""
    with Stopwatch() as watch:
        for _ in range(rounds):
            for slot in slots:
                writer.replace(0, slot)
                writer.text()
    return watch.sample


def _parse(text: str, count: int) -> Sample:
    with Stopwatch() as watch:
        for _ in range(count):
            parse_cursor(text)
    return watch.sample


def run(options: Options) -> Report:
    """Write and read cursors of 1 to 100 channels."""
    rng = random.Random(1)
    rounds = options.size(100, 2)
    reads = options.size(2_000, 20)
    moves = _slots(rng, 0, EVENTS)

    sizes: dict[int, int] = {}
    cases: dict[str, Callable[[], Sample]] = {}
    for count in CHANNELS:
        writer = CursorWriter([_slots(rng, channel, 1)[0] for channel in range(count)])
        sizes[count] = len(writer.text())
        cases[f"write {count}"] = partial(_write, writer, moves, rounds)
        cases[f"read {count}"] = partial(_parse, writer.text(), reads)
    samples = interleave(cases, passes=options.passes)

    def summary(case: str, times: int) -> Summary:
        return Summary.of([sample.cpu / times * 1e6 for sample in samples[case]])

    written = {count: summary(f"write {count}", rounds * EVENTS) for count in CHANNELS}
    return Report(
        tables=[
            Table(
                title=f"Cursor, {rounds * EVENTS:,} written and {reads:,} read a pass",
                columns=["channels", "characters", "CPU µs per event and stream", "CPU µs to read"],
                rows=[
                    (str(count), sizes[count], written[count], summary(f"read {count}", reads))
                    for count in CHANNELS
                ],
            )
        ],
        goals=[
            Goal(
                what=f"median CPU µs per event and stream with {count} channels",
                measured=written[count].median,
                at_most=GOAL_US,
            )
            for count in CHANNELS
        ],
        samples=samples,
    )


BENCHMARK = Benchmark(
    name="cursor",
    about="CPU time of an event's id on a stream of 1 to 100 channels",
    run=run,
)
