"""A gateway that says when its broker was asked for history, also as a process of its own.

Run as a program it serves until SIGTERM; ``GET /figures`` says what it has counted.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

from tests.servers import serve_app
from tidegate.gateway import Gateway
from tidegate.gateway.brokers.urls import broker_from_url
from tidegate.gateway.namespaces import Namespace

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Sequence

    from starlette.requests import Request

    from tidegate.gateway.brokers.base import (
        Broker,
        BrokerCapabilities,
        BrokerSink,
        Head,
        HistoryPage,
        PublishError,
        PublishRequest,
        PublishResult,
        Snapshot,
    )

__all__ = ["CountedBroker", "make_app"]


class CountedBroker:
    """Passes everything on to another broker, and notes when history was asked for.

    Args:
        broker: the other one.

    Attributes:
        reads: when, in seconds of `time.monotonic`.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.reads: list[float] = []

    @property
    def capabilities(self) -> BrokerCapabilities:
        return self._broker.capabilities

    async def start(self, sink: BrokerSink) -> None:
        await self._broker.start(sink)

    async def stop(self) -> None:
        await self._broker.stop()

    async def publish(self, batch: Sequence[PublishRequest]) -> list[PublishResult | PublishError]:
        return await self._broker.publish(batch)

    async def subscribe(self, channels: Iterable[str]) -> dict[str, Head]:
        return await self._broker.subscribe(channels)

    async def unsubscribe(self, channels: Iterable[str]) -> None:
        await self._broker.unsubscribe(channels)

    async def history(self, channel: str, **options: Any) -> HistoryPage:
        self.reads.append(time.monotonic())
        return await self._broker.history(channel, **options)

    async def heads(self, channels: Iterable[str]) -> dict[str, Head]:
        return await self._broker.heads(channels)

    async def remove_history(self, channel: str) -> Head:
        return await self._broker.remove_history(channel)

    async def put_snapshot(self, channel: str, state: bytes, position: str) -> Snapshot:
        return await self._broker.put_snapshot(channel, state, position)

    async def get_snapshot(self, channel: str) -> Snapshot | None:
        return await self._broker.get_snapshot(channel)


def make_app(broker_url: str, history_size: int) -> Starlette:
    """Make an application of a gateway, whose channels are all in one namespace."""
    broker = CountedBroker(broker_from_url(broker_url))
    gateway = Gateway(broker, namespaces=[Namespace(history_size=history_size)])

    async def healthz(_: Request) -> JSONResponse:
        return JSONResponse({"status": "alive"})

    async def figures(_: Request) -> JSONResponse:
        counts = msgspec.to_builtins(gateway.node.statistics())
        return JSONResponse({"reads": broker.reads, "node": counts})

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with gateway:
            yield

    return Starlette(
        routes=[Route("/healthz", healthz), Route("/figures", figures), *gateway.routes],
        lifespan=lifespan,
    )


def main() -> int:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--broker", default="memory:")
    parser.add_argument("--history-size", type=int, default=1000)
    asked = parser.parse_args()
    # Before any thread is started, so that none of them gets it.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    with serve_app(make_app(asked.broker, asked.history_size)) as url:
        sys.stdout.write(f"{url}\n")
        sys.stdout.flush()
        signal.sigwait({signal.SIGTERM})
    return 0


if __name__ == "__main__":
    sys.exit(main())
