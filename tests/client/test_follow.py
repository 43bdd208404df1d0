"""A view that follows a stream: connect, reduce, load, reopen, with and without a loop."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.client.support import control, frame, scripted
from tests.integration.proxy import proxy_to
from tests.integration.support import serve_sessions
from tests.servers import eventually, wait_until
from tidegate.client import (
    Following,
    Loaded,
    SessionView,
    SyncFollowing,
    connect,
    connect_sync,
    load_session,
    load_session_sync,
)
from tidegate.client.follow import LoadPatience
from tidegate.errors import ClientError, ConcurrentConsumers, LoadFailed, StreamRefused


def collect(state, event):
    return [*state, event.data]


def calm():
    return LoadPatience(random=lambda: 0.0)


def follow(url, **options):
    return connect(url, **{"retry": 0.0, "random": lambda: 0.0, **options})


def follow_sync(url, **options):
    return connect_sync(url, **{"retry": 0.0, "random": lambda: 0.0, **options})


class Session:
    """A session whose ring has lost what is before ``first``, with a snapshot at ``snapshot``."""

    def __init__(self, events=10, first=1, snapshot=0, epoch="e1"):
        self.events, self.first, self.snapshot, self.epoch = events, first, snapshot, epoch
        self.loads = 0
        self.cursors = []
        self.closes = True

    def __call__(self, peer):
        if peer.path.endswith("/load"):
            self.loads += 1
            peer.answer(200, self.loaded())
            return
        self.cursors.append((peer.cursor, peer.headers.get("tidegate-epoch")))
        epoch, _, number = peer.cursor.rpartition("-")
        epoch = epoch or peer.headers.get("tidegate-epoch")
        after = int(number)
        frames = [b"retry: 0\n\n"]
        if epoch != self.epoch:
            frames.append(control("state_resync_required", reason="epoch_reset"))
            after = 0
        elif after + 1 < self.first:
            frames.append(control("state_resync_required", reason="ring_evicted"))
        frames += [
            frame(n, epoch=self.epoch) for n in range(max(after + 1, self.first), self.events + 1)
        ]
        frames.append(control("replay_complete", replayedCount=len(frames)))
        if self.closes:
            frames.append(frame(self.events + 1, "session_closed", "end", epoch=self.epoch))
        peer.stream(*frames, tidegate_epoch=self.epoch)
        if self.closes:
            peer.end()
        else:
            peer.wait_gone()

    def loaded(self):
        complete = self.snapshot + 1 >= self.first
        return {
            "sessionId": "a1",
            "state": list(range(1, self.snapshot + 1)) if self.snapshot else None,
            "lastEventId": self.snapshot if complete else self.first - 1,
            "epoch": self.epoch,
            "complete": complete,
        }


def expected(session):
    return [*range(1, session.events + 1), "end"]


async def test_a_fresh_view_loads_and_then_follows_to_the_end():
    session = Session(events=5, snapshot=2)
    with scripted(session) as server:
        view = SessionView(lambda: load_session(server.session), collect, initial=[])
        async with view.follow(server.session) as states:
            got = [state async for state in states]
            assert states.stream.end_reason == "session_closed"
        assert got[0] == [1, 2]
        assert got[-1] == view.state == expected(session)
        assert view.ended
        assert (session.loads, session.cursors) == (1, [("2", "e1")])
        await eventually(lambda: not server.open)


def test_the_same_without_a_loop():
    session = Session(events=5, snapshot=2)
    with scripted(session) as server:
        view = SessionView(lambda: load_session_sync(server.session), collect, initial=[])
        with view.follow_sync(server.session) as states:
            got = list(states)
            assert states.stream.end_reason == "session_closed"
        assert got[0] == [1, 2]
        assert got[-1] == expected(session)
        assert (session.loads, session.cursors) == (1, [("2", "e1")])
        wait_until(lambda: not server.open)


async def test_a_stream_that_begins_somewhere_needs_no_load_until_it_does_not_link():
    session = Session(events=20, first=10, snapshot=15)
    with scripted(session) as server:
        view = SessionView(lambda: load_session(server.session), collect, initial=[])
        source = follow(server.session, last_event_id="e1-0")
        got = [state async for state in view.follow(source)]
        assert got[0] == list(range(1, 16)), "the survivors were not applied to the old state"
        assert view.state == expected(session)
        assert view.resyncs == 1
        assert session.cursors == [("e1-0", None), ("15", "e1")]


def test_a_resync_without_a_loop():
    session = Session(events=20, first=10, snapshot=15)
    with scripted(session) as server:
        view = SessionView(lambda: load_session_sync(server.session), collect, initial=[])
        assert list(view.follow_sync(follow_sync(server.session, last_event_id="e1-0")))
        assert view.state == expected(session)
        assert session.cursors == [("e1-0", None), ("15", "e1")]


async def test_another_life_of_the_session_is_loaded():
    session = Session(events=4, epoch="e2")
    with scripted(session) as server:
        view = SessionView(lambda: load_session(server.session), collect, initial=[])
        async with view.follow(follow(server.session, last_event_id="e1-90")) as states:
            assert [state async for state in states][-1] == expected(session)
        assert session.cursors == [("e1-90", None), ("0", "e2")]


async def test_a_view_follows_a_real_server_through_a_restart():
    with serve_sessions() as first, serve_sessions() as second, proxy_to(first.address) as proxy:
        lives = [service.create("a1") for service in (first, second)]
        url = f"{proxy.url}/session/a1"
        view = SessionView(lambda: load_session(url), collect, initial=[])

        def publish(service, *data):
            channel = service.sessions.get("a1").channel
            service.call(lambda: [channel.publish("tick", one) for one in data] and None)

        publish(first, "a", "b")
        async with asyncio.timeout(30), view.follow(follow(url)) as states:
            while await anext(states) != ["a", "b"]:
                pass
            assert view.place.epoch == lives[0]
            proxy.target = second.address
            publish(second, "c", "d", "e")
            proxy.cut()
            while await anext(states) != ["c", "d", "e"]:
                pass
        assert (view.resyncs, view.place.epoch, view.place.number) == (1, lives[1], 3)
        assert view.last_resync.data["reason"] == "epoch_reset"


async def test_an_incomplete_load_is_lived_with():
    session = Session(events=20, first=10)
    with scripted(session) as server:
        view = SessionView(lambda: load_session(server.session), collect, initial=[])
        states = [state async for state in view.follow(server.session)]
        assert states[-1] == [*range(10, 21), "end"]
        assert not view.complete
        assert (session.loads, session.cursors) == (1, [("9", "e1")])


async def test_a_view_goes_on_where_it_stopped():
    session = Session(events=6)
    with scripted(session) as server:
        view = SessionView(lambda: load_session(server.session), collect, initial=[])
        async with view.follow(server.session) as states:
            async for state in states:
                if len(state) == 3:
                    break
        async with view.follow(follow(server.session, last_event_id="e1-0")) as states:
            assert [state async for state in states][-1] == expected(session)
        assert session.loads == 1
        assert session.cursors == [("0", "e1"), ("e1-3", None)]


async def test_a_stream_of_the_callers_is_left_open():
    session = Session(events=3)
    session.closes = False
    with scripted(session) as server:
        view = SessionView(lambda: load_session(server.session), collect, initial=[])
        async with follow(server.session, last_event_id="e1-0") as stream:
            async with view.follow(stream) as states:
                assert await anext(states) == [1]
            assert stream.end_reason is None
            assert (await anext(stream)).id == 2


def test_a_stream_of_the_callers_is_left_open_without_a_loop():
    session = Session(events=3)
    session.closes = False
    with scripted(session) as server:
        view = SessionView(lambda: load_session_sync(server.session), collect, initial=[])
        with follow_sync(server.session, last_event_id="e1-0") as stream:
            with view.follow_sync(stream) as states:
                assert next(states) == [1]
            assert stream.end_reason is None
            assert next(stream).id == 2


async def test_a_cancelled_wait_loses_nothing():
    session = Session(events=3)
    session.closes = False
    slow = asyncio.Event()
    with scripted(session) as server:

        async def load():
            await slow.wait()
            return await load_session(server.session)

        view = SessionView(load, collect, initial=[])
        async with view.follow(server.session) as states:
            for _ in range(2):
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(anext(states), 0.01)
            slow.set()
            assert [await anext(states) for _ in range(4)][-1] == [1, 2, 3]
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(states), 0.01)
            waiting = asyncio.create_task(anext(states))
            await asyncio.sleep(0)
            with pytest.raises(ConcurrentConsumers):
                await anext(states)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
        assert session.cursors == [("0", "e1")]


async def test_a_cancel_between_load_and_reopen_is_made_good(monkeypatch):
    session = Session(events=20, first=10, snapshot=15)
    with scripted(session) as server:
        view = SessionView(lambda: load_session(server.session), collect, initial=[])
        source = follow(server.session, last_event_id="e1-0")
        async with view.follow(source) as states:
            assert await anext(states) == list(range(1, 16))
            stop = source._stop

            async def cancelled():
                raise asyncio.CancelledError

            monkeypatch.setattr(source, "_stop", cancelled)
            with pytest.raises(asyncio.CancelledError):
                await anext(states)
            monkeypatch.setattr(source, "_stop", stop)
            assert [state async for state in states][-1] == expected(session)


async def test_a_load_that_fails_is_tried_again_and_then_given_up():
    calls = []

    async def load():
        calls.append(1)
        raise ClientError("away")

    view = SessionView(load, collect, initial=[])
    with pytest.raises(LoadFailed, match="in 5 attempts: ClientError: away") as raised:
        await anext(Following(view, "http://h/session/a", patience=calm()))
    assert isinstance(raised.value.__cause__, ClientError)
    assert len(calls) == 5


def test_a_load_that_fails_is_tried_again_without_a_loop():
    session = Session(events=2)
    answers = iter([OSError("away"), ClientError("away")])
    with scripted(session) as server:

        def load():
            for failure in answers:
                raise failure
            return load_session_sync(server.session)

        view = SessionView(load, collect, initial=[])
        with SyncFollowing(view, follow_sync(server.session), patience=calm()) as states:
            assert list(states)[-1] == expected(session)


async def test_a_load_that_is_final_is_not_tried_again():
    with scripted(lambda peer: peer.answer(404)) as server:
        view = SessionView(lambda: load_session(server.session), collect, initial=[])
        states = view.follow(server.session)
        with pytest.raises(LoadFailed, match="answered 404"):
            await anext(states)
        assert len(server.requests) == 1


async def test_a_load_that_takes_too_long_has_failed():
    async def load():
        await asyncio.Event().wait()

    view = SessionView(load, collect, initial=[])
    states = Following(view, "http://h/session/a", patience=calm(), load_timeout=0.01)
    with pytest.raises(LoadFailed, match="in 5 attempts: TimeoutError"):
        await anext(states)


async def test_states_that_never_link_are_given_up():
    session = Session(events=20, first=10, snapshot=0)
    with scripted(session) as server:
        view = SessionView(lambda: Loaded([], 3, "e1"), collect, initial=[])
        states = Following(view, follow(server.session), patience=calm())
        with pytest.raises(LoadFailed, match="5 states were loaded in a row"):
            async for _ in states:
                pass
        assert [cursor for cursor, _ in session.cursors] == ["3"] * 5


async def test_an_asynchronous_load_is_refused_without_a_loop():
    async def load():
        raise AssertionError

    view = SessionView(load, collect, initial=[])
    with pytest.raises(TypeError, match="plain function"):
        next(view.follow_sync("http://h/session/a"))
    view = SessionView(asyncio.get_running_loop().create_future, collect, initial=[])
    with pytest.raises(TypeError, match="plain function"):
        next(view.follow_sync("http://h/session/a"))


async def test_what_the_stream_and_reduce_raise_comes_out():
    def refuse(state, event):
        raise KeyError(event.id)

    session = Session(events=3)
    with scripted(session) as server:
        view = SessionView(lambda: Loaded([]), refuse, initial=[])
        states = view.follow(follow(server.session, last_event_id="e1-0"))
        with pytest.raises(KeyError):
            await anext(states)
        await eventually(lambda: not server.open)
    with scripted(lambda peer: peer.answer(403)) as server:
        view = SessionView(lambda: Loaded([]), collect, initial=[])
        async with view.follow(server.session) as states:
            assert await anext(states) == []
            with pytest.raises(StreamRefused):
                await anext(states)


def test_close_from_another_thread_ends_the_iteration():
    session = Session(events=1)
    session.closes = False
    with scripted(session) as server, ThreadPoolExecutor(1) as pool:
        view = SessionView(lambda: load_session_sync(server.session), collect, initial=[])
        with view.follow_sync(server.session) as states:
            assert [next(states), next(states)] == [[], [1]]
            waiting = pool.submit(next, states, "the end")
            wait_until(states.stream._turn.locked)
            states.close()
            assert waiting.result(20) == "the end"
            assert next(states, "the end") == "the end"


def test_close_from_another_thread_ends_the_loading():
    failed = threading.Event()

    def load():
        failed.set()
        raise ClientError("away")

    view = SessionView(load, collect, initial=[])
    with ThreadPoolExecutor(1) as pool:
        states = SyncFollowing(
            view, "http://h/session/a", patience=LoadPatience(random=lambda: 1.0)
        )
        waiting = pool.submit(next, states, "the end")
        assert failed.wait(20)
        states.close()
        assert waiting.result(20) == "the end"


def test_patience_waits_longer_each_time_and_not_before_the_first_load():
    patience = LoadPatience(attempts=4, random=lambda: 1.0)
    assert patience.before() == 0
    assert [patience.failed(OSError()) for _ in range(3)] == [1, 2, 4]
    with pytest.raises(LoadFailed, match="in 4 attempts: OSError"):
        patience.failed(OSError())
    patience.succeeded()
    assert [patience.before(), patience.failed(OSError())] == [1, 1]
    patience.succeeded()
    assert patience.before() == 2
    patience.linked()
    assert patience.before() == 0
