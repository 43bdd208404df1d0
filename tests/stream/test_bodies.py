import asyncio

import pytest
from starlette.requests import ClientDisconnect, Request

from tests.stream.driver import make_scope
from tidegate.stream import Drain
from tidegate.stream.bodies import (
    BodyInterrupted,
    BodyTooLarge,
    BodyTooSlow,
    body_error_answer,
    read_body,
)


def request_of(*chunks, length=None, ends=True):
    messages = [{"type": "http.request", "body": c, "more_body": True} for c in chunks]
    if ends:
        messages.append({"type": "http.request", "body": b"", "more_body": False})
    pending = iter(messages)
    read = []

    async def receive():
        message = next(pending, None)
        if message is None:
            await asyncio.Event().wait()
        read.append(message)
        return message

    headers = [] if length is None else [(b"content-length", length)]
    request = Request(make_scope(method="POST", headers=headers), receive)
    request.read = read
    return request


async def test_a_body_up_to_the_limit_is_read_whole():
    assert await read_body(request_of(b"ab", b"cd", length=b"4"), 4) == b"abcd"
    assert await read_body(request_of(), 4) == b""


@pytest.mark.parametrize("length", [b"5", b"99999999999999999999999999"])
async def test_a_declared_length_over_the_limit_is_refused_unread(length):
    request = request_of(b"ab", length=length)
    with pytest.raises(BodyTooLarge):
        await read_body(request, 4)
    assert request.read == []


@pytest.mark.parametrize("length", [None, b"2", b"-1", b"junk", "²".encode()])
async def test_a_body_is_counted_whatever_is_declared(length):
    request = request_of(b"ab", b"cd", b"e", b"f", length=length)
    with pytest.raises(BodyTooLarge):
        await read_body(request, 4)
    assert len(request.read) == 3


async def test_a_body_that_does_not_come_is_not_waited_for():
    with pytest.raises(BodyTooSlow):
        await read_body(request_of(b"ab", ends=False), 4, seconds=0.01)


async def test_a_client_that_goes_is_told_apart():
    async def receive():
        return {"type": "http.disconnect"}

    with pytest.raises(ClientDisconnect):
        await read_body(Request(make_scope(method="POST"), receive), 4)


async def test_a_drain_interrupts_a_body_that_is_still_coming():
    drain = Drain()
    task = asyncio.create_task(read_body(request_of(b"ab", ends=False), 4, seconds=60, drain=drain))
    async with asyncio.timeout(20):
        while not drain.open_streams:  # noqa: ASYNC110 - a turn of the loop each
            await asyncio.sleep(0)
        await drain.drain()
        with pytest.raises(BodyInterrupted):
            await task
    assert drain.open_streams == 0


async def test_a_body_that_was_read_is_forgotten_by_the_drain():
    drain = Drain()
    assert await read_body(request_of(b"ab"), 4, drain=drain) == b"ab"
    assert drain.open_streams == 0


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (BodyTooLarge(), 413, b"body_too_large"),
        (BodyInterrupted(), 503, b"draining"),
        (BodyTooSlow(), 408, b"body_too_slow"),
    ],
)
def test_each_failure_has_its_answer(error, status, code):
    answer = body_error_answer(error, 10, rng=lambda: 0.0)
    assert answer.status_code == status
    assert code in answer.body
    assert answer.headers.get("retry-after") == ("10" if status == 503 else None)
