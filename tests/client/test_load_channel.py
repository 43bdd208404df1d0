"""A channel's state over HTTP, and what of an answer is one."""

import httpx
import pytest

from tests.client.support import scripted
from tidegate.client import LoadedChannel, load_channel, load_channel_sync
from tidegate.errors import ClientError, LoadFailed

ANSWER = {"state": {"n": 1}, "position": "p1", "epoch": "e1", "cursor": "1abc.x"}


async def test_a_state_is_loaded_with_its_place():
    with scripted(lambda peer: peer.answer(200, ANSWER)) as server:
        url = f"{server.url}/live"
        loaded = LoadedChannel({"n": 1}, "p1", "e1", "1abc.x")
        assert await load_channel(url, "room:1", token="t") == loaded
        assert load_channel_sync(f"{url}/v1/stream?channel=x", "room:1", token="t") == loaded
        async with httpx.AsyncClient() as client:
            assert await load_channel(url, "room:1", token="t", client=client) == loaded
            assert not client.is_closed
        for peer in server.requests:
            assert (peer.method, peer.target) == ("GET", "/live/v1/channels/room:1/snapshot")
            assert peer.headers["authorization"] == "Bearer t"


async def test_a_channel_without_a_snapshot_has_none():
    answer = {"error": "no snapshot", "code": "snapshot_not_found"}
    with scripted(lambda peer: peer.answer(404, answer)) as server:
        assert await load_channel(server.url, "a") == LoadedChannel()
        assert load_channel_sync(server.url, "a").cursor is None


async def test_an_unknown_route_is_no_answer():
    answer = {"error": "x", "code": "not_found"}
    with (
        scripted(lambda peer: peer.answer(404, answer)) as server,
        pytest.raises(LoadFailed, match="not_found"),
    ):
        await load_channel(server.url, "a")


async def test_a_broker_that_is_away_may_come_back():
    with scripted(lambda peer: peer.answer(503, {"error": "x", "code": "y"})) as server:
        with pytest.raises(ClientError, match="answered 503") as raised:
            await load_channel(server.url, "a")
        assert not isinstance(raised.value, LoadFailed)


def test_what_is_no_name_or_url_is_refused_before_anything_is_asked():
    with pytest.raises(ValueError, match="a channel name is"):
        load_channel_sync("http://h", "a/b")
    with pytest.raises(ValueError, match="http://HOST"):
        load_channel_sync("h", "a")


@pytest.mark.parametrize(
    "answer", [None, {"cursor": None}, {"state": None}, {**ANSWER, "cursor": None}]
)
def test_an_answer_without_a_cursor_says_that_nothing_is_stored(answer):
    assert LoadedChannel.read(answer) == LoadedChannel()


def test_an_answer_that_was_read_is_one():
    loaded = LoadedChannel.read(ANSWER)
    assert LoadedChannel.read(loaded) is loaded
    assert LoadedChannel.read({**ANSWER, "state": None, "more": 1}).cursor == "1abc.x"


@pytest.mark.parametrize(
    "answer",
    [
        5,
        [],
        "x",
        {},
        {"state": 1},
        {**ANSWER, "cursor": 5},
        {**ANSWER, "cursor": "a b"},
        {**ANSWER, "position": None},
        {**ANSWER, "epoch": 1},
        {key: value for key, value in ANSWER.items() if key != "state"},
    ],
)
def test_any_other_answer_is_none(answer):
    with pytest.raises(LoadFailed, match="no channel's state"):
        LoadedChannel.read(answer)
