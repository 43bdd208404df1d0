"""Runs: an answer written token by token, which one may leave and re-enter at any time."""

from __future__ import annotations

import asyncio
import random
from contextlib import asynccontextmanager

import httpx
import pytest

from tests.integration.proxy import proxy_to
from tests.integration.support import serve_sessions
from tests.servers import eventually
from tidegate.client import connect
from tidegate.errors import RunCancelled

pytestmark = pytest.mark.server

TOKENS = [f"token-{n} " for n in range(2000)]
CUTS = 50
AHEAD = 64


class Answer:
    """A generator of tokens that is never far ahead of its reader.

    So the run is alive at every cut, without a clock: whoever has read a token lets it
    write another one.

    Args:
        service: where it runs.
        ahead: how many tokens it may write before any was read.
    """

    def __init__(self, service, ahead=AHEAD):
        self._service = service
        self._allowed = asyncio.Semaphore(ahead)
        self.written = 0
        self.closed = False

    async def write(self):
        try:
            for token in TOKENS:
                await self._allowed.acquire()
                self.written += 1
                yield "token", token
        finally:
            self.closed = True

    def read(self, tokens=1):
        """Say that so many tokens were read, from any thread."""

        def release():
            for _ in range(tokens):
                self._allowed.release()

        self._service.soon(release)


@pytest.fixture
def service():
    with serve_sessions(idle_seconds=None) as service:
        service.create("chat")
        yield service


@asynccontextmanager
async def following(url, **options):
    async with (
        asyncio.timeout(50),
        connect(f"{url}/session/chat", random=lambda: 0.0, **options) as stream,
    ):
        yield stream


async def whole_answer(service):
    """Read all that is in the session, as one who comes late does."""
    async with following(service.url, last_event_id=0) as stream:
        events = []
        async for event in stream:
            if event.type == "replay_complete":
                return events
            events.append(event)
    raise AssertionError("the stream ended before it was told to")


@pytest.mark.parametrize("seed", [1, 2])
async def test_a_client_that_is_cut_fifty_times_gets_each_token_once(service, seed):
    rng = random.Random(seed)
    answer = Answer(service)
    tokens = []
    with proxy_to(service.address) as proxy:
        # Bytes, not frames: in the head, within a token, between two of them.
        proxy.cut_streams([rng.randrange(1, 8000) for _ in range(CUTS)])
        run = service.start(service.sessions.run("chat", answer.write()))
        async with following(proxy.url, last_event_id=0) as stream:
            async for event in stream:
                if event.type == "token":
                    tokens.append(event.data)
                    answer.read()
                if len(tokens) == len(TOKENS):
                    break
            assert run.result(20) is None
            # To the very end: nothing comes a second time.
            service.call(lambda: service.sessions.delete("chat"))
            rest = [event.type async for event in stream]
        assert tokens == TOKENS
        assert {"replay_complete", "session_closed"} >= set(rest) >= {"session_closed"}
        assert proxy.cuts == CUTS
    assert answer.closed


@pytest.mark.parametrize("seed", [1, 2])
async def test_a_client_that_leaves_and_re_enters_fifty_times_gets_each_token_once(service, seed):
    rng = random.Random(seed)
    answer = Answer(service)
    tokens = []
    cursor = 0
    run = service.start(service.sessions.run("chat", answer.write()))
    async with httpx.AsyncClient(trust_env=False) as client:
        for leave in [*sorted(rng.sample(range(1, len(TOKENS)), CUTS)), len(TOKENS)]:
            async with following(service.url, last_event_id=cursor, client=client) as stream:
                async for event in stream:
                    if event.type == "token":
                        tokens.append(event.data)
                        answer.read()
                        cursor = event.cursor
                    if len(tokens) == leave:
                        break
    assert tokens == TOKENS
    assert run.result(20) is None


async def test_without_any_client_a_run_goes_to_its_end(service):
    answer = Answer(service, ahead=len(TOKENS))
    run = service.start(service.sessions.run("chat", answer.write()))
    await asyncio.to_thread(run.result, 30)
    assert service.subscribers("chat") == 0
    events = await whole_answer(service)
    assert [(event.id, event.type, event.data) for event in events] == [
        (n, "token", token) for n, token in enumerate(TOKENS, 1)
    ]


async def test_a_caller_that_is_cancelled_does_not_stop_the_run(service):
    answer = Answer(service)
    caller = service.start(service.sessions.run("chat", answer.write()))
    await eventually(lambda: answer.written == AHEAD)
    assert caller.cancel()
    answer.read(len(TOKENS))
    await eventually(lambda: answer.closed)
    assert answer.written == len(TOKENS)
    await eventually(lambda: not service.call(lambda: service.sessions.get("chat").runs))
    events = await whole_answer(service)
    assert [event.data for event in events] == TOKENS


async def test_a_deleted_session_stops_its_run_and_tells_its_client_last(service):
    answer = Answer(service)
    run = service.start(service.sessions.run("chat", answer.write()))
    async with (
        following(service.url, last_event_id=0) as stream,
        httpx.AsyncClient(base_url=service.url, timeout=20, trust_env=False) as http,
    ):
        tokens = []
        async for event in stream:
            if event.type == "token":
                tokens.append(event.data)
            if len(tokens) == AHEAD:
                break
        assert (await http.delete("/session/chat")).status_code == 204
        with pytest.raises(RunCancelled):
            await asyncio.to_thread(run.result, 20)
        rest = [event.type async for event in stream if event.type != "replay_complete"]
    assert tokens == TOKENS[:AHEAD]
    assert rest == ["session_closed"]
    assert answer.closed
    assert answer.written == AHEAD
