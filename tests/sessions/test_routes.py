import asyncio
import json
from contextlib import asynccontextmanager

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from tests.servers import open_stream, read_until, serve_app, wait_until
from tests.stream.driver import Exchange
from tidegate.sessions import Sessions
from tidegate.sse import Decoder


@pytest.fixture
async def sessions():
    async with Sessions(ring_size=5, max_sessions=3) as sessions:
        yield sessions


@pytest.fixture
async def client(sessions):
    transport = httpx.ASGITransport(sessions)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        yield client


def refused(answer, status, code):
    body = answer.json()
    assert (answer.status_code, body["code"]) == (status, code)
    assert body["error"]
    assert answer.headers["content-type"] == "application/json"
    return body


# -- POST /session -------------------------------------------------------------------------


@pytest.mark.parametrize("content", [b"", b"{}"])
async def test_a_session_is_created_with_a_new_id(client, sessions, content):
    answer = await client.post("/session", content=content)
    assert answer.status_code == 201
    (session,) = sessions.list()
    assert answer.json() == {
        "sessionId": session.id,
        "epoch": session.channel.epoch,
        "lastEventId": 0,
    }


async def test_a_session_that_exists_is_attached_to(client, sessions):
    first = await client.post("/session", json={"sessionId": "a"})
    sessions.get("a").publish("x")
    second = await client.post("/session", json={"sessionId": "a"})
    assert second.status_code == 200
    assert second.json() == {**first.json(), "lastEventId": 1, "attached": True}


async def test_a_bad_session_id_is_refused(client):
    body = refused(
        await client.post("/session", json={"sessionId": "a/\x1b"}), 400, "invalid_session_id"
    )
    assert "\x1b" not in body["error"]


async def test_over_the_limit_no_session_is_created(client):
    for name in "abc":
        await client.post("/session", json={"sessionId": name})
    answer = await client.post("/session", json={"sessionId": "d"})
    refused(answer, 429, "session_limit")
    assert 10 <= int(answer.headers["retry-after"]) <= 30
    assert (await client.post("/session", json={"sessionId": "c"})).status_code == 200


@pytest.mark.parametrize(
    ("content", "code"), [(b"{", "invalid_json"), (b'{"id":"a"}', "invalid_body")]
)
async def test_a_bad_body_creates_nothing(client, sessions, content, code):
    refused(await client.post("/session", content=content), 400, code)
    assert sessions.list() == []


# -- POST /session/{id}/events -------------------------------------------------------------


async def test_an_event_is_published(client, sessions):
    channel = sessions.create("a").channel
    async with channel.subscribe() as events:
        answer = await client.post(
            "/session/a/events",
            json={"type": "m", "data": [1], "meta": {"k": 2}},
            headers={"Tidegate-Client-Id": "me"},
        )
        assert (answer.status_code, answer.json()) == (202, {"lastEventId": 1})
        (event,) = events.take()
        assert (event.type, event.data, event.originator_client_id) == ("m", [1], "me")
        assert event.meta["k"] == 2


async def test_an_array_is_published_in_order(client, sessions):
    sessions.create("a")
    answer = await client.post("/session/a/events", json=[{"type": "x"}, {"type": "y"}])
    assert answer.json() == {"lastEventId": 2}
    assert (await client.post("/session/a/events", json=[])).json() == {"lastEventId": 2}


@pytest.mark.parametrize(
    ("payload", "code"),
    [
        ([{"type": "ok"}, {"type": "session_closed"}], "reserved_event_type"),
        ([{"type": "ok"}, {"type": "no spaces"}], "invalid_event_type"),
        ([{"type": "ok"}, {"type": "ok", "id": 5}], "invalid_body"),
        ("text", "invalid_body"),
    ],
)
async def test_if_one_is_bad_none_is_published(client, sessions, payload, code):
    channel = sessions.create("a").channel
    refused(await client.post("/session/a/events", json=payload), 400, code)
    assert channel.last_event_id == 0


async def test_a_bad_client_id_is_refused(client, sessions):
    sessions.create("a")
    headers = {"Tidegate-Client-Id": "no spaces"}
    answer = await client.post("/session/a/events", json={"type": "x"}, headers=headers)
    refused(answer, 400, "invalid_client_id")


