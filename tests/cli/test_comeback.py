"""A session that is gone is waited for, in one outage as long as in another."""

import pytest

from tidegate.cli.comeback import through_restarts
from tidegate.errors import StreamRefused

pytestmark = pytest.mark.timeout(60)


class Script:
    """A stream that does what it is told, one thing for each event that is asked for."""

    def __init__(self, *steps):
        self.steps = list(steps)
        self.connects = 1
        self.reopened = []
        self.cursor, self.epoch = "e1-7", "e1"

    def statistics(self):
        return self

    async def reopen(self, cursor, epoch):
        self.reopened.append((cursor, epoch))

    async def __anext__(self):
        step = self.steps.pop(0) if self.steps else StopAsyncIteration()
        if isinstance(step, Exception):
            raise step
        self.connects += 1
        return step


GONE = StreamRefused(404, "session_not_found", "no such session")


async def test_each_outage_is_told_once_and_resumes_at_the_place():
    stream, said = Script("a", GONE, GONE, "b", GONE, "c"), []
    events = through_restarts(stream, patience=60, say=said.append, rng=lambda: 1.0)
    assert [event async for event in events] == ["a", "b", "c"]
    assert said == ["session is gone; waiting for it"] * 2
    assert stream.reopened == [("e1-7", None)] * 3


async def test_a_plain_place_takes_its_epoch_along():
    stream = Script(GONE)
    stream.cursor = "7"
    events = through_restarts(stream, patience=60, say=lambda _: None, rng=lambda: 1.0)
    assert [event async for event in events] == []
    assert stream.reopened == [("7", "e1")]


@pytest.mark.parametrize(
    "refusal", [GONE, StreamRefused(404, None, "a proxy's"), StreamRefused(403, "x", "no")]
)
async def test_without_patience_or_for_another_reason_it_ends(refusal):
    events = through_restarts(Script(refusal), patience=0, say=lambda _: None)
    with pytest.raises(StreamRefused):
        await anext(events)


async def test_it_is_made_before_each_attempt():
    made = []

    async def make():
        made.append(1)

    stream = Script(GONE, GONE, "a")
    events = through_restarts(stream, patience=60, make=make, say=lambda _: None, rng=lambda: 1.0)
    assert [event async for event in events] == ["a"]
    assert len(made) == 2
