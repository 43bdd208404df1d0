"""The echo writes in order from a thread, and a reader that is gone or slow stops nothing."""

import asyncio
import errno
import os

import pytest

from tidegate.cli.echo import Echo


class Pipes:
    """Two pipes in place of stdout and stderr."""

    def __init__(self):
        self.out, self.out_end = os.pipe()
        self.err, self.err_end = os.pipe()

    def echo(self, on_room=lambda: None, **options):
        return Echo(on_room, descriptors=(self.out_end, self.err_end), **options)

    def close(self):
        for descriptor in (self.out, self.out_end, self.err, self.err_end):
            try:
                os.close(descriptor)
            except OSError:
                continue


@pytest.fixture
def pipes():
    pipes = Pipes()
    yield pipes
    pipes.close()


async def drained(echo):
    async with asyncio.timeout(20):
        await echo.drain()


async def closed(echo):
    echo.close()
    await asyncio.to_thread(echo.join, 20)


async def test_each_stream_keeps_its_order(pipes):
    echo = pipes.echo()
    echo.write(1, b"one ")
    echo.write(2, b"problem")
    echo.write(1, b"two")
    await drained(echo)
    await closed(echo)
    assert os.read(pipes.out, 100) == b"one two"
    assert os.read(pipes.err, 100) == b"problem"


async def test_it_is_full_while_nobody_reads_and_has_room_again_afterwards(pipes):
    room = asyncio.Event()
    echo = pipes.echo(room.set, max_bytes=100_000)
    data = os.urandom(300_000)  # more than a pipe holds
    echo.write(1, data)
    assert echo.full
    read = await asyncio.to_thread(_read, pipes.out, len(data))
    assert read == data
    await drained(echo)
    assert not echo.full
    assert room.is_set()
    await closed(echo)


async def test_waiting_for_a_reader_can_be_cancelled(pipes):
    echo = pipes.echo()
    echo.write(1, bytes(300_000))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await echo.drain()
    assert await asyncio.to_thread(_read, pipes.out, 300_000) == bytes(300_000)
    await drained(echo)
    await closed(echo)


async def test_a_reader_that_is_gone_is_written_to_no_more_and_the_other_is(pipes):
    os.close(pipes.out)
    echo = pipes.echo()
    echo.write(1, b"nobody")
    echo.write(2, b"somebody")
    echo.write(1, b"nobody")
    await drained(echo)
    assert echo.problem is None
    await closed(echo)
    assert os.read(pipes.err, 100) == b"somebody"


async def test_a_descriptor_that_cannot_be_written_is_told_and_the_other_is_written(pipes):
    full = os.open("/dev/full", os.O_WRONLY)
    echo = Echo(lambda: None, descriptors=(full, pipes.err_end))
    echo.write(1, b"lost")
    echo.write(2, b"somebody")
    await drained(echo)
    assert echo.problem.errno == errno.ENOSPC
    await closed(echo)
    os.close(full)
    assert os.read(pipes.err, 100) == b"somebody"


async def test_a_descriptor_that_does_not_block_is_waited_for(pipes):
    os.set_blocking(pipes.out_end, False)
    echo = pipes.echo()
    echo.write(1, bytes(300_000))
    assert await asyncio.to_thread(_read, pipes.out, 300_000) == bytes(300_000)
    await drained(echo)
    await closed(echo)


def test_a_loop_that_has_ended_ends_the_thread(pipes):
    async def leave():
        echo = pipes.echo()
        echo.write(1, bytes(300_000))
        return echo

    echo = asyncio.run(leave())
    assert _read(pipes.out, 300_000) == bytes(300_000)
    assert echo.join(20)


def _read(descriptor, size):
    data = b""
    while len(data) < size:
        data += os.read(descriptor, size - len(data))
    return data
