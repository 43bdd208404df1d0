"""Show that ``make demo`` does what it promises, from a clean start, and stop it again.

    scripts/check_demo.py [--clone] [--limit 30] [COMMAND ARGUMENT...]

Runs COMMAND (by default ``make demo``) with an empty HOME and hardly any environment, in this
checkout, or with --clone in a fresh clone of what is committed. Waits for the line with the URL,
fetches the page and a first live event, prints how many seconds after the URL each came, and stops
everything. Ends with 1 if one of them took more than --limit seconds, or if something is left
running. Needs nothing but Python.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent

# What an installation may need to reach its index, and the languages of a terminal.
KEPT = re.compile(
    r"PATH|LANG|LC_.*|TERM|TMPDIR|PYTHON|PIP_.*|.*_proxy|.*_PROXY|SSL_CERT_.*|REQUESTS_CA_BUNDLE"
    r"|TIDEGATE_(NO_APT|CHROMIUM)"
)
URL = re.compile(r"Tidegate demo: (http://\S+)")
STOP_SECONDS = 20

# The demo listens on loopback, where no proxy has any business.
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--clone", action="store_true", help="in a fresh clone")
    parser.add_argument("--limit", type=float, default=30.0, help="seconds for page and event")
    parser.add_argument("--start-limit", type=float, default=900.0, help="seconds until the URL")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tidegate-demo-") as folder:
        home = Path(folder, "home")
        home.mkdir()
        checkout = ROOT
        if arguments.clone:
            checkout = Path(folder, "checkout")
            subprocess.run(["git", "clone", "--quiet", str(ROOT), str(checkout)], check=True)
        try:
            with started(arguments.command or ["make", "demo"], checkout, home) as output:
                look(output, arguments.start_limit, arguments.limit)
        except Failed as problem:
            print(f"check_demo: {problem}", file=sys.stderr)
            return 1
    return 0


class Failed(Exception):
    """The demo does not do what it promises."""


def look(output: Output, start_limit: float, limit: float) -> None:
    """Wait for the URL, then for the page and an event, and print when each came.

    Raises:
        Failed: one did not come, or not in time.
    """
    began = time.monotonic()
    url = output.find(URL, start_limit)
    shown = time.monotonic()
    print(f"URL          {shown - began:8.2f} s after the start: {url}")
    with DIRECT.open(url, timeout=limit) as page:
        body = page.read()
    if b"<html" not in body:
        raise Failed(f"what {url} shows is no page")
    print(f"page         {time.monotonic() - shown:8.2f} s after the URL: {len(body)} bytes")
    request = urllib.request.Request(
        f"{url.rstrip('/')}/session/build/events", headers={"Accept": "text/event-stream"}
    )
    with DIRECT.open(request, timeout=limit) as stream:
        # Without a cursor the stream has live events only.
        event = next((line for line in stream if line.startswith(b"data:")), None)
    took = time.monotonic() - shown
    if event is None:
        raise Failed("the stream ended before an event")
    print(f"first event  {took:8.2f} s after the URL: {event.decode().strip()[:100]}")
    if took > limit:
        raise Failed(f"that is more than {limit:g} s")


@contextlib.contextmanager
def started(command: list[str], checkout: Path, home: Path) -> Iterator[Output]:
    """Run the demo in a process group of its own until the block ends.

    Raises:
        Failed: at the end: it could not be stopped in time.
    """
    environment = {name: value for name, value in os.environ.items() if KEPT.fullmatch(name)}
    process = subprocess.Popen(
        command,
        cwd=checkout,
        env={**environment, "HOME": str(home)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    output = Output(process.stdout)
    try:
        yield output
    finally:
        began = time.monotonic()
        clean = stop(process)
        output.close()
    if not clean:
        raise Failed(f"it did not stop within {STOP_SECONDS} s")
    print(f"stopped      {time.monotonic() - began:8.2f} s after it was told to")


def stop(process: subprocess.Popen[str]) -> bool:
    """End the group that the demo runs in; return whether it ended as it was asked."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        deadline = time.monotonic() + STOP_SECONDS
        while time.monotonic() < deadline:
            process.poll()  # else it stays in its own group, dead
            try:
                os.killpg(process.pid, 0)
            except ProcessLookupError:
                return number == signal.SIGTERM
            time.sleep(0.02)
    return False


class Output:
    """What the demo prints: passed on, and searched."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._lines: list[str] = []
        self._changed = threading.Condition()
        self._ended = False
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def find(self, pattern: re.Pattern[str], seconds: float) -> str:
        """Return the first group of the first match in the output.

        Raises:
            Failed: there was none in time, or the output has ended.
        """
        deadline = time.monotonic() + seconds
        seen = 0
        with self._changed:
            while True:
                for line in self._lines[seen:]:
                    if found := pattern.search(line):
                        return found[1]
                seen = len(self._lines)
                left = deadline - time.monotonic()
                if self._ended or left <= 0:
                    raise Failed("it ended" if self._ended else f"no URL within {seconds:g} s")
                self._changed.wait(left)

    def close(self) -> None:
        """Wait until all is read."""
        self._reader.join()
        self._stream.close()

    def _read(self) -> None:
        for line in self._stream:
            sys.stderr.write(f"  | {line}")
            with self._changed:
                self._lines.append(line)
                self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()


if __name__ == "__main__":
    sys.exit(main())
