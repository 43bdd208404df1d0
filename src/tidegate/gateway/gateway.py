"""`Gateway`: many channels over one broker, in this process and over HTTP."""

from __future__ import annotations

import os
import random
import time
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, Self

from tidegate.channel.event import encode_json
from tidegate.channel.options import checked_integer
from tidegate.config import Config, load_config
from tidegate.errors import BrokerUnavailable, InvalidEvent
from tidegate.gateway.brokers.base import PublishError
from tidegate.gateway.cursor import MAX_SLOTS
from tidegate.gateway.names import checked_name
from tidegate.gateway.namespaces import Namespaces
from tidegate.gateway.node import Node
from tidegate.gateway.pacing import Pacer
from tidegate.gateway.payloads import ChannelState
from tidegate.gateway.publishing import (
    Publishable,
    checked_tags,
    encode_event,
    publish_all,
    published,
)
from tidegate.gateway.routes import GatewayRoutes
from tidegate.gateway.snapshots import on_one_line
from tidegate.gateway.streams import StreamSubscription
from tidegate.gateway.subscription import StreamRequest
from tidegate.stream import STATE_KEY, Drain

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from starlette.routing import Route
    from starlette.types import Receive, Scope, Send

    from tidegate.gateway.brokers.base import (
        Broker,
        Head,
        HistoryPage,
        PublishRequest,
        PublishResult,
        Snapshot,
    )
    from tidegate.gateway.iteration import GatewaySubscription
    from tidegate.gateway.namespaces import Namespace
    from tidegate.gateway.publishing import Published
    from tidegate.stream.refusal import RefusalForm

__all__ = ["Gateway"]

_MIB: Final = 1024 * 1024


