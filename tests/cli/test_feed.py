"""The feed publishes what waits, and what happens when the server does not take it."""

import asyncio

import pytest

from tests.cli.commands import eventually
from tidegate.cli.delivery import Away, Refused
from tidegate.cli.feed import Feed
from tidegate.cli.output_queue import OutputQueue

LAST = {"type": "exit", "data": {"code": 0}}
AWAY = Away("connection refused")


def line(number):
    return {"type": "output", "data": number}


class Rig:
    """A feed, the server at its other end, and a clock that only the waits move."""

    def __init__(self, *answers, patience=10.0, **bounds):
        self.answers = list(answers)  # an exception, or None for success; then success for ever
        self.published = []
        self.rooms = 0
        self.told = []
        self.now = 0.0
        self.queue = OutputQueue(**bounds)
        self.asked = asyncio.Event()
        self.feed = Feed(
            self.queue,
            self.send,
            patience=patience,
            on_room=self.room,
            on_lost=self.told.append,
            clock=self.clock,
            rng=lambda: 1.0,
        )

    async def send(self, events):
        self.asked.set()
        answer = self.answers.pop(0) if self.answers else None
        if callable(answer):
            answer = await answer()
        if answer is not None:
            raise answer
        self.published += events
        return len(self.published)

    def room(self):
        self.rooms += 1

    def clock(self):
        self.now += 1.0
        return self.now

    def lines(self, *numbers):
        for number in numbers:
            self.feed.put(line(number), 10)

    async def run(self):
        async with asyncio.timeout(20):
            return await self.feed.run()


async def test_what_waits_goes_out_in_one_batch_and_the_last_event_at_the_end():
    rig = Rig()
    rig.lines(1, 2, 3)
    rig.feed.finish(LAST)
    assert await rig.run() is True
    assert rig.published == [line(1), line(2), line(3), LAST]
    assert rig.told == []


async def test_a_line_goes_out_when_it_comes():
    rig = Rig()
    running = asyncio.create_task(rig.run())
    rig.lines(1)
    await rig.asked.wait()
    assert rig.published == [line(1)]
    rig.feed.finish(LAST)
    assert await running is True


async def test_a_publish_makes_room():
    rig = Rig(max_events=2)
    rig.lines(1, 2)
    assert rig.feed.full
    rig.feed.finish(LAST)
    await rig.run()
    assert not rig.feed.full
    assert rig.rooms == 1


async def test_a_batch_is_tried_again_until_it_is_taken():
    rig = Rig(AWAY, AWAY)
    rig.lines(1, 2)
    rig.feed.finish(LAST)
    assert await rig.run() is True
    assert rig.published == [line(1), line(2), LAST]
    assert rig.queue.lost == 0


async def test_patience_begins_anew_after_a_success():
    rig = Rig(AWAY, None, AWAY, None, patience=1.5, batch_events=1)
    rig.lines(1, 2)
    rig.feed.finish(LAST)
    assert await rig.run() is True
    assert rig.queue.lost == 0


async def test_after_its_patience_it_drops_lines_and_says_so_once_and_in_the_stream():
    rig = Rig(AWAY, AWAY, AWAY, patience=0.5, max_events=2)
    rig.lines(1, 2)
    running = asyncio.create_task(rig.run())
    await eventually(lambda: rig.queue.dropping)
    assert not rig.feed.full
    assert rig.rooms == 1
    rig.lines(3)
    await eventually(lambda: not rig.queue.dropping)
    rig.lines(4)
    rig.feed.finish(LAST)
    assert await running is True
    assert rig.published == [{"type": "output_lost", "data": {"lines": 3}}, line(4), LAST]
    assert rig.told == ["connection refused"]
    assert rig.queue.lost == 3


async def test_a_server_that_stays_away_is_given_up_when_the_source_has_ended():
    rig = Rig(*[AWAY] * 100, patience=0.5)
    rig.lines(1, 2)
    rig.feed.finish(LAST)
    assert await rig.run() is False
    assert rig.published == []
    assert rig.queue.lost == 2
    assert len(rig.answers) == 98  # the second attempt came when the patience was over


async def test_the_end_of_the_source_is_worth_an_attempt_at_once():
    rig = Rig(Away("busy", retry_after=1000.0), patience=10_000.0)
    rig.lines(1)
    running = asyncio.create_task(rig.run())
    await rig.asked.wait()
    rig.feed.finish(LAST)
    assert await running is True
    assert rig.published == [line(1), LAST]


async def test_abandoning_ends_the_wait_for_a_server_that_is_away():
    rig = Rig(Away("busy", retry_after=1000.0), patience=10_000.0)
    rig.lines(1)
    running = asyncio.create_task(rig.run())
    await rig.asked.wait()
    rig.feed.abandon()
    assert await running is False
    rig.lines(2)
    assert rig.queue.lost == 2
    assert rig.rooms == 1


async def test_abandoning_during_a_request_waits_for_its_answer():
    answer = asyncio.Event()

    async def late():
        await answer.wait()
        return AWAY

    rig = Rig(late)
    rig.lines(1)
    running = asyncio.create_task(rig.run())
    await rig.asked.wait()
    rig.feed.abandon()
    answer.set()
    assert await running is False
    assert rig.answers == []


async def test_abandoning_does_not_stop_what_works():
    rig = Rig()
    rig.feed.abandon()
    rig.lines(1)
    rig.feed.finish(LAST)
    assert await rig.run() is True
    assert rig.published == [line(1), LAST]


async def test_a_refusal_ends_all_attempts_but_not_the_counting():
    rig = Rig(Refused("no"))
    rig.lines(1, 2)
    running = asyncio.create_task(rig.run())
    await eventually(lambda: rig.told)
    rig.lines(3)
    rig.feed.finish(LAST)
    assert await running is False
    assert rig.told == ["no"]
    assert rig.queue.lost == 3
    assert rig.published == []


async def test_what_send_raises_beside_that_comes_out():
    rig = Rig(ValueError("a bug"))
    rig.lines(1)
    with pytest.raises(ValueError, match="a bug"):
        await rig.run()
