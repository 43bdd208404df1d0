"""`connect` against real sockets: every way a stream can begin, break off and end."""

import asyncio
import contextlib
import json
import socket
import threading

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Route

from tests.client.support import Cutter, control, frame, opened, published, scripted
from tests.integration.proxy import proxy_to
from tests.integration.support import serve_sessions
from tests.servers import eventually, serve_app
from tidegate.channel import Channel
from tidegate.client import StreamState, connect
from tidegate.errors import (
    ChainBroken,
    ClientError,
    ConcurrentConsumers,
    NotAnEventStream,
    SseLimitExceeded,
    StreamRefused,
    StreamUnavailable,
)
from tidegate.stream import EventStream


def follow(url, **options):
    """Connect without the waits that are right elsewhere."""
    return connect(url, **{"retry": 0.0, "random": lambda: 0.0, **options})


def steady(peer):
    """A stream of two events that then says nothing."""
    peer.stream(b"retry: 0\n\n", frame(1), frame(2))
    peer.wait_gone()


def in_turn(*scripts):
    """Each request gets the next script, and the last one for good."""
    scripts = list(scripts)

    def script(peer):
        (scripts.pop(0) if len(scripts) > 1 else scripts[0])(peer)

    return script


async def test_events_arrive_as_they_are_sent():
    with scripted(steady) as server:
        async with follow(server.session) as stream:
            first = await anext(stream)
            assert (first.id, first.type, first.data, first.cursor) == (1, "tick", 1, "e1-1")
            assert stream.cursor is None
            assert (await anext(stream)).id == 2
            assert (stream.cursor, stream.epoch) == ("e1-1", "e1")
        await eventually(lambda: not server.open)
        assert stream.end_reason == "closed"
        request = server.requests[0]
        assert request.target == "/session/a1/events?ids=epoch"
        assert request.headers["accept"] == "text/event-stream"
        assert request.cursor is None


@pytest.mark.parametrize("seed", range(3))
async def test_cut_50_times_each_event_comes_exactly_once(seed):
    cutter = Cutter(events=1000, cuts=50, seed=seed)
    with scripted(cutter) as server:
        async with follow(server.session, last_event_id=0) as stream:
            got = [event.id async for event in stream]
        assert got == list(range(1, 1002))
        assert stream.end_reason == "session_closed"
        assert stream.statistics().connects == 51
        assert cutter.resumed_at[0] == "0"


async def test_breaking_out_of_a_loop_and_coming_back_goes_on():
    with scripted(Cutter(events=10, cuts=0, seed=0)) as server:
        async with follow(server.session) as stream:
            got = []
            while stream.end_reason is None:
                async for event in stream:
                    got.append(event.id)
                    if event.id % 3 == 0:
                        break
        assert got == list(range(1, 12))
        assert len(server.requests) == 1


async def test_a_cancelled_wait_loses_nothing_and_keeps_the_connection():
    go_on = asyncio.Event()
    loop = asyncio.get_running_loop()

    def script(peer):
        peer.stream(frame(1))
        asyncio.run_coroutine_threadsafe(go_on.wait(), loop).result(20)
        peer.write(frame(2))
        peer.wait_gone()

    with scripted(script) as server:
        async with follow(server.session) as stream:
            assert (await anext(stream)).id == 1
            for _ in range(3):
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(anext(stream), 0.01)
            go_on.set()
            assert (await anext(stream)).id == 2
        assert len(server.requests) == 1