async def test_publishing_is_use(client):
    now = [0.0]
    async with Sessions(idle_seconds=100, clock=lambda: now[0]) as sessions:
        sessions.create("a")
        transport = httpx.ASGITransport(sessions)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            now[0] = 90.0
            await client.post("/session/a/events", json=[])
        now[0] = 150.0
        assert sessions.sweep() == 0


async def test_a_session_that_ends_while_it_is_published_into_is_not_found(client, sessions):
    async with sessions.create("a").channel.subscribe() as events:

        def end_soon():
            events.on_ready = None
            asyncio.get_running_loop().call_soon(sessions.delete, "a")

        events.on_ready = end_soon
        events.arm()
        answer = await client.post("/session/a/events", json=[{"type": "x"}] * 200)
    refused(answer, 404, "session_not_found")


@pytest.mark.parametrize("route", ["events", "snapshot"])
async def test_a_body_over_one_mebibyte_is_refused_also_in_chunks(client, sessions, route):
    channel = sessions.create("a").channel
    method = "PUT" if route == "snapshot" else "POST"
    url = f"/session/a/{route}"

    async def chunks():
        for _ in range(17):
            yield b" " * 65536

    refused(await client.request(method, url, content=b" " * 1048577), 413, "body_too_large")
    refused(await client.request(method, url, content=chunks()), 413, "body_too_large")
    assert channel.last_event_id == 0


async def test_a_body_that_does_not_come_is_refused(sessions, monkeypatch):
    monkeypatch.setattr("tidegate.stream.bodies._SECONDS", 0.01)
    monkeypatch.setattr("tidegate.stream.bodies.read_body.__defaults__", (0.01,))
    sessions.create("a")
    exchange = Exchange(path="/session/a/events", method="POST")
    exchange._messages.get_nowait()
    await exchange.start(sessions)
    assert exchange.status == 408


async def test_a_client_that_goes_while_it_sends_leaves_no_trace(sessions, caplog):
    sessions.create("a")
    exchange = Exchange(path="/session/a/events", method="POST")
    exchange._messages.get_nowait()
    exchange.disconnect()
    await exchange.start(sessions)
    assert exchange.status == 400
    assert caplog.records == []


# -- GET /session/{id}/events --------------------------------------------------------------


async def test_a_stream_is_served_with_resume(sessions):
    session = sessions.create("a")
    session.publish("x")
    exchange = Exchange(path="/session/a/events", query=b"lastEventId=0")
    task = exchange.start(sessions)
    await exchange.until(b"replay_complete")
    assert exchange.headers["tidegate-epoch"] == session.channel.epoch
    exchange.disconnect()
    await task


@pytest.mark.parametrize("query", ["maxQueued=", "maxQueued=15", "maxQueued=16&maxQueued=16"])
@pytest.mark.parametrize("session_id", ["a", "unknown"])
async def test_a_bad_max_queued_is_refused_before_an_unknown_session(
    client, sessions, query, session_id
):
    sessions.create("a")
    answer = await client.get(f"/session/{session_id}/events?{query}")
    refused(answer, 400, "invalid_max_queued")


@pytest.mark.parametrize(("query", "cap"), [(b"maxQueued=16", 16), (b"", 256)])
async def test_max_queued_is_the_clients_or_the_servers(sessions, query, cap):
    session = sessions.create("a")
    exchange = Exchange(path="/session/a/events", query=query)
    task = exchange.start(sessions)
    await exchange.until(b"retry: ")
    for _ in range(cap + 2):
        session.publish("x")
    await asyncio.wait_for(task, 20)
    evicted = Decoder().feed(exchange.body)[-1]
    assert json.loads(evicted.data)["data"]["maxQueued"] == cap


async def test_head_is_answered_like_get_and_takes_no_place(client, sessions):
    session = sessions.create("a")
    answer = await client.head("/session/a/events")
    assert answer.status_code == 200
    assert answer.headers["tidegate-epoch"] == session.channel.epoch
    assert session.channel.statistics().subscribers == 0
    assert (await client.head("/session/b/events")).status_code == 404


