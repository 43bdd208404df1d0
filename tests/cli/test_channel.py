"""The way into a channel: away and refusing are two things, and nothing is published twice."""

import asyncio
import json
import socket

import pytest

from tests.cli.test_session import nowhere
from tests.servers import serve_app
from tidegate.cli.channel import ChannelDoor
from tidegate.cli.console import CommandFailed
from tidegate.cli.delivery import Away, Refused
from tidegate.gateway import Namespace
from tidegate.server import ServerSettings, create_app


def answering(status, body=b"{}"):
    """An app that gives every request the same answer."""

    async def app(scope, receive, send):
        if scope["type"] == "http":
            while (await receive()).get("more_body"):
                pass
            await send({"type": "http.response.start", "status": status, "headers": []})
            await send({"type": "http.response.body", "body": body})

    return app


async def test_the_position_of_the_last_event_comes_back(served, channel):
    async with ChannelDoor(served.url, channel) as door:
        last = await door.publish([{"type": "a"}, {"type": "b", "data": 1, "meta": {"x": 2}}])
        receipt = door.receipt()
    history = await asyncio.to_thread(served.history, channel)
    assert [(kind, payload.get("data")) for kind, payload in history] == [("a", None), ("b", 1)]
    assert history[1][1]["_meta"]["x"] == 2
    assert (receipt["channel"], receipt["id"], receipt["duplicate"]) == (channel, last, False)
    assert "suppressed" not in receipt


async def test_the_same_dict_is_the_same_event_in_whatever_company(served, channel):
    events = [{"type": "a"}, {"type": "b"}, {"type": "c"}]
    async with ChannelDoor(served.url, channel) as door:
        await door.publish(events[:2])
        await door.publish(events[1:])
        assert door.receipt()["duplicate"] is False
        await door.publish(events)
        assert door.receipt()["duplicate"] is True
    assert [kind for kind, _ in await asyncio.to_thread(served.history, channel)] == ["a", "b", "c"]


async def test_a_key_tags_and_a_version_are_the_events(served, channel):
    event = {"type": "a", "idempotencyKey": "k", "tags": {"t": "u"}, "version": 3}
    async with ChannelDoor(served.url, channel) as door:
        await door.publish([dict(event)])
        await door.publish([dict(event)])
        assert door.receipt()["duplicate"] is True
        await door.publish([{"type": "b", "version": 3}])
        assert door.receipt()["suppressed"] is True
    [(_, payload)] = await asyncio.to_thread(served.history, channel)
    assert (payload["tags"], payload["version"]) == ({"t": "u"}, 3)


async def test_bad_events_are_refused_as_such(served, channel):
    async with ChannelDoor(served.url, channel) as door:
        with pytest.raises(Refused, match="choose another type") as refusal:
            await door.publish([{"type": "a"}, {"type": "open"}])
        assert refusal.value.about_events
    assert await asyncio.to_thread(served.history, channel) == []


async def test_attaching_finds_a_channel_that_may_be(served, channel):
    async with ChannelDoor(served.url, channel) as door:
        await door.attach()
    settings = ServerSettings(port=0, token="t", namespaces=(Namespace(name="room"),))
    with serve_app(create_app(settings)) as url:
        async with ChannelDoor(url, channel, token="t") as door:
            await door.attach()
        async with ChannelDoor(url, "other:1", token="t") as door:
            with pytest.raises(Refused, match="unknown_namespace"):
                await door.attach(60.0)


async def test_whoever_may_only_publish_is_let_in(channel):
    with serve_app(answering(403, b'{"code":"access_denied"}')) as url:
        async with ChannelDoor(url, channel) as door:
            await door.attach()
            with pytest.raises(Refused, match="access_denied"):
                await door.publish([{"type": "a"}])


async def test_a_server_that_is_not_there_is_away(channel):
    async with ChannelDoor(nowhere(), channel) as door:
        with pytest.raises(Away, match="no server at http"):
            await door.publish([{"type": "a"}])
        with pytest.raises(Away, match="no server at http"):
            await door.attach(0.01)


async def test_attaching_waits_for_a_server_that_comes(channel):
    with socket.create_server(("127.0.0.1", 0)) as place:
        port = place.getsockname()[1]
    tried = asyncio.Event()

    def rng():
        tried.set()
        return 1.0

    async def answer(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
        await writer.drain()
        writer.close()

    async with ChannelDoor(f"http://127.0.0.1:{port}", channel) as door:
        attaching = asyncio.create_task(door.attach(60.0, rng=rng))
        await tried.wait()
        async with await asyncio.start_server(answer, "127.0.0.1", port), asyncio.timeout(30):
            await attaching


async def test_a_token_that_is_missing_or_wrong_is_a_refusal_at_once(channel):
    with serve_app(create_app(ServerSettings(port=0, token="secret"))) as url:
        for token, words in ((None, "give --token"), ("wrong", "is not the server's")):
            async with ChannelDoor(url, channel, token=token) as door:
                with pytest.raises(Refused, match=words):
                    await door.attach(60.0)
                with pytest.raises(Refused, match=words):
                    await door.publish([{"type": "a"}])


async def test_a_server_that_has_its_channels_closed_names_its_options(channel):
    with serve_app(create_app(ServerSettings(port=0))) as url:
        async with ChannelDoor(url, channel, token="any") as door:
            with pytest.raises(Refused, match=r"--token .* --dev"):
                await door.attach(60.0)


@pytest.mark.parametrize("status", [429, 502, 503])
async def test_a_server_that_cannot_now_is_away(channel, status):
    with serve_app(answering(status)) as url:
        async with ChannelDoor(url, channel) as door:
            with pytest.raises(Away, match=str(status)):
                await door.attach()
            with pytest.raises(Away, match=str(status)):
                await door.publish([{"type": "a"}])


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("broker_unavailable", Away),
        ("rate_limited", Away),
        ("access_denied", Refused),
        ("broker_error", Refused),
    ],
)
async def test_an_event_that_was_not_taken_alone_stands_for_all(channel, code, error):
    results = [
        {"channel": channel, "id": "0" * 16, "epoch": "e", "duplicate": False},
        {"channel": channel, "error": "no", "code": code},
    ]
    with serve_app(answering(200, json.dumps({"results": results}).encode())) as url:
        async with ChannelDoor(url, channel) as door:
            with pytest.raises(error, match=code) as failure:
                await door.publish([{"type": "a"}, {"type": "b"}])
    assert getattr(failure.value, "about_events", False) is (code == "broker_error")


def test_a_token_that_no_header_carries_ends_the_command(channel):
    with pytest.raises(CommandFailed) as failure:
        ChannelDoor("http://localhost", channel, token="two words")
    assert failure.value.exit_code == 2
