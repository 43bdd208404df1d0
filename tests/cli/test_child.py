"""Commands run for real: their output as it comes, their end, their signals."""

import asyncio
import os
import signal
import sys

import pytest

from tests.cli.commands import eventually, gone
from tidegate.cli.child import Child


def python(source):
    return [sys.executable, "-u", "-c", source]


def shell(script):
    return ["/bin/sh", "-c", script]


class Output:
    def __init__(self):
        self.data = {1: b"", 2: b""}
        self.changed = asyncio.Event()

    def __call__(self, number, data):
        self.data[number] += data
        self.changed.set()

    async def has(self, text, number=1):
        async with asyncio.timeout(20):
            while text not in self.data[number]:
                self.changed.clear()
                await self.changed.wait()


async def end_of(child, patience=10.0, grace=20.0):
    async with asyncio.timeout(30):
        code = await child.wait()
        return code, await child.drain(patience, grace)


async def until_gone(pid):
    await eventually(lambda: gone(pid))


async def test_output_and_status_of_a_command():
    output = Output()
    async with Child(shell("echo out; echo err >&2; exit 7"), output) as child:
        assert await end_of(child) == (7, True)
        assert child.exited
    assert output.data == {1: b"out\n", 2: b"err\n"}


async def test_arguments_go_through_no_shell():
    output = Output()
    async with Child(["/bin/echo", "$HOME", "a b", "*"], output) as child:
        await end_of(child)
    assert output.data[1] == b"$HOME a b *\n"


async def test_output_comes_while_the_command_runs():
    output = Output()
    stdin, go = os.pipe()
    async with Child(shell("echo first; read go; echo $go"), output, stdin=stdin) as child:
        os.close(stdin)
        await output.has(b"first\n")
        os.write(go, b"second\n")
        os.close(go)
        await end_of(child)
    assert output.data[1] == b"first\nsecond\n"


async def test_a_signal_reaches_the_whole_group():
    output = Output()
    async with Child(shell("sleep 1000 & echo $!; wait"), output) as child:
        await output.has(b"\n")
        child.send_signal(signal.SIGTERM)
        assert await end_of(child) == (-signal.SIGTERM, True)
    await until_gone(int(output.data[1]))


async def test_a_signal_after_the_end_is_nothing():
    async with Child(["/bin/true"], Output()) as child:
        await end_of(child)
        child.send_signal(signal.SIGTERM)


async def test_the_command_is_held_back_while_its_output_is_not_read():
    output = Output()
    counted = python(
        "import os, sys\n"
        "for n in range(100):\n"
        "    os.write(1, bytes(65536))\n"
        "    os.write(2, b'.')\n"
    )
    async with Child(counted, output) as child:
        child.pause()
        child.pause()
        assert child.paused
        # A pipe holds less than what the command writes, so it cannot end.
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await child.wait()
        assert len(output.data[1]) < 100 * 65536
        child.resume()
        assert await end_of(child) == (0, True)
    assert output.data == {1: bytes(100 * 65536), 2: b"." * 100}


async def test_what_waits_in_the_pipes_is_read_after_the_end():
    output = Output()
    stdin, go = os.pipe()
    async with Child(shell("read go; echo late"), output, stdin=stdin) as child:
        os.close(stdin)
        child.pause()
        os.write(go, b"go\n")
        os.close(go)
        async with asyncio.timeout(20):
            await child.wait()
        draining = asyncio.create_task(child.drain(0.05, 0.05))
        # Longer than both its times: while nothing is read, silence means nothing.
        done, _ = await asyncio.wait([draining], timeout=0.3)
        assert not done
        child.resume()
        async with asyncio.timeout(20):
            assert await draining is True
    assert output.data[1] == b"late\n"


async def test_a_process_left_behind_does_not_keep_the_output_open_for_ever():
    output = Output()
    async with Child(shell("sleep 1000 & echo $!"), output) as child:
        assert await end_of(child, patience=0.1) == (0, False)
        child.send_signal(signal.SIGKILL)
    await until_gone(int(output.data[1]))


TALKER = python(
    "import os, subprocess, sys\n"
    'talk = \'import os\\nos.write(2, b".")\\nwhile True: os.write(1, b"y" * 1000)\'\n'
    "talker = subprocess.Popen([sys.executable, '-c', talk], start_new_session=True)\n"
    "print(talker.pid, file=sys.stderr)\n"
)
"""Leaves a process behind, in a group of its own, that writes until it cannot."""


@pytest.fixture
async def talker():
    """An `Output` whose talker is killed at the end, should it be there still."""
    output = Output()
    yield output
    pid = int(output.data[2].replace(b".", b""))
    if not gone(pid):
        os.kill(pid, signal.SIGKILL)


async def test_a_process_left_behind_that_never_is_silent_is_given_up_too(talker):
    async with Child(TALKER, talker) as child:
        assert await end_of(child, patience=20.0, grace=0.5) == (0, False)
    # With nobody at the other end of its pipe it could not go on.
    await until_gone(int(talker.data[2].replace(b".", b"")))


async def test_a_process_left_behind_is_given_up_also_while_its_output_is_held_back(talker):
    chunks = []
    draining = None

    def output(number, data):
        talker(number, data)
        if draining is not None and number == 1:
            chunks.append(data)
            if len(chunks) == 2:  # one read takes all that a pipe holds
                child.pause()

    async with Child(TALKER, output) as child:
        await talker.has(b".", 2)
        await talker.has(b"\n", 2)
        await asyncio.wait_for(child.wait(), 20)
        draining = asyncio.create_task(child.drain(20.0, 0.5))
        assert await asyncio.wait_for(draining, 20) is False
        assert child.paused


async def test_giving_up_may_be_hurried_by_cancelling(talker):
    async with Child(TALKER, talker) as child:
        await asyncio.wait_for(child.wait(), 20)
        draining = asyncio.create_task(child.drain(1000.0, 1000.0))
        await talker.has(b"y")
        await talker.has(b"\n", 2)
        draining.cancel()
        with pytest.raises(asyncio.CancelledError):
            await draining


async def test_leaving_ends_the_whole_group():
    output = Output()
    async with Child(shell("sleep 1000 & echo $! $$; wait"), output) as child:
        child.pause()
        child.resume()
        await output.has(b"\n")
    for pid in output.data[1].split():
        await until_gone(int(pid))


async def test_leaving_kills_what_ignores_being_asked():
    output = Output()
    stubborn = python(
        "import os, signal, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "print(os.getpid())\n"
        "time.sleep(1000)\n"
    )
    async with Child(stubborn, output, kill_after=0.2):
        await output.has(b"\n")
    await until_gone(int(output.data[1]))


async def test_a_command_that_is_not_there_or_not_executable():
    with pytest.raises(FileNotFoundError):
        async with Child(["/nonexistent/command"], Output()):
            pass
    with pytest.raises(PermissionError):
        async with Child(["/etc/passwd"], Output()):
            pass


def test_it_is_of_no_use_before_it_is_started():
    with pytest.raises(AssertionError, match="not started"):
        Child(["/bin/true"], lambda number, data: None).send_signal(15)
