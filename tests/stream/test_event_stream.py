import asyncio
import json
import socket
import struct
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from fastapi import FastAPI, Request
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.routing import Route

from tests.servers import (
    eventually,
    open_stream,
    read_to_end,
    read_until,
    serve_app,
    unchunked,
    wait_until,
)
from tests.stream.driver import Exchange, make_request
from tidegate.channel import Channel
from tidegate.sse import Decoder
from tidegate.stream import STATE_KEY, Drain, EventStream
from tidegate.stream.feed import Feed
from tidegate.stream.opening import Opened, OpeningDenied, OpeningRefused
from tidegate.stream.transport import transport_of


@pytest.fixture
def channel():
    return Channel("c", epoch="e0", max_subscribers=500)


def parse(body):
    return Decoder().feed(body)


class Answer:
    """The exchange of one EventStream, released at the end."""

    def __init__(self, source, *, extra=None, transport=False, **scope):
        self.exchange = Exchange(transport, **scope)
        self.response = EventStream(source, self.exchange.request, **(extra or {}))

    async def __aenter__(self):
        self.task = self.exchange.start(self.response)
        await eventually(lambda: self.task.done() or len(self.exchange.sent) > 1)
        return self.exchange

    async def __aexit__(self, *_):
        self.exchange.disconnect()
        await asyncio.wait_for(self.task, 20)


# -- the head ------------------------------------------------------------------------------


async def test_the_head_says_what_the_wire_asks_for_and_no_more(channel):
    async with Answer(channel) as exchange:
        assert exchange.status == 200
        stream_id = exchange.headers.pop("tidegate-stream-id", None) or ""
        assert {k: v for k, v in exchange.headers.items() if k != "tidegate-stream-id"} == {
            "content-type": "text/event-stream",
            "cache-control": "no-cache, no-transform",
            "x-accel-buffering": "no",
            "tidegate-epoch": "e0",
            "last-event-id": str(channel.last_event_id),
        }
        assert stream_id


async def test_every_stream_has_an_id_of_its_own(channel):
    one, two = (EventStream(channel, make_request()) for _ in range(2))
    assert one.stream_id != two.stream_id
    assert one.headers["tidegate-stream-id"] == one.stream_id


async def test_further_headers_and_cookies_may_be_given(channel):
    response = EventStream(channel, make_request(), headers={"X-More": "1", "Content-Type": "x"})
    response.set_cookie("a", "b")
    assert response.headers["x-more"] == "1"
    assert response.headers["content-type"] == "text/event-stream"
    assert response.headers["set-cookie"].startswith("a=b")


@pytest.mark.parametrize(("draw", "retry"), [(0.0, 2400), (0.5, 3000), (1.0, 3600)])
async def test_the_first_bytes_are_a_jittered_retry(channel, draw, retry):
    async with Answer(channel, extra={"rng": lambda: draw}) as exchange:
        assert exchange.body == f"retry: {retry}\n\n".encode()


async def test_head_gets_the_same_head_and_takes_no_place(channel):
    async with Answer(channel, method="HEAD") as exchange:
        assert exchange.status == 200
        assert exchange.headers["tidegate-epoch"] == "e0"
        assert exchange.body == b""
        assert exchange.complete
        assert channel.statistics().subscribers == 0


# -- the cursor ----------------------------------------------------------------------------


async def replayed(channel, **scope):
    async with Answer(channel, **scope) as exchange:
        channel.publish("end")
        await exchange.until(b"event: end")
        return [(event.id, event.type) for event in parse(exchange.body)]


async def test_without_a_cursor_a_stream_is_live_only(channel):
    channel.publish("a")
    assert await replayed(channel) == [("2", "end")]


async def test_the_cursor_of_the_header_resumes(channel):
    channel.publish("a")
    channel.publish("b")
    assert await replayed(channel, headers=[(b"Last-Event-ID", b"1")]) == [
        ("2", "b"),
        ("2", "replay_complete"),
        ("3", "end"),
    ]