async def test_two_consumers_at_once_are_refused():
    with scripted(steady) as server:
        async with follow(server.session) as stream:
            assert [(await anext(stream)).id, (await anext(stream)).id] == [1, 2]
            waiting = asyncio.create_task(anext(stream))
            await asyncio.sleep(0)
            with pytest.raises(ConcurrentConsumers):
                await anext(stream)
            with pytest.raises(ConcurrentConsumers):
                await stream.reopen(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting


async def test_a_stream_is_entered_once_and_read_inside():
    with scripted(steady) as server:
        stream = follow(server.session)
        with pytest.raises(
            RuntimeError, match=r"write: async with connect\(url\) as stream: async"
        ):
            async for _ in stream:
                pass
        assert server.requests == []
        async with stream:
            with pytest.raises(RuntimeError, match="entered once"):
                await stream.__aenter__()
        with pytest.raises(StopAsyncIteration):
            await anext(stream)
        with pytest.raises(RuntimeError, match="the stream is closed"):
            await stream.reopen(0)


async def test_204_ends_the_iteration():
    with scripted(lambda peer: peer.head(204)) as server:
        async with follow(server.session) as stream:
            assert [event async for event in stream] == []
        assert stream.end_reason == "no_content"
        assert len(server.requests) == 1


@pytest.mark.parametrize("status", [400, 403, 404, 410])
async def test_a_refusal_raises_with_its_reason_at_entering(status):
    def script(peer):
        peer.answer(status, {"error": "no such session", "code": "session_not_found"})

    with scripted(script) as server:
        with pytest.raises(StreamRefused, match="no such session") as raised:
            async with follow(server.session):
                pass
        assert (raised.value.status, raised.value.code) == (status, "session_not_found")
        assert len(server.requests) == 1
        await eventually(lambda: not server.open)


async def test_a_refusal_later_on_raises_at_the_event_and_then_it_is_over():
    gone = in_turn(
        lambda peer: [peer.stream(b"retry: 0\n\n", frame(1)), peer.end()],
        lambda peer: peer.answer(404, {"error": "it has ended", "code": "session_not_found"}),
    )
    with scripted(gone) as server:
        async with follow(server.session) as stream:
            assert (await anext(stream)).id == 1
            with pytest.raises(StreamRefused, match="it has ended"):
                await anext(stream)
            with pytest.raises(StopAsyncIteration):
                await anext(stream)
        assert stream.end_reason == "refused"


async def test_a_refusal_whose_body_breaks_off_is_a_refusal():
    def script(peer):
        peer.head(403, content_length="1000")
        peer.sock.sendall(b"{")

    with scripted(script) as server, pytest.raises(StreamRefused, match="403: Whatever"):
        await follow(server.session).__aenter__()


async def test_another_content_type_raises():
    with scripted(lambda peer: peer.answer(200, b"<html>", content_type="text/html")) as server:
        with pytest.raises(NotAnEventStream, match="text/html"):
            async with follow(server.session):
                pass
        await eventually(lambda: not server.open)


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503])
async def test_what_may_pass_is_tried_again_at_entering_too(status):
    busy = in_turn(
        lambda peer: peer.answer(status), lambda peer: peer.answer(status, retry_after="0"), steady
    )
    with scripted(busy) as server:
        async with follow(server.session) as stream:
            assert (await anext(stream)).id == 1
        assert len(server.requests) == 3
        assert stream.statistics().retries == 2


async def test_retry_after_is_waited_for():
    busy = in_turn(lambda peer: peer.answer(503, retry_after="7"), steady)
    states = []
    with scripted(busy) as server:
        stream = follow(server.session, on_state=states.append)
        entering = asyncio.create_task(stream.__aenter__())
        await eventually(lambda: states and states[-1].phase == "waiting")
        assert states[-1] == StreamState("waiting", 1, 7.0, "status 503")
        entering.cancel()
        with pytest.raises(asyncio.CancelledError):
            await entering
        assert stream.end_reason == "closed"


REFUSAL = control("stream_error", error="come back later", errorKind="draining")


def refuse_at_once(peer):
    peer.answer(200, b"retry: 0\n\n" + REFUSAL, content_type="text/event-stream")


def refuse_byte_by_byte(peer):
    peer.stream()
    for one in b"retry: 0\n\n" + REFUSAL:
        peer.write(bytes([one]))
    peer.end()


def refuse_and_stay(peer):
    peer.stream(b"retry: 0\n\n", REFUSAL)
    peer.wait_gone()


