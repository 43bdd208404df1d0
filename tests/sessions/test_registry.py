import asyncio
import subprocess
import sys
import threading

import pytest

from tests.servers import eventually
from tests.stream.driver import Exchange
from tidegate.errors import (
    InvalidSessionId,
    RunCancelled,
    SessionLimitExceeded,
    SessionNotFound,
    SnapshotConflict,
)
from tidegate.sessions import Sessions
from tidegate.stream import Drain


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
async def sessions():
    async with Sessions() as sessions:
        yield sessions


async def forever():
    yield 1
    await asyncio.Event().wait()


# -- making and ending ---------------------------------------------------------------------


async def test_a_session_is_made_once_and_found(sessions):
    session = sessions.create("a")
    assert sessions.create("a") is session
    assert sessions.get("a") is session
    assert "a" in sessions
    assert sessions.list() == [session]


async def test_a_session_without_an_id_gets_one(sessions):
    one, two = sessions.create(), sessions.create()
    assert one.id != two.id
    assert sessions.get(one.id) is one


async def test_ids_can_be_made_by_the_user():
    async with Sessions(new_id=lambda: "mine") as sessions:
        assert sessions.create().id == "mine"


@pytest.mark.parametrize("bad", ["", "a b", "x" * 129, 3])
async def test_a_bad_id_is_refused(sessions, bad):
    with pytest.raises(InvalidSessionId) as caught:
        sessions.create(bad)
    assert caught.value.session_id == bad
    assert sessions.list() == []


async def test_an_unknown_id_is_not_found(sessions):
    with pytest.raises(SessionNotFound) as caught:
        sessions.get("a")
    assert caught.value.session_id == "a"
    with pytest.raises(SessionNotFound):
        sessions.delete("a")


async def test_there_are_as_many_as_there_may_be():
    async with Sessions(max_sessions=2) as sessions:
        sessions.create("a")
        sessions.create("b")
        with pytest.raises(SessionLimitExceeded) as caught:
            sessions.create("c")
        assert caught.value.limit == 2
        assert sessions.create("b").id == "b"
        sessions.delete("a")
        sessions.create("c")


async def test_the_channels_have_the_options_given():
    async with Sessions(ring_size=3, max_subscribers=1, max_queued=5) as sessions:
        channel = sessions.create("a").channel
        assert (channel.name, channel.ring_size, channel.max_subscribers) == ("a", 3, 1)


@pytest.mark.parametrize(
    "options",
    [
        {"max_sessions": 0},
        {"idle_seconds": 0},
        {"ring_size": -1},
        {"max_subscribers": 0},
        {"max_queued": 0},
        {"max_ring_bytes": 0},
    ],
)
def test_options_that_make_no_sense_are_refused_at_once(options):
    with pytest.raises(ValueError, match="must be"):
        Sessions(**options)


def test_a_ring_that_is_too_large_is_clamped():
    with pytest.warns(UserWarning, match="1000000 is used"):
        assert Sessions(ring_size=2_000_000).ring_size == 1_000_000


async def test_a_deleted_session_tells_its_readers_and_closes(sessions):
    session = sessions.create("a")
    async with session.channel.subscribe() as events:
        sessions.delete("a")
        (event,) = [event async for event in events]
        assert (event.id, event.wire_type, event.data) == (
            1,
            "session_closed",
            {"reason": "deleted"},
        )
    assert session.channel.closed
    assert "a" not in sessions
    assert sessions.create("a").channel.epoch != session.channel.epoch


async def test_diagnostics_name_their_session():
    reports = []
    async with Sessions(on_diagnostic=lambda *report: reports.append(report)) as sessions:
        session = sessions.create("a")
        async with session.channel.subscribe(max_queued=1) as events:
            assert events.take() == []
            session.publish("x")
            session.publish("y")
    assert [(name, kind) for name, kind, _ in reports] == [
        ("a", "slow_client_warning"),
        ("a", "client_evicted"),
    ]


# -- life ----------------------------------------------------------------------------------


async def test_leaving_ends_streams_runs_and_channels():
    sessions = Sessions()
    async with sessions:
        session = sessions.create("a")
        run = sessions.start("a", forever())
        exchange = Exchange(path="/session/a/events")
        task = exchange.start(sessions)
        await exchange.until(b"retry: ")
    await asyncio.wait_for(task, 20)
    assert b'"errorKind":"draining"' in exchange.body
    assert exchange.complete
    assert run.done
    assert session.channel.closed
    assert sessions.list() == []
    with pytest.raises(RuntimeError, match="left"):
        sessions.create("b")