async def test_the_cursor_of_the_query_resumes(channel):
    channel.publish("a")
    assert (await replayed(channel, query=b"lastEventId=0"))[0] == ("1", "a")


@pytest.mark.parametrize(
    "scope",
    [
        {"query": b"lastEventId=old-1"},
        {"query": b"lastEventId=1&epoch=old"},
        {"query": b"lastEventId=1", "headers": [(b"Tidegate-Epoch", b"old")]},
    ],
)
async def test_a_cursor_of_another_epoch_is_told_so(channel, scope):
    channel.publish("a")
    (_, first), *_ = await replayed(channel, **scope)
    assert first == "state_resync_required"


async def test_ids_with_epoch_are_given_on_request_and_come_back(channel):
    channel.publish("a")
    frames = await replayed(channel, query=b"ids=epoch&lastEventId=e0-0")
    assert frames == [("e0-1", "a"), ("e0-1", "replay_complete"), ("e0-2", "end")]


@pytest.mark.parametrize(
    ("ids", "query", "expected"),
    [
        ("epoch", b"", "e0-1"),
        ("plain", b"ids=epoch", "1"),
        ("auto", b"ids=other", "1"),
    ],
)
async def test_the_server_may_decide_the_form_of_ids(channel, ids, query, expected):
    async with Answer(channel, extra={"ids": ids}, query=query) as exchange:
        channel.publish("a")
        await exchange.until(b"event: a")
        assert parse(exchange.body)[0].id == expected


async def test_a_cursor_that_is_none_leaves_one_breadcrumb(channel, caplog):
    channel.publish("a")
    assert await replayed(channel, headers=[(b"Last-Event-ID", "é\n".encode())]) == [("2", "end")]
    lines = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    assert lines == [r"ignored a cursor that is none, live events only: '\xe9\n'"]


async def test_control_frames_carry_no_id_line(channel):
    async with Answer(channel, query=b"lastEventId=5") as exchange:
        await exchange.until(b"replay_complete")
        assert b"id:" not in exchange.body


# -- sources and options -------------------------------------------------------------------


async def test_what_has_a_channel_is_a_source(channel):
    class Holder:
        pass

    holder = Holder()
    holder.channel = channel
    async with Answer(holder):
        assert channel.statistics().subscribers == 1
    assert channel.statistics().subscribers == 0


@pytest.mark.parametrize("source", [None, "c", object()])
def test_anything_else_is_none(source):
    with pytest.raises(TypeError, match="source must be or have a Channel"):
        EventStream(source, make_request())


@pytest.mark.parametrize("option", ["heartbeat", "write_timeout"])
def test_durations_are_positive(channel, option):
    with pytest.raises(ValueError, match="must be positive"):
        EventStream(channel, make_request(), **{option: 0})


def test_an_epoch_that_cannot_go_into_an_id_is_refused():
    with pytest.raises(ValueError, match="epoch"):
        EventStream(Channel(epoch="a b"), make_request())


async def test_the_constructor_takes_no_place(channel):
    EventStream(channel, make_request())
    assert channel.statistics().subscribers == 0


@pytest.mark.parametrize(("max_queued", "warned_at"), [(4, 3), (None, 9)])
async def test_the_cap_is_the_streams_or_the_channels(max_queued, warned_at):
    channel = Channel(max_queued=12)
    async with Answer(channel, extra={"max_queued": max_queued}) as exchange:
        for _ in range(10):
            channel.publish("a")
        await exchange.until(b"slow_client_warning")
        warning = next(e for e in parse(exchange.body) if e.type == "slow_client_warning")
        assert json.loads(warning.data)["data"]["queueSize"] == warned_at


