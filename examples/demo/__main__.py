"""``python -m examples.demo``: starts the demo and keeps it running. Ctrl-C ends it."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import socket
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from pathlib import Path
from typing import TYPE_CHECKING

import tidegate
from examples.demo.server import RESTART

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

ROOT = Path(__file__).parents[2]
PORT = 8765
START_SECONDS = 30
STOP_SECONDS = 10
# So that a command or server that always fails does not fail all the time.
PAUSE_SECONDS = 2


def main() -> int:
    parser = argparse.ArgumentParser(prog="make demo")
    parser.add_argument("--port", type=int, default=PORT, help="of 127.0.0.1; 0 takes a free one")
    port = free_port(parser.parse_args().port)
    try:
        return asyncio.run(demo(port))
    except KeyboardInterrupt:
        return 130


def free_port(wanted: int) -> int:
    """Return ``wanted`` if nobody listens there, else another port."""
    for port in (wanted, 0):
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)) as probe:
            found: int = probe.getsockname()[1]
            if wanted not in {found, 0}:
                print(f"Port {wanted} is in use; the demo takes {found}.", flush=True)
            return found
    raise SystemExit("there is no free port")


async def demo(port: int) -> int:
    """Run the server and what feeds it until a signal comes, or until the server fails."""
    url = f"http://127.0.0.1:{port}"
    told_to_stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, told_to_stop.set)
    first = asyncio.Event()
    tasks = [
        asyncio.create_task(keep_serving(port, first)),
        asyncio.create_task(told_to_stop.wait()),
        asyncio.create_task(feed_build(url, first)),
    ]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done - {tasks[1]}:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return 0 if told_to_stop.is_set() else 1


async def keep_serving(port: int, first: asyncio.Event) -> None:
    """Run the server; start it again when it asks for that. Returns when it has failed."""
    while True:
        async with started(
            sys.executable, "-m", "examples.demo.server", str(port), stdout=PIPE
        ) as server:
            assert server.stdout is not None
            try:
                async with asyncio.timeout(START_SECONDS):
                    ready = await server.stdout.readline()
            except TimeoutError:
                ready = b""
            if not ready:
                print("The server did not start.", file=sys.stderr)
                return
            if not first.is_set():
                print(f"Tidegate demo: http://127.0.0.1:{port}/", flush=True)
                print("Open it in a browser; Ctrl-C ends it.", flush=True)
                first.set()
            code = await server.wait()
        if code != RESTART:
            print(f"The server ended with {code}.", file=sys.stderr)
            return
        print("The server was asked to restart, and is started again.", flush=True)


async def feed_build(url: str, first: asyncio.Event) -> None:
    """Publish the lines of a real command into session/build, for ever."""
    await first.wait()
    source = Path(tidegate.__file__).parent
    command = [sys.executable, str(Path(__file__).parent / "source_lines.py"), str(source)]
    options = ["--url", url, "--quiet", "--patience", "600"]
    while True:
        arguments = ["-m", "tidegate", "pipe", "session/build", *options, "--", *command]
        async with started(sys.executable, *arguments) as pipe:
            code = await pipe.wait()
        print(f"tidegate pipe ended with {code}; it is started again.", file=sys.stderr)
        await asyncio.sleep(PAUSE_SECONDS)


@contextlib.asynccontextmanager
async def started(
    program: str, *arguments: str, stdout: int | None = None
) -> AsyncIterator[Process]:
    """Run a process until the block ends."""
    process = await asyncio.create_subprocess_exec(
        program,
        *arguments,
        stdin=DEVNULL,
        stdout=stdout,
        cwd=ROOT,
        # A proxy has no business between the two.
        env={**os.environ, "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"},
    )
    try:
        yield process
    finally:
        await end(process)


async def end(process: Process) -> None:
    """Ask a process to end, and make it."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(number)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STOP_SECONDS):
                await process.wait()


if __name__ == "__main__":
    sys.exit(main())