@pytest.mark.parametrize("refuse", [refuse_at_once, refuse_byte_by_byte, refuse_and_stay])
async def test_a_refusal_as_a_stream_is_come_back_from_and_not_handed_out(refuse):
    states = []
    with scripted(in_turn(refuse, refuse, steady)) as server:
        async with follow(
            server.session, last_event_id="e1-0", on_state=states.append, max_attempts=3
        ) as stream:
            assert (await anext(stream)).id == 1
        assert [peer.cursor for peer in server.requests] == ["e1-0"] * 3
        statistics = stream.statistics()
        assert (statistics.connects, statistics.retries, statistics.events) == (1, 2, 1)
    assert [state.phase for state in states] == [
        *["connecting", "waiting"] * 2,
        *["connecting", "open", "finished"],
    ]
    assert {s.cause for s in states if s.phase == "waiting"} == {"draining: come back later"}


async def test_a_refusal_of_a_known_length_is_found_at_entering():
    with scripted(refuse_at_once) as server:
        with pytest.raises(StreamUnavailable, match="in 2 attempts: draining: come back later"):
            await follow(server.session, max_attempts=2).__aenter__()
        assert len(server.requests) == 2
        await eventually(lambda: not server.open)


async def test_entering_does_not_wait_for_a_silent_stream():
    def silent(peer):
        peer.stream(b"retry: 0\n\n")
        peer.wait_gone()

    with scripted(silent) as server:
        async with asyncio.timeout(20), follow(server.session, stall_timeout=3000):
            pass


async def test_an_odd_epoch_of_the_server_does_no_harm():
    def script(peer):
        peer.stream(b"retry: 0\n\n", tidegate_epoch="\xe9\x9b")
        peer.write(frame(len(server.requests)).replace(b"id: e1-", b"id: "))
        peer.end()

    with scripted(script) as server:
        async with follow(server.session) as stream:
            assert [(await anext(stream)).id for _ in range(3)] == [1, 2, 3]
            assert stream.epoch is None
        assert [peer.cursor for peer in server.requests] == [None, "1", "2"]


async def test_a_frame_over_the_bound_behind_a_good_one_in_the_last_chunk_raises():
    def script(peer):
        peer.answer(200, frame(1) + b"x" * (17 * 2**20), content_type="text/event-stream")

    with scripted(script) as server:
        async with follow(server.session, retry=3000) as stream:
            assert (await anext(stream)).id == 1
            with pytest.raises(SseLimitExceeded):
                await anext(stream)
        assert stream.end_reason == "limit"


async def test_no_connection_is_tried_again_until_there_is_one():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    states = []
    stream = follow(f"http://127.0.0.1:{port}/session/a1", on_state=states.append, retry=0.01)
    entering = asyncio.create_task(stream.__aenter__())
    await eventually(lambda: any(state.phase == "waiting" for state in states))
    with scripted(steady, port):
        async with contextlib.aclosing(await entering):
            assert (await anext(stream)).id == 1
    assert "ConnectError" in next(s.cause for s in states if s.phase == "waiting")


async def test_max_attempts_gives_up():
    with scripted(lambda peer: peer.answer(503, retry_after="0")) as server:
        with pytest.raises(StreamUnavailable, match="in 3 attempts: status 503"):
            async with follow(server.session, max_attempts=3):
                pass
        assert len(server.requests) == 3


async def test_a_token_comes_from_where_it_is_given():
    with scripted(steady) as server:
        async with follow(server.session, token="t0") as stream:
            await anext(stream)
        async with follow(server.session, get_token=lambda: "t1") as stream:
            await anext(stream)

        async def get_token():
            await asyncio.sleep(0)
            return "t2"

        async with follow(server.session, get_token=get_token) as stream:
            await anext(stream)
        sent = [peer.headers["authorization"] for peer in server.requests]
        assert sent == ["Bearer t0", "Bearer t1", "Bearer t2"]
        assert not any("t1" in peer.target for peer in server.requests)


async def test_a_401_asks_for_one_new_token_and_goes_on_at_the_cursor():
    asked = []

    def get_token():
        asked.append(len(asked) + 1)
        return f"t{len(asked)}"

    script = in_turn(
        lambda peer: [peer.stream(b"retry: 0\n\n", frame(1)), peer.end()],
        lambda peer: peer.answer(401),
        steady,
    )
    with scripted(script) as server:
        async with follow(server.session, token="t0", get_token=get_token) as stream:
            assert [(await anext(stream)).id, (await anext(stream)).id] == [1, 1]
        tokens = [peer.headers["authorization"][7:] for peer in server.requests]
        assert tokens == ["t0", "t0", "t1"]
        assert server.requests[2].cursor == "e1-1"


