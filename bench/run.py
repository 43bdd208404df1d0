"""Run the benchmarks and print their tables: ``python -m bench.run --help``."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from bench import (
    channel_fanout,
    channel_publish,
    cursor,
    gateway_fanout,
    gateway_latency,
    gateway_publish,
)
from bench.harness import Benchmark, Options, environment, render

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["BENCHMARKS", "main"]

BENCHMARKS: tuple[Benchmark, ...] = (
    channel_publish.BENCHMARK,
    channel_fanout.BENCHMARK,
    cursor.BENCHMARK,
    gateway_publish.BENCHMARK,
    gateway_latency.BENCHMARK,
    gateway_fanout.BENCHMARK,
)

LATEST = Path(__file__).resolve().parent / "results" / "latest.json"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write the JSON, and return the exit status.

    1 only with ``--enforce`` and a missed goal: a busy machine is no reason for a red build.
    """
    parser = argparse.ArgumentParser(prog="bench", description="Side-by-side benchmarks.")
    parser.add_argument("--quick", action="store_true", help="small numbers: does it run")
    parser.add_argument("--passes", type=int, default=None, help="passes of each case (default 9)")
    parser.add_argument("--only", action="append", choices=[b.name for b in BENCHMARKS])
    parser.add_argument("--json", type=Path, default=LATEST, help="where the figures go")
    parser.add_argument("--enforce", action="store_true", help="exit 1 when a goal is missed")
    parser.add_argument("--list", action="store_true", help="list the benchmarks and stop")
    asked = parser.parse_args(arguments)

    if asked.list:
        for benchmark in BENCHMARKS:
            print(f"{benchmark.name:18} {benchmark.about}")
        return 0
    passes = asked.passes if asked.passes is not None else (3 if asked.quick else 9)
    if passes < 1:
        parser.error("--passes must be at least 1")

    options = Options(passes=passes, quick=asked.quick)
    place = environment()
    print(
        f"{place['python']} on {place['cpu']}, {place['cores']} cores, load {place['load']}, "
        f"{passes} interleaved passes; m (a to b) = median, lowest, highest"
    )
    reports: dict[str, object] = {}
    missed = 0
    for benchmark in BENCHMARKS:
        if asked.only and benchmark.name not in asked.only:
            continue
        print(f"\n== {benchmark.name}: {benchmark.about}\n", flush=True)
        report = benchmark.run(options)
        print(render(report), flush=True)
        reports[benchmark.name] = report.as_json()
        missed += sum(not goal.met for goal in report.goals)

    asked.json.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(
        {"environment": place, "passes": passes, "quick": asked.quick, "reports": reports},
        indent=2,
        ensure_ascii=False,
    )
    asked.json.write_text(text + "\n", encoding="utf-8")
    print(f"\nfigures written to {asked.json}")
    return 1 if missed and asked.enforce else 0


if __name__ == "__main__":
    sys.exit(main())
