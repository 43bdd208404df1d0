"""Drives an ASGI response by hand: what a server would do, step by step."""

from __future__ import annotations

import asyncio

from starlette.requests import Request

from tests.servers import eventually


def make_scope(path="/", query=b"", headers=(), method="GET", **more):
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": query,
        "headers": [(name.lower(), value) for name, value in headers],
        "scheme": "http",
        "server": ("127.0.0.1", 80),
        "client": ("127.0.0.1", 5000),
        "http_version": "1.1",
        **more,
    }


def make_request(**scope):
    return Request(make_scope(**scope))


class Exchange:
    """One request, its answer so far, and a socket that can be full.

    Attributes:
        sent: the messages that the socket took.
        open: whether the socket takes anything; while it is clear, ``send`` blocks.
        failure: what ``send`` raises, if anything.
        resets: how often the transport was reset; with ``transport=True`` only.
    """

    def __init__(self, transport=False, **scope):
        self.scope = make_scope(**scope)
        self.sent = []
        self.open = asyncio.Event()
        self.open.set()
        self.failure = None
        self.resets = 0
        self.blocked = 0
        self.unflushed = 0
        self._flushed = asyncio.Event()
        self._messages = asyncio.Queue()
        self._messages.put_nowait({"type": "http.request", "body": b"", "more_body": False})
        if transport:
            self.scope["extensions"] = {
                "tidegate.transport": {
                    "reset": self._reset,
                    "buffered": lambda: 1 if self.blocked else self.unflushed,
                    "flush": self._flushed.wait,
                    "hold": lambda: None,
                }
            }

    @property
    def request(self):
        return Request(self.scope)

    @property
    def status(self):
        return self.sent[0]["status"]

    @property
    def headers(self):
        return {name.decode(): value.decode() for name, value in self.sent[0]["headers"]}

    @property
    def body(self):
        return b"".join(message.get("body", b"") for message in self.sent[1:])

    @property
    def complete(self):
        return len(self.sent) > 1 and not self.sent[-1].get("more_body", False)

    async def receive(self):
        message = await self._messages.get()
        if isinstance(message, Exception):
            raise message
        return message

    async def send(self, message):
        if self.failure is not None:
            raise self.failure
        self.blocked += 1
        try:
            await self.open.wait()
        finally:
            self.blocked -= 1
        if not self.resets:
            self.sent.append(message)
        if message["type"] == "http.response.body" and not message.get("more_body", False):
            # As uvicorn has it: who has been answered counts as gone.
            self.disconnect()

    def post(self, message):
        self._messages.put_nowait(message)

    def disconnect(self):
        self.post({"type": "http.disconnect"})

    def start(self, response):
        """Run the response in a task; await it, or cancel it, at the end."""
        return asyncio.ensure_future(response(self.scope, self.receive, self.send))

    async def until(self, text):
        """Wait until the body holds a text."""
        await eventually(lambda: len(self.sent) > 1 and text in self.body)

    def _reset(self):
        self.resets += 1
        self.open.set()
        self._flushed.set()
