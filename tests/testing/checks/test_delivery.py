"""Each check of the delivery catches brokers that are wrong, and lets a right one pass."""

import asyncio

import pytest

from tests.testing.planted import MemoryBroker, failures
from tidegate.gateway.brokers.base import BrokerCapabilities
from tidegate.testing import FaultyStore
from tidegate.testing.checks import delivery


class DeliversNothing(MemoryBroker):
    async def subscribe(self, channels):
        return await self.heads(channels)


class SubscribesBehindTheHead(MemoryBroker):
    async def subscribe(self, channels):
        heads = await self.heads(channels)
        await asyncio.sleep(0)
        self._subscribed.update(heads)
        return heads


class TogglesSubscriptions(MemoryBroker):
    async def subscribe(self, channels):
        heads = await self.heads(channels)
        self._subscribed ^= set(heads)
        return heads


class NeverUnsubscribes(MemoryBroker):
    async def unsubscribe(self, channels):
        pass


class DeliversEverything(MemoryBroker):
    async def publish(self, batch):
        self._subscribed.update(item.channel for item in batch)
        return await super().publish(batch)


class KeepsTheEpoch(MemoryBroker):
    async def remove_history(self, channel):
        (epoch,) = {head.epoch for head in (await self.heads([channel])).values()}
        await super().remove_history(channel)
        self._store._channels[channel].epoch = epoch
        return (await self.heads([channel]))[channel]


class TellsNobodyOfRemovals(MemoryBroker):
    async def remove_history(self, channel):
        return self._store.remove_history(channel, self._clock())


class KeepsSnapshots(MemoryBroker):
    async def remove_history(self, channel):
        snapshot = self._store._channels[channel].snapshot
        head = await super().remove_history(channel)
        self._store._channels[channel].snapshot = snapshot
        return head


class RemovesInTwoSteps(MemoryBroker):
    async def remove_history(self, channel):
        head = await super().remove_history(channel)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        self._store._channels[channel].clear()
        return head


class ClaimsToBeShared(MemoryBroker):
    capabilities = BrokerCapabilities(durable=False, shared=True)


@pytest.mark.parametrize(
    ("broker", "check"),
    [
        (DeliversNothing, "subscribe_takes_many_channels"),
        (SubscribesBehindTheHead, "a_subscriber_gets_every_event_after_the_head"),
        (TogglesSubscriptions, "subscribing_again_is_harmless"),
        (NeverUnsubscribes, "unsubscribe_ends_the_delivery"),
        (DeliversEverything, "nobody_is_told_of_other_channels"),
        (KeepsTheEpoch, "a_removed_history_is_a_new_epoch"),
        (TellsNobodyOfRemovals, "a_removed_history_is_a_new_epoch"),
        (KeepsSnapshots, "a_removed_history_is_a_new_epoch"),
        (RemovesInTwoSteps, "removing_while_others_publish_leaves_one_chain"),
        (ClaimsToBeShared, "nodes_share_one_history"),
    ],
)
async def test_a_wrong_broker_is_caught(broker, check):
    assert await failures(broker, check) == {check}


@pytest.mark.parametrize("check", [check.__name__ for check in delivery.CHECKS])
async def test_a_right_broker_passes(check):
    assert await failures(MemoryBroker, check, patience=10.0) == set()


async def test_a_shared_broker_passes():
    store = FaultyStore()
    assert await failures(store.broker, "nodes_share_one_history", patience=10.0) == set()
