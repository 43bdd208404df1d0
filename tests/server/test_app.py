import subprocess
import sys

import httpx
import pytest

from tests.servers import open_stream, read_until, serve_app, wait_until
from tidegate.server import ServerSettings, create_app
from tidegate.server.tokens import COOKIE


class Served:
    """An app in its lifespan, and a client of it."""

    def __init__(self, **settings):
        self.app = create_app(ServerSettings(**settings))

    async def __aenter__(self):
        self.lifespan = self.app.router.lifespan_context(self.app)
        self.state = await self.lifespan.__aenter__()
        transport = httpx.ASGITransport(self.app, raise_app_exceptions=False)
        self.client = httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8765")
        return self

    async def __aexit__(self, *_):
        await self.client.aclose()
        await self.lifespan.__aexit__(None, None, None)


def refused(answer, status, code):
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert answer.json()["error"]


async def test_it_says_that_it_is_alive_and_ready():
    async with Served() as served:
        assert (await served.client.get("/healthz")).json() == {"status": "alive"}
        assert (await served.client.get("/readyz")).json() == {"status": "ready"}


async def test_while_draining_it_is_alive_and_not_ready():
    async with Served() as served:
        await served.app.state.drain.drain()
        assert (await served.client.get("/healthz")).status_code == 200
        refused(await served.client.get("/readyz"), 503, "draining")
        await served.client.post("/session", json={"sessionId": "a"})
        refused(await served.client.get("/session/a/events"), 503, "draining")


async def test_without_its_broker_it_is_alive_and_not_ready():
    async with Served() as served:
        node = served.app.state.gateway.node
        node.on_disconnected()
        assert (await served.client.get("/healthz")).status_code == 200
        refused(await served.client.get("/readyz"), 503, "broker_unavailable")
        node.on_reconnected()
        assert (await served.client.get("/readyz")).json() == {"status": "ready"}


async def test_channels_are_served_beside_sessions_and_drain_with_them():
    async with Served(dev=True) as served:
        client = served.client
        assert served.app.state.gateway.drain is served.app.state.drain
        answer = await client.post("/v1/publish", json={"channel": "room:1", "type": "n"})
        assert answer.json()["results"][0]["channel"] == "room:1"
        history = (await client.get("/v1/channels/room:1/history")).json()
        assert [event["type"] for event in history["events"]] == ["n"]
        await served.app.state.drain.drain()
        refused(await client.get("/v1/stream?channel=room:1"), 503, "draining")


async def test_channels_are_closed_until_it_is_said_who_may_use_them():
    async with Served() as served:
        refused(await served.client.get("/v1/stream?channel=room:1"), 401, "unauthorized")
    async with Served(token="t") as served:
        refused(await served.client.get("/v1/channels"), 401, "unauthorized")
        headers = {"Authorization": "Bearer t"}
        assert (await served.client.get("/v1/channels", headers=headers)).json() == {"channels": []}


async def test_its_features_are_those_of_sessions_and_channels():
    async with Served() as served:
        features = (await served.client.get("/capabilities")).json()["features"]
        assert {"session_events", "channels", "channel_history", "channel_snapshots"} <= {*features}


async def test_streams_of_routes_added_to_it_find_its_drain():
    async with Served() as served:
        assert served.state == {"tidegate.drain": served.app.state.drain}
        assert served.app.state.sessions.drain is served.app.state.drain


async def test_its_settings_reach_the_sessions():
    async with Served(event_ring_size=7, max_sessions=1) as served:
        limits = (await served.client.get("/capabilities")).json()["limits"]
        assert limits["ringSize"] == 7
        assert (await served.client.post("/session")).status_code == 201
        refused(await served.client.post("/session"), 429, "session_limit")


async def test_it_has_a_page():
    async with Served() as served:
        answer = await served.client.get("/")
        assert answer.headers["content-type"].startswith("text/html")
        assert "/v1/stream" in answer.text


@pytest.mark.parametrize("path", ["/nothing", "/session/", "/v2/stream", "/login"])
async def test_unknown_paths_are_told_in_json(path):
    async with Served() as served:
        refused(await served.client.get(path), 404, "not_found")


async def test_unknown_methods_are_told_in_json():
    async with Served() as served:
        answer = await served.client.patch("/healthz")
        refused(answer, 405, "method_not_allowed")
        assert "GET" in answer.headers["allow"]


async def test_a_failure_is_told_in_json_without_its_reason(monkeypatch):
    monkeypatch.setattr("tidegate.server.app.index_page", lambda: 1 / 0)
    async with Served() as served:
        answer = await served.client.get("/")
        refused(answer, 500, "internal")
        assert "Zero" not in answer.text


# -- log-in --------------------------------------------------------------------------------