async def test_the_idle_time_begins_when_a_stream_ends():
    now = [0.0]
    async with Sessions(idle_seconds=100, clock=lambda: now[0]) as sessions:
        sessions.create("a")
        exchange = Exchange(path="/session/a/events")
        task = exchange.start(sessions)
        await exchange.until(b"retry: ")
        now[0] = 500.0
        exchange.disconnect()
        await task
        now[0] = 590.0
        assert sessions.sweep() == 0
        now[0] = 600.0
        assert sessions.sweep() == 1


# -- snapshots -----------------------------------------------------------------------------


async def test_a_snapshot_is_stored_and_loaded(client, sessions):
    session = sessions.create("a")
    session.publish("x")
    answer = await client.put("/session/a/snapshot", json={"state": {"n": [1]}, "lastEventId": 1})
    assert (answer.status_code, answer.content) == (204, b"")
    answer = await client.post("/session/a/load")
    assert answer.json() == {
        "sessionId": "a",
        "state": {"n": [1]},
        "lastEventId": 1,
        "epoch": session.channel.epoch,
        "complete": True,
    }


async def test_a_snapshot_out_of_place_conflicts(client, sessions):
    sessions.create("a")
    answer = await client.put("/session/a/snapshot", json={"state": 1, "lastEventId": 1})
    refused(answer, 409, "snapshot_conflict")


async def test_a_snapshot_of_another_shape_is_refused(client, sessions):
    sessions.create("a")
    refused(await client.put("/session/a/snapshot", json={"state": 1}), 400, "invalid_body")


async def test_a_load_after_events_are_gone_is_incomplete(client, sessions):
    session = sessions.create("a")
    for _ in range(8):
        session.publish("x")
    answer = (await client.post("/session/a/load")).json()
    assert (answer["state"], answer["lastEventId"], answer["complete"]) == (None, 3, False)


async def test_a_provider_that_fails_is_logged_and_the_client_told_nothing(caplog):
    def provider(session_id):
        raise ValueError("secret")

    async with Sessions(snapshot=provider) as sessions:
        sessions.create("a")
        transport = httpx.ASGITransport(sessions)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            answer = await client.post("/session/a/load")
    refused(answer, 500, "load_failed")
    assert "secret" not in answer.text
    assert "secret" in caplog.text


# -- list, delete, capabilities, errors ----------------------------------------------------


async def test_sessions_are_listed(client, sessions):
    assert (await client.get("/session")).json() == {"sessions": []}
    session = sessions.create("a")
    session.publish("x")
    assert (await client.get("/session")).json() == {
        "sessions": [
            {
                "sessionId": "a",
                "epoch": session.channel.epoch,
                "lastEventId": 1,
                "subscribers": 0,
                "running": 0,
            }
        ]
    }


async def test_a_session_is_deleted(client, sessions):
    channel = sessions.create("a").channel
    async with channel.subscribe() as events:
        answer = await client.delete("/session/a")
        assert (answer.status_code, answer.content) == (204, b"")
        assert [event.type async for event in events] == ["session_closed"]
    refused(await client.delete("/session/a"), 404, "session_not_found")


async def test_capabilities_name_features_and_limits_but_no_byte_caps(client):
    answer = await client.get("/capabilities")
    assert answer.json() == {
        "v": 1,
        "features": ["session_events", "slow_client_warning", "typed_event_schema"],
        "limits": {"maxQueued": [16, 2048], "ringSize": 5, "maxSubscribers": 64},
    }


async def test_capabilities_name_what_is_served_beside_sessions():
    async with Sessions(features=["channels"]) as sessions:
        transport = httpx.ASGITransport(sessions)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            features = (await client.get("/capabilities")).json()["features"]
    assert features[0] == "session_events"
    assert features[-1] == "channels"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/session/{}/events"),
        ("POST", "/session/{}/events"),
        ("PUT", "/session/{}/snapshot"),
        ("POST", "/session/{}/load"),
        ("DELETE", "/session/{}"),
    ],
)
@pytest.mark.parametrize(
    ("session_id", "shown"),
    [("unknown", "unknown"), ("%C3%A9%1B", r"\xe9\x1b"), ("x" * 500, "x" * 128)],
)
async def test_an_unknown_session_is_not_found_whatever_its_name(
    client, method, path, session_id, shown
):
    answer = await client.request(method, path.format(session_id), json={"type": "x"})
    assert refused(answer, 404, "session_not_found")["sessionId"] == shown
    assert answer.content.isascii()
    assert len(answer.content) < 1000


