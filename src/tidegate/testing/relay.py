"""A broker whose messages to its node travel badly, while its history stays whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.gateway.brokers.base import HISTORY_LIMIT
from tidegate.testing.sinks import FaultySink

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable, Sequence

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
    from tidegate.testing.sinks import MessageFaults

__all__ = ["BadRelay"]


class BadRelay:
    """Any broker, with a `FaultySink` between it and its node; itself a broker.

    Args:
        broker: not yet started.
        faults: how badly messages travel; may be changed at any time.
        rng: decides for each message.
    """

    def __init__(self, broker: Broker, faults: MessageFaults, rng: random.Random) -> None:
        self._broker = broker
        self._faults = faults
        self._rng = rng
        self._sink: FaultySink | None = None

    @property
    def capabilities(self) -> BrokerCapabilities:
        """Those of the broker."""
        return self._broker.capabilities

    @property
    def counts(self) -> dict[str, int]:
        """How many messages were lost, delayed, doubled, swapped and taken in all."""
        return {} if self._sink is None else dict(self._sink.counts)

    async def start(self, sink: BrokerSink) -> None:
        """Start the broker; it tells ``sink`` badly from now on."""
        self._sink = FaultySink(sink, self._faults, self._rng)
        await self._broker.start(self._sink)

    async def stop(self) -> None:
        """Stop the broker; what is under way is dropped."""
        await self._broker.stop()
        if self._sink is not None:
            self._sink.close()

    async def publish(self, batch: Sequence[PublishRequest]) -> list[PublishResult | PublishError]:
        """As the broker does."""
        return await self._broker.publish(batch)

    async def subscribe(self, channels: Iterable[str]) -> dict[str, Head]:
        """As the broker does."""
        return await self._broker.subscribe(channels)

    async def unsubscribe(self, channels: Iterable[str]) -> None:
        """As the broker does."""
        await self._broker.unsubscribe(channels)

    async def history(
        self,
        channel: str,
        *,
        after: str | None = None,
        limit: int = HISTORY_LIMIT,
        newest_first: bool = False,
    ) -> HistoryPage:
        """As the broker does."""
        return await self._broker.history(
            channel, after=after, limit=limit, newest_first=newest_first
        )

    async def heads(self, channels: Iterable[str]) -> dict[str, Head]:
        """As the broker does."""
        return await self._broker.heads(channels)

    async def remove_history(self, channel: str) -> Head:
        """As the broker does."""
        return await self._broker.remove_history(channel)

    async def put_snapshot(self, channel: str, state: bytes, position: str) -> Snapshot:
        """As the broker does."""
        return await self._broker.put_snapshot(channel, state, position)

    async def get_snapshot(self, channel: str) -> Snapshot | None:
        """As the broker does."""
        return await self._broker.get_snapshot(channel)
