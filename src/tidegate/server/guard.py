"""Who may call the server: a pure ASGI middleware in front of everything."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from starlette.datastructures import Headers

from tidegate.server.hosts import host_of, is_loopback, is_origin, same_host
from tidegate.stream.answers import error_answer

if TYPE_CHECKING:
    from starlette.responses import Response
    from starlette.types import ASGIApp, Receive, Scope, Send

    from tidegate.server.settings import ServerSettings
    from tidegate.server.tokens import TokenCheck

__all__ = ["GATEWAY_PATH", "OPEN_PATHS", "Guard"]

OPEN_PATHS: Final = frozenset({"/healthz", "/readyz", "/login"})
"""What needs no token."""

GATEWAY_PATH: Final = "/v1"
"""Below it are the gateway's routes, which nobody may use unless that was said."""

_SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})


class Guard:
    """Lets a request through, or answers it.

    Four checks, in this order. On loopback ``Host`` must be a name of this machine:
    otherwise a web page could rebind its own name to this address and read all. Without a
    token and without ``dev`` the gateway's routes are closed: channels, unlike sessions,
    outlive what made them, so who may use them has to be said. With a token every request
    must bear it, or the cookie that stands for it. And a page of another origin may neither
    use that cookie nor change anything, since browsers send what such a page asks for
    before they keep the answer from it.

    Args:
        app: what to guard.
        settings: what the server was told.
        token: the check of the token, if there is one.
    """

    def __init__(self, app: ASGIApp, settings: ServerSettings, token: TokenCheck | None) -> None:
        self._app = app
        self._settings = settings
        self._token = token
        self._named_hosts = {
            host_of(origin.partition("://")[2])
            for origin in settings.allow_origins
            if origin != "*"
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request: the ASGI face."""
        refusal = self._refusal(scope) if scope["type"] == "http" else None
        await (self._app if refusal is None else refusal)(scope, receive, send)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        host = headers.get("host")
        # Without Host it is no browser, and nobody's name was rebound.
        if self._settings.on_loopback and host is not None and not self._is_ours(host):
            return error_answer(
                403,
                "host_not_allowed",
                "this server is bound to loopback and answers to this machine's own names; call "
                f"http://127.0.0.1:{scope['server'][1]}, or name the origin of the proxy in "
                "front with --allow-origin",
            )
        if self._token is None and not self._settings.dev and _is_gateways(scope["path"]):
            return error_answer(
                401,
                "unauthorized",
                "nobody may use the channels of this server until it is started with --token TOKEN "
                "(or TIDEGATE_TOKEN), for those who present it, or with --dev, for all on this "
                "machine",
                {"www-authenticate": "Bearer"},
            )
        origin = headers.get("origin")
        foreign = origin is not None and not self._may_call(origin, host or "")
        unsafe = scope["method"] not in _SAFE_METHODS
        if self._token is None or scope["path"] in OPEN_PATHS:
            return _origin_denied() if foreign and unsafe else None
        if self._token.is_bearer(headers.get("authorization", "")):
            return None
        if not any(self._token.is_cookie(value) for value in headers.getlist("cookie")):
            return error_answer(
                401,
                "unauthorized",
                "this server needs its token: Authorization: Bearer TOKEN, "
                "or in a browser the cookie that POST /login sets",
                {"www-authenticate": "Bearer"},
            )
        return _origin_denied() if foreign else None

    def _is_ours(self, host: str) -> bool:
        name = host_of(host)
        return name is not None and (is_loopback(name) or name in self._named_hosts)

    def _may_call(self, origin: str, host: str) -> bool:
        if same_host(origin, host) or origin in self._settings.allow_origins:
            return True
        if not (self._settings.dev and is_origin(origin)):
            return False
        return is_loopback(host_of(origin.partition("://")[2]) or "")


def _is_gateways(path: str) -> bool:
    return path == GATEWAY_PATH or path.startswith(f"{GATEWAY_PATH}/")


def _origin_denied() -> Response:
    return error_answer(
        403,
        "origin_not_allowed",
        "a page of another origin may not do that; name its origin with --allow-origin",
    )