async def test_without_a_word_the_cap_is_the_sources(channel):
    for source, cap in ((Channel(max_queued=12), 12), (Channel(), 256)):
        async with Answer(source) as exchange:
            await exchange.until(b"retry")
            exchange.open.clear()
            for _ in range(300):
                source.publish("a")
            exchange.open.set()
            await exchange.until(b"client_evicted")
            assert json.loads(parse(exchange.body)[-1].data)["data"]["maxQueued"] == cap


async def test_a_background_task_runs_after_the_end(channel):
    ran = []
    extra = {"background": BackgroundTask(lambda: ran.append(channel.statistics().subscribers))}
    async with Answer(channel, extra=extra):
        assert ran == []
    assert ran == [0]


async def test_a_closed_channel_is_a_stream_that_ends(channel):
    channel.close()
    async with Answer(channel) as exchange:
        await eventually(lambda: exchange.complete)
        assert exchange.body.startswith(b"retry: ")


def test_without_starlette_the_error_says_what_to_install():
    code = """
import sys
sys.modules["starlette"] = None
try:
    import tidegate.stream
except ImportError as error:
    assert "pip install 'tidegate[server]'" in str(error), error
else:
    raise SystemExit("it was imported")
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


# -- refusals ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("accept", "extra", "status"),
    [
        (b"text/event-stream", {}, 200),
        (b"*/*", {}, 429),
        (b"text/event-stream", {"refusal": "status"}, 429),
    ],
)
async def test_over_the_subscriber_limit_a_client_is_refused(accept, extra, status):
    channel = Channel(max_subscribers=1)
    async with channel.subscribe():
        async with Answer(channel, headers=[(b"Accept", accept)], extra=extra) as exchange:
            assert exchange.status == status
            assert exchange.complete
            assert b"subscriber_limit" in exchange.body
        assert channel.statistics().subscribers == 1


@pytest.mark.parametrize(("accept", "status"), [(b"text/event-stream", 200), (b"*/*", 503)])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_while_draining_a_client_is_refused(channel, accept, status, method):
    drain = Drain()
    await drain.drain()
    scope = {"headers": [(b"Accept", accept)], "method": method, "state": {STATE_KEY: drain}}
    async with Answer(channel, **scope) as exchange:
        assert exchange.status == status
        assert exchange.complete
        assert b"draining" in exchange.body


@pytest.mark.parametrize("given", [True, False])
async def test_a_drain_is_an_argument_or_in_the_state(channel, given):
    drain = Drain()
    extra, state = ({"drain": drain}, {}) if given else ({}, {STATE_KEY: drain})
    async with Answer(channel, extra=extra, state=state) as exchange:
        assert drain.open_streams == 1
        await drain.drain()
        assert drain.open_streams == 0
        assert parse(exchange.body)[-1].type == "stream_error"
        assert exchange.complete


# -- the end -------------------------------------------------------------------------------


async def test_a_disconnect_releases_an_idle_stream(channel):
    async with Answer(channel) as exchange:
        exchange.post({"type": "http.request", "body": b"noise", "more_body": False})
        assert channel.statistics().subscribers == 1
        exchange.disconnect()
        await eventually(lambda: channel.statistics().subscribers == 0)


async def test_a_receive_that_fails_counts_as_a_disconnect(channel):
    async with Answer(channel) as exchange:
        exchange.post(RuntimeError("the server is confused"))
        await eventually(lambda: channel.statistics().subscribers == 0)


async def test_cancellation_releases_everything(channel):
    drain = Drain()
    exchange = Exchange()
    response = EventStream(channel, exchange.request, drain=drain)
    task = exchange.start(response)
    await eventually(lambda: exchange.sent)
    before = len(asyncio.all_tasks())
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert channel.statistics().subscribers == 0
    assert drain.open_streams == 0
    assert len(asyncio.all_tasks()) == before - 2


async def test_cancellation_before_the_first_byte_releases_everything(channel):
    exchange = Exchange()
    exchange.open.clear()
    task = exchange.start(EventStream(channel, exchange.request))
    await eventually(lambda: exchange.blocked)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert channel.statistics().subscribers == 0


async def test_a_response_that_never_starts_leaves_nothing(channel):
    exchange = Exchange()
    task = exchange.start(EventStream(channel, exchange.request))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert channel.statistics().subscribers == 0


# -- sources that subscribe their clients themselves -----------------------------------------


class Wires:
    """A source of its own kind: a channel's frames, behind a gate."""

    def __init__(self, channel, error=None, drain=None):
        self.channel_behind = channel
        self.error = error
        self.drain = drain
        self.gate = asyncio.Event()
        self.gate.set()
        self.cursors = []

    async def open_wire(self, cursor, *, max_queued):
        self.cursors.append(cursor)
        subscription = self.channel_behind.subscribe(max_queued=max_queued)
        try:
            await self.gate.wait()
        except BaseException:
            subscription.abort()
            raise
        if self.error is not None:
            subscription.abort()
            raise self.error
        return Opened(feed=Feed(subscription), stream_id="s1", headers={"last-event-id": "x"})


