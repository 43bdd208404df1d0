"""Let a client on a slow link catch up with 100,000 events, and print what that costs.

Starts a server with a history on disk, publishes, and resumes over a socket that reads a few
megabytes a second, while live events go on. Each event must come once and in order, the client
must end up live without an eviction, and the server must hold little of it at any time. Ends with
1 if a promise is broken.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import httpx

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from scripts.check_stream import Report
from tests.integration.slow_link import Publisher, SlowLink, memory, shortest_pause
from tests.servers import ServedProcess, serve_command

CHANNEL = "room"
LIVE_EVERY = 0.02
MEBIBYTE = 1024 * 1024


def catch_up(
    url: ServedProcess, client: httpx.Client, report: Report, *, missed: int, rate: float
) -> None:
    """Fall behind, resume, and say how it went."""
    publisher = Publisher(client, CHANNEL, pad=150)
    publisher.send()
    cursor = publisher.cursor()
    began = time.perf_counter()
    publisher.send(missed)
    seconds = time.perf_counter() - began
    print(f"     {missed:,} events published over HTTP in {seconds:.1f} s")

    pid = url.process.pid
    before = memory(pid)
    # The most that it has had is to count from here.
    Path(f"/proc/{pid}/clear_refs").write_text("5", encoding="ascii")
    began = time.perf_counter()
    with SlowLink(url.address, CHANNEL, cursor, last=1, bytes_a_second=rate) as link:
        due = began
        while "replay_complete" not in link.types:
            link.read()
            if time.perf_counter() >= due:
                due += LIVE_EVERY
                publisher.send()
        seconds = time.perf_counter() - began
        print(
            f"     caught up in {seconds:.1f} s: {link.received / MEBIBYTE:.1f} MiB "
            f"at {link.received / seconds / 1e6:.2f} MB/s, {link.last / seconds:,.0f} events/s, "
            f"{publisher.last - missed - 1:,} live events meanwhile"
        )
        # It has only to keep up from here.
        publisher.send(50)
        while link.last < publisher.last:
            link.read()
        report.check("each event came once, in order, the live ones too", good=True)
        report.check(
            f"control frames: {', '.join(link.types)}",
            good=link.types == ["stream_open", "replay_complete"],
        )
    figures = client.get("/figures").json()
    evictions, resyncs = figures["node"]["evictions"], figures["node"]["resyncs"]
    report.check(f"evictions: {evictions or 0}", good=not evictions)
    report.check(f"resyncs: {resyncs or 0}", good=not resyncs)
    print(f"     {len(figures['reads'])} history reads")
    spaced = shortest_pause(figures["reads"])
    report.check(f"shortest time between two of them: {spaced * 1000:.1f} ms", good=spaced >= 0.1)
    grown = (memory(pid, "VmHWM") - before) / MEBIBYTE
    report.say(f"memory beyond the {before / MEBIBYTE:.0f} MiB from before", grown, 50, "MiB")


def main() -> int:
    """Run it and return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--missed", type=int, default=100_000, help="events (default 100,000)")
    parser.add_argument("--rate", type=float, default=3.0, help="MB/s of the link (default 3)")
    asked = parser.parse_args()
    report = Report()
    with (
        tempfile.TemporaryDirectory() as folder,
        serve_command(
            sys.executable,
            "-m",
            "tests.integration.counted_gateway",
            "--broker",
            f"sqlite:///{folder}/history.sqlite3",
            "--history-size",
            str(2 * asked.missed),
        ) as url,
        httpx.Client(base_url=str(url), trust_env=False, timeout=30) as client,
    ):
        catch_up(url, client, report, missed=asked.missed, rate=asked.rate * 1e6)
    return 0 if report.kept else 1


if __name__ == "__main__":
    sys.exit(main())