async def test_a_drain_of_the_application_is_not_entered_or_left():
    async with Drain() as drain:
        async with Sessions(drain=drain) as sessions:
            assert sessions.drain is drain
        assert not drain.draining


async def test_they_are_entered_once(sessions):
    with pytest.raises(RuntimeError, match="entered before"):
        async with sessions:
            pass


async def test_before_they_are_entered_they_take_sessions_but_no_runs():
    sessions = Sessions()
    sessions.create("a")
    source = forever()
    with pytest.raises(RuntimeError, match="async with sessions"):
        sessions.start("a", source)
    await source.aclose()


def test_three_loops_in_turn_and_two_threads_at_once_have_sessions_of_their_own():
    async def use_some():
        async def numbers():
            for number in range(3):
                yield number

        async with Sessions() as sessions:
            await sessions.run("a", numbers())
            return sessions.get("a").channel.last_event_id

    assert [asyncio.run(use_some()) for _ in range(3)] == [3, 3, 3]
    results = []
    threads = [
        threading.Thread(target=lambda: results.append(asyncio.run(use_some()))) for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert results == [3, 3]


# -- idle sessions -------------------------------------------------------------------------


async def test_an_idle_session_is_swept_away_and_one_in_use_is_not():
    clock = Clock()
    async with Sessions(idle_seconds=100, clock=clock) as sessions:
        for name in ("idle", "read", "run", "touched", "published"):
            sessions.create(name)
        idle = sessions.get("idle").channel
        sessions.start("run", forever())
        async with (
            sessions.get("read").channel.subscribe(),
            idle.subscribe(last_event_id=0) as events,
        ):
            events.abort()
            clock.now = 60
            sessions.touch(sessions.get("touched"))
            sessions.get("published").publish("a")
            assert sessions.sweep() == 0
            clock.now = 100
            assert sessions.sweep() == 1
            assert [s.id for s in sessions.list()] == ["read", "run", "touched", "published"]
            assert idle.closed
            clock.now = 160
            assert sessions.sweep() == 2
        assert [s.id for s in sessions.list()] == ["read", "run"]


async def test_readers_are_told_why_an_idle_session_ended():
    clock = Clock()
    async with Sessions(idle_seconds=100, clock=clock) as sessions:
        channel = sessions.create("a").channel
        clock.now = 100
        sessions.sweep()
        assert channel.last_event_id == 1
        assert channel._ring.after(0).__next__().data == {"reason": "idle"}


async def test_the_sweeper_runs_by_itself():
    clock = Clock()
    async with Sessions(idle_seconds=0.02, clock=clock) as sessions:
        sessions.create("a")
        clock.now = 1
        await eventually(lambda: sessions.list() == [])


async def test_sessions_may_live_for_ever():
    async with Sessions(idle_seconds=None) as sessions:
        sessions.create("a")
        assert sessions.sweep() == 0
        assert "a" in sessions


async def test_the_idle_time_begins_when_a_run_ends():
    clock = Clock()

    async def one():
        yield 1

    async with Sessions(idle_seconds=100, clock=clock) as sessions:
        run = sessions.start("a", one())
        clock.now = 500
        await run.wait()
        await eventually(lambda: not sessions.get("a").runs)
        sessions.sweep()
        clock.now = 590
        assert sessions.sweep() == 0
        clock.now = 600
        assert sessions.sweep() == 1


# -- runs ----------------------------------------------------------------------------------


async def test_a_run_makes_its_session_and_returns_at_its_end(sessions):
    async def words():
        yield "word", "a"
        yield "word", "b"

    await sessions.run("new", words())
    assert sessions.get("new").channel.last_event_id == 2
    assert sessions.get("new").runs == set()


async def test_the_caller_of_a_run_may_be_cancelled(sessions):
    gate = asyncio.Event()

    async def words():
        yield 1
        await gate.wait()
        yield 2

    caller = asyncio.ensure_future(sessions.run("a", words()))
    await eventually(lambda: "a" in sessions and sessions.get("a").channel.last_event_id)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert len(sessions.get("a").runs) == 1
    gate.set()
    await eventually(lambda: sessions.get("a").channel.last_event_id == 2)


async def test_deleting_a_session_cancels_its_runs(sessions):
    caller = asyncio.ensure_future(sessions.run("a", forever()))
    await eventually(lambda: "a" in sessions and sessions.get("a").channel.last_event_id)
    channel = sessions.get("a").channel
    sessions.delete("a")
    with pytest.raises(RunCancelled):
        await caller
    assert channel.last_event_id == 2


async def test_a_session_may_have_several_runs(sessions):
    async def word(text):
        yield text

    await asyncio.gather(*(sessions.run("a", word(text)) for text in "abc"))
    assert sessions.get("a").channel.last_event_id == 3


async def test_what_is_no_async_generator_cannot_run(sessions):
    with pytest.raises(TypeError, match="async generator, not list"):
        sessions.start("a", [1])
    assert sessions.list() == []


async def test_a_run_over_the_limit_is_refused():
    async with Sessions(max_sessions=1) as sessions:
        sessions.create("a")
        source = forever()
        with pytest.raises(SessionLimitExceeded):
            sessions.start("b", source)
        await source.aclose()


async def test_two_thousand_tokens_reach_a_client_that_was_cut_fifty_times(sessions):
    async def tokens():
        for number in range(2000):
            yield "token", number
            if number % 7 == 0:
                await asyncio.sleep(0)

    channel = sessions.create("a").channel
    run = asyncio.ensure_future(sessions.run("a", tokens()))
    seen = []
    for visit in range(51):
        async with channel.subscribe(last_event_id=len(seen), epoch=channel.epoch) as events:
            wanted = 2000 if visit == 50 else len(seen) + 1 + visit % 40
            async for event in events:
                if event.id is not None:
                    seen.append((event.id, event.data))
                if len(seen) >= wanted:
                    break
    await run
    assert seen == [(number + 1, number) for number in range(2000)]


# -- loading -------------------------------------------------------------------------------


async def test_without_a_snapshot_there_is_no_state(sessions):
    loaded = await sessions.load(sessions.create("a"))
    assert (loaded.state, loaded.last_event_id, loaded.complete) == (None, 0, True)


async def test_the_stored_snapshot_is_loaded(sessions):
    session = sessions.create("a")
    session.publish("x")
    session.put_snapshot({"n": 1}, 1)
    loaded = await sessions.load(session)
    assert (loaded.state, loaded.last_event_id, loaded.complete) == ({"n": 1}, 1, True)


def plain(session_id):
    return {"of": session_id}, 1


async def awaited(session_id):
    await asyncio.sleep(0)
    return {"of": session_id}, 1


@pytest.mark.parametrize("provider", [plain, awaited])
async def test_a_provider_goes_before_the_stored_snapshot(provider):
    async with Sessions(snapshot=provider) as sessions:
        session = sessions.create("a")
        session.publish("x")
        session.put_snapshot("stored", 1)
        assert (await sessions.load(session)).state == {"of": "a"}


async def test_a_provider_that_has_nothing_leaves_it_to_the_stored_snapshot():
    async with Sessions(snapshot=lambda session_id: None) as sessions:
        session = sessions.create("a")
        session.put_snapshot("stored", 0)
        assert (await sessions.load(session)).state == "stored"


async def test_a_provider_that_is_ahead_of_the_channel_is_an_error():
    async with Sessions(snapshot=lambda session_id: ("s", 5)) as sessions:
        with pytest.raises(SnapshotConflict):
            await sessions.load(sessions.create("a"))


async def test_the_ring_may_move_while_a_provider_computes():
    async def provider(session_id):
        for _ in range(5):
            sessions.get(session_id).publish("x")
        await asyncio.sleep(0)
        return "s", 1

    sessions = Sessions(ring_size=2, snapshot=provider)
    async with sessions:
        loaded = await sessions.load(sessions.create("a"))
    assert (loaded.last_event_id, loaded.complete) == (3, False)


def test_without_its_packages_it_says_what_to_install():
    code = """
import sys
sys.modules["starlette"] = None
try:
    import tidegate.sessions
except ImportError as error:
    assert "pip install 'tidegate[server]'" in str(error), error
else:
    raise SystemExit("it was imported")
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


async def test_leaving_tells_subscribers_that_their_session_is_over():
    async with Sessions() as sessions:
        subscription = sessions.create("a").channel.subscribe()
    frames = [frame async for frame in subscription]
    assert [(frame.type, frame.data) for frame in frames] == [
        ("session_closed", {"reason": "shutdown"})
    ]


@pytest.mark.parametrize("bad", [True, 1.5, "1"])
def test_the_number_of_sessions_is_an_integer(bad):
    with pytest.raises(TypeError, match="max_sessions must be an integer"):
        Sessions(max_sessions=bad)
