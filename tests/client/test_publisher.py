"""Publishing over HTTP: repeated only where that cannot publish twice."""

import asyncio
import gzip
import json
import socket

import httpx
import pytest

from tests.client.support import scripted
from tests.integration.support import serve_sessions
from tests.servers import eventually
from tidegate.client import SessionInfo, SessionPublisher, connect
from tidegate.client.posting import MAX_ANSWER
from tidegate.errors import ClientError, PublishRefused

CREATED = {"sessionId": "a1", "epoch": "e1", "lastEventId": 0}
EVENT = {"type": "tick", "data": {"n": 1}}


def publisher(server, **options):
    return SessionPublisher(
        server if isinstance(server, str) else server.url, random=lambda: 0.0, **options
    )


def in_turn(*scripts):
    scripts = list(scripts)

    def script(peer):
        (scripts.pop(0) if len(scripts) > 1 else scripts[0])(peer)

    return script


def accept(peer):
    peer.answer(202, {"lastEventId": 3})


async def test_a_session_is_created_or_found():
    found = in_turn(
        lambda peer: peer.answer(201, CREATED),
        lambda peer: peer.answer(200, {**CREATED, "lastEventId": 9, "attached": True}),
    )
    with scripted(found) as server:
        async with publisher(server, token="t", headers={"X-Mine": "1"}) as sessions:
            assert await sessions.create() == SessionInfo("a1", "e1", 0, attached=False)
            assert await sessions.create("a1") == SessionInfo("a1", "e1", 9, attached=True)
        bodies = [json.loads(peer.body) for peer in server.requests]
        assert bodies == [{}, {"sessionId": "a1"}]
        for peer in server.requests:
            assert (peer.method, peer.target) == ("POST", "/session")
            assert peer.headers["authorization"] == "Bearer t"
            assert peer.headers["content-type"] == "application/json"
            assert peer.headers["x-mine"] == "1"
            assert peer.headers["accept-encoding"] == "identity"


async def test_events_are_published_as_one_array():
    with scripted(accept) as server:
        async with publisher(f"{server.url}/", client_id="me") as sessions:
            assert await sessions.publish("a1", iter([EVENT, {"type": "x"}])) == 3
        (peer,) = server.requests
        assert peer.target == "/session/a1/events"
        assert json.loads(peer.body) == [EVENT, {"type": "x"}]
        assert peer.headers["tidegate-client-id"] == "me"


async def test_no_event_is_no_request():
    with scripted(accept) as server:
        async with publisher(server) as sessions:
            assert await sessions.publish("a1", []) is None
        assert server.requests == []


async def test_a_name_is_escaped_in_the_url():
    with scripted(accept) as server:
        async with publisher(server) as sessions:
            await sessions.publish("a/b", [EVENT])
        assert server.requests[0].target == "/session/a%2Fb/events"


@pytest.mark.parametrize("status", [301, 400, 401, 404, 409, 413, 429, 503])
async def test_a_no_is_not_repeated(status):
    def script(peer):
        peer.answer(status, {"error": "no", "code": "bad"}, location="/elsewhere")

    with scripted(script) as server:
        async with publisher(server) as sessions:
            with pytest.raises(PublishRefused, match="no") as raised:
                await sessions.publish("a1", [EVENT])
        assert (raised.value.status, raised.value.code) == (status, "bad")
        assert len(server.requests) == 1


@pytest.mark.parametrize("status", [429, 503])
async def test_a_no_that_says_when_is_repeated_then(status):
    busy = in_turn(lambda peer: peer.answer(status, retry_after="0"), accept)
    with scripted(busy) as server:
        async with publisher(server) as sessions:
            assert await sessions.publish("a1", [EVENT]) == 3
        assert len(server.requests) == 2


async def test_without_retries_every_failure_raises_at_once():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    async with publisher(f"http://127.0.0.1:{port}", retries=False) as sessions:
        with pytest.raises(ClientError, match="did not answer: ConnectError"):
            await sessions.publish("a1", [EVENT])
    with scripted(lambda peer: peer.answer(503, retry_after="0")) as server:
        async with publisher(server, retries=False) as sessions:
            with pytest.raises(PublishRefused, match="503"):
                await sessions.publish("a1", [EVENT])
        assert len(server.requests) == 1


async def test_a_real_server_takes_what_it_should_and_nothing_else():
    with serve_sessions() as service:
        async with publisher(service.url, client_id="me") as sessions:
            info = await sessions.create("a1")
            assert info == SessionInfo("a1", service.create("a1"), 0, attached=False)
            assert await sessions.publish("a1", [EVENT, EVENT]) == 2
            with pytest.raises(PublishRefused) as raised:
                await sessions.publish("a1", [EVENT, {"type": "stream_error"}])
            assert raised.value.status == 400
            with pytest.raises(PublishRefused) as raised:
                await sessions.publish("a2", [EVENT])
            assert raised.value.code == "session_not_found"
            again = await sessions.create("a1")
            assert (again.attached, again.last_event_id) == (True, 2)
        async with connect(f"{service.url}/session/a1", last_event_id=0) as stream:
            event = await anext(stream)
        assert (event.data, event.originator_client_id) == ({"n": 1}, "me")


async def test_a_no_for_longer_than_the_deadline_is_told_at_once():
    with scripted(lambda peer: peer.answer(503, retry_after="60")) as server:
        async with publisher(server) as sessions:
            with pytest.raises(PublishRefused, match="503"):
                await sessions.publish("a1", [EVENT], deadline=30)
        assert len(server.requests) == 1


