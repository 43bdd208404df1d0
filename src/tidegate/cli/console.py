"""How commands speak: results on stdout, everything else on stderr, errors in one sentence."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import stat
import sys
from typing import TYPE_CHECKING, Final, TextIO

from rich.console import Console

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "BROKEN_PIPE",
    "CommandFailed",
    "bold",
    "complain",
    "dim",
    "flush_stdout",
    "say",
    "styled",
    "when_stdout_is_gone",
]

BROKEN_PIPE: Final = 128 + signal.SIGPIPE
"""The exit status when nobody reads stdout any more: what a shell shows for SIGPIPE."""


class CommandFailed(Exception):
    """A command cannot do what it was asked; its message is the sentence to print.

    Attributes:
        exit_code: the status to end with: 2 for a wrong command line, else 1.
    """

    def __init__(self, message: str, exit_code: int = 1) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def complain(message: str) -> None:
    """Print a sentence about something that is wrong."""
    say(f"tidegate: {message}")


def say(message: str) -> None:
    """Print a line on stderr; a stderr that nobody reads any more is no error."""
    with contextlib.suppress(BrokenPipeError):
        sys.stderr.write(message + "\n")
        sys.stderr.flush()


def styled(stream: TextIO) -> bool:
    """Tell whether to style what is written to ``stream``.

    A terminal that can, unless ``NO_COLOR`` is set; ``FORCE_COLOR`` makes anything one.
    """
    console = Console(file=stream)
    return console.is_terminal and not console.is_dumb_terminal and not console.no_color


def dim(text: str, on: bool) -> str:
    """Return ``text`` dimmed, if styles are on."""
    return f"\x1b[2m{text}\x1b[0m" if on else text


def bold(text: str, on: bool) -> str:
    """Return ``text`` in bold, if styles are on."""
    return f"\x1b[1m{text}\x1b[0m" if on else text


def flush_stdout() -> bool:
    """Flush stdout; return false if its reader is gone, and let nothing more be written there."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        # The interpreter flushes once more at its end, and would complain then.
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
        return False
    return True


@contextlib.contextmanager
def when_stdout_is_gone() -> Iterator[asyncio.Event]:
    """Cancel the current task when stdout is a pipe whose reader goes away.

    Without that ``tidegate tail … | head -1`` would only end at the next event. The event it
    yields tells this cancellation from others; it may be set while the context lasts.
    """
    gone = asyncio.Event()
    task = asyncio.current_task()
    loop = asyncio.get_running_loop()
    descriptor = _pipe_of(sys.stdout)
    if descriptor is None or task is None:
        yield gone
        return

    def cancel() -> None:
        # An end that only writes becomes readable by its error alone.
        loop.remove_reader(descriptor)
        gone.set()
        task.cancel()

    loop.add_reader(descriptor, cancel)
    try:
        yield gone
    finally:
        loop.remove_reader(descriptor)


def _pipe_of(stream: TextIO) -> int | None:
    try:
        descriptor = stream.fileno()
        is_pipe = stat.S_ISFIFO(os.fstat(descriptor).st_mode)
    except (OSError, ValueError):
        return None
    return descriptor if is_pipe else None
