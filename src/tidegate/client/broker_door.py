"""A publisher's way straight to a broker, past the nodes.

What it needs of the gateway is imported when it is used: who publishes over HTTP pays nothing.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from tidegate.client.items import Published
from tidegate.client.reconnect import backoff
from tidegate.errors import ClientError, ItemRefused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tidegate.client.items import PublishItem
    from tidegate.gateway.brokers.base import (
        Broker,
        Head,
        Publication,
        PublishError,
        PublishResult,
    )
    from tidegate.gateway.namespaces import Namespace

__all__ = ["BrokerDoor", "NullSink"]

MAX_EVENT_BYTES: Final = 1024 * 1024


class NullSink:
    """Wants to know nothing: whoever only publishes subscribes to nothing."""

    def on_publication(self, channel: str, publication: Publication) -> None:
        """Never comes."""

    def on_reset(self, channel: str, head: Head) -> None:
        """Never comes."""

    def on_disconnected(self) -> None:
        """The next publish will say so."""

    def on_reconnected(self) -> None:
        """Likewise."""


class BrokerDoor:
    """One broker, started and stopped.

    Args:
        broker: its URL, or an object that was not started.
        namespaces: what to keep of which channel.
        retries: whether a publish of which nothing was stored is repeated.
        random: gives a number from 0 up to 1.
        now: the time in seconds since 1970.

    Raises:
        ValueError: two namespaces have the same name.
    """

    def __init__(
        self,
        broker: str | Broker,
        namespaces: Iterable[Namespace],
        *,
        retries: bool,
        random: Callable[[], float],
        now: Callable[[], float],
    ) -> None:
        from tidegate.gateway.namespaces import Namespaces  # noqa: PLC0415 - see above

        self._namespaces = Namespaces(namespaces)
        self._given = broker
        self._broker: Broker | None = None
        self._retries = retries
        self._random = random
        self._now = now

    async def start(self) -> None:
        """Connect.

        Raises:
            BrokerUnavailable: it does not answer.
            ConfigError: the URL is none of a broker that this version has.
            RuntimeError: it was started before.
        """
        from tidegate.gateway.brokers.urls import broker_from_url  # noqa: PLC0415 - see above

        if self._broker is not None:
            raise RuntimeError("a publisher is entered once; make another one")
        broker = broker_from_url(self._given) if isinstance(self._given, str) else self._given
        self._broker = broker
        try:
            await broker.start(NullSink())
        except BaseException:
            await broker.stop()
            raise

    async def stop(self) -> None:
        """Let go of everything. Idempotent."""
        if self._broker is not None:
            await self._broker.stop()

    async def publish(
        self, batch: Sequence[PublishItem], deadline: float
    ) -> list[Published | ItemRefused]:
        """Publish events that have idempotency keys.

        Args:
            batch: the events.
            deadline: seconds in which the call has come to its end.

        Raises:
            ClientError: the broker did not answer in time; they may have been published.
            InvalidEvent: one is none that channels take; nothing was published.
            RuntimeError: it was not started.
            UnknownNamespace: likewise, of a namespace that is not configured.
        """
        from tidegate.gateway.publishing import (  # noqa: PLC0415 - see above
            Publishable,
            encode_event,
            publish_all,
        )

        if self._broker is None:
            raise RuntimeError("write: async with Publisher(broker=…) as publisher: …")
        now_ms = int(self._now() * 1000)
        requests = [
            request
            for item in batch
            for request in encode_event(
                Publishable(
                    channel=item.channel,
                    type=item.type,
                    data=item.data,
                    idempotency_key=item.idempotency_key,
                    version=item.version,
                    tags=item.tags,
                    meta=None if item.meta is None else dict(item.meta),
                ),
                self._namespaces,
                now_ms=now_ms,
                max_event_bytes=MAX_EVENT_BYTES,
            )
        ]
        clock = asyncio.get_running_loop().time
        end = clock() + deadline
        attempt = 0
        while True:
            try:
                async with asyncio.timeout_at(end):
                    told = [_told(result) for result in await publish_all(self._broker, requests)]
            except TimeoutError:
                raise ClientError(f"the broker did not answer within {deadline} s") from None
            wait = backoff(attempt, self._random)
            # Where some are stored, the rest is for the caller: it would come behind them.
            if not self._retries or not all(map(_is_away, told)) or clock() + wait >= end:
                return told
            await asyncio.sleep(wait)
            attempt += 1


def _is_away(result: Published | ItemRefused) -> bool:
    return isinstance(result, ItemRefused) and result.code == "broker_unavailable"


def _told(result: PublishResult | PublishError) -> Published | ItemRefused:
    from tidegate.gateway.brokers.base import PublishError  # noqa: PLC0415 - see above

    if isinstance(result, PublishError):
        return ItemRefused(0, result.code, result.error, result.channel)
    return Published(
        result.channel, result.position, result.epoch, result.duplicate, result.suppressed
    )
