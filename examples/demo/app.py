"""The demo's application: sessions of Tidegate in an ordinary Starlette app, and buttons for it.

What an application of your own needs of this is in `create_app` alone: two `Sessions`, their
routes, and a lifespan. The rest is there to disturb it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route

from examples.demo.story import tell
from tidegate.sessions import Sessions
from tidegate.stream import Drain

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from starlette.requests import Request
    from starlette.types import ASGIApp, Receive, Scope, Send

    from tidegate import Channel

PAGE = Path(__file__).parent / "page"
SMALL_RING = 64
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "img-src data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


def create_app(stop: Callable[[], None]) -> Starlette:
    """Make the application.

    Args:
        stop: called when the page asks for a restart and all streams have ended.
    """
    drain = Drain()
    seen: Counter[str] = Counter()

    def on_diagnostic(session_id: str, kind: str, data: dict[str, Any]) -> None:
        # What is noticed about the channel of the diagnostics would only make more of it.
        if session_id != "diagnostics":
            report = {"session": session_id, "kind": kind, "data": data}
            sessions.create("diagnostics").publish("diagnostic", report)
        seen[kind] += session_id == "flood"

    options: dict[str, Any] = {
        "drain": drain,
        "idle_seconds": None,
        "retry_ms": 1000,
        "on_diagnostic": on_diagnostic,
    }
    sessions = Sessions(**options)
    # Its history is short, so that one can fall out of it.
    small = Sessions(**options, ring_size=SMALL_RING)
    cuttable = Cuttable()

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with drain, sessions, small:
            # EventSource never comes back to a session that is not there.
            for name in ("build", "story", "diagnostics"):
                sessions.create(name)
            small.create("flood")
            yield

    async def story(_: Request) -> Response:
        being_told = bool(sessions.get("story").runs)
        if not being_told:
            sessions.start("story", tell())
        return JSONResponse({"started": not being_told})

    async def flood(request: Request) -> Response:
        channel = small.get("flood").channel
        until = request.query_params.get("until")
        if until == "ring_passed":
            return JSONResponse(await pass_the_ring(channel, drain))
        if until in {"slow_client_warning", "client_evicted"}:
            return JSONResponse(await flood_until(channel, lambda: seen[until], drain))
        return JSONResponse({"error": "until what?"}, 400)

    async def cut(request: Request) -> Response:
        query = request.query_params
        return JSONResponse({"cut": cuttable.cut(query.get("session"), query.get("tab"))})

    async def restart(_: Request) -> Response:
        async def then() -> None:
            await drain.drain()
            stop()

        return JSONResponse({"restarting": True}, background=BackgroundTask(then))

    return Starlette(
        routes=[
            *sessions.routes,
            Mount("/small", small),
            *[
                Route(f"/demo/{handler.__name__}", from_our_page(handler), methods=["POST"])
                for handler in (story, flood, cut, restart)
            ],
            *page_routes(),
        ],
        middleware=[
            Middleware(TrustedHostMiddleware, allowed_hosts=["127.0.0.1", "localhost"]),
            Middleware(cuttable.around),
        ],
        lifespan=lifespan,
    )


# -- the flood -----------------------------------------------------------------------------

# A browser takes some ten megabytes before it makes a sender wait. Sixteen of these are still less
# than the bytes that a backlog may have, so it is the number of events that passes the bounds.
WATER = "~" * 120_000


# A server that stops waits for the requests that it is answering: these end when its streams do.


async def flood_until(channel: Channel, count: Callable[[], int], drain: Drain) -> dict[str, Any]:
    """Publish big events until one more is counted, until it would be too many, or to a drain."""
    before = count()
    for published in range(1, 3000):
        channel.publish("flood", {"filler": WATER})
        if count() > before:
            return {"reached": True, "published": published}
        # Time for those who do read.
        await asyncio.sleep(0.003)
        if drain.draining:
            break
    return {"reached": False, "published": published}


async def pass_the_ring(channel: Channel, drain: Drain) -> dict[str, Any]:
    """Publish so many small events that nothing older is left for replay, or to a drain."""
    for published in range(1, channel.ring_size + 1):
        channel.publish("tide", {"number": published - 1})
        await asyncio.sleep(0.002)
        if drain.draining:
            break
    return {"reached": published == channel.ring_size, "published": published}


# -- the page and its buttons --------------------------------------------------------------


def page_routes() -> list[Route]:
    """Return a route for each file of the page; the files are read once."""
    types = {".html": "text/html", ".js": "text/javascript", ".css": "text/css"}

    def route(path: str, file: Path) -> Route:
        content = file.read_bytes()

        async def answer(_: Request) -> Response:
            return Response(content, media_type=types[file.suffix], headers=HEADERS)

        return Route(path, answer)

    files = [file for file in sorted(PAGE.iterdir()) if file.suffix in types]
    return [route("/", PAGE / "index.html"), *[route(f"/page/{f.name}", f) for f in files]]


def from_our_page(
    handler: Callable[[Request], Awaitable[Response]],
) -> Callable[[Request], Awaitable[Response]]:
    """Refuse what another site's page could send: it cannot set this header without being asked."""

    async def guarded(request: Request) -> Response:
        if request.headers.get("x-tidegate-demo") != "1":
            return JSONResponse({"error": "only the demo's own page may do that"}, 403)
        return await handler(request)

    return guarded


class Cuttable:
    """Knows the sockets of open streams, to cut them as a failing network would."""

    def __init__(self) -> None:
        self._resets: dict[Callable[[], None], tuple[str, str]] = {}

    def cut(self, session_id: str | None, tab: str | None) -> int:
        """Reset the connections that one tab has to a session; return how many."""
        resets = [reset for reset, key in self._resets.items() if key == (session_id, tab)]
        for reset in resets:
            reset()
        return len(resets)

    def around(self, app: ASGIApp) -> ASGIApp:
        """Return ``app`` as one whose streams can be cut."""

        async def wrapped(scope: Scope, receive: Receive, send: Send) -> None:
            transport = scope.get("extensions", {}).get("tidegate.transport")
            if transport is None or not scope["path"].endswith("/events"):
                await app(scope, receive, send)
                return
            tab = parse_qs(scope["query_string"].decode("latin-1")).get("tab", [""])[0]
            reset = transport["reset"]
            self._resets[reset] = (scope["path"].split("/")[-2], tab)
            try:
                await app(scope, receive, send)
            finally:
                self._resets.pop(reset, None)

        return wrapped