async def test_a_second_401_in_a_row_is_final():
    with scripted(lambda peer: peer.answer(401, {"error": "Unauthorized"})) as server:
        with pytest.raises(StreamRefused, match="401: Unauthorized"):
            async with follow(server.session, get_token=lambda: "t"):
                pass
        assert len(server.requests) == 2


async def test_what_get_token_raises_comes_out_and_the_next_event_asks_again():
    answers = iter(["t1", OSError("no token server"), "t2"])

    def get_token():
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    script = in_turn(
        lambda peer: [peer.stream(b"retry: 0\n\n"), peer.end()],
        lambda peer: peer.answer(401),
        steady,
    )
    with scripted(script) as server:
        async with follow(server.session, get_token=get_token) as stream:
            with pytest.raises(OSError, match="no token server"):
                await anext(stream)
            assert (await anext(stream)).id == 1


async def test_silence_is_a_dead_stream_and_a_heartbeat_a_living_one():
    def silent(peer):
        peer.stream(frame(1))
        peer.wait_gone()

    def beating(peer):
        peer.stream()
        for _ in range(30):
            peer.write(b": hb\n\n")
            if resting.wait(0.05):
                return
        peer.write(frame(2))
        peer.wait_gone()

    resting = threading.Event()
    with scripted(in_turn(silent, beating)) as server:
        try:
            async with follow(server.session, stall_timeout=0.6) as stream:
                assert (await anext(stream)).id == 1
                assert (await anext(stream)).id == 2
                assert stream.statistics().last_problem == "ReadTimeout"
                assert stream.statistics().connects == 2
        finally:
            resting.set()


async def test_redirects_are_followed_and_not_without_an_end():
    def script(peer):
        if peer.path == "/session/a1/events":
            peer.answer(307, location="/elsewhere")
        elif peer.path == "/session/a2/events":
            peer.answer(307, location=peer.target)
        elif peer.path == "/session/a3/events":
            peer.answer(307, location="gopher://h/")
        else:
            steady(peer)

    with scripted(script) as server:
        async with follow(server.session) as stream:
            assert (await anext(stream)).id == 1
        with pytest.raises(ClientError, match="from one URL to the next"):
            await follow(f"{server.url}/session/a2").__aenter__()
        with pytest.raises(ClientError, match="not http or https"):
            await follow(f"{server.url}/session/a3").__aenter__()


async def test_a_header_that_http_does_not_allow_is_final_and_not_shown():
    with scripted(steady) as server:
        with pytest.raises(ClientError, match="does not allow") as raised:
            await follow(server.session, headers={"X-Key": "s3cret\nX: y"}).__aenter__()
        assert "s3cret" not in str(raised.value)
        assert server.requests == []


async def test_max_queued_is_asked_about_first():
    def script(peer):
        if peer.path == "/capabilities":
            limits = {"maxQueued": [16, 2048]}
            peer.answer(200, {"features": ["slow_client_warning"], "limits": limits})
        else:
            steady(peer)

    with scripted(script) as server:
        async with follow(server.session, max_queued=32, token="t") as stream:
            await anext(stream)
        assert [peer.target for peer in server.requests] == [
            "/capabilities",
            "/session/a1/events?ids=epoch&maxQueued=32",
        ]
        assert server.requests[0].headers["authorization"] == "Bearer t"
        with pytest.raises(ValueError, match="16 to 2048 here, not 5"):
            await follow(server.session, max_queued=5).__aenter__()


async def test_a_preflight_that_breaks_off_is_made_again():
    def broken(peer):
        peer.head(200, content_length="1000")
        peer.sock.sendall(b"{")

    with scripted(in_turn(broken, lambda peer: peer.answer(404), steady)) as server:
        async with follow(server.session, max_queued=32) as stream:
            assert (await anext(stream)).id == 1
        paths = [peer.path for peer in server.requests]
        assert paths == ["/capabilities", "/capabilities", "/session/a1/events"]


