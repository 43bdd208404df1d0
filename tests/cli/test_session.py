"""The way into a session: made when missing; away and refusing are two things."""

import asyncio
import socket

import pytest

from tests.servers import serve_app
from tidegate.cli.console import CommandFailed
from tidegate.cli.delivery import Away, Refused
from tidegate.cli.session import SessionDoor
from tidegate.server import ServerSettings, create_app


def nowhere():
    """Return the URL of a port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"http://127.0.0.1:{listener.getsockname()[1]}"


async def test_publishing_makes_the_session(served, session_id):
    async with SessionDoor(served.url, session_id, client_id="me") as door:
        assert await door.publish([{"type": "a"}, {"type": "b", "data": 1}]) == 2
        assert await door.publish([{"type": "c"}]) == 3
    events = await asyncio.to_thread(served.events, session_id)
    assert [(event.type, event.originator_client_id) for event in events] == [
        ("a", "me"),
        ("b", "me"),
        ("c", "me"),
    ]


async def test_publishing_makes_the_session_again(served, session_id):
    async with SessionDoor(served.url, session_id) as door:
        assert await door.publish([{"type": "a"}, {"type": "b"}]) == 2
        await asyncio.to_thread(served.call, lambda sessions: sessions.delete(session_id))
        assert await door.publish([{"type": "c"}]) == 1


async def test_unless_it_is_not_to(served, session_id):
    async with SessionDoor(served.url, session_id, create=False) as door:
        with pytest.raises(Refused, match="session_not_found") as refusal:
            await door.publish([{"type": "a"}])
    assert not refusal.value.about_events


async def test_attaching_makes_the_session_or_finds_it(served, session_id):
    async with SessionDoor(served.url, session_id) as door:
        await door.attach()
        await door.publish([{"type": "a"}])
        await door.attach()
    assert await asyncio.to_thread(served.pairs, session_id) == [("a", None)]


async def test_bad_events_are_refused_as_such(served, session_id):
    async with SessionDoor(served.url, session_id) as door:
        for _ in range(2):  # without the session, and with it
            with pytest.raises(Refused, match="choose another type") as refusal:
                await door.publish([{"type": "open"}])
            assert refusal.value.about_events
            await door.attach()


async def test_a_server_that_is_not_there_is_away(session_id):
    async with SessionDoor(nowhere(), session_id) as door:
        with pytest.raises(Away, match="no server at http"):
            await door.publish([{"type": "a"}])
        with pytest.raises(Away, match="no server at http"):
            await door.attach(0.01)


async def test_attaching_waits_for_a_server_that_comes(session_id):
    with socket.create_server(("127.0.0.1", 0)) as place:
        port = place.getsockname()[1]
    tried = asyncio.Event()

    def rng():
        tried.set()
        return 1.0

    async with SessionDoor(f"http://127.0.0.1:{port}", session_id) as door:
        attaching = asyncio.create_task(door.attach(60.0, rng=rng))
        await tried.wait()
        server = await asyncio.start_server(_created, "127.0.0.1", port)
        async with server, asyncio.timeout(30):
            await attaching


async def test_a_token_that_is_missing_or_wrong_is_a_refusal_at_once(session_id):
    with serve_app(create_app(ServerSettings(port=0, token="secret"))) as url:
        for token in (None, "wrong"):
            async with SessionDoor(url, session_id, token=token) as door:
                with pytest.raises(Refused, match="401"):
                    await door.attach(60.0)
        async with SessionDoor(url, session_id, token="secret") as door:
            await door.attach()


@pytest.mark.parametrize("status", [429, 503])
async def test_a_server_that_cannot_now_is_away(session_id, status):
    async def app(scope, receive, send):
        if scope["type"] == "http":
            start = {"type": "http.response.start", "status": status, "headers": []}
            await send(start)
            await send({"type": "http.response.body", "body": b""})

    with serve_app(app) as url:
        async with SessionDoor(url, session_id) as door:
            with pytest.raises(Away, match=str(status)):
                await door.publish([{"type": "a"}])


def test_a_token_that_no_header_carries_ends_the_command(session_id):
    with pytest.raises(CommandFailed) as failure:
        SessionDoor("http://localhost", session_id, token="two words")
    assert failure.value.exit_code == 2


async def _created(reader, writer):
    await reader.readuntil(b"\r\n\r\n")
    body = b'{"sessionId":"x","epoch":"e","lastEventId":0}'
    writer.write(b"HTTP/1.1 201 Created\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    await writer.drain()
    writer.close()
