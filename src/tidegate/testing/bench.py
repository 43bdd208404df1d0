"""What a check of the broker's contract works with."""

from __future__ import annotations

import asyncio
import inspect
import random
import time
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from tidegate.gateway.brokers.base import HistoryPolicy, PublishRequest, PublishResult
from tidegate.testing.report import CheckSkipped
from tidegate.testing.sinks import RecordingSink

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Sequence

    from tidegate.gateway.brokers.base import (
        Broker,
        BrokerSink,
        HistoryPage,
        Publication,
        PublishError,
    )
    from tidegate.testing.clocks import ManualClock
    from tidegate.testing.faults import BrokerFaults

__all__ = [
    "Bench",
    "Check",
    "assert_linked",
    "linked_from",
    "read_all",
    "requests_for",
    "stored",
    "takes_clock",
]

Check = Callable[["Bench"], Awaitable[None]]
"""One check: an async function whose name and first line of docstring are shown."""


class Bench:
    """Makes brokers for the checks, and names of channels that no one has used.

    Args:
        make_broker: returns a fresh broker; it is given a ``clock`` if it takes one.
        faults: what can be done to the broker's store from outside.
        seed: of all randomness.
        patience: how long a check waits for what has to happen, in seconds.
        clock: what the brokers are to go by, if ``make_broker`` takes one.

    Attributes:
        patience: as given.
        rng: seeded.
        clock: what the brokers go by, or ``None`` where they have a clock of their own.
    """

    def __init__(
        self,
        make_broker: Callable[..., Broker],
        *,
        faults: BrokerFaults | None,
        seed: int,
        patience: float,
        clock: ManualClock | None = None,
    ) -> None:
        self._make_broker = make_broker
        self._faults = faults
        self.patience = patience
        self.rng = random.Random(seed)  # noqa: S311 - nothing secret
        # Names are unique per run, so that what a durable store kept of others does not matter.
        self._run = f"{time.time_ns():x}"
        self._serial = 0
        self.clock = clock

    def channel(self) -> str:
        """Return a name that no one has used."""
        self._serial += 1
        return f"check:{self._run}.{self._serial}"

    def channels(self, count: int) -> list[str]:
        """Return names that no one has used."""
        return [self.channel() for _ in range(count)]

    def make(self) -> Broker:
        """Return a fresh broker, not yet started."""
        if self.clock is None:
            return self._make_broker()
        return self._make_broker(clock=self.clock)

    @asynccontextmanager
    async def started(self, sink: BrokerSink) -> AsyncIterator[Broker]:
        """Run a fresh broker."""
        broker = self.make()
        try:
            await broker.start(sink)
            yield broker
        finally:
            await broker.stop()

    @asynccontextmanager
    async def broker(self) -> AsyncIterator[tuple[Broker, RecordingSink]]:
        """Run a fresh broker, and keep what it tells."""
        sink = RecordingSink()
        async with self.started(sink) as broker:
            yield broker, sink

    @property
    def faults(self) -> BrokerFaults:
        """What can be done to the store.

        Raises:
            CheckSkipped: nothing.
        """
        if self._faults is None:
            raise CheckSkipped("no faults were given")
        return self._faults

    def need_durable(self) -> None:
        """Go on only where the history survives its broker.

        Raises:
            CheckSkipped: it does not.
        """
        if not self.make().capabilities.durable:
            raise CheckSkipped("the broker is not durable")

    def need_shared(self) -> None:
        """Go on only where several brokers share a store.

        Raises:
            CheckSkipped: they cannot.
        """
        if not self.make().capabilities.shared:
            raise CheckSkipped("the broker is not shared")

    def need_clock(self) -> ManualClock:
        """Return the clock.

        Raises:
            CheckSkipped: the brokers have one of their own.
        """
        if self.clock is None:
            raise CheckSkipped("make_broker takes no clock")
        return self.clock

    async def pass_time(self, seconds: float) -> None:
        """Let so much time pass for the broker."""
        if self.clock is not None:
            self.clock.advance(seconds)
        else:
            await asyncio.sleep(seconds)

    async def eventually(self, condition: Callable[[], Awaitable[object]], what: str) -> None:
        """Ask again until the answer is yes.

        Raises:
            AssertionError: it was not within `patience`; ``what`` says what was waited for.
        """
        now = asyncio.get_running_loop().time
        deadline = now() + self.patience
        while not await condition():
            assert now() < deadline, f"not within {self.patience:g} s: {what}"
            await asyncio.sleep(0.01)


