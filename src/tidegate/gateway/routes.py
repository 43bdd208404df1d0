"""The HTTP face of a gateway."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final

import msgspec
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from tidegate.errors import (
    BrokerUnavailable,
    InvalidChannelName,
    InvalidEvent,
    SnapshotAhead,
    StreamDenied,
    UnknownNamespace,
)
from tidegate.gateway.brokers.base import PublishError
from tidegate.gateway.frames import event_envelope
from tidegate.gateway.names import checked_name
from tidegate.gateway.openapi import document
from tidegate.gateway.payloads import (
    ChannelList,
    PublishAnswer,
    RemovedAnswer,
    StoredAnswer,
    channel_cursor,
    outcome,
    parse_history_query,
    parse_publish,
    parse_snapshot,
    parse_stream_body,
    parse_stream_query,
)
from tidegate.gateway.streams import denial
from tidegate.stream import EventStream
from tidegate.stream.answers import by_method, error_answer, json_answer, json_errors
from tidegate.stream.bodies import BodyError, body_error_answer, read_body
from tidegate.stream.event_stream import raw_cursor_of
from tidegate.stream.input import BadInput
from tidegate.stream.opening import OpeningDenied, OpeningRefused
from tidegate.stream.refusal import refuse, retry_after

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from contextlib import AbstractAsyncContextManager

    from starlette.types import Receive, Scope, Send

    from tidegate.gateway.brokers.base import PublishRequest
    from tidegate.gateway.gateway import Gateway
    from tidegate.gateway.subscription import StreamRequest

    Endpoint = Callable[[Request], Awaitable[Response]]

__all__ = ["GatewayRoutes"]

_log = logging.getLogger("tidegate.gateway")

_SNAPSHOT_SECONDS: Final = 30.0


class GatewayRoutes:
    """The routes of a `Gateway`, as a list and as an ASGI app.

    Args:
        gateway: whose.
        max_body_bytes: how large a request's body may be.
        max_channels: how many channels a stream may have.
        stream_options: for every `EventStream`.
        lifespan: entered where the app is served by itself, not mounted.
        rng: draws from [0, 1), for jitter.
    """

    def __init__(
        self,
        gateway: Gateway,
        *,
        max_body_bytes: int,
        max_channels: int,
        stream_options: dict[str, Any],
        lifespan: Callable[[Any], AbstractAsyncContextManager[dict[str, Any]]],
        rng: Callable[[], float],
    ) -> None:
        self._gateway = gateway
        self._max_body_bytes = max_body_bytes
        self._max_channels = max_channels
        self._stream_options = stream_options
        self._rng = rng
        one = "/v1/channels/{channel}"
        table: dict[str, dict[str, Endpoint]] = {
            "/v1/stream": {"GET": self._stream, "POST": self._stream_of_body},
            "/v1/publish": {"POST": self._publish},
            "/v1/channels": {"GET": self._channels},
            one: {"GET": self._channel},
            f"{one}/history": {"GET": self._history, "DELETE": self._remove_history},
            f"{one}/snapshot": {"GET": self._get_snapshot, "PUT": self._put_snapshot},
            "/v1/openapi.json": {"GET": self._openapi},
        }
        self.routes = [
            Route(path, self._answered(by_method(endpoints)), methods=list(endpoints))
            for path, endpoints in table.items()
        ]
        self._app = Starlette(
            routes=self.routes, exception_handlers=json_errors(), lifespan=lifespan
        )
        self._app.router.redirect_slashes = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        await self._app(scope, receive, send)

    def _answered(self, endpoint: Endpoint) -> Endpoint:
        """Turn what an endpoint raises on purpose into an answer."""

        async def answer(request: Request) -> Response:
            try:
                return await endpoint(request)
            except BadInput as bad:
                return error_answer(400, bad.code, bad.error)
            except InvalidEvent as bad:
                return error_answer(400, bad.code, bad.problem)
            except InvalidChannelName as bad:
                return error_answer(400, "invalid_channel", str(bad))
            except UnknownNamespace as bad:
                return error_answer(400, "unknown_namespace", str(bad))
            except SnapshotAhead as conflict:
                return error_answer(409, "snapshot_ahead", str(conflict))
            except OpeningDenied as denied:
                return error_answer(denied.status, denied.code, denied.error)
            except BrokerUnavailable as error:
                return self._broker_unavailable(str(error))
            except BodyError as error:
                return body_error_answer(error, self._max_body_bytes, rng=self._rng)
            except ClientDisconnect:
                # Nobody is there to read it.
                return Response(status_code=400)

        return answer

    def _broker_unavailable(self, error: str) -> Response:
        return error_answer(503, "broker_unavailable", error, retry_after(self._rng))

    async def _body(self, request: Request) -> bytes:
        return await read_body(request, self._max_body_bytes, drain=self._gateway.drain)

    # -- streams ---------------------------------------------------------------------------

    async def _stream(self, request: Request) -> Response:
        asked = parse_stream_query(
            request.query_params, raw_cursor_of(request), max_channels=self._max_channels
        )
        return self._stream_of(request, asked)

    async def _stream_of_body(self, request: Request) -> Response:
        body = await self._body(request)
        asked = parse_stream_body(body, raw_cursor_of(request), max_channels=self._max_channels)
        return self._stream_of(request, asked)

    def _stream_of(self, request: Request, asked: StreamRequest) -> Response:
        unknown: dict[str, str] = {}
        for name in asked.channels:
            try:
                self._gateway.namespaces.of(name)
            except UnknownNamespace:
                unknown[name] = "unknown_namespace"
        if len(unknown) == len(asked.channels):
            # Not left to the opening of the stream: HEAD is to get the same status.
            raise denial(StreamDenied(unknown))
        if request.method == "HEAD" and not self._gateway.drain.draining:
            refusal = self._refusal_of(asked, unknown)
            if refusal is not None:
                return self._refuse(request, refusal)
        source = self._gateway.subscription_of(asked)
        return EventStream(source, request, **self._stream_options)

    def _refusal_of(self, asked: StreamRequest, denied: dict[str, str]) -> OpeningRefused | None:
        """Tell why ``GET`` would be refused for now, as far as this node knows by itself.

        Args:
            asked: the stream.
            denied: the channels that it does not get, and why; more are added.

        Raises:
            OpeningDenied: it gets none of its channels.
        """
        node = self._gateway.node
        here = {channel.name: channel for channel in node.channels()}
        for name in asked.channels:
            limit = None if name in denied else self._gateway.namespaces.of(name).max_subscribers
            if limit is not None and name in here and len(here[name].members) >= limit:
                denied[name] = "subscriber_limit"
        wanted = [name for name in asked.channels if name not in denied]
        if not wanted:
            answer = denial(StreamDenied(denied))
            if isinstance(answer, OpeningDenied):
                raise answer
            return answer
        # Live events of channels that are here already begin without the broker.
        asks = asked.tail is not None or asked.from_beginning or any(n not in here for n in wanted)
        if asks and not node.available:
            return OpeningRefused("broker_unavailable", "the broker is away")
        return None

    def _refuse(self, request: Request, refusal: OpeningRefused) -> Response:
        options = self._stream_options
        return refuse(
            request.scope,
            refusal.kind,
            refusal.error,
            form=options["refusal"],
            rng=options["rng"],
            clock=options["clock"],
        )

    # -- publishing ------------------------------------------------------------------------

    async def _publish(self, request: Request) -> Response:
        items = parse_publish(await self._body(request))
        requests: list[PublishRequest] = []
        for number, item in enumerate(items):
            where = f"event {number}: " if len(items) > 1 else ""
            try:
                requests += self._gateway.encode(item.publishable(), item.targets)
            except InvalidEvent as bad:
                raise BadInput(bad.code, f"{where}{bad.problem}") from None
            except InvalidChannelName as bad:
                raise BadInput("invalid_channel", f"{where}{bad}") from None
        results = await self._gateway.publish_encoded(requests)
        failures = [result for result in results if isinstance(result, PublishError)]
        if failures and len(failures) == len(results):
            codes = {failure.code for failure in failures}
            if codes == {"broker_unavailable"}:
                return self._broker_unavailable(failures[0].error)
        return json_answer(PublishAnswer([outcome(result) for result in results]))

    # -- channels --------------------------------------------------------------------------

    def _name(self, request: Request) -> str:
        name = checked_name(request.path_params["channel"])
        self._gateway.namespaces.of(name)
        return name

    async def _channels(self, _: Request) -> Response:
        return json_answer(ChannelList(self._gateway.channels()))

    async def _channel(self, request: Request) -> Response:
        return json_answer(await self._gateway.channel(self._name(request)))

    async def _history(self, request: Request) -> Response:
        name = self._name(request)
        after, limit = parse_history_query(request.query_params)
        page = await self._gateway.history(name, after=after, limit=limit)
        return json_answer(
            {
                "events": [msgspec.Raw(event_envelope(name, one)) for one in page.publications],
                "epoch": page.head.epoch,
                "position": page.head.position,
                "complete": page.complete,
            }
        )

    async def _remove_history(self, request: Request) -> Response:
        name = self._name(request)
        head = await self._gateway.remove_history(name)
        return json_answer(RemovedAnswer(name, head.epoch, head.position))

    async def _put_snapshot(self, request: Request) -> Response:
        name = self._name(request)
        given = parse_snapshot(await self._body(request))
        stored = await self._gateway.put_snapshot(name, given.state, given.position)
        cursor = channel_cursor(name, stored.epoch, stored.position)
        return json_answer(StoredAnswer(stored.position, stored.epoch, cursor))

    async def _get_snapshot(self, request: Request) -> Response:
        name = self._name(request)
        try:
            async with asyncio.timeout(_SNAPSHOT_SECONDS):
                snapshot = await self._gateway.get_snapshot(name)
        except BrokerUnavailable:
            raise
        except TimeoutError:
            _log.warning("the snapshot of channel %s did not come in time", name)
            error = "the channel's state could not be had in time; try again"
            return error_answer(503, "snapshot_timeout", error, retry_after(self._rng))
        except Exception:  # noqa: BLE001 - the provider is a user's code
            _log.exception("the snapshot of channel %s could not be had", name)
            error = "the channel's state could not be computed"
            return error_answer(500, "snapshot_failed", error)
        if snapshot is None:
            return error_answer(404, "snapshot_not_found", f"the channel {name} has no snapshot")
        return json_answer(
            {
                "state": msgspec.Raw(snapshot.state),
                "position": snapshot.position,
                "epoch": snapshot.epoch,
                "cursor": channel_cursor(name, snapshot.epoch, snapshot.position),
            }
        )

    async def _openapi(self, request: Request) -> Response:
        return json_answer(document(server=request.scope.get("root_path") or "/"))
