"""Each check of snapshots catches brokers that are wrong, and lets a right one pass."""

import msgspec
import pytest

from tests.testing.planted import MemoryBroker, failures
from tidegate.gateway.brokers.base import Snapshot
from tidegate.testing.checks import snapshots


class TakesAnything(MemoryBroker):
    async def put_snapshot(self, channel, state, position):
        (head,) = (await self.heads([channel])).values()
        snapshot = Snapshot(state=state, position=position, epoch=head.epoch)
        self._store._channels[channel].snapshot = snapshot
        return snapshot


class GoesBack(MemoryBroker):
    async def put_snapshot(self, channel, state, position):
        if channel in self._store._channels:
            self._store._channels[channel].snapshot = None
        return await super().put_snapshot(channel, state, position)


class CutsTheState(MemoryBroker):
    async def get_snapshot(self, channel):
        found = await super().get_snapshot(channel)
        return found and msgspec.structs.replace(found, state=found.state[:65536])


@pytest.mark.parametrize(
    ("broker", "check"),
    [
        (CutsTheState, "a_snapshot_comes_back_as_it_was"),
        (TakesAnything, "a_snapshot_only_moves_forward"),
        (GoesBack, "a_snapshot_only_moves_forward"),
    ],
)
async def test_a_wrong_broker_is_caught(broker, check):
    assert await failures(broker, check) == {check}


@pytest.mark.parametrize("check", [check.__name__ for check in snapshots.CHECKS])
async def test_a_right_broker_passes(check):
    assert await failures(MemoryBroker, check, patience=10.0) == set()
