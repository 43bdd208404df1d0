"""`connect_sync` against real sockets: the same rules, without an event loop."""

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.client.support import Cutter, control, frame, opened, published, scripted
from tests.integration.support import serve_sessions
from tests.servers import wait_until
from tidegate.client import StreamState, connect_sync
from tidegate.errors import (
    ChainBroken,
    ClientError,
    ConcurrentConsumers,
    NotAnEventStream,
    SseLimitExceeded,
    StreamRefused,
    StreamUnavailable,
)


def follow(url, **options):
    """Connect without the waits that are right elsewhere."""
    return connect_sync(url, **{"retry": 0.0, "random": lambda: 0.0, **options})


def steady(peer):
    peer.stream(b"retry: 0\n\n", frame(1), frame(2))
    peer.wait_gone()


def in_turn(*scripts):
    scripts = list(scripts)

    def script(peer):
        (scripts.pop(0) if len(scripts) > 1 else scripts[0])(peer)

    return script


@pytest.fixture
def in_thread():
    with ThreadPoolExecutor(1, "consumer") as pool:
        yield pool.submit


@pytest.mark.parametrize("seed", range(3))
def test_cut_50_times_each_event_comes_exactly_once(seed):
    with scripted(Cutter(events=1000, cuts=50, seed=seed)) as server:
        with follow(server.session, last_event_id=0) as stream:
            got = [event.id for event in stream]
        assert got == list(range(1, 1002))
        assert stream.end_reason == "session_closed"
        assert stream.statistics().connects == 51


def test_breaking_out_of_a_loop_and_coming_back_goes_on():
    with scripted(Cutter(events=10, cuts=0, seed=0)) as server:
        with follow(server.session) as stream:
            got = []
            while stream.end_reason is None:
                for event in stream:
                    got.append(event.id)
                    if event.id % 3 == 0:
                        break
        assert got == list(range(1, 12))


def test_leaving_the_context_closes_the_response():
    with scripted(steady) as server:
        with follow(server.session) as stream:
            assert next(stream).id == 1
        wait_until(lambda: not server.open)
        assert stream.end_reason == "closed"
        assert next(stream, "the end") == "the end"


def test_a_stream_is_entered_once_and_read_inside():
    with scripted(steady) as server:
        stream = follow(server.session)
        with pytest.raises(RuntimeError, match=r"write: with connect_sync\(url\) as stream: for"):
            next(stream)
        with stream, pytest.raises(RuntimeError, match="entered once"):
            stream.__enter__()
        with pytest.raises(RuntimeError, match="the stream is closed"):
            stream.reopen(0)


def test_two_consumers_at_once_are_refused(in_thread):
    with scripted(steady) as server, follow(server.session) as stream:
        assert [next(stream).id, next(stream).id] == [1, 2]
        waiting = in_thread(next, stream, "the end")
        wait_until(stream._turn.locked)
        with pytest.raises(ConcurrentConsumers):
            next(stream)
        with pytest.raises(ConcurrentConsumers):
            stream.reopen(0)
        stream.close()
        assert waiting.result(20) == "the end"
        assert stream.end_reason == "closed"
        wait_until(lambda: not server.open)


def test_close_from_another_thread_ends_a_wait_between_two_attempts(in_thread):
    states = []
    with scripted(lambda peer: peer.answer(503, retry_after="3000")) as server:
        stream = follow(server.session, on_state=states.append)
        entering = in_thread(stream.__enter__)
        wait_until(lambda: states and states[-1].phase == "waiting")
        stream.close()
        assert entering.result(20) is stream
        assert next(stream, "the end") == "the end"


def test_a_stream_closed_before_it_is_entered_makes_no_request():
    with scripted(steady) as server:
        stream = follow(server.session)
        stream.close()
        with stream:
            assert list(stream) == []
        assert server.requests == []


def test_204_ends_the_iteration():
    with scripted(lambda peer: peer.head(204)) as server, follow(server.session) as stream:
        assert list(stream) == []
        assert stream.end_reason == "no_content"


def test_what_is_final_raises():
    def script(peer):
        if "a1" in peer.path:
            peer.answer(404, {"error": "no such session", "code": "session_not_found"})
        elif "a2" in peer.path:
            peer.answer(200, b"<html>", content_type="text/html")
        elif "a3" in peer.path:
            peer.answer(307, location=peer.target)
        else:
            peer.head(403, content_length="1000")
            peer.sock.sendall(b"{")

    with scripted(script) as server:
        with pytest.raises(StreamRefused, match="no such session"):
            follow(f"{server.url}/session/a1").__enter__()
        with pytest.raises(NotAnEventStream, match="text/html"):
            follow(f"{server.url}/session/a2").__enter__()
        with pytest.raises(ClientError, match="from one URL to the next"):
            follow(f"{server.url}/session/a3").__enter__()
        with pytest.raises(StreamRefused, match="403: Whatever"):
            follow(f"{server.url}/session/a4").__enter__()
        wait_until(lambda: not server.open)


def test_max_attempts_gives_up():
    with scripted(lambda peer: peer.cut()) as server:
        with pytest.raises(StreamUnavailable, match="in 3 attempts") as raised:
            follow(server.session, max_attempts=3).__enter__()
        assert isinstance(raised.value.__cause__, httpx.TransportError)
        assert len(server.requests) == 3


@pytest.mark.parametrize("form", ["status", "auto"])
def test_a_real_server_that_is_full_is_given_up_at_entering(form):
    with serve_sessions(max_subscribers=1, refusal=form) as service:
        service.create("a1")
        url, states = f"{service.url}/session/a1", []
        with follow(url), pytest.raises(StreamUnavailable, match="in 1 attempts"):
            follow(url, on_state=states.append, max_attempts=1).__enter__()
        assert [state.phase for state in states] == ["connecting", "finished"]


