"""A node over a broker that is checked, and clients that read its streams."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Self

from tidegate.errors import BrokerUnavailable
from tidegate.gateway.brokers.base import PublishResult
from tidegate.gateway.namespaces import Namespace, Namespaces
from tidegate.gateway.node import Node
from tidegate.gateway.subscription import StreamRequest
from tidegate.testing.bench import requests_for
from tidegate.testing.relay import BadRelay
from tidegate.testing.sinks import MessageFaults

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tidegate.gateway.subscription import Subscription
    from tidegate.testing.bench import Bench
    from tidegate.testing.watch import StreamWatch

__all__ = ["Site"]


class Site:
    """One node over a fresh broker; an async context manager.

    Args:
        bench: makes the broker.
        size: how many events each channel keeps.
        messages: how badly the broker's messages travel; by default well.

    Attributes:
        broker: of the node.
        node: the node.
    """

    def __init__(
        self, bench: Bench, *, size: int = 1000, messages: MessageFaults | None = None
    ) -> None:
        self._bench = bench
        self._size = size
        faults = MessageFaults() if messages is None else messages
        self.broker = BadRelay(bench.make(), faults, bench.rng)
        namespaces = Namespaces([Namespace(name="check", history_size=size)])
        self.node = Node(self.broker, namespaces, rng=bench.rng.random)
        self._streams: dict[StreamWatch, tuple[tuple[str, ...], Subscription]] = {}

    async def __aenter__(self) -> Self:
        try:
            await self.node.start()
        except BaseException:
            await self.broker.stop()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.node.stop()
        await self.broker.stop()

    def open(self, watch: StreamWatch, channels: Iterable[str]) -> None:
        """Open a stream for a client, where it stopped reading the last one."""
        names = tuple(channels)
        stream = self.node.subscribe(StreamRequest(channels=names, cursor=watch.reopen()))
        self._streams[watch] = (names, stream)

    def cut(self, watch: StreamWatch) -> None:
        """Cut a client's stream."""
        _, stream = self._streams.pop(watch)
        stream.abort()

    def read(self) -> None:
        """Let all clients read what there is; one whose stream has ended comes back."""
        for watch, (names, stream) in list(self._streams.items()):
            while chunk := stream.take_bytes():
                watch.feed(chunk)
            if stream.ended:
                self.open(watch, names)

    async def publish(self, channel: str, texts: Iterable[object]) -> list[PublishResult]:
        """Publish events, one after another, and return the results of those that are stored."""
        done: list[PublishResult] = []
        for request in requests_for(channel, texts, size=self._size):
            (result,) = await self.broker.publish([request])
            if isinstance(result, PublishResult):
                done.append(result)
        return done

    async def until(self, condition: Callable[[], object], what: str) -> None:
        """Let all clients read until the condition holds.

        Raises:
            AssertionError: it did not within the bench's patience.
        """
        now = asyncio.get_running_loop().time
        deadline = now() + self._bench.patience
        while True:
            self.read()
            if condition():
                return
            assert now() < deadline, f"not within {self._bench.patience:g} s: {what}"
            await asyncio.sleep(0.005)

    async def until_at_heads(self, *watches: StreamWatch) -> None:
        """Let all clients read until these are at the heads of all of their channels.

        Raises:
            AssertionError: they did not come there within the bench's patience.
        """
        now = asyncio.get_running_loop().time
        deadline = now() + self._bench.patience
        while behind := [text for watch in watches for text in await self._behind(watch)]:
            assert now() < deadline, f"not within {self._bench.patience:g} s: {behind[0]}"
            self.read()
            await asyncio.sleep(0.01)

    async def _behind(self, watch: StreamWatch) -> list[str]:
        names, _ = self._streams[watch]
        try:
            heads = await self.broker.heads(names)
        except BrokerUnavailable as error:
            return [f"the broker does not answer: {error}"]
        behind: list[str] = []
        for name in names:
            held, head = watch.held.get(name), heads[name]
            if held != (head.epoch, head.position):
                behind.append(f"a client is at {held} of {name}, whose head is {head}")
        return behind
