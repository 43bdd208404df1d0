import asyncio
import threading
from collections import deque

import pytest

from tidegate.channel import handoff
from tidegate.channel.handoff import Handoff


def test_without_a_loop_a_call_is_dropped():
    assert Handoff(print).put((1,)) == "no_loop"


def test_with_a_closed_loop_a_call_is_dropped():
    made = Handoff(print)
    made.loop = asyncio.new_event_loop()
    made.loop.close()
    assert made.put((1,)) == "loop_closed"


def test_a_loop_that_closes_in_the_middle_of_a_call_drops_it():
    class Closing:
        def is_closed(self):
            return False

        def call_soon_threadsafe(self, callback):
            raise RuntimeError("Event loop is closed")

    made = Handoff(print)
    made.loop = Closing()
    assert made.put((1,)) == "loop_closed"
    assert made.put((1,)) == "loop_closed"
    assert made.take_lost() == []


def test_calls_whose_loop_was_closed_can_be_taken_back():
    made = Handoff(print)
    assert made.take_lost() == []
    made.loop = asyncio.new_event_loop()
    assert made.put((1,)) is None
    assert made.put((2,)) is None
    assert made.take_lost() == []
    made.loop.close()
    assert made.put((3,)) == "loop_closed"
    assert made.take_lost() == [(1,), (2,)]
    assert made.take_lost() == []


async def test_over_its_bound_a_call_is_dropped(monkeypatch):
    monkeypatch.setattr(handoff, "_MAX_PENDING", 2)
    seen = []
    made = Handoff(seen.append)
    made.loop = asyncio.get_running_loop()
    assert [made.put((i,)) for i in range(3)] == [None, None, "queue_full"]
    await asyncio.sleep(0)
    assert seen == [(0,), (1,)]
    assert made.put((3,)) is None
    await asyncio.sleep(0)
    assert seen == [(0,), (1,), (3,)]


async def test_a_burst_runs_in_order_and_in_slices():
    seen = []
    made = Handoff(seen.append)
    made.loop = asyncio.get_running_loop()
    for i in range(150):
        made.put((i,))
    await asyncio.sleep(0)
    assert len(seen) == 64
    await asyncio.sleep(0)
    assert len(seen) == 128
    await asyncio.sleep(0)
    assert seen == [(i,) for i in range(150)]


class Loop:
    """Keeps what it is to call, until it is told to."""

    def __init__(self):
        self.calls = []

    def is_closed(self):
        return False

    def call_soon(self, callback):
        self.calls.append(callback)

    call_soon_threadsafe = call_soon

    def turn(self):
        calls, self.calls = self.calls, []
        for callback in calls:
            callback()


@pytest.mark.parametrize("count", [1, 63, 64, 65, 128])
def test_after_any_number_of_calls_it_rests_and_can_be_woken_again(count):
    seen = []
    made = Handoff(seen.append)
    made.loop = loop = Loop()
    for _ in range(2):
        for i in range(count):
            made.put((i,))
            assert len(loop.calls) == 1
        turns = 0
        while loop.calls:
            loop.turn()
            assert len(loop.calls) <= 1
            turns += 1
        assert turns <= count // 64 + 1
    assert seen == [(i,) for i in range(count)] * 2


def test_a_call_in_the_moment_of_coming_to_rest_is_not_left_lying():
    class Raced(deque):
        """Another thread appends between the look that found nothing and the flag."""

        raced = False

        def popleft(self):
            if not self and not self.raced:
                self.raced = True
                self.append(("late",))
                raise IndexError
            return super().popleft()

    seen = []
    made = Handoff(seen.append)
    made.loop = loop = Loop()
    made._pending = Raced()
    made.put(("first",))
    while loop.calls:
        loop.turn()
    assert seen == [("first",), ("late",)]


def test_a_call_between_two_slices_wakes_the_loop_no_second_time():
    seen = []
    made = Handoff(seen.append)
    made.loop = loop = Loop()
    for i in range(65):
        made.put((i,))
    loop.turn()
    made.put((65,))
    assert len(loop.calls) == 1
    loop.turn()
    assert seen == [(i,) for i in range(66)]
    assert loop.calls == []


async def test_a_call_from_within_a_call_of_the_same_thread_waits_for_nothing():
    """As a finalizer that the garbage collector runs inside of `put`."""
    seen = []
    made = Handoff(seen.append)

    class Loop:
        def is_closed(self):
            if len(seen) == 0:
                seen.append("inner")
                assert made.put(("inner",)) is None
            return False

        def call_soon_threadsafe(self, callback):
            asyncio.get_running_loop().call_soon(callback)

        call_soon = call_soon_threadsafe

    made.loop = Loop()
    assert made.put(("outer",)) is None
    await asyncio.sleep(0)
    assert seen == ["inner", ("inner",), ("outer",)]


@pytest.mark.parametrize("threads", [1, 4])
async def test_each_threads_order_is_kept(threads):
    seen = []
    made = Handoff(seen.append)
    made.loop = asyncio.get_running_loop()

    def work(who):
        for i in range(2000):
            assert made.put((who, i)) is None

    workers = [threading.Thread(target=work, args=(n,)) for n in range(threads)]
    for worker in workers:
        worker.start()
    async with asyncio.timeout(30):
        while len(seen) < threads * 2000:  # noqa: ASYNC110 - each turn lets a slice run
            await asyncio.sleep(0)
    for worker in workers:
        worker.join()
    for who in range(threads):
        assert [i for w, i in seen if w == who] == list(range(2000))