class Gateway:
    """Many channels, and streams of them, over a broker that may be shared with other nodes.

    Enter it in your application's lifespan, and mount it as an ASGI app or add its ``routes``
    to yours; served by itself, it enters itself. Leaving it ends all streams and stops the
    broker. All of it belongs to one event loop.

    Args:
        broker: a URL, or a `Broker` that has not been started; the gateway starts and stops it.
        namespaces: the channels' options; without any every channel has the defaults, with
            some an unknown namespace is refused.
        node: the node's name; by default a random one.
        heartbeat: see `EventStream`; so are ``retry_ms``, ``write_timeout`` and ``refusal``.
        drain: what ends the streams when the process is to stop; by default one of its own,
            which it enters and leaves with itself. Awaiting ``gateway.drain()`` drains.
        max_body_bytes: how large a request's body may be.
        max_event_bytes: how large data and metadata of an event may be, as JSON.
        max_channels: how many channels a stream over HTTP may have, at most 200.
        unsubscribe_delay: seconds that a channel is kept after its last stream has ended.
        open_to_all: serve unknown namespaces too, with the defaults.
        clock: the time in seconds since 1970.
        rng: draws from [0, 1), for jitter.

    Raises:
        ConfigError: the URL names no broker that there is.
        ValueError: an option is out of its range.
    """

    def __init__(
        self,
        broker: str | Broker = "memory:",
        *,
        namespaces: Iterable[Namespace] = (),
        node: str | None = None,
        heartbeat: float = 15.0,
        retry_ms: int = 3000,
        write_timeout: float = 30.0,
        refusal: RefusalForm = "auto",
        drain: Drain | None = None,
        max_body_bytes: int = _MIB,
        max_event_bytes: int = _MIB,
        max_channels: int = 100,
        unsubscribe_delay: float = 1.0,
        open_to_all: bool = False,
        clock: Callable[[], float] = time.time,
        rng: Callable[[], float] = random.random,
    ) -> None:
        checked_integer("max_body_bytes", max_body_bytes, 1)
        checked_integer("max_event_bytes", max_event_bytes, 1)
        if checked_integer("max_channels", max_channels, 1) > MAX_SLOTS:
            raise ValueError(f"max_channels is at most {MAX_SLOTS}, not {max_channels}")
        if heartbeat <= 0 or write_timeout <= 0:
            raise ValueError("heartbeat and write_timeout must be positive, in seconds")
        self._broker = _broker_of(broker)
        self.namespaces = Namespaces(namespaces, open_to_all=open_to_all)
        self.node = Node(
            self._broker,
            self.namespaces,
            name=node,
            unsubscribe_delay=unsubscribe_delay,
            clock=clock,
            rng=rng,
        )
        self.drain = Drain(retry_ms=retry_ms, rng=rng, clock=clock) if drain is None else drain
        self._owns_drain = drain is None
        self._max_event_bytes = max_event_bytes
        self._clock = clock
        self._pacer = Pacer()
        self._stack: AsyncExitStack | None = None
        self._running = False
        self._http = GatewayRoutes(
            self,
            max_body_bytes=max_body_bytes,
            max_channels=max_channels,
            stream_options={
                "heartbeat": heartbeat,
                "retry_ms": retry_ms,
                "write_timeout": write_timeout,
                "refusal": refusal,
                "drain": self.drain,
                "rng": rng,
                "clock": clock,
            },
            lifespan=self._lifespan,
            rng=rng,
        )

    @classmethod
    def from_config(
        cls,
        path: Config | Path | str | None = None,
        *,
        environ: Mapping[str, str] = os.environ,
        **options: Any,
    ) -> Self:
        """Make a gateway of a ``tidegate.toml`` and the environment.

        Args:
            path: of the file; ``None``: the environment alone. Or what was read of both.
            environ: the environment, ``TIDEGATE__GATEWAY__BROKER`` and so on.
            options: of the gateway; they go before what is configured.

        Raises:
            ConfigError: the file cannot be read, or makes no sense.
        """
        config = path if isinstance(path, Config) else load_config(path, environ=environ)
        gateway = config.gateway
        configured: dict[str, Any] = {
            "broker": gateway.broker_url,
            "namespaces": config.namespaces,
            "node": gateway.node,
            "heartbeat": gateway.heartbeat,
            "retry_ms": gateway.retry_ms,
            "write_timeout": gateway.write_timeout,
            "refusal": config.server.refusal,
            "max_body_bytes": gateway.max_body_bytes,
            "max_event_bytes": gateway.max_event_bytes,
            "max_channels": gateway.max_channels,
            "unsubscribe_delay": gateway.unsubscribe_delay,
        }
        return cls(**configured | options)

    # -- HTTP ------------------------------------------------------------------------------

    @property
    def routes(self) -> list[Route]:
        """The routes, to be put among an application's own."""
        return self._http.routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request: the ASGI face, for mounting or for a server."""
        await self._http(scope, receive, send)

    @asynccontextmanager
    async def _lifespan(self, _: object) -> AsyncIterator[dict[str, Any]]:
        async with self:
            yield {STATE_KEY: self.drain}

    # -- life ------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        """Start.

        Raises:
            BrokerUnavailable: the broker cannot be started.
        """
        if self._stack is not None:
            raise RuntimeError("this Gateway was entered before; make a new one")
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self._broker.stop)
            stack.push_async_callback(self.node.stop)
            await self.node.start()
            if self._owns_drain:
                await stack.enter_async_context(self.drain)
            self._running = True
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._stack is not None  # noqa: S101 - entered
        try:
            await self._stack.aclose()
        finally:
            self._running = False

    def _check_running(self) -> None:
        if not self._running:
            if self._stack is not None:
                raise RuntimeError("this Gateway has been left")
            raise RuntimeError("enter the Gateway first: async with gateway, in the lifespan")

    # -- publishing ------------------------------------------------------------------------

    async def publish(
        self,
        channel: str,
        type: str,  # noqa: A002 - the name of the field on the wire
        data: Any = None,
        *,
        idempotency_key: str | None = None,
        version: int | None = None,
        tags: Mapping[str, str] | None = None,
        meta: dict[str, Any] | None = None,
    ) -> Published:
        """Publish an event; returns when the broker has stored it.

        Events of one channel are stored in the order of the calls. A cancelled call may still
        publish. See `Publishable` for the arguments.

        Raises:
            InvalidChannelName: ``channel`` is none.
            UnknownNamespace: its namespace is not configured.
            InvalidEvent: its code says what of the event is wrong.
            BrokerUnavailable: it is not known to be stored.
        """
        event = Publishable(
            channel=channel,
            type=type,
            data=data,
            idempotency_key=idempotency_key,
            version=version,
            tags=tags,
            meta=meta,
        )
        (result,) = await self.publish_encoded(self.encode(event))
        return published(result)

    async def publish_many(
        self, events: Iterable[Publishable]
    ) -> list[Published | BrokerUnavailable]:
        """Publish events in order; all are checked before the first is published.

        Returns:
            One result for each; an error where an event is not known to be stored.

        Raises:
            InvalidChannelName: as `publish` does; so are the other errors of bad input.
        """
        requests = [request for event in events for request in self.encode(event)]
        results = await self.publish_encoded(requests)
        return [
            BrokerUnavailable(result.error)
            if isinstance(result, PublishError)
            else published(result)
            for result in results
        ]

    def encode(
        self, event: Publishable, channels: Sequence[str] | None = None
    ) -> list[PublishRequest]:
        """Check an event and encode it, for its channel or for others; see `encode_event`."""
        return encode_event(
            event,
            self.namespaces,
            now_ms=int(self._clock() * 1000),
            max_event_bytes=self._max_event_bytes,
            channels=channels,
        )

    async def publish_encoded(
        self, requests: Sequence[PublishRequest]
    ) -> list[PublishResult | PublishError]:
        """Publish what `encode` returned; one result for each, in order."""
        self._check_running()
        return await publish_all(self._broker, requests, pacer=self._pacer)

    # -- subscribing -----------------------------------------------------------------------

    def subscribe(
        self,
        *channels: str,
        cursor: str | None = None,
        tail: int | None = None,
        from_beginning: bool = False,
        tags: Mapping[str, str] | None = None,
        max_queued: int = 256,
        max_queued_bytes: int = 2 * _MIB,
    ) -> GatewaySubscription:
        """Make a subscription: ``async with`` it, or return it from a route as `EventStream`.

        Args:
            channels: their names.
            cursor: what an earlier subscription or stream gave; ``None`` for a new one.
            tail: for channels that the cursor says nothing of: begin with so many events.
            from_beginning: likewise: begin with the oldest event that there is.
            tags: only events that have all of these.
            max_queued: live events that may wait for it.
            max_queued_bytes: their bytes.

        Raises:
            InvalidChannelName: a name is none.
            InvalidEvent: the tags are none that an event could have.
            ValueError: no channel, more than 200, a negative number, or both ``tail`` and
                ``from_beginning``.
        """
        names = tuple(dict.fromkeys(checked_name(name) for name in channels))
        if not 1 <= len(names) <= MAX_SLOTS:
            raise ValueError(f"name 1 to {MAX_SLOTS} channels, not {len(names)}")
        if tail is not None:
            checked_integer("tail", tail, 0)
            if from_beginning:
                raise ValueError("give either tail or from_beginning")
        return self.subscription_of(
            StreamRequest(
                channels=names,
                cursor=cursor or None,
                tail=tail,
                from_beginning=from_beginning,
                tags=checked_tags(tags) if tags else None,
                max_queued=checked_integer("max_queued", max_queued, 1),
                max_queued_bytes=checked_integer("max_queued_bytes", max_queued_bytes, 1),
            )
        )

    def subscription_of(self, request: StreamRequest) -> StreamSubscription:
        """Make a subscription of a request that has been checked."""
        self._check_running()
        return StreamSubscription(self.node, request, drain=self.drain)

    # -- channels --------------------------------------------------------------------------

    def channels(self) -> list[ChannelState]:
        """Return the channels that streams of this node have, as far as this node knows them."""
        self._check_running()
        return [
            ChannelState(one.name, one.chain.epoch, one.chain.head, len(one.members))
            for one in self.node.channels()
        ]

    async def channel(self, name: str) -> ChannelState:
        """Return where a channel is.

        Raises:
            InvalidChannelName: ``name`` is none.
            UnknownNamespace: its namespace is not configured.
            BrokerUnavailable: the broker does not answer.
        """
        self._check(name)
        head = (await self._broker.heads([name]))[name]
        here = next((one for one in self.node.channels() if one.name == name), None)
        return ChannelState(name, head.epoch, head.position, len(here.members) if here else 0)

    async def history(
        self, name: str, *, after: str | None = None, limit: int = 100
    ) -> HistoryPage:
        """Read a part of a channel's history, oldest first.

        Args:
            name: the channel's.
            after: only events behind this position.
            limit: the most events; there may be fewer where they are large.

        Raises:
            InvalidChannelName: as `channel` does; so are the other errors.
        """
        self._check(name)
        checked_integer("limit", limit, 0)
        return await self._broker.history(name, after=after or None, limit=limit)

    async def remove_history(self, name: str) -> Head:
        """Drop a channel's events and snapshot; a new epoch begins, and its streams are told.

        Raises:
            InvalidChannelName: as `channel` does; so are the other errors.
        """
        self._check(name)
        return await self._broker.remove_history(name)

    async def put_snapshot(self, name: str, state: Any, position: str | None = None) -> Snapshot:
        """Store a channel's full state.

        Args:
            name: the channel's.
            state: anything that JSON can express.
            position: the last event that the state takes account of; by default the head.

        Raises:
            InvalidEvent: ``invalid_data``: the state is not JSON.
            SnapshotAhead: the position is none that the channel has reached, or is behind the
                stored snapshot's.
            InvalidChannelName: as `channel` does; so are the other errors.
        """
        self._check(name)
        try:
            encoded = on_one_line(encode_json(state))
        except ValueError as error:
            raise InvalidEvent("invalid_data", f"the state is not JSON: {error}") from error
        if position is None:
            position = (await self._broker.heads([name]))[name].position
        return await self._broker.put_snapshot(name, encoded, position)

    async def get_snapshot(self, name: str) -> Snapshot | None:
        """Return a channel's full state, from where its namespace says; ``None``: there is none.

        Raises:
            Exception: what the namespace's provider raised.
            InvalidChannelName: as `channel` does; so are the other errors.
        """
        self._check(name)
        if self.namespaces.of(name).snapshot is None:
            return await self._broker.get_snapshot(name)
        return await self.node.snapshot_of(name)

    def _check(self, name: str) -> None:
        self.namespaces.of(checked_name(name))
        self._check_running()


def _broker_of(broker: str | Broker) -> Broker:
    if not isinstance(broker, str):
        return broker
    from tidegate.gateway.brokers.urls import broker_from_url  # noqa: PLC0415 - extras

    return broker_from_url(broker)