async def test_unknown_paths_and_methods_are_told_in_json(client):
    refused(await client.get("/nothing"), 404, "not_found")
    refused(await client.get("/session/"), 404, "not_found")
    answer = await client.patch("/session")
    refused(answer, 405, "method_not_allowed")
    assert answer.headers["allow"]


async def test_a_failure_is_told_in_json_without_its_reason(sessions):
    sessions.list = lambda: 1 / 0
    transport = httpx.ASGITransport(sessions, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        answer = await client.get("/session")
    refused(answer, 500, "internal")


# -- under a real server -------------------------------------------------------------------


def mounted():
    """Return sessions, and an application that has them at /live."""
    sessions = Sessions(heartbeat=0.2)

    @asynccontextmanager
    async def lifespan(_):
        async with sessions:
            yield

    return sessions, Starlette(routes=[Mount("/live", app=sessions)], lifespan=lifespan)


def test_mounted_in_an_application_it_serves_from_create_to_delete():
    sessions, app = mounted()
    with serve_app(app) as url, httpx.Client(base_url=url + "/live", trust_env=False) as client:
        assert client.post("/session", json={"sessionId": "a"}).status_code == 201
        with open_stream(url.address, "/live/session/a/events?ids=epoch") as stream:
            read_until(stream, b": hb\n\n")
            assert client.post("/session/a/events", json={"type": "m"}).status_code == 202
            epoch = sessions.get("a").channel.epoch.encode()
            read_until(stream, b"id: %b-1\nevent: m\n" % epoch)
            assert client.delete("/session/a").status_code == 204
            rest = read_until(stream, b"0\r\n\r\n")
            assert b"event: session_closed\n" in rest


def test_an_upload_over_the_limit_is_refused_before_its_end():
    _, app = mounted()
    with serve_app(app) as url, open_stream(url.address, "/live/capabilities") as first:
        read_until(first, b"features")
        head = b"POST /live/session HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
        first.sendall(head)
        for _ in range(20):
            first.sendall(b"10000\r\n" + b" " * 65536 + b"\r\n")
        answer = read_until(first, b"body_too_large")
        assert answer.startswith(b"HTTP/1.1 413 ")


def test_its_routes_can_stand_among_an_applications_own():
    sessions = Sessions()
    paths = sorted({route.path for route in sessions.routes})
    assert paths == [
        "/capabilities",
        "/session",
        "/session/{session_id}",
        "/session/{session_id}/events",
        "/session/{session_id}/load",
        "/session/{session_id}/snapshot",
    ]


def test_a_stream_that_stays_open_is_seen_in_the_list():
    _, app = mounted()
    with serve_app(app) as url, httpx.Client(base_url=url + "/live", trust_env=False) as client:
        client.post("/session", json={"sessionId": "a"})

        def subscribers():
            return client.get("/session").json()["sessions"][0]["subscribers"]

        with open_stream(url.address, "/live/session/a/events"):
            wait_until(lambda: subscribers() == 1)
        wait_until(lambda: subscribers() == 0)


# -- what a review of the wire found -------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/session", {"GET", "HEAD", "POST"}),
        ("/session/a/events", {"GET", "HEAD", "POST"}),
        ("/session/a", {"DELETE"}),
        ("/session/a/snapshot", {"PUT"}),
        ("/session/a/load", {"POST"}),
    ],
)
async def test_a_wrong_method_is_told_all_the_right_ones(client, path, allowed):
    answer = await client.patch(path)
    refused(answer, 405, "method_not_allowed")
    assert {method.strip() for method in answer.headers["allow"].split(",")} == allowed


