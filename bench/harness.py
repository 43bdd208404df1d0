"""Side-by-side measurement: passes of all cases in turn, medians, tables, and the place.

A machine changes its speed while one measures. So each pass runs every case once, the next pass in
the opposite order, and what is compared are medians over the passes.
"""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
import time
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = [
    "Benchmark",
    "Goal",
    "Options",
    "Report",
    "Sample",
    "Stopwatch",
    "Summary",
    "Table",
    "environment",
    "interleave",
    "render",
]


@dataclass(frozen=True)
class Options:
    """How much to measure.

    Attributes:
        passes: how often each case is measured; odd, so that the median is a measured value.
        quick: small numbers, to see that a benchmark runs; its figures mean nothing.
    """

    passes: int
    quick: bool

    def size(self, full: int, quick: int) -> int:
        """``full``, or ``quick`` where only a run is wanted."""
        return quick if self.quick else full


@dataclass(frozen=True)
class Sample:
    """One pass of one case.

    Attributes:
        cpu: CPU seconds of this process, user and system.
        wall: seconds by the clock on the wall.
    """

    cpu: float
    wall: float


class Stopwatch:
    """Measures what runs inside ``with``; then ``.sample`` is there."""

    sample: Sample

    def __enter__(self) -> Stopwatch:
        self._wall = time.perf_counter()
        self._cpu = time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        cpu = time.process_time() - self._cpu
        wall = time.perf_counter() - self._wall
        self.sample = Sample(cpu=cpu, wall=wall)


@dataclass(frozen=True)
class Summary:
    """Median, lowest and highest of one figure over the passes."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Summary:
        return cls(median=statistics.median(values), low=min(values), high=max(values))


@dataclass(frozen=True)
class Table:
    """Rows of text and figures under column heads."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str | int | float | Summary]]


@dataclass(frozen=True)
class Goal:
    """A bound that a figure is held against.

    Attributes:
        what: what was measured, as a phrase.
        measured: the figure.
        at_most: the bound.
    """

    what: str
    measured: float
    at_most: float

    @property
    def met(self) -> bool:
        return self.measured <= self.at_most


@dataclass(frozen=True)
class Report:
    """What one benchmark found."""

    tables: Sequence[Table]
    goals: Sequence[Goal] = ()
    notes: Sequence[str] = ()
    samples: Mapping[str, Sequence[Sample]] = field(default_factory=dict)

    def as_json(self) -> dict[str, object]:
        """Everything in it, as JSON can hold it."""
        return {
            **asdict(self),
            "goals": [{**asdict(goal), "met": goal.met} for goal in self.goals],
        }


@dataclass(frozen=True)
class Benchmark:
    """One entry of ``bench/run.py``.

    Attributes:
        name: how it is chosen with ``--only``.
        about: one line, what it measures.
        run: measures and returns the report; prints nothing.
    """

    name: str
    about: str
    run: Callable[[Options], Report]


def interleave(
    cases: Mapping[str, Callable[[], Sample]], *, passes: int, warm_up: bool = True
) -> dict[str, list[Sample]]:
    """Measure every case ``passes`` times, all in turn, every other pass in the opposite order.

    Args:
        cases: by name, a function that does one pass and says what it took.
        passes: at least 1.
        warm_up: one pass before, which does not count.
    """
    samples: dict[str, list[Sample]] = {name: [] for name in cases}
    order = list(cases)
    if warm_up:
        for name in order:
            cases[name]()
    for _ in range(passes):
        for name in order:
            samples[name].append(cases[name]())
        order.reverse()
    return samples


def environment() -> dict[str, object]:
    """Where it was measured: without this a figure says nothing."""
    packages = {}
    for name in ("tidegate", "msgspec", "uvicorn", "uvloop", "httptools", "starlette"):
        try:
            packages[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            packages[name] = "absent"
    return {
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "build": platform.python_compiler(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "load": [round(load, 2) for load in os.getloadavg()],
        "packages": packages,
        "commit": _commit(),
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def _cpu_model() -> str:
    try:
        with Path("/proc/cpuinfo").open(encoding="utf-8") as lines:
            for line in lines:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or "unknown"


def _commit() -> str:
    try:
        done = subprocess.run(
            ["git", "describe", "--always", "--dirty"],
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"
    return done.stdout.strip() or "unknown"


def _number(value: float) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) >= 10 else f"{value:.2f}"


def _cell(value: str | float | Summary) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, Summary):
        return f"{_number(value.median)} ({_number(value.low)} to {_number(value.high)})"
    return _number(value)


def render(report: Report) -> str:
    """Tables, notes and goals as text. A cell ``m (a to b)`` is median, lowest, highest."""
    parts = []
    for table in report.tables:
        rows = [list(table.columns), *([_cell(value) for value in row] for row in table.rows)]
        widths = [max(len(row[column]) for row in rows) for column in range(len(table.columns))]
        lines = [
            "  ".join(
                text.ljust(width) if column == 0 else text.rjust(width)
                for column, (text, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in rows
        ]
        lines.insert(1, "-" * max(map(len, lines)))
        parts.append("\n".join([table.title, "", *lines]))
    if report.notes:
        parts.append("\n".join(report.notes))
    for goal in report.goals:
        word = "met   " if goal.met else "MISSED"
        parts.append(f"{word}  {goal.what}: {goal.measured:.2f}, goal at most {goal.at_most:g}")
    return "\n\n".join(parts)
