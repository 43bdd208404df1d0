"""One POST, repeated where that may help and does no harm."""

import asyncio
import socket

import pytest

from tests.client.support import scripted
from tests.servers import eventually
from tidegate.client import posting
from tidegate.client.posting import Poster
from tidegate.errors import ClientError, PublishRefused


def poster(**options):
    return Poster(**{"random": lambda: 0.0, **options})


def in_turn(*scripts):
    scripts = list(scripts)

    def script(peer):
        (scripts.pop(0) if len(scripts) > 1 else scripts[0])(peer)

    return script


def accept(peer):
    peer.answer(200, {"n": 1})


async def post(server, *, harmless=True, deadline=20.0, **options):
    made = poster(**options)
    try:
        url = server if isinstance(server, str) else f"{server.url}/x"
        return await made.post(url, {"a": 1}, dict, deadline, harmless=harmless)
    finally:
        await made.aclose()


async def test_an_answer_is_decoded_and_the_publishers_headers_stand_above_the_callers():
    with scripted(accept) as server:
        made = poster(token="t", headers={"X": "1", "Y": "1"}, own={"x": "2"})
        assert await made.post(f"{server.url}/x", {"a": 1}, dict, 20.0) == {"n": 1}
        await made.aclose()
        (peer,) = server.requests
        assert (peer.method, peer.target, peer.body) == ("POST", "/x", b'{"a":1}')
        assert (peer.headers["x"], peer.headers["y"]) == ("2", "1")
        assert peer.headers["authorization"] == "Bearer t"


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
async def test_what_is_harmless_is_repeated_when_it_may_help(status):
    with scripted(in_turn(lambda peer: peer.answer(status), accept)) as server:
        assert await post(server) == {"n": 1}
        assert len(server.requests) == 2
        assert server.requests[0].body == server.requests[1].body


async def test_what_is_harmless_is_repeated_after_a_cut():
    with scripted(in_turn(lambda peer: peer.cut(), accept)) as server:
        assert await post(server) == {"n": 1}


async def test_what_is_harmless_is_repeated_after_a_silence(monkeypatch):
    monkeypatch.setattr(posting, "ATTEMPT", 0.05)
    with scripted(in_turn(lambda peer: peer.wait_gone(), accept)) as server:
        assert await post(server) == {"n": 1}
        await eventually(lambda: not server.open)


@pytest.mark.parametrize("status", [301, 400, 401, 403, 404, 409, 413])
async def test_a_no_is_a_no_also_to_what_is_harmless(status):
    with scripted(lambda peer: peer.answer(status, {"error": "no", "code": "c"})) as server:
        with pytest.raises(PublishRefused, match="no") as raised:
            await post(server)
        assert (raised.value.status, raised.value.code) == (status, "c")
        assert len(server.requests) == 1


@pytest.mark.parametrize("status", [408, 429, 500, 503])
async def test_what_may_do_harm_is_not_repeated(status):
    with scripted(in_turn(lambda peer: peer.answer(status), accept)) as server:
        with pytest.raises((PublishRefused, ClientError)):
            await post(server, harmless=False)
        assert len(server.requests) == 1


async def test_the_server_says_when():
    waits = iter([0.0, 0.5])
    with scripted(
        in_turn(lambda peer: peer.answer(503, retry_after="Thu, 01 Jan 1970 00:00:10 GMT"), accept)
    ) as server:
        assert await post(server, now=lambda: 10.0, random=lambda: next(waits)) == {"n": 1}


async def test_a_wait_that_is_longer_than_the_deadline_is_not_begun():
    with scripted(lambda peer: peer.answer(503, {"error": "later"}, retry_after="60")) as server:
        with pytest.raises(PublishRefused, match="later"):
            await post(server, deadline=30.0)
        assert len(server.requests) == 1


async def test_without_retries_the_first_failure_raises():
    with scripted(lambda peer: peer.answer(500)) as server:
        with pytest.raises(ClientError, match="answered 500"):
            await post(server, retries=False)
        assert len(server.requests) == 1


async def test_the_last_failure_is_told_when_the_time_is_over():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(ClientError, match="did not answer: ConnectError"):
        await post(f"http://127.0.0.1:{port}/x", deadline=0.2, random=lambda: 0.5)


async def test_an_answer_of_another_form_is_not_asked_for_again():
    with scripted(lambda peer: peer.answer(200, [1])) as server:
        with pytest.raises(ClientError, match="did not answer as a server does"):
            await post(server)
        assert len(server.requests) == 1


async def test_a_cancelled_call_leaves_no_connection():
    with scripted(lambda peer: peer.wait_gone()) as server:
        made = poster()
        call = asyncio.create_task(made.post(f"{server.url}/x", {}, dict, 20.0, harmless=True))
        await eventually(lambda: server.requests)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await eventually(lambda: not server.open)
        await made.aclose()