async def test_every_event_that_was_accepted_can_be_written(client, sessions):
    """Decoding goes a few levels deeper than encoding; what lies between is refused."""
    session = sessions.create("a")
    statuses = set()
    for depth in range(700, 1100, 7):
        body = b'{"type":"t","data":' + b"[" * depth + b"]" * depth + b"}"
        answer = await client.post("/session/a/events", content=body)
        statuses.add(answer.status_code)
        if answer.status_code == 202:
            (event,) = session.channel._ring.after(session.channel.last_event_id - 1)
            assert event.serializable, depth
        else:
            refused(answer, 400, "invalid_json")
    assert statuses == {202, 400}


@pytest.mark.parametrize(
    ("provided", "status", "code"),
    [
        ((object(), 0), 500, "load_failed"),
        (asyncio.CancelledError(), 500, "load_failed"),
        (TimeoutError(), 503, "load_timeout"),
    ],
)
async def test_a_provider_that_fails_in_any_way_is_an_answer(provided, status, code):
    async def provider(_):
        if isinstance(provided, BaseException):
            raise provided
        return provided

    async with Sessions(snapshot=provider) as sessions:
        sessions.create("a")
        transport = httpx.ASGITransport(sessions)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            refused(await client.post("/session/a/load"), status, code)


def test_a_live_stream_says_where_it_starts_so_that_a_cut_before_its_first_event_loses_nothing():
    sessions = Sessions()

    @asynccontextmanager
    async def lifespan(_):
        async with sessions:
            yield

    app = Starlette(routes=[Mount("/", sessions)], lifespan=lifespan)
    with serve_app(app) as url, httpx.Client(base_url=url, trust_env=False) as client:
        session = url.call(lambda: sessions.create("a"))
        url.call(lambda: session.publish("before"))
        for ids, prefix in (("", ""), ("?ids=epoch", f"{session.channel.epoch}-")):
            with client.stream("GET", f"/session/a/events{ids}") as answer:
                start = answer.headers["last-event-id"]
            assert start == f"{prefix}{session.channel.last_event_id}"
            missed = url.call(lambda: session.publish("missed"))
            headers = {"Last-Event-ID": start}
            with client.stream("GET", f"/session/a/events{ids}", headers=headers) as answer:
                assert "last-event-id" not in answer.headers
                decoder, events = Decoder(), []
                for chunk in answer.iter_raw():
                    events += decoder.feed(chunk)
                    if len(events) >= 2:
                        break
            assert [e.type for e in events] == ["missed", "replay_complete"]
            assert events[0].id == f"{prefix}{missed.id}"


def test_a_request_behind_a_stream_neither_hides_that_its_client_goes_nor_is_served():
    sessions = Sessions()

    @asynccontextmanager
    async def lifespan(_):
        async with sessions:
            yield

    app = Starlette(routes=[Mount("/", sessions)], lifespan=lifespan)
    with serve_app(app) as url:
        channel = url.call(lambda: sessions.create("a")).channel

        def subscribers():
            return url.call(lambda: channel.statistics().subscribers)

        with open_stream(url.address, "/session/a/events") as client:
            read_until(client, b"retry:")
            client.sendall(b"GET /capabilities HTTP/1.1\r\nHost: x\r\n\r\n")
            url.call(lambda: channel.publish("t"))
            assert b"HTTP/1.1" not in read_until(client, b"event: t")
            assert subscribers() == 1
        wait_until(lambda: subscribers() == 0)
        # In one write, so that the second is parsed before the first is answered.
        one = b"GET /session/a/events HTTP/1.1\r\nHost: x\r\n\r\n"
        with open_stream(url.address, "/session/a/events") as client:
            client.sendall(one + one)
            read_until(client, b"retry:")
        wait_until(lambda: subscribers() == 0)


def test_a_client_that_sends_without_end_behind_its_stream_is_cut():
    sessions = Sessions()

    @asynccontextmanager
    async def lifespan(_):
        async with sessions:
            yield

    app = Starlette(routes=[Mount("/", sessions)], lifespan=lifespan)
    with serve_app(app) as url:
        channel = url.call(lambda: sessions.create("a")).channel
        with open_stream(url.address, "/session/a/events") as client:
            read_until(client, b"retry:")
            with pytest.raises(OSError):  # noqa: PT011 - reset or broken pipe, as it comes
                client.sendall(b"x" * 40_000_000)
        wait_until(lambda: url.call(lambda: channel.statistics().subscribers) == 0)
