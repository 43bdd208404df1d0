"""One question whose answer is JSON: what is one, and what may be asked again."""

import pytest

from tests.client.support import scripted
from tidegate.client.fetch import Question, fetch, fetch_sync
from tidegate.errors import ClientError, LoadFailed


async def both(server, method="GET", **options):
    """Ask with and without an event loop, and return both answers."""
    question = Question(method, f"{server.url}/x?y=z", "t", {"X-Mine": "1"}, **options)
    return [await fetch(question, None, 20.0), fetch_sync(question, None, 20.0)]


async def test_an_answer_is_decoded():
    with scripted(lambda peer: peer.answer(200, {"n": [1]})) as server:
        assert await both(server, "POST") == [{"n": [1]}] * 2
        for peer in server.requests:
            assert (peer.method, peer.target) == ("POST", "/x?y=z")
            assert peer.headers["authorization"] == "Bearer t"
            assert peer.headers["x-mine"] == "1"
            assert peer.headers["accept-encoding"] == "identity"


async def test_a_404_of_a_known_code_is_an_answer_and_no_other_is():
    with scripted(lambda peer: peer.answer(404, {"error": "no", "code": "none"})) as server:
        assert await both(server, absent="none") == [None, None]
        with pytest.raises(LoadFailed, match=r"answered 404 \(none\): no"):
            await both(server, absent="other")
        with pytest.raises(LoadFailed):
            await both(server)
    no = {"error": "no", "code": "none"}
    with (
        scripted(lambda peer: peer.answer(403, no)) as server,
        pytest.raises(LoadFailed, match="answered 403"),
    ):
        await both(server, absent="none")


@pytest.mark.parametrize("status", [408, 429, 500, 503])
async def test_what_may_pass_is_told_from_what_is_final(status):
    with scripted(lambda peer: peer.answer(status)) as server:
        question = Question("GET", server.url, None, None)
        with pytest.raises(ClientError, match=f"answered {status}") as raised:
            await fetch(question, None, 20.0)
        assert not isinstance(raised.value, LoadFailed)


async def test_no_connection_may_pass():
    with scripted(lambda peer: peer.cut()) as server:
        question = Question("GET", f"{server.url}/x?secret", None, None)
        with pytest.raises(ClientError, match="no state could be loaded from http") as raised:
            fetch_sync(question, None, 20.0)
        assert not isinstance(raised.value, LoadFailed)
        assert "secret" not in str(raised.value)


async def test_what_is_no_json_is_final():
    with (
        scripted(lambda peer: peer.answer(200, b"<html>")) as server,
        pytest.raises(LoadFailed, match="did not answer with JSON"),
    ):
        await both(server)
