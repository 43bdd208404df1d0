"""The application that ``tidegate serve`` runs."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import msgspec
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from tidegate.config import Config
from tidegate.gateway import Gateway
from tidegate.server.guard import Guard
from tidegate.server.pages import index_page, login_page
from tidegate.server.tokens import COOKIE, TokenCheck
from tidegate.sessions import Sessions
from tidegate.stream import EXPOSED_HEADERS, STATE_KEY, Drain
from tidegate.stream.answers import by_method, error_answer, json_answer, json_errors
from tidegate.stream.bodies import BodyTooLarge, BodyTooSlow, read_body

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tidegate.server.settings import ServerSettings

__all__ = ["create_app"]

_LOOPBACK_ORIGIN: Final = r"https?://(localhost|[a-z0-9.-]+\.localhost|127\.[0-9.]+|\[::1\])(:\d+)?"
_LOGIN_BYTES: Final = 4096
_GATEWAY_FEATURES: Final = ("channels", "channel_history", "channel_snapshots")


def create_app(settings: ServerSettings) -> Starlette:
    """Make the application: sessions, channels, health, the guard. It serves one lifespan.

    Args:
        settings: what the server was told.

    Returns:
        An ASGI application. Its ``state`` has ``sessions``, the `Sessions`, ``gateway``,
        the `Gateway`, and ``drain``, the `Drain` that ends all streams of both on SIGTERM
        and SIGINT.

    Raises:
        ConfigError: there is no such broker.
    """
    drain = Drain(seconds=settings.drain_seconds, retry_ms=settings.gateway.retry_ms)
    sessions = Sessions(
        max_sessions=settings.max_sessions,
        idle_seconds=settings.idle_seconds,
        ring_size=settings.event_ring_size,
        features=_GATEWAY_FEATURES,
        refusal=settings.refusal,
        drain=drain,
    )
    gateway = Gateway.from_config(
        Config(gateway=settings.gateway, namespaces=settings.namespaces),
        refusal=settings.refusal,
        drain=drain,
        open_to_all=settings.dev,
    )
    token = None if settings.token is None else TokenCheck(settings.token)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[dict[str, Any]]:
        # In this order: the streams end before the sessions do, and before the broker stops.
        async with sessions, gateway, drain:
            yield {STATE_KEY: drain}

    app = Starlette(
        routes=[*_routes(gateway, drain, token), *gateway.routes, *sessions.routes],
        middleware=[
            *_cors(settings),
            Middleware(Guard, settings=settings, token=token),
        ],
        exception_handlers=json_errors(),
        lifespan=lifespan,
    )
    app.router.redirect_slashes = False
    app.state.sessions = sessions
    app.state.gateway = gateway
    app.state.drain = drain
    return app


def _routes(gateway: Gateway, drain: Drain, token: TokenCheck | None) -> list[Route]:
    async def index(_: Request) -> Response:
        return index_page()

    async def healthz(_: Request) -> Response:
        return json_answer({"status": "alive"})

    async def readyz(_: Request) -> Response:
        if drain.draining:
            return error_answer(503, "draining", "the server is shutting down")
        if not gateway.node.available:
            return error_answer(503, "broker_unavailable", "the broker cannot be reached")
        return json_answer({"status": "ready"})

    async def login_form(_: Request) -> Response:
        return login_page()

    async def login(request: Request) -> Response:
        assert token is not None  # noqa: S101 - else there is no such route
        return await _log_in(request, token)

    routes = [
        Route("/", index, methods=["GET"]),
        Route("/healthz", healthz, methods=["GET"]),
        Route("/readyz", readyz, methods=["GET"]),
    ]
    if token is not None:
        endpoint = by_method({"GET": login_form, "POST": login})
        routes.append(Route("/login", endpoint, methods=["GET", "POST"]))
    return routes


class _Login(msgspec.Struct, forbid_unknown_fields=True):
    token: str


async def _log_in(request: Request, token: TokenCheck) -> Response:
    try:
        given = msgspec.json.decode(await read_body(request, _LOGIN_BYTES), type=_Login).token
    except (msgspec.DecodeError, RecursionError):
        return error_answer(400, "invalid_body", 'the body must be {"token": "..."}')
    except (BodyTooLarge, BodyTooSlow, ClientDisconnect):
        return error_answer(413, "body_too_large", "no token is that long")
    if not token.is_token(given):
        return error_answer(401, "unauthorized", "that is not the token")
    response = Response(status_code=204)
    response.set_cookie(
        COOKIE,
        token.cookie,
        path="/",
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )
    return response


def _cors(settings: ServerSettings) -> list[Middleware]:
    if not settings.allow_origins and not settings.dev:
        return []
    everyone = "*" in settings.allow_origins
    return [
        Middleware(
            CORSMiddleware,
            allow_origins=["*"] if everyone else list(settings.allow_origins),
            allow_origin_regex=_LOOPBACK_ORIGIN if settings.dev else None,
            allow_methods=["GET", "POST", "PUT", "DELETE"],
            allow_headers=[
                "Authorization",
                "Content-Type",
                "Last-Event-ID",
                "Tidegate-Client-Id",
                "Tidegate-Epoch",
            ],
            # A cookie never opens the server to every origin.
            allow_credentials=not everyone,
            expose_headers=[*EXPOSED_HEADERS, "Retry-After"],
        )
    ]