async def test_a_browser_logs_in_and_out_of_reach_stays_the_token():
    async with Served(token="t") as served:
        refused(await served.client.get("/session"), 401, "unauthorized")
        assert (await served.client.get("/login")).status_code == 200
        answer = await served.client.post("/login", json={"token": "t"})
        assert (answer.status_code, answer.content) == (204, b"")
        cookie = answer.headers["set-cookie"]
        assert cookie.startswith(f"{COOKIE}=")
        assert "HttpOnly" in cookie
        assert "SameSite=strict" in cookie
        assert "Path=/" in cookie
        assert "Secure" not in cookie
        assert (await served.client.get("/session")).status_code == 200


async def test_over_https_the_cookie_stays_there():
    async with Served(token="t") as served:
        answer = await served.client.post("https://127.0.0.1:8765/login", json={"token": "t"})
        assert "Secure" in answer.headers["set-cookie"]


@pytest.mark.parametrize(
    ("content", "status", "code"),
    [
        (b'{"token":"wrong"}', 401, "unauthorized"),
        (b'{"token":1}', 400, "invalid_body"),
        (b"{}", 400, "invalid_body"),
        (b"token=t", 400, "invalid_body"),
        (b"[" * 4000, 400, "invalid_body"),
        (b'{"token":"' + b"x" * 5000 + b'"}', 413, "body_too_large"),
    ],
)
async def test_a_bad_log_in_sets_no_cookie(content, status, code):
    async with Served(token="t") as served:
        answer = await served.client.post("/login", content=content)
        refused(answer, status, code)
        assert "set-cookie" not in answer.headers


# -- CORS ----------------------------------------------------------------------------------

PREFLIGHT = {
    "Access-Control-Request-Method": "POST",
    "Access-Control-Request-Headers": "last-event-id, authorization, tidegate-client-id",
}


async def test_no_origin_is_allowed_by_default():
    async with Served() as served:
        answer = await served.client.get("/capabilities", headers={"Origin": "https://a.example"})
        assert not any(name.startswith("access-control") for name in answer.headers)


@pytest.mark.parametrize(
    ("settings", "origin", "credentials"),
    [
        ({"allow_origins": ("https://a.example",)}, "https://a.example", True),
        ({"dev": True}, "http://localhost:3000", True),
        ({"allow_origins": ("*",), "token": "t"}, "https://any.example", False),
    ],
)
async def test_an_allowed_origin_may_read_the_streams_headers(settings, origin, credentials):
    async with Served(**settings) as served:
        headers = {"Origin": origin, "Authorization": "Bearer t"}
        answer = await served.client.get("/capabilities", headers=headers)
        assert answer.headers["access-control-allow-origin"] in {origin, "*"}
        assert "Tidegate-Epoch" in answer.headers["access-control-expose-headers"]
        assert "Tidegate-Stream-Id" in answer.headers["access-control-expose-headers"]
        assert ("access-control-allow-credentials" in answer.headers) is credentials


async def test_a_preflight_needs_no_token():
    async with Served(allow_origins=("https://a.example",), token="t") as served:
        headers = {"Origin": "https://a.example", **PREFLIGHT}
        answer = await served.client.options("/session/a/events", headers=headers)
        assert answer.status_code == 200
        assert "Last-Event-ID" in answer.headers["access-control-allow-headers"]


async def test_a_refusal_can_be_read_by_an_allowed_origin():
    async with Served(allow_origins=("https://a.example",), token="t") as served:
        answer = await served.client.get("/session", headers={"Origin": "https://a.example"})
        refused(answer, 401, "unauthorized")
        assert answer.headers["access-control-allow-origin"] == "https://a.example"


@pytest.mark.parametrize("origin", ["https://evil.example", "https://localhost.evil.example"])
async def test_another_origin_is_not_allowed(origin):
    async with Served(dev=True) as served:
        answer = await served.client.get("/session", headers={"Origin": origin})
        assert "access-control-allow-origin" not in answer.headers


# -- under a real server -------------------------------------------------------------------


def test_it_streams_and_drains_under_a_real_server():
    app = create_app(ServerSettings())
    with serve_app(app) as url, httpx.Client(base_url=url, trust_env=False) as client:
        client.post("/session", json={"sessionId": "a"})
        with open_stream(url.address, "/session/a/events") as stream:
            read_until(stream, b"retry: ")
            client.post("/session/a/events", json={"type": "m"})
            read_until(stream, b"event: m")
            url.call(app.state.drain.drain)
            read_until(stream, b"draining")
        wait_until(lambda: app.state.drain.open_streams == 0)


def test_without_its_packages_it_says_what_to_install():
    code = """
import sys
sys.modules["starlette"] = None
try:
    import tidegate.server
except ImportError as error:
    assert "pip install 'tidegate[server]'" in str(error), error
else:
    raise SystemExit("it was imported")
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