@pytest.mark.parametrize(
    ("scope", "cursor"),
    [
        ({}, None),
        ({"query": b"lastEventId=q"}, "q"),
        ({"query": b"lastEventId=q", "headers": [(b"Last-Event-ID", "é".encode())]}, "é"),
        ({"query": b"lastEventId=q", "headers": [(b"Last-Event-ID", b"")]}, "q"),
    ],
)
async def test_such_a_source_gets_the_cursor_as_it_was_sent(channel, scope, cursor):
    source = Wires(channel)
    async with Answer(source, **scope) as exchange:
        assert source.cursors == [cursor]
        assert exchange.headers["tidegate-stream-id"] == "s1"
        assert exchange.headers["last-event-id"] == "x"
        assert "tidegate-epoch" not in exchange.headers
        channel.publish("a")
        await exchange.until(b"event: a")
    assert channel.statistics().subscribers == 0


async def test_head_does_not_open_it(channel):
    source = Wires(channel)
    async with Answer(source, method="HEAD") as exchange:
        assert exchange.status == 200
        assert exchange.headers["tidegate-stream-id"]
        assert source.cursors == []


@pytest.mark.parametrize(
    ("error", "accept", "status", "code"),
    [
        (OpeningDenied(403, "access_denied", "no"), b"text/event-stream", 403, b"access_denied"),
        (OpeningDenied(400, "unknown_namespace", "no"), b"*/*", 400, b"unknown_namespace"),
        (OpeningRefused("broker_unavailable", "away"), b"*/*", 503, b"broker_unavailable"),
        (
            OpeningRefused("broker_unavailable", "away"),
            b"text/event-stream",
            200,
            b"broker_unavailable",
        ),
    ],
)
async def test_what_it_refuses_is_answered(channel, error, accept, status, code):
    async with Answer(Wires(channel, error), headers=[(b"Accept", accept)]) as exchange:
        assert exchange.status == status
        assert code in exchange.body
        assert exchange.complete
    assert channel.statistics().subscribers == 0


async def test_a_drain_that_begins_while_it_opens_refuses_the_stream(channel):
    source = Wires(channel, drain=Drain())
    source.gate.clear()
    exchange = Exchange(headers=[(b"Accept", b"*/*")])
    task = exchange.start(EventStream(source, exchange.request))
    await eventually(lambda: source.cursors)
    await source.drain.drain()
    source.gate.set()
    await asyncio.wait_for(task, 20)
    assert exchange.status == 503
    assert channel.statistics().subscribers == 0


async def test_cancellation_while_it_opens_leaves_nothing(channel):
    source = Wires(channel)
    source.gate.clear()
    exchange = Exchange()
    task = exchange.start(EventStream(source, exchange.request))
    await eventually(lambda: source.cursors)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert channel.statistics().subscribers == 0


