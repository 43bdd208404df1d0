"""The sink that keeps, and the one that delivers badly."""

import asyncio
import random
import threading

import pytest

from tidegate.gateway.brokers.base import Head, Publication
from tidegate.testing import FaultySink, MessageFaults, RecordingSink, run_simulated


def event(number):
    return Publication(
        position=f"{number:016}",
        prev=f"{number - 1:016}",
        epoch="e",
        type="t",
        payload=b"{}",
    )


def deliver(faults, many=400, seed=0, seconds=10.0):
    """Tell a sink of so many events, let time pass, and return what came and the counts."""

    async def main():
        recording = RecordingSink()
        sink = FaultySink(recording, faults, random.Random(seed))
        for number in range(1, many + 1):
            sink.on_publication("a", event(number))
            await asyncio.sleep(0.01)
        await asyncio.sleep(seconds)
        return [int(one.position) for one in recording.of("a")], sink.counts

    return run_simulated(main())


def test_without_faults_everything_comes_in_order():
    came, counts = deliver(MessageFaults())
    assert came == list(range(1, 401))
    assert counts == {"messages": 400, "lost": 0, "delayed": 0, "doubled": 0, "swapped": 0}


def test_lost_messages_never_come():
    came, counts = deliver(MessageFaults(lose=0.2))
    assert counts["lost"] == 400 - len(came) > 20
    assert came == sorted(came)


def test_late_messages_come_behind_later_ones():
    came, counts = deliver(MessageFaults(delay=0.3, max_delay=0.5))
    assert sorted(came) == list(range(1, 401))
    assert came != sorted(came)
    assert counts["delayed"] > 50


def test_doubled_messages_come_twice():
    came, counts = deliver(MessageFaults(double=0.25))
    assert len(came) == 400 + counts["doubled"]
    assert set(came) == set(range(1, 401))


def test_swapped_messages_come_behind_their_successor():
    came, counts = deliver(MessageFaults(swap=0.3))
    assert came != sorted(came)
    # The last one may have no successor.
    assert set(range(1, 400)) <= set(came)
    assert counts["swapped"] > 50


def test_a_seed_does_the_same_again():
    faults = MessageFaults(lose=0.1, delay=0.2, double=0.1, swap=0.1)
    assert deliver(faults, seed=3) == deliver(faults, seed=3)
    assert deliver(faults, seed=3) != deliver(faults, seed=4)


def test_faults_can_be_stopped():
    faults = MessageFaults(lose=1.0, delay=1.0, double=1.0, swap=1.0)
    faults.stop()
    came, _ = deliver(faults)
    assert came == list(range(1, 401))


async def test_resets_travel_badly_and_the_connection_is_always_told():
    recording = RecordingSink()
    sink = FaultySink(recording, MessageFaults(lose=1.0), random.Random(0))
    sink.on_reset("a", Head("e", ""))
    assert recording.resets == {}
    sink.on_disconnected()
    assert not recording.connected
    sink.on_reconnected()
    assert recording.connected
    sink.faults.stop()
    sink.on_reset("a", Head("e", ""))
    assert recording.resets == {"a": [Head("e", "")]}


async def test_a_closed_sink_tells_nothing_more():
    recording = RecordingSink()
    sink = FaultySink(recording, MessageFaults(delay=1.0, max_delay=0.001), random.Random(0))
    sink.on_publication("a", event(1))
    sink.close()
    await asyncio.sleep(0.01)
    sink.on_publication("a", event(2))
    await asyncio.sleep(0.01)
    assert recording.of("a") == []


async def test_waiting_ends_with_the_condition_or_with_the_time():
    recording = RecordingSink()
    asyncio.get_running_loop().call_later(0.01, recording.on_publication, "a", event(1))
    await recording.until(lambda: recording.of("a"), 10.0, "an event comes")
    with pytest.raises(AssertionError, match=r"not within 0\.01 s: a second one comes"):
        await recording.until(lambda: len(recording.of("a")) > 1, 0.01, "a second one comes")


async def test_calls_from_other_threads_are_counted():
    recording = RecordingSink()
    thread = threading.Thread(target=recording.on_publication, args=("a", event(1)))
    thread.start()
    thread.join()
    assert recording.strangers == 1
