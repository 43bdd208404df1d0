"""A command that runs beside the event loop: its output as it comes, its end, its signals."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import signal
import struct
import subprocess
import termios
from typing import TYPE_CHECKING, Self, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

__all__ = ["Child"]


class Child:
    """A command in a process group of its own; an async context manager; one event loop.

    Entering starts it, without a shell. Leaving while it runs ends its group: SIGTERM, and
    SIGKILL if it has not ended then.

    Args:
        command: the program and its arguments.
        on_output: called with 1 or 2 (stdout, stderr) and what was read; must be quick.
        stdin: what the command reads from: a descriptor, or ``subprocess.DEVNULL``.
        kill_after: seconds from SIGTERM to SIGKILL, and as long to wait after that.
    """

    def __init__(
        self,
        command: Sequence[str],
        on_output: Callable[[int, bytes], None],
        *,
        stdin: int = subprocess.DEVNULL,
        kill_after: float = 5.0,
    ) -> None:
        self._command = command
        self._on_output = on_output
        self._stdin = stdin
        self._kill_after = kill_after
        self._transport: asyncio.SubprocessTransport | None = None
        self._open = {1, 2}
        self._paused = False
        self._read = 0
        self._owed = {1: 0, 2: 0}
        self._exited = asyncio.Event()
        self._changed = asyncio.Event()

    async def __aenter__(self) -> Self:
        """Start the command.

        Raises:
            OSError: it cannot be started: not found, not executable, and the like.
        """
        await asyncio.get_running_loop().subprocess_exec(
            lambda: _Protocol(self),
            *self._command,
            stdin=self._stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            process_group=0,
        )
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self.resume()
            for number in (signal.SIGTERM, signal.SIGKILL):
                if not self._exited.is_set():
                    self.send_signal(number)
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(self._kill_after):
                            await self._exited.wait()
        finally:
            self._started().close()  # kills what is there still

    @property
    def exited(self) -> bool:
        """Whether the command itself has ended; what it left behind may go on."""
        return self._exited.is_set()

    @property
    def paused(self) -> bool:
        """Whether the output is not read for now."""
        return self._paused

    def pause(self) -> None:
        """Stop reading the output: the command blocks when the pipe is full."""
        self._set_paused(True)

    def resume(self) -> None:
        """Read the output again."""
        self._set_paused(False)

    def send_signal(self, number: int) -> None:
        """Send a signal to the whole process group; nothing if it is gone."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._started().get_pid(), number)

    async def wait(self) -> int:
        """Wait until the command itself has ended; its pipes may be open still.

        Returns:
            Its exit status, or the negative number of the signal that ended it.
        """
        await self._exited.wait()
        return cast("int", self._started().get_returncode())

    async def drain(self, patience: float, grace: float) -> bool:
        """After `wait`: go on reading until the output has ended.

        A process that the command left behind may hold its pipes open. All that the command
        itself wrote is read, however long the output is held back. The rest is given up when
        nothing came for ``patience`` seconds in which the output was read, and after ``grace``
        seconds in any case. May be cancelled and repeated.

        Returns:
            Whether the output has ended.
        """
        clock = asyncio.get_running_loop().time
        end = clock() + grace
        # What is in the pipes now holds all that is left of the command's own.
        self._owed = {number: self._unread(number) for number in (1, 2)}
        while self._open:
            left = end - clock()
            owing = any(self._owed[number] > 0 for number in self._open)
            held = owing and self._paused
            if not owing and left <= 0:
                return False
            before = self._read
            self._changed.clear()
            try:
                async with asyncio.timeout(
                    None if held else patience if owing else min(patience, left)
                ):
                    await self._changed.wait()
            except TimeoutError:
                if self._read == before and not self._paused:
                    return False
            if held:
                end = clock() + grace
        return True

    def _unread(self, number: int) -> int:
        pipe = self._started().get_pipe_transport(number)
        file = None if pipe is None else pipe.get_extra_info("pipe")
        if file is None or file.closed:
            return 0
        (count,) = struct.unpack("i", fcntl.ioctl(file, termios.FIONREAD, bytes(4)))
        return cast("int", count)

    def _set_paused(self, paused: bool) -> None:
        if self._paused == paused:
            return
        self._paused = paused
        for number in self._open:
            pipe = self._started().get_pipe_transport(number)
            if isinstance(pipe, asyncio.ReadTransport):
                pipe.pause_reading() if paused else pipe.resume_reading()
        self._changed.set()

    def _started(self) -> asyncio.SubprocessTransport:
        if self._transport is None:
            raise AssertionError("the command was not started")
        return self._transport

    def _took(self, number: int, data: bytes) -> None:
        self._read += len(data)
        self._owed[number] -= len(data)
        self._on_output(number, data)

    def _ended(self, number: int) -> None:
        self._open.discard(number)
        self._changed.set()


class _Protocol(asyncio.SubprocessProtocol):
    def __init__(self, child: Child) -> None:
        self._child = child

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._child._transport = cast("asyncio.SubprocessTransport", transport)  # noqa: SLF001

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        self._child._took(fd, data)  # noqa: SLF001 - one object in two parts

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:  # noqa: ARG002
        self._child._ended(fd)  # noqa: SLF001

    def process_exited(self) -> None:
        self._child._exited.set()  # noqa: SLF001
