"""Which channels are held here, and what of them the broker is subscribed to."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Final

from tidegate.errors import BrokerUnavailable
from tidegate.gateway.local import CALL_SECONDS, LocalChannel, Phase

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tidegate.gateway.local import ChannelHost
    from tidegate.gateway.namespaces import Namespace

__all__ = ["BATCH", "Hub"]

_log = logging.getLogger("tidegate.gateway")

BATCH: Final = 512
"""How many channels go into one call of a broker."""


class Hub:
    """The channels of one node, from the first who holds one until a while after the last.

    The first subscribes the broker; who comes meanwhile shares that, and a failure reaches all
    of them and leaves nothing behind. When the last has left and nobody has come for a while the
    broker is unsubscribed. A channel's subscribe is never sent while its unsubscribe is under way.

    Args:
        host: the node.
        unsubscribe_delay: seconds that a channel that nobody holds is kept, at the least.
        clock: a time in seconds that only grows.
        options_of: a channel's options by its name; raises `UnknownNamespace`.
    """

    def __init__(
        self,
        host: ChannelHost,
        *,
        unsubscribe_delay: float,
        clock: Callable[[], float],
        options_of: Callable[[str], Namespace],
    ) -> None:
        self._host = host
        self._delay = unsubscribe_delay
        self._clock = clock
        self._options_of = options_of
        self._channels: dict[str, LocalChannel] = {}
        self._vacated: dict[LocalChannel, None] = {}
        self._wanted: dict[str, LocalChannel] = {}
        self._unsubscribing: set[LocalChannel] = set()
        self._flushing = False
        self._closed = False

    def __len__(self) -> int:
        return len(self._channels)

    def __iter__(self) -> Iterator[LocalChannel]:
        return iter(self._channels.values())

    def get(self, name: str) -> LocalChannel | None:
        """Return a channel if it is held here."""
        return self._channels.get(name)

    def channel(self, name: str) -> LocalChannel:
        """Return a channel to join; a new one is subscribed to by `subscribe_soon`.

        Raises:
            UnknownNamespace: no such channel is served.
        """
        channel = self._channels.get(name)
        if channel is None:
            channel = LocalChannel(name, self._options_of(name), self._host, self._clock)
            self._channels[name] = channel
            self._wanted[name] = channel
        elif channel.phase is Phase.LEAVING and channel not in self._unsubscribing:
            # An unsubscribe failed: nobody knows whether the broker still has it.
            channel.phase = Phase.SUBSCRIBING
            self._wanted[name] = channel
        self._vacated.pop(channel, None)
        return channel

    def vacated(self, channel: LocalChannel) -> None:
        """Nobody holds a channel any more: it is given up after a while."""
        channel.vacated_at = self._clock()
        # To the end: they stand in the order in which their time comes.
        self._vacated.pop(channel, None)
        self._vacated[channel] = None

    def close(self) -> None:
        """Forget all channels; the broker is not told."""
        self._closed = True
        for channel in self._channels.values():
            channel.abandon()

    # -- subscribing -----------------------------------------------------------------------

    def subscribe_soon(self) -> None:
        """Subscribe the broker to all that became wanted in this turn of the loop, in one call."""
        if self._wanted and not self._flushing:
            self._flushing = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        # Each batch has a task of its own, so that one that hangs holds up no other.
        self._flushing = False
        while self._wanted and not self._closed:
            batch = dict(list(self._wanted.items())[:BATCH])
            for name in batch:
                del self._wanted[name]
            self._host.start_task(partial(self._subscribe, batch), "subscribe")

    async def _subscribe(self, batch: dict[str, LocalChannel]) -> None:
        try:
            async with asyncio.timeout(CALL_SECONDS):
                heads = await self._host.broker.subscribe(batch)
        except Exception as error:  # noqa: BLE001 - whoever waits for it is told
            problem = error
            if not isinstance(error, BrokerUnavailable):
                _log.warning("subscribe failed: %r", error)
                problem = BrokerUnavailable("the broker did not let the channel be subscribed to")
            self._not_subscribed(batch, problem)
            return
        for name, channel in batch.items():
            channel.ready(heads[name])
            if not channel.members:
                self.vacated(channel)

    def _not_subscribed(self, batch: dict[str, LocalChannel], error: Exception) -> None:
        # First out of the hub, so that whoever tries again meanwhile finds nothing left behind.
        for name in batch:
            del self._channels[name]
        for channel in batch.values():
            channel.abandon()
            channel.failed(error)
            self._vacated.pop(channel, None)
        # It is not known how far the broker got.
        self._host.start_task(partial(self._take_back, list(batch)), "unsubscribe")

    async def _take_back(self, names: list[str]) -> None:
        names = [name for name in names if name not in self._channels]
        try:
            async with asyncio.timeout(CALL_SECONDS):
                await self._host.broker.unsubscribe(names)
        except (BrokerUnavailable, TimeoutError):
            _log.debug("a failed subscribe could not be taken back")

    # -- unsubscribing ---------------------------------------------------------------------

    def give_up_vacated(self) -> None:
        """Unsubscribe the broker from what nobody has held for a while."""
        limit = self._clock() - self._delay
        leaving: list[LocalChannel] = []
        for channel in list(self._vacated):
            if channel.vacated_at > limit:
                break
            del self._vacated[channel]
            busy = channel.phase is Phase.SUBSCRIBING or channel in self._unsubscribing
            if not channel.members and not busy:
                channel.phase = Phase.LEAVING
                leaving.append(channel)
        for start in range(0, len(leaving), BATCH):
            batch = leaving[start : start + BATCH]
            self._unsubscribing.update(batch)
            self._host.start_task(partial(self._unsubscribe, batch), "unsubscribe")

    async def _unsubscribe(self, channels: list[LocalChannel]) -> None:
        done = False
        try:
            async with asyncio.timeout(CALL_SECONDS):
                await self._host.broker.unsubscribe([channel.name for channel in channels])
            done = True
        except Exception as error:  # noqa: BLE001 - tried again until the broker's set is ours
            _log.info("unsubscribe failed, again later: %r", error)
        finally:
            self._unsubscribing.difference_update(channels)
        for channel in channels:
            if channel.members:
                # Somebody came meanwhile: his subscribe wins.
                channel.phase = Phase.SUBSCRIBING
                self._wanted[channel.name] = channel
            elif done:
                del self._channels[channel.name]
                self._vacated.pop(channel, None)
                channel.abandon()
            else:
                self.vacated(channel)
        self.subscribe_soon()
