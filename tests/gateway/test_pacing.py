import asyncio

import pytest

from tidegate.gateway.pacing import TURN_BYTES, TURN_EVENTS, Pacer


class Turns:
    """Counts the turns of the loop, and notes in which one what was let through."""

    def __init__(self):
        self.number = 0
        self.admitted = []
        self.running = True
        asyncio.get_running_loop().call_soon(self._count)

    def _count(self):
        self.number += 1
        if self.running:
            asyncio.get_running_loop().call_soon(self._count)

    async def admit(self, pacer, name, events=1, size=0):
        await pacer.admit(events, size)
        self.admitted.append((name, self.number))

    def per_turn(self):
        numbers = [number for _, number in self.admitted]
        return [numbers.count(number) for number in sorted(set(numbers))]


@pytest.fixture
async def turns():
    turns = Turns()
    yield turns
    turns.running = False


async def test_a_loop_that_publishes_gives_others_their_turn(turns):
    pacer = Pacer()
    for number in range(3 * TURN_EVENTS):
        await turns.admit(pacer, number)
    assert turns.per_turn() == [TURN_EVENTS] * 3


async def test_what_is_gathered_goes_in_its_order_and_no_faster(turns):
    pacer = Pacer()
    await asyncio.gather(*(turns.admit(pacer, number) for number in range(300)))
    assert [name for name, _ in turns.admitted] == list(range(300))
    assert max(turns.per_turn()) <= TURN_EVENTS


async def test_who_comes_later_goes_behind_those_who_wait(turns):
    pacer = Pacer()
    first = [asyncio.ensure_future(turns.admit(pacer, n)) for n in range(2 * TURN_EVENTS)]
    while len(turns.admitted) <= TURN_EVENTS:
        await asyncio.sleep(0)
        late = asyncio.ensure_future(turns.admit(pacer, "late"))
        first.append(late)
    await asyncio.gather(*first)
    names = [name for name, _ in turns.admitted]
    assert names[: 2 * TURN_EVENTS] == list(range(2 * TURN_EVENTS))


async def test_bytes_count_as_well_and_the_first_goes_in_any_case(turns):
    pacer = Pacer()
    for number in range(3):
        await turns.admit(pacer, number, size=10 * TURN_BYTES)
    assert turns.per_turn() == [1, 1, 1]
    await asyncio.sleep(0)
    turns.admitted.clear()
    for number in range(4):
        await turns.admit(pacer, number, size=TURN_BYTES // 2)
    assert turns.per_turn() == [2, 2]


async def test_who_is_cancelled_while_waiting_holds_up_nobody(turns):
    pacer = Pacer()
    tasks = [asyncio.ensure_future(turns.admit(pacer, n)) for n in range(4 * TURN_EVENTS)]
    await asyncio.sleep(0)
    for task in tasks[TURN_EVENTS::2]:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    cancelled = sum(task.cancelled() for task in tasks)
    assert cancelled == 3 * TURN_EVENTS // 2
    assert len(turns.admitted) == 4 * TURN_EVENTS - cancelled
    await asyncio.wait_for(pacer.admit(1, 0), 20)


async def test_what_is_slow_never_waits(turns):
    pacer = Pacer()
    for number in range(5):
        await turns.admit(pacer, number)
    assert len({number for _, number in turns.admitted}) == 1
