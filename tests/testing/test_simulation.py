"""Simulated time: hours in a moment, in the same order each time."""

import asyncio
import threading
import time

import pytest

from tidegate.testing import SimulatedClock, SimulatedLoop, run_simulated, simulation


def test_sleeping_for_a_year_takes_no_time():
    async def main():
        loop = asyncio.get_running_loop()
        before = loop.time()
        await asyncio.sleep(365 * 86400.0)
        return loop.time() - before

    started = time.process_time()
    assert run_simulated(main()) == pytest.approx(365 * 86400.0)
    assert time.process_time() - started < 5.0


def test_timers_go_off_in_their_order():
    async def main():
        seen = []

        async def sleeper(seconds):
            await asyncio.sleep(seconds)
            seen.append(seconds)

        await asyncio.gather(*(sleeper(s) for s in (3.0, 0.5, 3600.0, 0.25)))
        return seen

    assert run_simulated(main()) == [0.25, 0.5, 3.0, 3600.0]


def test_time_outs_are_simulated_too():
    async def main():
        async with asyncio.timeout(1000.0):
            await asyncio.get_running_loop().create_future()

    with pytest.raises(TimeoutError):
        run_simulated(main())


def test_a_program_that_would_hang_is_told_so(monkeypatch):
    monkeypatch.setattr(simulation, "_STALLED_SECONDS", 0.05)

    async def main():
        await asyncio.get_running_loop().create_future()

    with pytest.raises(RuntimeError, match="every task waits"):
        run_simulated(main())


def test_a_thread_may_still_wake_it():
    async def main():
        loop = asyncio.get_running_loop()
        done = loop.create_future()
        thread = threading.Thread(
            target=lambda: loop.call_soon_threadsafe(done.set_result, "from a thread")
        )
        thread.start()
        try:
            return await done
        finally:
            thread.join()

    assert run_simulated(main()) == "from a thread"


def test_the_clock_goes_on_with_the_loop():
    async def main():
        clock = SimulatedClock(1000.0)
        shown = [clock()]
        await asyncio.sleep(60.0)
        shown.append(clock())
        clock.offset = -3600.0
        shown.append(clock())
        return shown

    assert run_simulated(main()) == pytest.approx([1000.0, 1060.0, -2540.0])


def test_what_main_raises_is_raised():
    async def main():
        raise ValueError("on purpose")

    with pytest.raises(ValueError, match="on purpose"):
        run_simulated(main())


def test_the_loop_can_be_made_by_hand():
    loop = SimulatedLoop()
    try:
        assert loop.time() == pytest.approx(0.0)
        loop.run_until_complete(asyncio.sleep(5.0))
        assert loop.time() == pytest.approx(5.0)
    finally:
        loop.close()
