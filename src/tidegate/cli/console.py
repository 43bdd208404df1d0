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

from tidegate.cli.render import printable

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "BROKEN_PIPE",
    "CommandFailed",
    "ReaderGone",
    "bold",
    "complain",
    "dim",
    "flush_streams",
    "say",
    "styled",
    "when_stdout_is_gone",
    "write_line",
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


class ReaderGone(Exception):
    """Nobody reads stdout any more; that is said by the exit status alone."""


def complain(message: str) -> None:
    """Print a sentence about something that is wrong, as `say` does."""
    say(f"tidegate: {message}")


def say(message: str, *, dimmed: bool = False) -> None:
    """Print a line on stderr; one that cannot be written is no error.

    Whatever is in the message, others' words too: it stays one line, and what does not print is
    escaped, so that nothing in it can command a terminal.
    """
    with contextlib.suppress(OSError):
        sys.stderr.write(dim(printable(message), dimmed) + "\n")
        sys.stderr.flush()


def write_line(line: str) -> None:
    """Print a line of results on stdout, at once.

    Raises:
        ReaderGone: nobody reads it any more.
        CommandFailed: it cannot be written, as on a full disk.
    """
    try:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        raise ReaderGone from None
    except OSError as error:
        raise CommandFailed(_not_written(error)) from None


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


def flush_streams(status: int) -> int:
    """Flush stdout and stderr at a command's end, and return the status to exit with.

    Args:
        status: what the command ended with. It becomes 1, and a sentence says why, if results
            cannot be written, and `BROKEN_PIPE` if nobody reads them; stderr changes nothing.
    """
    problem = _flush(sys.stdout)
    if isinstance(problem, BrokenPipeError):
        status = BROKEN_PIPE
    elif problem is not None and status == 0:
        complain(_not_written(problem))
        status = 1
    _flush(sys.stderr)
    return status


def _flush(stream: TextIO) -> OSError | None:
    try:
        stream.flush()
    except OSError as error:
        # The interpreter flushes once more at its end, and would complain then.
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)
        return error
    return None


def _not_written(error: OSError) -> str:
    return f"stdout cannot be written: {error.strerror or error}"


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