@pytest.mark.parametrize("given", [True, False])
async def test_its_drain_is_the_streams_unless_another_is_given(channel, given):
    own, other = Drain(), Drain()
    extra = {"drain": other} if given else {}
    async with Answer(Wires(channel, drain=own), extra=extra):
        assert (own.open_streams, other.open_streams) == ((0, 1) if given else (1, 0))


# -- under real servers --------------------------------------------------------------------


def app_of(channel, *middleware, **options):
    async def events(request):
        return EventStream(channel, request, **options)

    return Starlette(routes=[Route("/events", events)], middleware=list(middleware))


class Passing(BaseHTTPMiddleware):
    async def dispatch(self, request, call_next):
        return await call_next(request)


STACKS = {
    "bare": [],
    "one BaseHTTPMiddleware": [Middleware(Passing)],
    "four BaseHTTPMiddleware": [Middleware(Passing)] * 4,
    "gzip": [Middleware(GZipMiddleware, minimum_size=1)],
}


@pytest.mark.parametrize("stack", STACKS.values(), ids=STACKS)
def test_a_client_that_leaves_while_the_producer_is_idle_is_released(channel, stack):
    with serve_app(app_of(channel, *stack)) as url:
        with open_stream(url.address, "/events", "Accept-Encoding: gzip") as client:
            assert b"retry: " in read_until(client, b"retry: ")
            assert channel.statistics().subscribers == 1
        wait_until(lambda: channel.statistics().subscribers == 0)


@pytest.mark.parametrize("stack", STACKS.values(), ids=STACKS)
def test_events_arrive_as_they_are_published(channel, stack):
    with (
        serve_app(app_of(channel, *stack)) as url,
        open_stream(url.address, "/events", "Accept-Encoding: gzip") as client,
    ):
        read_until(client, b"retry: ")
        for number in range(3):
            url.call(lambda number=number: channel.publish("m", number))
            assert b'"data":%d' % number in read_until(client, b'"data":%d' % number)


@pytest.mark.parametrize("stack", STACKS.values(), ids=STACKS)
def test_the_channels_end_is_a_complete_response(channel, stack):
    with serve_app(app_of(channel, *stack)) as url:
        with httpx.stream("GET", f"{url}/events", trust_env=False) as response:
            lines = response.iter_lines()
            assert next(lines).startswith("retry: ")
            url.call(channel.close)
            assert list(lines) == [""]
        wait_until(lambda: not url.server.server_state.tasks)


@pytest.mark.parametrize("http", ["httptools", "h11"])
def test_it_works_under_uvicorns_own_protocols(channel, http):
    with serve_app(app_of(channel), http=http, loop="asyncio") as url:
        with open_stream(url.address, "/events") as client:
            read_until(client, b"retry: ")
            url.call(lambda: channel.publish("m"))
            read_until(client, b"event: m")
        wait_until(lambda: channel.statistics().subscribers == 0)


def test_two_hundred_clients_that_reset_before_their_first_byte_leave_no_subscriber(channel):
    with serve_app(app_of(channel)) as url:
        for _ in range(200):
            client = open_stream(url.address, "/events")
            # A zero linger time: closing sends a reset.
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.close()
        with open_stream(url.address, "/events") as last:
            read_until(last, b"retry: ")
            wait_until(lambda: channel.statistics().subscribers == 1)
        wait_until(lambda: channel.statistics().subscribers == 0)


def test_head_leaves_the_connection_usable(channel):
    with serve_app(app_of(channel)) as url, httpx.Client(trust_env=False) as client:
        for _ in range(3):
            answer = client.head(f"{url}/events")
            assert answer.status_code == 200
            assert answer.headers["content-type"] == "text/event-stream"
            assert "content-length" not in answer.headers
            assert channel.statistics().subscribers == 0
        assert len(client._transport._pool.connections) == 1


