"""Sinks of a broker for tests: one that keeps what it is told, and one that tells it badly."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Protocol

import msgspec

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from tidegate.gateway.brokers.base import BrokerSink, Head, Publication

__all__ = ["FaultySink", "MessageFaults", "RecordingSink", "TimerLoop"]


class TimerLoop(Protocol):
    """What of an event loop is used to deliver later."""

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: object
    ) -> asyncio.TimerHandle:
        """Call ``callback`` in ``delay`` seconds."""


class RecordingSink:
    """Keeps what a broker tells it.

    Attributes:
        delivered: the publications of each channel, as they came.
        resets: the heads of each channel that began anew.
        connected: what the last of `on_disconnected` and `on_reconnected` said.
        strangers: calls that came from another thread than the one that made the sink.
    """

    def __init__(self) -> None:
        self.delivered: dict[str, list[Publication]] = {}
        self.resets: dict[str, list[Head]] = {}
        self.connected = True
        self.strangers = 0
        self._thread = threading.get_ident()
        self._changed = asyncio.Event()

    def of(self, channel: str) -> list[Publication]:
        """Return what was delivered of a channel, as it came."""
        return self.delivered.get(channel, [])

    def on_publication(self, channel: str, publication: Publication) -> None:
        """Keep it."""
        self.delivered.setdefault(channel, []).append(publication)
        self._note()

    def on_reset(self, channel: str, head: Head) -> None:
        """Keep it."""
        self.resets.setdefault(channel, []).append(head)
        self._note()

    def on_disconnected(self) -> None:
        """Keep it."""
        self.connected = False
        self._note()

    def on_reconnected(self) -> None:
        """Keep it."""
        self.connected = True
        self._note()

    async def until(self, condition: Callable[[], object], seconds: float, what: str) -> None:
        """Wait until the condition holds, looking again after each call.

        Raises:
            AssertionError: it did not within the time; ``what`` says what was waited for.
        """
        try:
            async with asyncio.timeout(seconds):
                while not condition():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise AssertionError(f"not within {seconds:g} s: {what}") from None

    def _note(self) -> None:
        if threading.get_ident() != self._thread:
            self.strangers += 1
            return
        self._changed.set()


class MessageFaults(msgspec.Struct, kw_only=True):
    """How badly messages travel; may be changed at any time.

    Attributes:
        lose: the share of messages that never come.
        delay: the share that comes late, and so perhaps behind later ones.
        double: the share that comes twice.
        swap: the share that comes behind its successor.
        max_delay: how late, in seconds, at most.
    """

    lose: float = 0.0
    delay: float = 0.0
    double: float = 0.0
    swap: float = 0.0
    max_delay: float = 0.05

    def stop(self) -> None:
        """From now on all messages travel well."""
        self.lose = self.delay = self.double = self.swap = 0.0


class FaultySink:
    """Stands between a broker and its sink: loses, delays, doubles and reorders messages.

    A broker's messages are hints, so a node has to get over all of it. Resets travel as badly
    as events; what is said of the connection always comes.

    Args:
        sink: who is told in the end.
        faults: how badly.
        rng: decides for each message.
        loop: whose timers deliver late messages; by default the running loop.

    Attributes:
        counts: how many messages were lost, delayed, doubled, swapped and taken in all.
        faults: as given.
    """

    def __init__(
        self,
        sink: BrokerSink,
        faults: MessageFaults,
        rng: random.Random,
        *,
        loop: TimerLoop | None = None,
    ) -> None:
        self._sink = sink
        self.faults = faults
        self._rng = rng
        self._loop = loop if loop is not None else asyncio.get_running_loop()
        self._held: dict[str, Callable[[], None]] = {}
        self._closed = False
        self.counts = {"messages": 0, "lost": 0, "delayed": 0, "doubled": 0, "swapped": 0}

    def on_publication(self, channel: str, publication: Publication) -> None:
        """Pass it on: now, later, twice, or never."""
        self._pass(channel, lambda: self._sink.on_publication(channel, publication))

    def on_reset(self, channel: str, head: Head) -> None:
        """Pass it on: now, later, twice, or never."""
        self._pass(channel, lambda: self._sink.on_reset(channel, head))

    def on_disconnected(self) -> None:
        """Pass it on."""
        self._sink.on_disconnected()

    def on_reconnected(self) -> None:
        """Pass it on."""
        self._sink.on_reconnected()

    def close(self) -> None:
        """Drop what is under way: the sink is told nothing any more."""
        self._closed = True
        self._held.clear()

    def _pass(self, channel: str, tell: Callable[[], None]) -> None:
        draw = self._rng.random
        faults = self.faults
        self.counts["messages"] += 1
        held = self._held.pop(channel, None)
        if draw() < faults.lose:
            self.counts["lost"] += 1
        elif draw() < faults.swap and held is None:
            self.counts["swapped"] += 1
            self._held[channel] = tell
            return
        elif draw() < faults.delay:
            self.counts["delayed"] += 1
            self._later(tell)
        else:
            self._now(tell)
        if draw() < faults.double:
            self.counts["doubled"] += 1
            self._later(tell)
        if held is not None:
            self._now(held)

    def _now(self, tell: Callable[[], None]) -> None:
        if not self._closed:
            tell()

    def _later(self, tell: Callable[[], None]) -> None:
        self._loop.call_later(self._rng.uniform(0.0, self.faults.max_delay), self._now, tell)