async def test_a_frame_over_the_bound_raises_and_closes():
    def script(peer):
        peer.stream()
        with contextlib.suppress(ConnectionError):
            for _ in range(40):
                peer.write(b"x" * 2**20)
            peer.wait_gone()

    with scripted(script) as server:
        async with follow(server.session) as stream:
            with pytest.raises(SseLimitExceeded):
                await anext(stream)
            await eventually(lambda: not server.open)
        assert stream.end_reason == "limit"


async def test_reopen_goes_on_elsewhere_and_drops_what_came():
    with scripted(steady) as server:
        async with follow(server.session, last_event_id="e1-0") as stream:
            assert (await anext(stream)).id == 1
            await stream.reopen(40, "e7")
            assert (await anext(stream)).id == 1
            await stream.reopen()
            assert (await anext(stream)).id == 1
        cursors = [(p.cursor, p.headers.get("tidegate-epoch")) for p in server.requests]
        assert cursors == [("e1-0", None), ("40", "e7"), (None, None)]


async def test_reopen_before_entering_says_where_to_begin():
    with scripted(steady) as server:
        stream = follow(server.session)
        await stream.reopen("e1-5")
        async with stream:
            await anext(stream)
        assert server.requests[0].cursor == "e1-5"


async def test_reopen_refuses_what_is_no_place_and_changes_nothing():
    with scripted(steady) as server:
        async with follow(server.session) as stream:
            with pytest.raises(ValueError, match="0 to 2"):
                await stream.reopen(-1)
            assert (await anext(stream)).id == 1


async def test_a_slow_consumer_gets_everything():
    with scripted(Cutter(events=300, cuts=0, seed=0)) as server:
        async with follow(server.session) as stream:
            got = []
            async for event in stream:
                await asyncio.sleep(0)
                got.append(event.id)
        assert got == list(range(1, 302))


async def test_aclose_ends_the_wait_of_another_task():
    with scripted(steady) as server:
        async with follow(server.session) as stream:
            await anext(stream)
            await anext(stream)
            waiting = asyncio.create_task(anext(stream, "the end"))
            await asyncio.sleep(0)
            await stream.aclose()
            await stream.aclose()
            assert await waiting == "the end"
            await eventually(lambda: not server.open)


async def test_a_stream_closed_before_it_is_entered_makes_no_request():
    with scripted(steady) as server:
        stream = follow(server.session)
        await stream.aclose()
        async with stream:
            assert [event async for event in stream] == []
        assert server.requests == []


async def test_a_callers_client_is_used_and_left_open():
    with scripted(steady) as server:
        async with httpx.AsyncClient(headers={"X-From": "caller"}) as client:
            async with follow(server.session, client=client) as stream:
                await anext(stream)
            await eventually(lambda: not server.open)
            assert not client.is_closed
        assert server.requests[0].headers["x-from"] == "caller"


@pytest.mark.parametrize("where", ["before the head", "in the wait", "in the body"])
async def test_cancelling_the_consumer_leaves_nothing_open(where):
    states = []

    def script(peer):
        if where == "before the head":
            peer.wait_gone()
        elif where == "in the wait":
            peer.answer(503, retry_after="3000")
        else:
            steady(peer)

    with scripted(script) as server:
        tasks = asyncio.all_tasks()

        async def consume():
            async with follow(server.session, on_state=states.append) as stream:
                async for _ in stream:
                    pass

        consumer = asyncio.create_task(consume())
        phase = {"before the head": "connecting", "in the wait": "waiting", "in the body": "open"}
        await eventually(lambda: states and states[-1].phase == phase[where] and server.requests)
        consumer.cancel()
        with pytest.raises(asyncio.CancelledError):
            await consumer
        await eventually(lambda: not server.open)
        await eventually(lambda: asyncio.all_tasks() <= tasks)