def test_a_stalled_client_is_warned_then_cut_by_a_reset_and_others_are_not():
    reports = []
    channel = Channel(
        "c",
        max_queued_bytes=2**40,
        on_diagnostic=lambda *report: reports.append(report),
    )

    async def strict(request):
        return EventStream(channel, request, max_queued=64)

    async def patient(request):
        return EventStream(channel, request, max_queued=2**40)

    app = Starlette(routes=[Route("/strict", strict), Route("/patient", patient)])
    with (
        serve_app(app) as url,
        open_stream(url.address, "/strict", receive_buffer=4096) as stalled,
        open_stream(url.address, "/patient") as reader,
        ThreadPoolExecutor() as pool,
    ):
        reading = pool.submit(read_until, reader, b"event: last")
        wait_until(lambda: channel.statistics().subscribers == 2)

        async def publish_until_cut():
            while channel.statistics().subscribers == 2:
                channel.publish("m", "x" * 10_000)
                await asyncio.sleep(0)
            channel.publish("last")

        url.call(publish_until_cut)
        ids = [event.id for event in parse(unchunked(reading.result(20))) if event.type == "m"]
        assert ids == [str(number) for number in range(1, channel.last_event_id)]
        assert [kind for kind, _ in reports] == ["slow_client_warning", "client_evicted"]
        with pytest.raises(ConnectionResetError):
            read_to_end(stalled)


def test_a_blocked_write_times_out_by_a_reset(channel):
    with serve_app(app_of(channel, heartbeat=0.1, write_timeout=0.2)) as url:
        stalled = open_stream(url.address, "/events", receive_buffer=4096)
        wait_until(lambda: channel.statistics().subscribers == 1)

        async def fill():
            for _ in range(100):
                channel.publish("m", "x" * 100_000)
                await asyncio.sleep(0)

        url.call(fill)
        wait_until(lambda: channel.statistics().subscribers == 0)
        assert channel.statistics().evicted == 1
        with pytest.raises(ConnectionResetError):
            read_to_end(stalled)
        stalled.close()


def test_an_explicit_drain_ends_the_streams_of_a_server_in_a_thread(channel):
    drain = Drain()
    with serve_app(app_of(channel, drain=drain)) as url:
        clients = [open_stream(url.address, "/events") for _ in range(5)]
        wait_until(lambda: drain.open_streams == 5)
        url.call(drain.drain)
        for client in clients:
            assert b'"errorKind":"draining"' in read_until(client, b"0\r\n\r\n")
            client.close()
        refused = httpx.get(f"{url}/events", trust_env=False)
        assert refused.status_code == 503
        assert 10 <= int(refused.headers["retry-after"]) <= 30


def test_a_drain_cuts_a_client_that_left_a_little_unread(channel):
    """So little that no write is blocked: only the last bytes never leave."""
    drain = Drain(farewell_seconds=0.1)
    offered = []

    async def events(request):
        offered.append(transport_of(request.scope))
        return EventStream(channel, request, drain=drain)

    with (
        serve_app(Starlette(routes=[Route("/events", events)])) as url,
        open_stream(url.address, "/events", receive_buffer=4096) as stalled,
    ):
        wait_until(lambda: channel.statistics().subscribers == 1)

        async def fill_the_socket():
            while offered[0]["buffered"]() < 30_000:
                channel.publish("m", "x" * 1000)
                await asyncio.sleep(0)

        url.call(fill_the_socket)
        url.call(drain.drain)
        assert drain.open_streams == 0
        wait_until(lambda: not url.server.server_state.connections)
        with pytest.raises(ConnectionResetError):
            read_to_end(stalled)


def test_a_fastapi_route_may_return_it(channel):
    app = FastAPI()

    @app.get("/events")
    async def events(request: Request) -> EventStream:
        return EventStream(channel, request)

    with serve_app(app) as url:
        with open_stream(url.address, "/events") as client:
            head = read_until(client, b"retry: ")
            assert b"content-type: text/event-stream\r\n" in head
            assert b"content-length" not in head
        wait_until(lambda: channel.statistics().subscribers == 0)
