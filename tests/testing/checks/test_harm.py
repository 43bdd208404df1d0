"""The checks of a store that is hurt: a sound store passes, and what would deceive is caught."""

import random
import shutil

import pytest

from tests.testing.planted import failures
from tidegate.gateway.brokers.sqlite import SqliteBroker
from tidegate.testing import BrokerFaults, FaultyStore, check_broker
from tidegate.testing.checks import harm

NAMES = [check.__name__ for check in harm.CHECKS]


class StoreHarm(BrokerFaults):
    """What can be done to a `FaultyStore`."""

    def __init__(self, store):
        self._store = store

    async def kill(self):
        self._store.faults.refuse = 1.0

    async def restart(self):
        self._store.faults.refuse = 0.0

    async def freeze(self):
        self._store.faults.refuse = 1.0

    async def thaw(self):
        self._store.faults.refuse = 0.0

    async def checkpoint(self):
        self._store.checkpoint()

    async def lose_tail(self):
        assert self._store.lose_tail()

    async def trim(self, channel, keep):
        self._store.trim(channel, keep)

    async def forget(self, channel):
        self._store.forget(channel)


class FileHarm(BrokerFaults):
    """A backup of a database file that is put back."""

    offline = True

    def __init__(self, folder):
        self._folder = folder

    async def checkpoint(self):
        shutil.copytree(self._folder / "data", self._folder / "backup")

    async def lose_tail(self):
        shutil.rmtree(self._folder / "data")
        shutil.copytree(self._folder / "backup", self._folder / "data")


class ForgetfulHarm(StoreHarm):
    """A kill that takes what was acknowledged with it."""

    async def kill(self):
        await super().kill()
        self._store.lose_tail()


@pytest.mark.parametrize("check", NAMES)
async def test_a_sound_store_passes(check):
    store = FaultyStore()
    faults = StoreHarm(store)
    assert await failures(store.broker, check, faults=faults, patience=20.0) == set()


async def test_a_restored_backup_is_noticed(tmp_path):
    (tmp_path / "data").mkdir()
    report = await check_broker(
        lambda: SqliteBroker(tmp_path / "data" / "history.db"),
        faults=FileHarm(tmp_path),
        only=NAMES,
        patience=20.0,
    )
    assert report.passed == ["a_lost_tail_is_told_to_those_who_saw_it"]


async def test_a_store_that_hands_out_lost_positions_again_is_caught():
    rng = random.Random(0)
    store = FaultyStore(
        clock=lambda: 1_700_000_000.0,
        random_bytes=lambda many: bytes(many) if many == 4 else rng.randbytes(many),
    )
    check = "a_lost_tail_is_told_to_those_who_saw_it"
    assert await failures(store.broker, check, faults=StoreHarm(store), patience=2.0) == {check}


async def test_a_store_that_loses_what_it_acknowledged_is_caught():
    store = FaultyStore()
    store.checkpoint()
    check = "a_killed_store_keeps_what_it_acknowledged"
    assert await failures(store.broker, check, faults=ForgetfulHarm(store), patience=2.0) == {check}


async def test_without_faults_the_checks_are_skipped():
    report = await check_broker(FaultyStore().broker, only=NAMES)
    assert set(report.skipped) == set(NAMES)
