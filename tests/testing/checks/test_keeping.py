"""Each check of what is kept catches brokers that are wrong, and lets a right one pass."""

import asyncio
import contextlib

import msgspec
import pytest

from tests.testing.planted import MemoryBroker, failures
from tidegate.gateway.brokers import memory
from tidegate.gateway.brokers.base import BrokerCapabilities
from tidegate.gateway.brokers.sqlite import SqliteBroker
from tidegate.testing.checks import keeping

replace = msgspec.structs.replace
LEFT = []


class Sized(MemoryBroker):
    def sized(self, policy):
        raise NotImplementedError

    async def publish(self, batch):
        return await super().publish(
            [replace(item, policy=self.sized(item.policy)) for item in batch]
        )


class KeepsOneMore(Sized):
    def sized(self, policy):
        return replace(policy, size=policy.size + 1)


class KeepsTheLargestSize(Sized):
    largest = 0

    def sized(self, policy):
        self.largest = max(self.largest, policy.size)
        return replace(policy, size=self.largest)


class KeepsOneAlways(Sized):
    def sized(self, policy):
        return replace(policy, size=max(policy.size, 1))


class NeverDrops(Sized):
    def sized(self, policy):
        return replace(policy, ttl=1e9)


class DropsInHalfTheTime(Sized):
    def sized(self, policy):
        return replace(policy, ttl=policy.ttl / 2)


class ForgetsKeysWithTheHistory(Sized):
    def sized(self, policy):
        return replace(policy, idempotency_ttl=policy.ttl)


class ForgetsTheHead(MemoryBroker):
    """When its events are dropped a channel begins anew."""

    async def history(self, channel, **options):
        page = await super().history(channel, **options)
        if page.head.position and not page.publications and options.get("limit") != 0:
            self._store._channels.pop(channel)
        return await super().history(channel, **options)


class ClaimsToBeDurable(MemoryBroker):
    capabilities = BrokerCapabilities(durable=True, shared=False)


class RepeatsItsEpoch(MemoryBroker):
    def __init__(self):
        super().__init__(random_bytes=bytes)


class StopsOnce(MemoryBroker):
    async def stop(self):
        if self._stopped:
            raise RuntimeError("stopped already")
        await super().stop()


class LeavesATask(MemoryBroker):
    async def start(self, sink):
        await super().start(sink)
        LEFT.append(asyncio.create_task(asyncio.sleep(3600)))


@pytest.mark.parametrize(
    ("broker", "check"),
    [
        (KeepsOneMore, "history_has_exactly_its_size"),
        (KeepsTheLargestSize, "the_last_policy_holds"),
        (KeepsOneAlways, "without_history_the_chain_goes_on"),
        (NeverDrops, "history_is_dropped_after_its_ttl"),
        (ForgetsTheHead, "history_is_dropped_after_its_ttl"),
        (DropsInHalfTheTime, "the_ttl_counts_from_the_last_publish"),
        (ForgetsKeysWithTheHistory, "a_key_is_remembered_for_its_time"),
        (ClaimsToBeDurable, "a_restart_keeps_what_was_acknowledged"),
        (RepeatsItsEpoch, "a_restart_of_a_broker_that_keeps_nothing_is_a_new_epoch"),
        (StopsOnce, "stop_is_idempotent"),
        (LeavesATask, "stop_leaves_no_task_behind"),
    ],
)
async def test_a_wrong_broker_is_caught(broker, check):
    try:
        assert await failures(broker, check) == {check}
    finally:
        while LEFT:
            task = LEFT.pop()
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


async def test_numbers_that_follow_the_clock_alone_are_caught(monkeypatch):
    monkeypatch.setattr(memory, "next_number", lambda last, now_ms: max(now_ms, 1))
    check = "a_clock_that_goes_back_breaks_nothing"
    assert await failures(MemoryBroker, check) == {check}


@pytest.mark.parametrize("check", [check.__name__ for check in keeping.CHECKS])
async def test_a_right_broker_passes(check):
    assert await failures(MemoryBroker, check, patience=10.0) == set()


async def test_a_durable_broker_that_keeps_all_passes(tmp_path):
    check = "a_restart_keeps_what_was_acknowledged"
    file = tmp_path / "history.db"
    assert await failures(lambda: SqliteBroker(file), check, patience=10.0) == set()
