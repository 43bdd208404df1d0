"""A session's state is asked for, read and checked."""

import asyncio
import gzip
import json
import socket

import httpx
import pytest

from tests.client.support import scripted
from tidegate.client import Loaded, load_session, load_session_sync
from tidegate.errors import ClientError, LoadFailed

ANSWER = {
    "sessionId": "a1",
    "state": {"n": 1},
    "lastEventId": 7,
    "epoch": "e1",
    "complete": False,
}
LOADED = Loaded({"n": 1}, 7, "e1", complete=False)


def test_the_answer_of_the_route_is_read():
    assert Loaded.read(ANSWER) == LOADED
    assert Loaded.read(LOADED) is LOADED
    assert Loaded.read({"state": None, "lastEventId": 0}) == Loaded(None)
    assert Loaded.read({"state": 1, "lastEventId": "e1-5"}).last_event_id == "e1-5"


@pytest.mark.parametrize(
    "answer",
    [
        None,
        5,
        [],
        {},
        {"state": 1},
        {"lastEventId": 1},
        {"state": 1, "lastEventId": -1},
        {"state": 1, "lastEventId": "a b"},
        {"state": 1, "lastEventId": True},
        {"state": 1, "lastEventId": 1, "epoch": 5},
        {"state": 1, "lastEventId": 1, "epoch": "a b"},
    ],
)
def test_anything_else_is_no_state(answer):
    with pytest.raises(LoadFailed, match="what was loaded is no session's state"):
        Loaded.read(answer)


async def both(url, **options):
    """What both ways of loading give: they are to be the same."""
    outcomes = []
    for load in (
        lambda: load_session(url, **options),
        lambda: asyncio.to_thread(load_session_sync, url, **options),
    ):
        try:
            outcomes.append(await load())
        except ClientError as error:
            outcomes.append(error)
    first, second = outcomes
    assert type(first) is type(second)
    assert str(first).partition("Error:")[0] == str(second).partition("Error:")[0]
    return first


@pytest.mark.parametrize("end", ["", "/events", "/load"])
async def test_any_url_of_the_session_will_do(end):
    with scripted(lambda peer: peer.answer(200, ANSWER)) as server:
        assert await both(f"{server.session}{end}", token="t", headers={"X-Mine": "1"}) == LOADED
        for peer in server.requests:
            assert (peer.method, peer.target) == ("POST", "/session/a1/load")
            assert peer.headers["authorization"] == "Bearer t"
            assert peer.headers["x-mine"] == "1"
            assert peer.headers["accept-encoding"] == "identity"


async def test_a_refusal_is_final():
    def script(peer):
        peer.answer(404, {"error": "no such session", "code": "session_not_found"})

    with scripted(script) as server:
        error = await both(server.session)
        assert isinstance(error, LoadFailed)
        assert str(error).endswith(
            "/session/a1/load answered 404 (session_not_found): no such session"
        )


@pytest.mark.parametrize("status", [408, 429, 500, 503])
async def test_what_may_pass_is_no_final_failure(status):
    with scripted(lambda peer: peer.answer(status)) as server:
        error = await both(server.session)
        assert type(error) is ClientError
        assert f"answered {status}" in str(error)


@pytest.mark.parametrize("body", [b"<html>", json.dumps([1]).encode(), b'{"state": 1}'])
async def test_an_answer_that_is_no_state_is_final(body):
    with scripted(lambda peer: peer.answer(200, body)) as server:
        assert isinstance(await both(server.session), LoadFailed)


async def test_an_answer_longer_than_is_read_is_final_and_not_read_to_its_end(monkeypatch):
    exact = json.dumps(ANSWER).encode()
    monkeypatch.setattr("tidegate.client.fetch.MAX_STATE", len(exact))

    def endless(peer):
        peer.stream(content_type="application/json")
        while True:
            peer.write(b" " * 2**16)

    with scripted(lambda peer: peer.answer(200, exact)) as server:
        assert await both(server.session) == LOADED
    for script in (lambda peer: peer.answer(200, exact + b" "), endless):
        with scripted(script) as server:
            error = await both(server.session)
            assert isinstance(error, LoadFailed)
            assert f"more than the {len(exact)} bytes that are read" in str(error)


async def test_an_error_without_an_end_is_not_read_to_its_end():
    def endless(peer):
        peer.head(403, transfer_encoding="chunked")
        while True:
            peer.write(b" " * 2**16)

    with scripted(endless) as server:
        error = await both(server.session)
        assert isinstance(error, LoadFailed)
        assert "answered 403: Whatever" in str(error)


async def test_a_compressed_answer_was_not_asked_for():
    body = gzip.compress(json.dumps(ANSWER).encode())
    with scripted(lambda peer: peer.answer(200, body, content_encoding="gzip")) as server:
        error = await both(server.session)
        assert isinstance(error, LoadFailed)
        assert str(error).endswith("/load answered in the encoding gzip, unasked")


async def test_what_a_server_says_is_harmless_to_print():
    sentence = "\x1b[2J\x9b\u202e\n" * 1000
    with scripted(lambda peer: peer.answer(404, {"error": sentence, "code": sentence})) as server:
        error = await both(server.session)
        assert str(error).isprintable()
        assert len(str(error)) < 1000


async def test_no_server_is_no_final_failure():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    error = await both(f"http://127.0.0.1:{port}/session/a1")
    assert type(error) is ClientError
    assert "no state could be loaded from" in str(error)


async def test_a_header_that_http_does_not_allow_is_final():
    with scripted(lambda peer: peer.answer()) as server:
        error = await both(server.session, headers={"X": "a\nb"})
        assert isinstance(error, LoadFailed)
        assert "does not allow" in str(error)


async def test_a_url_that_names_no_session_is_refused():
    with pytest.raises(ValueError, match="session/ID"):
        await load_session("http://h/stream")
    with pytest.raises(ValueError, match="session/ID"):
        load_session_sync("http://h/stream")


async def test_a_callers_client_is_used_and_left_open():
    with scripted(lambda peer: peer.answer(200, ANSWER)) as server:
        async with httpx.AsyncClient() as client:
            assert await load_session(server.session, client=client) == LOADED
            assert not client.is_closed


def test_a_callers_client_is_used_and_left_open_without_a_loop():
    with scripted(lambda peer: peer.answer(200, ANSWER)) as server, httpx.Client() as client:
        assert load_session_sync(server.session, client=client) == LOADED
        assert not client.is_closed