async def test_cancelling_while_connecting_leaves_nothing_open():
    # The queue of this listener is full, so that a further connection is never made.
    with socket.socket() as listener, contextlib.ExitStack() as clients:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(4):
            client = clients.enter_context(socket.socket())
            client.setblocking(False)
            client.connect_ex(listener.getsockname())
        tasks = asyncio.all_tasks()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/session/a1"
        entering = asyncio.create_task(follow(url).__aenter__())
        await asyncio.sleep(0.05)
        entering.cancel()
        with pytest.raises(asyncio.CancelledError):
            await entering
        await eventually(lambda: asyncio.all_tasks() <= tasks)


def test_wrong_arguments_are_refused_at_once():
    with pytest.raises(ValueError, match="http://HOST"):
        connect("ftp://h/")
    with pytest.raises(TypeError, match="a URL is a str"):
        connect(5)
    with pytest.raises(ValueError, match="visible ASCII"):
        connect("http://h/session/a", token="a b")
    with pytest.raises(ValueError, match="more than 0 s"):
        connect("http://h/session/a", stall_timeout=0)
    with pytest.raises(TypeError, match="last_event_id"):
        connect("http://h/session/a", last_event_id=1.5)


@contextlib.contextmanager
def two_lives():
    """A session behind a proxy, and a way to start its server anew."""
    with serve_sessions() as first, serve_sessions() as second, proxy_to(first.address) as proxy:
        first.create("a1")
        second.create("a1")

        def publish(service, *data):
            channel = service.sessions.get("a1").channel
            service.call(lambda: [channel.publish("tick", one) for one in data] and None)

        def restart():
            proxy.target = second.address
            proxy.cut()

        yield first, second, f"{proxy.url}/session/a1", publish, restart


@pytest.mark.parametrize("kind", ["a cursor", "a number and its epoch"])
async def test_a_restart_of_the_server_is_seen_and_nothing_of_the_new_life_is_missed(kind):
    with two_lives() as (first, second, url, publish, restart):
        publish(first, "a", "b", "c")
        epoch = first.create("a1")
        place = ("0", epoch) if kind == "a number and its epoch" else (f"{epoch}-0", None)
        async with follow(url, last_event_id=place[0], epoch=place[1]) as stream:
            assert [(await anext(stream)).data for _ in range(3)] == ["a", "b", "c"]
            assert (await anext(stream)).type == "replay_complete"
            # More than the old life had: a number alone would pass for one of this life.
            publish(second, "d", "e", "f", "g")
            restart()
            resync = await anext(stream)
            assert resync.type == "state_resync_required"
            assert resync.data["reason"] == "epoch_reset"
            assert [(await anext(stream)).data for _ in range(4)] == ["d", "e", "f", "g"]
            await anext(stream)
            new = second.create("a1")
            assert (stream.cursor, stream.epoch) == (f"{new}-4", new)


async def test_a_route_that_writes_plain_ids_is_resumed_with_the_epoch_beside_them():
    channel = Channel("plain")

    async def events(request):
        return EventStream(channel, request, ids="plain", retry_ms=1)

    with (
        serve_app(Starlette(routes=[Route("/feed", events)])) as served,
        proxy_to(served.address) as proxy,
    ):
        served.call(lambda: channel.publish("tick", 1) and None)
        async with follow(f"{proxy.url}/feed", last_event_id=0) as stream:
            assert (await anext(stream)).epoch == channel.epoch
            assert (await anext(stream)).type == "replay_complete"
            proxy.cut()
            served.call(lambda: channel.publish("tick", 2) and None)
            assert (await anext(stream)).data == 2
            assert (stream.cursor, stream.epoch) == ("1", channel.epoch)
        served.call(channel.close)


async def test_a_real_server_is_asked_for_a_backlog_that_it_allows():
    with serve_sessions() as service:
        service.create("a1")
        url = f"{service.url}/session/a1"
        async with follow(url, max_queued=16):
            pass
        with pytest.raises(ValueError, match="16 to 2048 here, not 15"):
            await follow(url, max_queued=15).__aenter__()


async def test_a_real_server_refuses_an_unknown_session():
    with serve_sessions() as service:
        with pytest.raises(StreamRefused) as raised:
            await follow(f"{service.url}/session/a1").__aenter__()
        assert (raised.value.status, raised.value.code) == (404, "session_not_found")


