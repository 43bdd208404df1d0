"""The suite as a whole: our brokers pass it, and it says all that is wrong at once."""

import asyncio
import subprocess
import sys

import pytest

from tests.testing.planted import MemoryBroker
from tidegate.gateway.brokers.sqlite import SqliteBroker
from tidegate.testing import CheckFailed, check_broker
from tidegate.testing.broker import BROKER_CHECKS

FAULTS = {
    "a_killed_store_keeps_what_it_acknowledged",
    "a_frozen_store_loses_nothing",
    "a_lost_tail_is_told_to_those_who_saw_it",
    "a_trimmed_history_is_told_to_those_who_missed_it",
    "a_forgotten_channel_is_a_new_epoch",
}


def test_every_check_has_a_name_of_its_own_and_says_its_rule():
    names = [check.__name__ for check in BROKER_CHECKS]
    assert len(set(names)) == len(names)
    assert all((check.__doc__ or "").partition("\n")[0].endswith(".") for check in BROKER_CHECKS)


async def test_the_memory_broker_passes():
    report = await check_broker(MemoryBroker)
    assert set(report.skipped) == FAULTS | {
        "a_restart_keeps_what_was_acknowledged",
        "streams_go_on_after_a_restart",
        "nodes_share_one_history",
    }
    assert len(report.passed) + len(report.skipped) == len(BROKER_CHECKS)
    assert not report.failures


async def test_without_a_clock_it_waits_where_it_can():
    report = await check_broker(
        lambda: MemoryBroker(),  # noqa: PLW0108 - it takes no clock
        only=["history_is_dropped_after_its_ttl", "a_key_is_remembered_for_its_time"],
    )
    assert report.passed == ["history_is_dropped_after_its_ttl"]
    assert report.skipped == {"a_key_is_remembered_for_its_time": "make_broker takes no clock"}


@pytest.mark.slow
async def test_the_sqlite_broker_passes(tmp_path):
    file = tmp_path / "history.db"
    report = await check_broker(lambda clock: SqliteBroker(file, clock=clock))
    assert set(report.skipped) == FAULTS | {
        "a_restart_of_a_broker_that_keeps_nothing_is_a_new_epoch",
        "nodes_share_one_history",
    }


async def test_all_that_is_wrong_is_said_at_once():
    class Wrong(MemoryBroker):
        async def publish(self, batch):
            raise RuntimeError("out of order")

    with pytest.raises(CheckFailed) as caught:
        await check_broker(Wrong, patience=0.2)
    assert len(caught.value.names) > 25
    assert "stop_is_idempotent" in caught.value.names
    assert "an_unknown_channel_gets_an_epoch" in caught.value.names
    assert str(caught.value).count("RuntimeError: out of order") > 25


async def test_a_broker_that_hangs_fails_in_time():
    class Hangs(MemoryBroker):
        async def heads(self, channels):
            await asyncio.get_running_loop().create_future()

    only = ["heads_are_those_of_the_history"]
    with pytest.raises(CheckFailed, match="it took too long"):
        await check_broker(Hangs, only=only, check_timeout=0.2)


async def test_a_check_that_there_is_not_is_refused():
    with pytest.raises(ValueError, match="there are no checks another, some"):
        await check_broker(MemoryBroker, only=["some", "another"])


def test_without_assertions_it_refuses_to_run():
    code = (
        "import asyncio\n"
        "from tidegate.gateway.brokers.memory import MemoryBroker\n"
        "from tidegate.testing import check_broker\n"
        "try:\n"
        "    asyncio.run(check_broker(MemoryBroker))\n"
        "except RuntimeError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-O", "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert "run Python without -O" in done.stdout
