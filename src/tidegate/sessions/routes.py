"""The HTTP face of sessions."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from tidegate.errors import (
    InvalidSessionId,
    SessionLimitExceeded,
    SessionNotFound,
    SnapshotConflict,
)
from tidegate.sessions.payloads import (
    parse_client_id,
    parse_create,
    parse_publish,
    parse_snapshot,
)
from tidegate.sessions.publishing import publish_all
from tidegate.stream import EventStream
from tidegate.stream.answers import by_method, error_answer, json_answer, json_errors
from tidegate.stream.bodies import BodyError, body_error_answer, read_body
from tidegate.stream.cursor import MAX_QUEUED_RANGE, parse_max_queued
from tidegate.stream.input import BadInput
from tidegate.stream.refusal import retry_after

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from starlette.types import Receive, Scope, Send

    from tidegate.sessions.registry import Sessions
    from tidegate.sessions.session import Session

__all__ = ["FEATURES", "SessionRoutes"]

FEATURES: Final = ("session_events", "slow_client_warning", "typed_event_schema")
"""What ``GET /capabilities`` tells clients that they may rely on."""

_log = logging.getLogger("tidegate.sessions")

_SHOWN: Final = 128
_LOAD_SECONDS: Final = 30.0


class _SessionStream(EventStream):
    """A session's stream: when it ends, the session's idle time begins."""

    def __init__(self, sessions: Sessions, session: Session, *args: Any, **options: Any) -> None:
        super().__init__(session, *args, **options)
        self._sessions = sessions
        self._session = session

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._sessions.touch(self._session)


class SessionRoutes:
    """The routes of a `Sessions`, as a list and as an ASGI app.

    Args:
        sessions: whose.
        features: what `FEATURES` is followed by.
        max_body_bytes: how large a request's body may be.
        stream_options: for every `EventStream`.
        rng: draws from [0, 1), for jitter.
    """

    def __init__(
        self,
        sessions: Sessions,
        *,
        features: Sequence[str],
        max_body_bytes: int,
        stream_options: dict[str, Any],
        rng: Callable[[], float],
    ) -> None:
        self._sessions = sessions
        self._features = (*FEATURES, *features)
        self._max_body_bytes = max_body_bytes
        self._stream_options = stream_options
        self._rng = rng
        answered = self._answered
        one = "/session/{session_id}"
        table: dict[str, dict[str, Callable[[Request], Awaitable[Response]]]] = {
            "/session": {"GET": self._list, "POST": self._create},
            one: {"DELETE": self._delete},
            f"{one}/events": {"GET": self._stream, "POST": self._publish},
            f"{one}/snapshot": {"PUT": self._put_snapshot},
            f"{one}/load": {"POST": self._load},
            "/capabilities": {"GET": self._capabilities},
        }
        self.routes = [
            Route(path, answered(by_method(endpoints)), methods=list(endpoints))
            for path, endpoints in table.items()
        ]
        self._app = Starlette(routes=self.routes, exception_handlers=json_errors())
        self._app.router.redirect_slashes = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        await self._app(scope, receive, send)

    def _answered(
        self, endpoint: Callable[[Request], Awaitable[Response]]
    ) -> Callable[[Request], Awaitable[Response]]:
        """Turn what an endpoint raises on purpose into an answer."""

        async def answer(request: Request) -> Response:
            try:
                return await endpoint(request)
            except BadInput as bad:
                return error_answer(400, bad.code, bad.error)
            except InvalidSessionId as bad:
                return error_answer(400, "invalid_session_id", str(bad))
            except SessionNotFound as missing:
                clipped = SessionNotFound(missing.session_id[:_SHOWN])
                shown = ascii(clipped.session_id)[1:-1]
                return error_answer(404, "session_not_found", str(clipped), sessionId=shown)
            except SnapshotConflict as conflict:
                return error_answer(409, "snapshot_conflict", str(conflict))
            except SessionLimitExceeded as limit:
                return error_answer(429, "session_limit", str(limit), retry_after(self._rng))
            except BodyError as error:
                return body_error_answer(error, self._max_body_bytes, rng=self._rng)
            except ClientDisconnect:
                # Nobody is there to read it.
                return Response(status_code=400)

        return answer

    def _session(self, request: Request) -> Session:
        return self._sessions.get(request.path_params["session_id"])

    async def _body(self, request: Request) -> bytes:
        return await read_body(request, self._max_body_bytes, drain=self._sessions.drain)

    async def _list(self, _: Request) -> Response:
        return json_answer({"sessions": [_summary(s) for s in self._sessions.list()]})

    async def _create(self, request: Request) -> Response:
        wanted = parse_create(await self._body(request)).session_id
        attached = wanted in self._sessions
        session = self._sessions.create(wanted)
        answer: dict[str, object] = {
            "sessionId": session.id,
            "epoch": session.channel.epoch,
            "lastEventId": session.channel.last_event_id,
        }
        if attached:
            return json_answer({**answer, "attached": True})
        return json_answer(answer, 201)

    async def _delete(self, request: Request) -> Response:
        self._sessions.delete(request.path_params["session_id"])
        return Response(status_code=204)

    async def _stream(self, request: Request) -> Response:
        try:
            max_queued = parse_max_queued(request.query_params.getlist("maxQueued"))
        except ValueError as error:
            raise BadInput("invalid_max_queued", str(error)) from None
        options = {**self._stream_options, "drain": self._sessions.drain}
        if max_queued is not None:
            options["max_queued"] = max_queued
        return _SessionStream(self._sessions, self._session(request), request, **options)

    async def _publish(self, request: Request) -> Response:
        client_id = parse_client_id(request.headers.get("tidegate-client-id"))
        session = self._session(request)
        items = parse_publish(await self._body(request))
        self._sessions.touch(session)
        last_event_id = await publish_all(session.channel, items, client_id)
        if last_event_id is None:
            raise SessionNotFound(session.id)
        return json_answer({"lastEventId": last_event_id}, 202)

    async def _put_snapshot(self, request: Request) -> Response:
        session = self._session(request)
        snapshot = parse_snapshot(await self._body(request))
        session.put_snapshot(snapshot.state, snapshot.last_event_id)
        self._sessions.touch(session)
        return Response(status_code=204)

    async def _load(self, request: Request) -> Response:
        session = self._session(request)
        self._sessions.touch(session)
        try:
            async with asyncio.timeout(_LOAD_SECONDS):
                loaded = await self._sessions.load(session)
            return json_answer(
                {
                    "sessionId": session.id,
                    "state": loaded.state,
                    "lastEventId": loaded.last_event_id,
                    "epoch": session.channel.epoch,
                    "complete": loaded.complete,
                }
            )
        except TimeoutError:
            _log.warning("the state of session %s did not come in time", session.id)
            error = "the session's state could not be computed in time; try again"
            return error_answer(503, "load_timeout", error, retry_after(self._rng))
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            # Not we: something that the provider awaited was cancelled under it.
            _log.exception("the state of session %s could not be loaded", session.id)
        except Exception:  # noqa: BLE001 - the provider is a user's code
            _log.exception("the state of session %s could not be loaded", session.id)
        return error_answer(500, "load_failed", "the session's state could not be loaded")

    async def _capabilities(self, _: Request) -> Response:
        limits = {
            "maxQueued": MAX_QUEUED_RANGE,
            "ringSize": self._sessions.ring_size,
            "maxSubscribers": self._sessions.max_subscribers,
        }
        return json_answer({"v": 1, "features": self._features, "limits": limits})


def _summary(session: Session) -> dict[str, object]:
    return {
        "sessionId": session.id,
        "epoch": session.channel.epoch,
        "lastEventId": session.channel.last_event_id,
        "subscribers": session.channel.statistics().subscribers,
        "running": len(session.runs),
    }