@pytest.mark.parametrize("form", ["status", "auto"])
async def test_a_real_server_that_is_full_is_come_back_to(form):
    with serve_sessions(max_subscribers=1, refusal=form) as service:
        service.create("a1")
        url, states = f"{service.url}/session/a1", []
        async with follow(url):
            second = follow(url, on_state=states.append, random=lambda: 0.5)
            entering = asyncio.create_task(second.__aenter__())
            await eventually(lambda: states and states[-1].phase == "waiting")
            assert 10 <= states[-1].delay <= 31
            assert [state.phase for state in states] == ["connecting", "waiting"]
            assert second.statistics().connects == 0
            entering.cancel()
            with pytest.raises(asyncio.CancelledError):
                await entering


@pytest.mark.parametrize("form", ["status", "auto"])
async def test_a_real_server_that_is_full_is_given_up_at_entering(form):
    with serve_sessions(max_subscribers=1, refusal=form) as service:
        service.create("a1")
        url, states = f"{service.url}/session/a1", []
        async with follow(url):
            with pytest.raises(StreamUnavailable, match="in 1 attempts"):
                await follow(url, on_state=states.append, max_attempts=1).__aenter__()
        assert [state.phase for state in states] == ["connecting", "finished"]


@pytest.mark.parametrize("form", ["status", "auto"])
async def test_a_real_server_that_is_full_later_on_is_given_up_too(form):
    with (
        serve_sessions(max_subscribers=1, refusal=form) as service,
        proxy_to(service.address) as proxy,
    ):
        service.create("a1")
        channel = service.sessions.get("a1").channel
        async with follow(f"{proxy.url}/session/a1", max_attempts=1) as stream:
            service.call(lambda: channel.publish("tick", 1) and None)
            assert (await anext(stream)).data == 1
            proxy.down()
            await eventually(lambda: service.subscribers("a1") == 0)
            async with follow(f"{service.url}/session/a1"):
                proxy.up()
                with pytest.raises(StreamUnavailable, match="in 1 attempts"):
                    await anext(stream)
            assert (stream.statistics().connects, stream.statistics().events) == (1, 1)
            assert stream.cursor == f"{channel.epoch}-1"


async def test_a_real_stream_is_open_before_its_first_event():
    with serve_sessions() as service:
        service.create("a1")
        states = []
        async with follow(f"{service.url}/session/a1", on_state=states.append):
            assert [state.phase for state in states] == ["connecting", "open"]


@pytest.mark.parametrize("before", [0, 3])
async def test_a_live_stream_that_is_cut_before_its_first_event_misses_nothing(before):
    with serve_sessions() as service, proxy_to(service.address) as proxy:
        service.create("a1")
        channel = service.sessions.get("a1").channel

        def publish(*data):
            service.call(lambda: [channel.publish("tick", one) for one in data] and None)

        publish(*range(before))
        async with follow(f"{proxy.url}/session/a1") as stream:
            assert stream.cursor == f"{channel.epoch}-{before}"
            proxy.down()
            await eventually(lambda: service.subscribers("a1") == 0)
            publish("a", "b", "c")
            proxy.up()
            got = [await anext(stream) for _ in range(4)]
            assert [event.data for event in got[:3]] == ["a", "b", "c"]
            assert got[3].type == "replay_complete"
            publish("d")
            assert (await anext(stream)).data == "d"
        assert "last-event-id" not in proxy.requests[0].lower()
        assert f"last-event-id: {channel.epoch}-{before}" in proxy.requests[1].lower()


def follow_channels(server, *channels, **options):
    return follow(server.url, channels=channels or ["a"], **options)


async def test_channels_are_followed_below_the_base_url():
    def script(peer):
        peer.stream(b"retry: 0\n\n", opened("a", "b"), published(1), published(1, "b"))
        peer.wait_gone()

    with scripted(script) as server:
        async with follow_channels(server, "a", "b", tail=2, tags={"k": "v"}) as stream:
            assert stream.channels == ("a", "b")
            got = [await anext(stream) for _ in range(3)]
        assert [event.channel for event in got] == [None, "a", "b"]
        assert [event.position for event in got] == [None, "p01", "p01"]
        assert got[0].data["streamId"] == "s1"
        assert server.requests[0].target == "/v1/stream?channel=a&channel=b&tail=2&tags=k:v"


