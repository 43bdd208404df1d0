"""``tidegate pipe``: run a command and publish its output while it runs."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from tidegate.cli.child import Child
from tidegate.cli.console import CommandFailed, complain
from tidegate.cli.delivery import Away, Refused
from tidegate.cli.doors import door_to
from tidegate.cli.echo import Echo
from tidegate.cli.feed import Feed
from tidegate.cli.lines import Line, LineSplitter
from tidegate.cli.names import ChannelTarget
from tidegate.cli.options import DEFAULT_URL, TargetName, Token, Url, base_url, target_of
from tidegate.cli.output_queue import OutputQueue

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator, Sequence

    from tidegate.cli.delivery import Door
    from tidegate.cli.names import Target

__all__ = ["PipeSettings", "exit_data", "exit_status", "pipe", "run_pipe"]

_STREAMS = {1: "stdout", 2: "stderr"}
_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)

# How long a process that the command left behind may hold its output open: in silence, and at all.
_SILENT_SECONDS = 2.0
_GRACE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class PipeSettings:
    """What ``tidegate pipe`` was asked to do.

    Attributes:
        url: the server's base URL.
        target: the channel or the session; a session is made if there is none.
        command: the program and its arguments.
        token: the server's token, if it wants one.
        patience: seconds that the command may be held back while the server is away.
        quiet: do not echo the output.
    """

    url: str
    target: Target
    command: Sequence[str]
    token: str | None = None
    patience: float = 60.0
    quiet: bool = False


def pipe(
    *,
    target: TargetName,
    command: Annotated[
        list[str],
        typer.Argument(
            metavar="COMMAND",
            help="The program and its arguments, all that follows; no shell is involved.",
            show_default=False,
        ),
    ],
    url: Url = DEFAULT_URL,
    token: Token = None,
    patience: Annotated[
        float,
        typer.Option(
            min=0.0,
            metavar="SECONDS",
            help="How long the command is held back while the server is away.",
        ),
    ] = 60.0,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Do not echo the command's output.")
    ] = False,
) -> None:
    """Run a command and publish the lines of its output as events while it runs.

    Each line is an event "output" with {"stream": "stdout" or "stderr", "line": TEXT}; a line of
    more than 64 KiB comes in pieces, all but the last with "partial": true. The last event is
    "exit" with {"code": N} or {"signal": "SIGTERM"}. The order is kept within stdout and within
    stderr. Bytes that are not UTF-8 become U+FFFD. "meta.seq" numbers the lines. In a channel each
    line is there once, and "meta.run" names the run; in a session a line whose publish had to be
    tried again may come twice, with the same number.

    While the server is away the command is held back, as by any full pipe. When --patience is
    over it runs on, its lines are dropped and counted, and as soon as the server is back an event
    "output_lost" with {"lines": N} says so. The command is never killed because of the server; if
    the server is not there at the start, it is not run.

    The command runs in a process group of its own, without a terminal to read from; SIGINT,
    SIGTERM, SIGHUP and SIGQUIT go on to that group. What it leaves behind may write for 5 seconds
    more, or until it was silent for 2, or until one of these signals.

    The exit status is the command's, 128 + N after signal N, 127 if it is not found, 126 if it
    cannot be executed, and 1 instead of 0 if lines could not be published, or not echoed for
    another reason than that nobody reads them.
    """
    settings = PipeSettings(base_url(url), target_of(target), command, token, patience, quiet)
    raise typer.Exit(asyncio.run(run_pipe(settings)))


async def run_pipe(settings: PipeSettings) -> int:
    """Run the command to its end and publish all of its output; return the exit status.

    Cancelling it ends the command's process group.

    Raises:
        CommandFailed: the target could not be had, so the command was not run.
    """
    run = f"pipe-{secrets.token_hex(4)}"
    door = door_to(settings.target, settings.url, token=settings.token, client_id=run)
    # A session's events say themselves who sent them.
    meta = {"run": run} if isinstance(settings.target, ChannelTarget) else {}
    async with door:
        try:
            await door.attach(settings.patience)
        except (Away, Refused) as error:
            raise CommandFailed(f"{error}; the command was not run") from None
        return await _Run(settings, door, meta).to_the_end()


class _Run:
    """One run of a command: what comes out of it goes to the echo and to the feed."""

    def __init__(self, settings: PipeSettings, door: Door, meta: dict[str, Any]) -> None:
        self._settings = settings
        self._meta = meta
        self._queue = OutputQueue()
        self._feed = Feed(
            self._queue,
            door.publish,
            patience=settings.patience,
            on_room=self._regulate,
            on_lost=self._losing,
        )
        self._echo = None if settings.quiet else Echo(self._regulate)
        self._splitters = {number: LineSplitter() for number in _STREAMS}
        self._seq = 0
        self._child = Child(settings.command, self._output, stdin=_stdin())
        self._running = False
        self._interrupted = asyncio.Event()

    async def to_the_end(self) -> int:
        try:
            with self._forwarded_signals():
                # A group, so that a feed that fails ends the command instead of blocking it.
                async with asyncio.TaskGroup() as group:
                    feeding = group.create_task(self._feed.run(), name="tidegate-pipe-feed")
                    status, last = await self._command()
                    for number, splitter in self._splitters.items():
                        self._publish(number, splitter.close())
                    self._feed.finish(last)
                if self._echo is not None:
                    await self._unless_interrupted(self._echo.drain())
        finally:
            if self._echo is not None:
                self._echo.close()
        return self._report(status, complete=feeding.result())

    async def _command(self) -> tuple[int, dict[str, Any]]:
        """Run the command to the end of its output; return its status and the last event."""
        name = ascii(self._settings.command[0])
        try:
            async with self._child as child:
                self._running = True
                self._regulate()
                code = await child.wait()
                await self._unless_interrupted(child.drain(_SILENT_SECONDS, _GRACE_SECONDS))
                self._running = False
        except FileNotFoundError:
            return self._not_started(127, f"there is no command {name}")
        except OSError as error:
            return self._not_started(126, f"{name} cannot be executed: {error.strerror}")
        return exit_status(code), self._exit(exit_data(code))

    def _not_started(self, code: int, problem: str) -> tuple[int, dict[str, Any]]:
        complain(problem)
        return code, self._exit({"code": code, "error": problem})

    def _exit(self, data: dict[str, Any]) -> dict[str, Any]:
        meta = {"meta": self._meta} if self._meta else {}
        return {"type": "exit", "data": data, **meta}

    def _output(self, number: int, data: bytes) -> None:
        if self._echo is not None:
            self._echo.write(number, data)
        self._publish(number, self._splitters[number].feed(data))
        self._regulate()

    def _publish(self, number: int, lines: list[Line]) -> None:
        for line in lines:
            self._seq += 1
            data: dict[str, Any] = {"stream": _STREAMS[number], "line": line.text}
            if line.partial:
                data["partial"] = True
            event = {"type": "output", "data": data, "meta": {"seq": self._seq, **self._meta}}
            self._feed.put(event, len(msgspec.json.encode(event)))

    def _regulate(self) -> None:
        """Read the command's output only while there is room for it."""
        if not self._running:
            return
        if self._feed.full or (self._echo is not None and self._echo.full):
            self._child.pause()
        else:
            self._child.resume()

    def _losing(self, why: str) -> None:
        complain(f"the output is no longer published: {why}")

    @contextlib.contextmanager
    def _forwarded_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for number in _FORWARDED:
            loop.add_signal_handler(number, self._signalled, number)
        try:
            yield
        finally:
            for number in _FORWARDED:
                loop.remove_signal_handler(number)

    def _signalled(self, number: int) -> None:
        if self._running:
            self._child.send_signal(number)
        if not self._running or self._child.exited:
            # The command is over; what is left to stop is our waiting for others.
            self._interrupted.set()
            self._feed.abandon()

    async def _unless_interrupted(self, work: Coroutine[Any, Any, object]) -> None:
        """Wait for the end of ``work``, or for a signal that says that nobody waits for it."""
        working = asyncio.create_task(work)
        interrupted = asyncio.create_task(self._interrupted.wait())
        try:
            await asyncio.wait([working, interrupted], return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                working.result()
        finally:
            working.cancel()
            interrupted.cancel()

    def _report(self, status: int, *, complete: bool) -> int:
        lost = self._queue.lost
        if lost:
            lines = "1 line" if lost == 1 else f"{lost} lines"
            complain(f"{lines} of the output could not be published")
        if not complete:
            complain("the command's exit status could not be published")
        unwritten = None if self._echo is None else self._echo.problem
        if unwritten is not None:
            complain(f"the output could not be echoed: {unwritten.strerror}")
        return status or int(bool(lost) or not complete or unwritten is not None)


def exit_data(code: int) -> dict[str, Any]:
    """Return the data of the ``exit`` event for a return code as ``subprocess`` gives it."""
    if code >= 0:
        return {"code": code}
    try:
        return {"signal": signal.Signals(-code).name}
    except ValueError:
        return {"signal": f"SIG{-code}"}  # a real-time signal has no name of its own


def exit_status(code: int) -> int:
    """Return the status to exit with, as a shell does: 128 + N after signal N."""
    return code if code >= 0 else 128 - code


def _stdin() -> int:
    """Give the command our input, but no terminal: from a group of its own it may not read one."""
    try:
        descriptor = sys.stdin.fileno()
    except (AttributeError, OSError, ValueError):
        return subprocess.DEVNULL  # closed, or not a file
    return subprocess.DEVNULL if os.isatty(descriptor) else descriptor
