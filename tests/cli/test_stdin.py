"""Standard input is read as it comes, whatever it is."""

import asyncio
import os

import pytest

from tidegate.cli.stdin import Readable


@pytest.fixture
def pipe():
    read, write = os.pipe()
    yield read, write
    for descriptor in (read, write):
        try:
            os.close(descriptor)
        except OSError:
            continue


async def test_a_pipe_gives_what_there_is_and_then_its_end(pipe):
    source = Readable(pipe[0])
    os.write(pipe[1], b"one\ntw")
    assert await source.read() == b"one\ntw"
    reading = asyncio.create_task(source.read())
    await asyncio.sleep(0)
    os.write(pipe[1], b"o\n")
    async with asyncio.timeout(20):
        assert await reading == b"o\n"
    os.close(pipe[1])
    assert await source.read() == b""
    assert await source.read() == b""


async def test_a_cancelled_read_loses_nothing(pipe):
    source = Readable(pipe[0])
    reading = asyncio.create_task(source.read())
    await asyncio.sleep(0)
    os.write(pipe[1], b"kept")
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert await source.read() == b"kept"


async def test_a_file_is_read_to_its_end(tmp_path):
    path = tmp_path / "lines"
    path.write_bytes(b"x" * 100_000)
    with path.open("rb") as file:
        source = Readable(file.fileno())
        data = b""
        while chunk := await source.read():
            data += chunk
    assert data == b"x" * 100_000


async def test_the_null_device_is_at_its_end():
    descriptor = os.open(os.devnull, os.O_RDONLY)
    assert await Readable(descriptor).read() == b""
    os.close(descriptor)
