"""A user's own applications, to be run by servers of several makes."""

from contextlib import asynccontextmanager

from fastapi import FastAPI, Request

from tidegate.channel import Channel
from tidegate.sessions import Sessions
from tidegate.stream import STATE_KEY, Drain, EventStream


def make_app() -> FastAPI:
    """Make an application with a bare channel at /bare and sessions at /live."""
    channel = Channel("bare")
    sessions = Sessions()

    @asynccontextmanager
    async def lifespan(_):
        async with Drain() as drain, sessions:
            sessions.create("a")
            yield {STATE_KEY: drain}

    app = FastAPI(lifespan=lifespan)
    app.mount("/live", sessions)

    @app.get("/bare")
    async def bare(request: Request) -> EventStream:
        return EventStream(channel, request)

    @app.get("/healthz")
    async def healthz() -> dict[str, int]:
        return {
            "bare": channel.statistics().subscribers,
            "session": sessions.get("a").channel.statistics().subscribers,
        }

    @app.post("/publish")
    async def publish(size: int) -> None:
        channel.publish("m", "x" * size)

    return app


app = make_app()
wrapped = make_app()


@wrapped.middleware("http")
async def do_nothing(request, call_next):
    """Stand between, as a BaseHTTPMiddleware."""
    return await call_next(request)