def test_a_refusal_as_a_stream_is_come_back_from_and_not_handed_out():
    def refuse(peer):
        refusal = control("stream_error", error="come back later", errorKind="draining")
        peer.stream(b"retry: 0\n\n", refusal)
        peer.wait_gone()

    states = []
    with scripted(in_turn(refuse, steady)) as server:
        with follow(server.session, on_state=states.append, max_attempts=2) as stream:
            assert next(stream).id == 1
        assert stream.statistics().connects == 1
    assert states[1] == StreamState("waiting", 1, 0.0, "draining: come back later")


def test_a_401_asks_for_one_new_token():
    tokens = iter(["t1", "t2"])
    with scripted(in_turn(lambda peer: peer.answer(401), steady)) as server:
        with follow(server.session, get_token=lambda: next(tokens)) as stream:
            assert next(stream).id == 1
        sent = [peer.headers["authorization"] for peer in server.requests]
        assert sent == ["Bearer t1", "Bearer t2"]


def test_silence_is_a_dead_stream():
    with scripted(steady) as server, follow(server.session, stall_timeout=0.2) as stream:
        assert [next(stream).id for _ in range(4)] == [1, 2, 1, 2]
        assert stream.statistics().last_problem == "ReadTimeout: timed out"


def test_max_queued_is_asked_about_first():
    def broken(peer):
        peer.head(200, content_length="1000")
        peer.sock.sendall(b"{")

    def capable(peer):
        limits = {"maxQueued": [16, 2048]}
        peer.answer(200, {"features": ["slow_client_warning"], "limits": limits})

    with scripted(in_turn(broken, capable, steady)) as server:
        with follow(server.session, max_queued=32) as stream:
            next(stream)
        assert [peer.target for peer in server.requests] == [
            "/capabilities",
            "/capabilities",
            "/session/a1/events?ids=epoch&maxQueued=32",
        ]


def test_a_frame_over_the_bound_raises_and_closes():
    def script(peer):
        peer.stream()
        for _ in range(40):
            peer.write(b"x" * 2**20)
        peer.wait_gone()

    with scripted(script) as server, follow(server.session) as stream:
        with pytest.raises(SseLimitExceeded):
            next(stream)
        wait_until(lambda: not server.open)
        assert stream.end_reason == "limit"


def test_reopen_goes_on_elsewhere():
    with scripted(steady) as server:
        stream = follow(server.session)
        stream.reopen("e1-5")
        with stream:
            next(stream)
            stream.reopen(40, "e7")
            next(stream)
            stream.reopen()
            next(stream)
        cursors = [(p.cursor, p.headers.get("tidegate-epoch")) for p in server.requests]
        assert cursors == [("e1-5", None), ("40", "e7"), (None, None)]


def test_a_callers_client_is_used_and_left_open():
    with scripted(steady) as server, httpx.Client(headers={"X-From": "caller"}) as client:
        with follow(server.session, client=client) as stream:
            next(stream)
        wait_until(lambda: not server.open)
        assert not client.is_closed
        assert server.requests[0].headers["x-from"] == "caller"


def test_many_closes_at_once_end_in_one_place():
    with scripted(steady) as server:
        for _ in range(20):
            with follow(server.session) as stream, ThreadPoolExecutor(3) as pool:
                ready = threading.Barrier(3, timeout=20)

                def consume(stream=stream, ready=ready):
                    ready.wait()
                    return [event.id for event in stream]

                def close(stream=stream, ready=ready):
                    ready.wait()
                    stream.close()

                got = pool.submit(consume)
                closing = [pool.submit(close), pool.submit(close)]
                assert got.result(20) in ([], [1], [1, 2])
                assert [done.result(20) for done in closing] == [None, None]
            assert stream.end_reason == "closed"
        wait_until(lambda: not server.open)


def test_nothing_is_read_while_nobody_asks():
    """The server's writes block: it can see that this client is slow, and warn it."""
    blocked = threading.Event()

    def script(peer):
        peer.stream(frame(1))
        peer.sock.settimeout(1)
        try:
            while True:
                peer.write(frame(2, data="x" * 2**16))
        except TimeoutError:
            blocked.set()

    with scripted(script) as server, follow(server.session) as stream:
        assert next(stream).id == 1
        started = time.monotonic()
        assert blocked.wait(20), time.monotonic() - started


def test_a_gap_raises_closes_the_connection_and_is_healed_by_coming_back():
    def gap(peer):
        peer.stream(b"retry: 0\n\n", opened("a"), published(1), published(3))
        peer.wait_gone()

    def whole(peer):
        peer.stream(opened("a", position="p01"), published(2), published(3))
        peer.wait_gone()

    with scripted(in_turn(gap, whole)) as server:
        with follow(server.url, channels=["a"], tail=1) as stream:
            assert [next(stream).position for _ in range(2)] == [None, "p01"]
            with pytest.raises(ChainBroken):
                next(stream)
            wait_until(lambda: not server.open)
            assert [next(stream).position for _ in range(3)] == [None, "p02", "p03"]
        targets = [(peer.target, peer.cursor) for peer in server.requests]
        assert targets == [
            ("/v1/stream?channel=a&tail=1", None),
            ("/v1/stream?channel=a", "c.p01"),
        ]


def test_many_channels_are_asked_for_in_a_body():
    names = [f"{n:0>200}" for n in range(50)]

    def script(peer):
        peer.stream(opened(*names))
        peer.wait_gone()

    with scripted(script) as server:
        with follow(server.url, channels=names) as stream:
            assert next(stream).type == "stream_open"
        assert json.loads(server.requests[0].body) == {"channels": names}
