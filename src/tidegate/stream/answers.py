"""JSON answers: what every route says, and how every route says no."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

import msgspec
from starlette.exceptions import HTTPException
from starlette.responses import Response

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from starlette.requests import Request

    Endpoint = Callable[[Request], Awaitable[Response]]

__all__ = ["by_method", "error_answer", "json_answer", "json_errors"]

_encode = msgspec.json.Encoder().encode


def json_answer(
    payload: object, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """Answer with JSON.

    Args:
        payload: what msgspec can encode.
        status: the HTTP status.
        headers: further headers.
    """
    return Response(_encode(payload), status, headers, "application/json")


def error_answer(
    status: int,
    code: str,
    error: str,
    headers: Mapping[str, str] | None = None,
    **facts: object,
) -> Response:
    """Answer with an error: a sentence for people, a code for programs.

    Args:
        status: the HTTP status.
        code: ``snake_case``; clients may rely on it.
        error: a sentence that says what to do.
        headers: further headers.
        facts: further fields.
    """
    return json_answer({"error": error, "code": code, **facts}, status, headers)


def by_method(endpoints: Mapping[str, Endpoint]) -> Endpoint:
    """Make one endpoint of several, so that one route knows all methods of its path.

    With a route for each method, the answer 405 would name those of the first only.

    Args:
        endpoints: by method; ``HEAD`` goes where ``GET`` does.
    """

    async def endpoint(request: Request) -> Response:
        method = "GET" if request.method == "HEAD" else request.method
        return await endpoints[method](request)

    return endpoint


def json_errors() -> dict[Any, Any]:
    """Return Starlette exception handlers that answer with JSON, never with a traceback."""
    return {HTTPException: _http_error, Exception: _internal_error}


_SENTENCES: Final = {
    404: "there is nothing at this path",
    405: "this path does not take this method; see the header Allow",
}


async def _http_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 - what it was registered for
    status = error.status_code
    try:
        code = HTTPStatus(status).name.lower()
    except ValueError:
        code = f"http_{status}"
    return error_answer(status, code, _SENTENCES.get(status, error.detail), error.headers)


async def _internal_error(_: Request, __: Exception) -> Response:
    return error_answer(500, "internal", "the server failed; the reason is in its log")