@pytest.mark.parametrize("status", [500, 502, 504])
async def test_an_error_of_which_nobody_knows_how_far_it_came_is_not_repeated(status):
    with scripted(lambda peer: peer.answer(status, {"error": "boom"})) as server:
        async with publisher(server) as sessions:
            with pytest.raises(ClientError, match=f"answered {status}: boom"):
                await sessions.publish("a1", [EVENT])
        assert len(server.requests) == 1


async def test_a_request_that_was_cut_is_not_repeated():
    with scripted(lambda peer: peer.cut()) as server:
        async with publisher(server) as sessions:
            with pytest.raises(ClientError, match="did not answer") as raised:
                await sessions.publish("a1", [EVENT])
        assert isinstance(raised.value.__cause__, httpx.TransportError)
        assert len(server.requests) == 1


async def test_no_connection_is_tried_again_until_there_is_one():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    async with publisher(f"http://127.0.0.1:{port}") as sessions:
        publishing = asyncio.create_task(sessions.publish("a1", [EVENT]))
        await asyncio.sleep(0.02)
        assert not publishing.done()
        with scripted(accept, port):
            assert await publishing == 3


async def test_no_connection_within_the_deadline_is_told():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    sessions = SessionPublisher(f"http://127.0.0.1:{port}", random=lambda: 0.5)
    async with sessions:
        with pytest.raises(ClientError, match="did not answer: ConnectError"):
            await sessions.publish("a1", [EVENT], deadline=0.2)


async def test_no_answer_within_the_deadline_is_told():
    with scripted(lambda peer: peer.wait_gone()) as server:
        async with publisher(server) as sessions:
            with pytest.raises(ClientError, match=r"did not answer within 0\.1 s"):
                await sessions.publish("a1", [EVENT], deadline=0.1)
            await eventually(lambda: not server.open)


@pytest.mark.parametrize("answer", [b"<html>", b"{}", b"[" * 100_000])
async def test_an_answer_that_is_none_is_told(answer):
    with scripted(lambda peer: peer.answer(200, answer)) as server:
        async with publisher(server) as sessions:
            with pytest.raises(ClientError, match="did not answer as a server does"):
                await sessions.publish("a1", [EVENT])
            with pytest.raises(ClientError, match="did not answer as a server does"):
                await sessions.create()


async def test_no_more_of_an_answer_is_read_than_its_bound():
    def endless(peer):
        peer.stream(b'{"lastEventId": 3}', content_type="application/json")
        while True:
            peer.write(b" " * 2**16)

    padded = b'{"lastEventId": 3}'.ljust(MAX_ANSWER)
    with scripted(in_turn(lambda peer: peer.answer(202, padded), endless)) as server:
        async with publisher(server) as sessions:
            assert await sessions.publish("a1", [EVENT]) == 3
            with pytest.raises(ClientError, match=f"more than the {MAX_ANSWER} bytes"):
                await sessions.publish("a1", [EVENT])
            await eventually(lambda: not server.open)


async def test_a_refusal_without_an_end_is_not_read_to_its_end():
    def endless(peer):
        peer.head(404, transfer_encoding="chunked")
        while True:
            peer.write(b" " * 2**16)

    with scripted(endless) as server:
        async with publisher(server) as sessions:
            with pytest.raises(PublishRefused, match="404: Not Found"):
                await sessions.publish("a1", [EVENT])


async def test_a_compressed_answer_was_not_asked_for():
    body = gzip.compress(b'{"lastEventId": 3}')
    with scripted(lambda peer: peer.answer(202, body, content_encoding="gzip")) as server:
        async with publisher(server) as sessions:
            with pytest.raises(ClientError, match="in the encoding gzip, unasked"):
                await sessions.publish("a1", [EVENT])


@pytest.mark.parametrize("status", [404, 500])
async def test_what_a_server_says_is_harmless_to_print(status):
    sentence = "\x1b[2J\x9b\u202e\n" * 1000
    answer = {"error": sentence, "code": sentence}
    with scripted(lambda peer: peer.answer(status, answer)) as server:
        async with publisher(server) as sessions:
            with pytest.raises((PublishRefused, ClientError)) as raised:
                await sessions.publish("a1", [EVENT])
    assert str(raised.value).isprintable()
    assert len(str(raised.value)) < 1000


async def test_what_json_cannot_say_is_refused_before_anything_is_sent():
    with scripted(accept) as server:
        async with publisher(server) as sessions:
            with pytest.raises(TypeError):
                await sessions.publish("a1", [{"type": "x", "data": object()}])
            with pytest.raises(ValueError, match="surrogate"):
                await sessions.publish("a1", [{"type": "x", "data": "\ud800"}])
        assert server.requests == []


async def test_a_header_that_http_does_not_allow_is_told_and_not_repeated():
    with scripted(accept) as server:
        async with publisher(server, headers={"X": "s3cret\n"}) as sessions:
            with pytest.raises(ClientError, match="does not allow") as raised:
                await sessions.publish("a1", [EVENT])
        assert "s3cret" not in str(raised.value)


async def test_a_callers_client_is_used_and_left_open():
    with scripted(accept) as server:
        async with httpx.AsyncClient() as client:
            async with publisher(server, client=client) as sessions:
                await sessions.publish("a1", [EVENT])
            assert not client.is_closed


def test_wrong_arguments_are_refused_at_once():
    with pytest.raises(ValueError, match="http://HOST"):
        SessionPublisher("h:1")
    with pytest.raises(ValueError, match="visible ASCII"):
        SessionPublisher("http://h", token="a b")
    with pytest.raises(ValueError, match="a client id is"):
        SessionPublisher("http://h", client_id="a b")
