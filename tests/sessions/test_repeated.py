import asyncio

from tests.servers import eventually
from tidegate.sessions.repeated import Repeated


async def test_it_calls_again_and_again_until_it_is_left():
    calls = []
    async with Repeated(lambda: calls.append(1), 0.001):
        assert calls == []
        await eventually(lambda: len(calls) >= 3)
    count = len(calls)
    await asyncio.sleep(0.01)
    assert len(calls) == count


async def test_a_call_that_fails_is_logged_and_not_the_last(caplog):
    calls = []

    def fail():
        calls.append(1)
        raise RuntimeError("of the call")

    async with Repeated(fail, 0.001):
        await eventually(lambda: len(calls) >= 2)
    assert "of the call" in caplog.text