def takes_clock(make_broker: Callable[..., Broker]) -> bool:
    """Tell whether brokers can be given a clock."""
    try:
        parameters = inspect.signature(make_broker).parameters.values()
    except (TypeError, ValueError):
        return False
    return any(
        parameter.kind is parameter.VAR_KEYWORD
        or (parameter.name == "clock" and parameter.kind is not parameter.POSITIONAL_ONLY)
        for parameter in parameters
    )


def requests_for(
    channel: str, texts: Iterable[object], *, size: int = 1000, ttl: float = 3600.0, **more: Any
) -> list[PublishRequest]:
    """Make one request for each text; ``more`` goes into each of them."""
    policy = HistoryPolicy(size=size, ttl=ttl, idempotency_ttl=more.pop("idempotency_ttl", 3600.0))
    return [
        PublishRequest(
            channel=channel,
            type="checked",
            payload=b'{"data":"%s","_meta":{}}' % str(text).encode(),
            policy=policy,
            **more,
        )
        for text in texts
    ]


def stored(
    results: Sequence[PublishResult | PublishError], many: int | None = None
) -> list[PublishResult]:
    """Return the results if all are of stored events.

    Raises:
        AssertionError: one is an error, or there are not as many as wanted.
    """
    found: list[PublishResult] = []
    for result in results:
        assert isinstance(result, PublishResult), f"a publish failed: {result}"
        found.append(result)
    assert many is None or len(found) == many, f"{len(found)} results for {many} requests"
    return found


def assert_linked(
    publications: Sequence[Publication], *, prev: str | None = None, epoch: str | None = None
) -> None:
    """Check that events stand in one chain.

    Args:
        publications: oldest first.
        prev: the position before the first; ``None`` for any.
        epoch: their epoch; ``None`` for any.

    Raises:
        AssertionError: a link or an epoch does not fit, or positions do not grow.
    """
    for index, event in enumerate(publications):
        if prev is not None:
            assert event.prev == prev, (
                f"event {index} at {event.position} names {event.prev!r} as the one before it, "
                f"which is {prev!r}"
            )
        assert event.prev < event.position, f"{event.position} sorts before its prev {event.prev}"
        epoch = event.epoch if epoch is None else epoch
        assert event.epoch == epoch, f"{event.position} is of epoch {event.epoch}, not {epoch}"
        prev = event.position


def linked_from(
    delivered: Iterable[Publication], epoch: str, position: str, head: str
) -> list[Publication] | None:
    """Order what was delivered into the chain from a place to a head; ``None`` if one is missing.

    Args:
        delivered: in any order, perhaps with others and some twice.
        epoch: the place's.
        position: the place; its event is not part of the answer.
        head: the last one wanted.
    """
    following = {event.prev: event for event in delivered if event.epoch == epoch}
    chain: list[Publication] = []
    while position != head:
        event = following.get(position)
        if event is None:
            return None
        chain.append(event)
        position = event.position
    return chain


async def read_all(broker: Broker, channel: str, *, limit: int = 1000) -> list[HistoryPage]:
    """Read a channel's history page by page, oldest first."""
    pages: list[HistoryPage] = []
    after: str | None = None
    while True:
        page = await broker.history(channel, after=after, limit=limit)
        pages.append(page)
        if page.complete:
            return pages
        assert page.publications, "an empty page says that something lies beyond it"
        after = page.publications[-1].position
