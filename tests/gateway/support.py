"""A node over a real store whose deliveries and answers a test can hold, lose and disturb."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import msgspec

from tests.servers import eventually
from tidegate.errors import BrokerUnavailable
from tidegate.gateway.brokers.base import HistoryPolicy, PublishRequest
from tidegate.gateway.brokers.memory import MemoryBroker
from tidegate.gateway.namespaces import Namespace, Namespaces
from tidegate.gateway.node import Node
from tidegate.gateway.subscription import StreamRequest


class HeldBroker(MemoryBroker):
    """A memory broker between whose store and whose sink a test can step.

    Attributes:
        holding: messages are kept in ``held`` instead of delivered.
        calls: the operations called, by name, with their arguments.
        gates: an operation waits for the event that stands under its name.
        failures: an operation raises what stands under its name.
        lost: an operation is carried out, and then raises what stands under its name.
    """

    def __init__(self, **options):
        super().__init__(**options)
        self.holding = False
        self.held = []
        self.calls = []
        self.gates = {}
        self.failures = {}
        self.lost = {}

    async def start(self, sink):
        self.outer = sink
        await super().start(_Holding(self, sink))

    def release(self, *numbers):
        """Deliver held messages: those of these numbers, or all in their order."""
        messages = [self.held[n] for n in numbers] if numbers else self.held
        for channel, publication in list(messages):
            self.outer.on_publication(channel, publication)
        if not numbers:
            self.held.clear()

    async def subscribe(self, channels):
        channels = list(channels)
        return await self._guarded(
            "subscribe", channels, lambda: super(HeldBroker, self).subscribe(channels)
        )

    async def unsubscribe(self, channels):
        channels = list(channels)
        return await self._guarded(
            "unsubscribe", channels, lambda: super(HeldBroker, self).unsubscribe(channels)
        )

    async def history(self, channel, **options):
        return await self._guarded(
            "history",
            (channel, options),
            lambda: super(HeldBroker, self).history(channel, **options),
        )

    async def heads(self, channels):
        channels = list(channels)
        return await self._guarded(
            "heads", channels, lambda: super(HeldBroker, self).heads(channels)
        )

    async def _guarded(self, name, arguments, call):
        self.calls.append((name, arguments))
        if name in self.gates:
            await self.gates[name].wait()
        if name in self.failures:
            raise self.failures[name]
        answer = await call()
        if name in self.lost:
            raise self.lost[name]
        return answer

    def count(self, name):
        return sum(called == name for called, _ in self.calls)


class _Holding:
    def __init__(self, broker, sink):
        self._broker = broker
        self._sink = sink

    def on_publication(self, channel, publication):
        if self._broker.holding:
            self._broker.held.append((channel, publication))
        else:
            self._sink.on_publication(channel, publication)

    def __getattr__(self, name):
        return getattr(self._sink, name)


def unavailable():
    return BrokerUnavailable("the broker is away")


def payload(data):
    return msgspec.json.encode({"data": data, "_meta": {"serverTimestamp": 1}})


class Hub:
    """A node, its broker, and short words for what tests do with them."""

    def __init__(self, node, broker):
        self.node = node
        self.broker = broker

    async def publish(self, channel, *data, **options):
        policy = self.node.namespaces.policy_of(channel)
        batch = [
            PublishRequest(
                channel=channel, type="m", payload=payload(one), policy=policy, **options
            )
            for one in data
        ]
        results = await self.broker.publish(batch)
        return [result.position for result in results]

    def stream(self, *channels, **options):
        return self.node.subscribe(StreamRequest(channels=channels, **options))

    async def joined(self, *channels, **options):
        stream = self.stream(*channels, **options)
        await stream.joined()
        return stream


@asynccontextmanager
async def hub(*namespaces, broker=None, **options):
    broker = HeldBroker() if broker is None else broker
    node = Node(broker, Namespaces(namespaces), name="n", **options)
    await node.start()
    try:
        yield Hub(node, broker)
    finally:
        await node.stop()
        await broker.stop()


class Reader:
    """Takes a stream's frames and remembers them."""

    def __init__(self, stream):
        self.stream = stream
        self.frames = []

    def take(self):
        while taken := self.stream.take():
            self.frames += taken
        return self

    async def until(self, condition):
        """Take until a condition on this reader holds."""
        await eventually(lambda: condition(self.take()))
        return self

    async def until_types(self, *types):
        return await self.until(lambda reader: reader.types[-len(types) :] == list(types))

    async def events(self, *data):
        """Take until exactly these events have come, by what they carry."""
        await self.until(lambda reader: len(reader.data) >= len(data))
        assert self.data == list(data)
        return self

    @property
    def types(self):
        return [frame.type for frame in self.frames]

    @property
    def data(self):
        return [frame.data for frame in self.frames if frame.id is not None]

    def of(self, type_):
        return [frame for frame in self.frames if frame.type == type_]

    @property
    def resyncs(self):
        return [frame.data["reason"] for frame in self.of("state_resync_required")]

    @property
    def cursor(self):
        return self.frames[-1].cursor


async def settled(loops=20):
    """Let everything run that can run now."""
    for _ in range(loops):
        await asyncio.sleep(0)


__all__ = [
    "HeldBroker",
    "HistoryPolicy",
    "Hub",
    "Namespace",
    "Reader",
    "hub",
    "payload",
    "settled",
    "unavailable",
]