async def test_many_channels_are_asked_for_in_a_body():
    names = [f"{n:0>200}" for n in range(50)]

    def script(peer):
        peer.stream(opened(*names))
        peer.wait_gone()

    with scripted(script) as server:
        async with follow(server.url, channels=names, from_beginning=True) as stream:
            assert (await anext(stream)).type == "stream_open"
        (peer,) = server.requests
        assert (peer.method, peer.target) == ("POST", "/v1/stream")
        assert json.loads(peer.body) == {"channels": names, "from": "beginning"}


async def test_a_new_stream_of_channels_that_is_cut_before_its_first_frame_is_resumed():
    def headed(peer):
        peer.stream(b"retry: 0\n\n", tidegate_stream_id="s1", last_event_id="1abc.xyz")
        peer.cut()

    def later(peer):
        peer.stream(opened("a"), published(1))
        peer.wait_gone()

    with scripted(in_turn(headed, later)) as server:
        async with follow_channels(server, from_beginning=True) as stream:
            assert (await anext(stream)).type == "stream_open"
        assert [peer.cursor for peer in server.requests] == [None, "1abc.xyz"]
        assert server.requests[1].target == "/v1/stream?channel=a"


async def test_a_gap_raises_closes_the_connection_and_is_healed_by_coming_back():
    def gap(peer):
        peer.stream(b"retry: 0\n\n", opened("a"), published(1), published(3))
        peer.wait_gone()

    def whole(peer):
        peer.stream(opened("a", position="p01"), published(2), published(3))
        peer.wait_gone()

    with scripted(in_turn(gap, whole)) as server:
        async with follow_channels(server) as stream:
            assert [(await anext(stream)).position for _ in range(2)] == [None, "p01"]
            with pytest.raises(ChainBroken, match="'a' are missing") as raised:
                await anext(stream)
            assert raised.value.event.position == "p03"
            await eventually(lambda: not server.open)
            assert [(await anext(stream)).position for _ in range(3)] == [None, "p02", "p03"]
        assert [peer.cursor for peer in server.requests] == [None, "c.p01"]


async def test_a_gap_that_the_caller_accepts_is_passed_by_reopening_behind_it():
    def gap(peer):
        peer.stream(b"retry: 0\n\n", opened("a"), published(3))
        peer.wait_gone()

    def on(peer):
        peer.stream(opened("a", position="p03"), published(4))
        peer.wait_gone()

    with scripted(in_turn(gap, on)) as server:
        async with follow_channels(server) as stream:
            await anext(stream)
            with pytest.raises(ChainBroken) as raised:
                await anext(stream)
            await stream.reopen(raised.value.event.cursor)
            assert [(await anext(stream)).position for _ in range(2)] == [None, "p04"]
            with pytest.raises(TypeError, match="a text, not int"):
                await stream.reopen(5)
        assert server.requests[1].cursor == "c.p03"


async def test_a_stream_left_at_a_gap_leaves_nothing_behind():
    def gap(peer):
        peer.stream(opened("a"), published(3))
        peer.wait_gone()

    with scripted(gap) as server:
        stream = follow_channels(server)
        with pytest.raises(ChainBroken):  # noqa: PT012 - it is raised out of both
            async with stream:
                async for _ in stream:
                    pass
        await eventually(lambda: not server.open)
        assert stream.end_reason == "closed"


def test_what_is_no_selection_of_channels_is_refused_at_once():
    with pytest.raises(ValueError, match="a channel name is"):
        connect("http://h", channels=["a b"])
    with pytest.raises(TypeError, match="channels is a list"):
        connect("http://h", channels="a")
    with pytest.raises(ValueError, match="not with a session's"):
        connect("http://h/session/a", tail=5)
    with pytest.raises(ValueError, match="so needs a URL of the form"):
        connect("http://h", channels=["a"], max_queued=20)
