import httpx
import pytest
from starlette.responses import PlainTextResponse

from tidegate.server import ServerSettings
from tidegate.server.guard import Guard
from tidegate.server.tokens import COOKIE, TokenCheck


async def inner(scope, receive, send):
    await PlainTextResponse("inside")(scope, receive, send)


async def ask(
    method="GET",
    path="/session",
    *,
    headers=None,
    host="127.0.0.1:8765",
    bind="127.0.0.1",
    **settings,
):
    made = ServerSettings(host=bind, **settings)
    check = None if made.token is None else TokenCheck(made.token)
    transport = httpx.ASGITransport(Guard(inner, made, check))
    async with httpx.AsyncClient(transport=transport, base_url=f"http://{host}") as client:
        return await client.request(method, path, headers=headers)


def code(answer):
    return "inside" if answer.text == "inside" else (answer.status_code, answer.json()["code"])


COOKIES = {"Cookie": f"{COOKIE}={TokenCheck('t').cookie}"}
BEARER = {"Authorization": "Bearer t"}
HERE = {"Origin": "http://127.0.0.1:8765"}
ELSEWHERE = {"Origin": "https://evil.example"}


# -- Host ----------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["127.0.0.1:8765", "localhost", "[::1]:1", "a.localhost:8765"])
async def test_on_loopback_this_machines_names_are_served(host):
    assert code(await ask(host=host)) == "inside"


@pytest.mark.parametrize("host", ["evil.example:8765", "192.168.0.1"])
@pytest.mark.parametrize("path", ["/session", "/healthz"])
async def test_on_loopback_a_rebound_name_is_refused_with_advice(host, path):
    answer = await ask(host=host, path=path)
    assert code(answer) == (403, "host_not_allowed")
    assert "--allow-origin" in answer.json()["error"]


async def test_on_loopback_a_broken_host_is_refused():
    answer = await ask(headers={"Host": "a:b:c"})
    assert code(answer) == (403, "host_not_allowed")


async def test_a_proxy_whose_origin_was_named_is_served():
    origins = ("https://a.example", "https://b.example:8443")
    for host in ("a.example", "b.example:8443"):
        assert code(await ask(host=host, allow_origins=origins)) == "inside"
    answer = await ask(host="c.example", allow_origins=("*",), token="t", headers=BEARER)
    assert code(answer) == (403, "host_not_allowed")


async def test_on_other_addresses_any_host_is_served():
    answer = await ask(host="any.example", bind="0.0.0.0", headers=BEARER, token="t")
    assert code(answer) == "inside"


async def test_without_a_host_it_is_no_browser():
    scope_headers = []

    async def app(scope, receive, send):
        scope = {**scope, "headers": scope_headers}
        await Guard(inner, ServerSettings(), None)(scope, receive, send)

    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://x") as client:
        assert code(await client.get("/")) == "inside"


# -- the token -----------------------------------------------------------------------------


@pytest.mark.parametrize("headers", [BEARER, {"Authorization": "bEARER t"}, COOKIES])
async def test_with_the_token_or_its_cookie_a_request_is_served(headers):
    assert code(await ask(headers=headers, token="t")) == "inside"


@pytest.mark.parametrize(
    "headers", [{}, {"Authorization": "Bearer wrong"}, {"Cookie": f"{COOKIE}=t"}, HERE]
)
@pytest.mark.parametrize("path", ["/", "/session", "/capabilities", "/nothing", "/healthz/"])
async def test_without_it_nothing_is_served(headers, path):
    answer = await ask(headers=headers, token="t", path=path)
    assert code(answer) == (401, "unauthorized")
    assert answer.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/login"])
async def test_health_and_login_need_none(path):
    assert code(await ask(path=path, token="t")) == "inside"


# -- the gateway's routes --------------------------------------------------------------------


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE", "HEAD"])
@pytest.mark.parametrize("path", ["/v1", "/v1/", "/v1/stream", "/v1/publish", "/v1/nothing"])
async def test_without_token_and_dev_nobody_uses_channels(method, path):
    answer = await ask(method, path, headers=BEARER)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    if method != "HEAD":
        assert answer.json()["code"] == "unauthorized"
        assert "--token" in answer.json()["error"]
        assert "--dev" in answer.json()["error"]


@pytest.mark.parametrize("path", ["/v2/stream", "/v11", "/session/v1", "/"])
async def test_what_is_not_the_gateways_is_not_closed(path):
    assert code(await ask(path=path)) == "inside"


async def test_with_the_token_or_for_development_channels_are_open():
    assert code(await ask("POST", "/v1/publish", headers=BEARER, token="t")) == "inside"
    assert code(await ask("POST", "/v1/publish", dev=True)) == "inside"
    answer = await ask("POST", "/v1/publish", token="t", dev=True)
    assert code(answer) == (401, "unauthorized")
    assert "needs its token" in answer.json()["error"]


async def test_for_development_a_page_from_elsewhere_still_publishes_nothing():
    answer = await ask("POST", "/v1/publish", headers=ELSEWHERE, dev=True)
    assert code(answer) == (403, "origin_not_allowed")


# -- Origin --------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
@pytest.mark.parametrize(
    ("headers", "served"),
    [
        ({}, True),
        (HERE, True),
        (ELSEWHERE, False),
        ({"Origin": "null"}, False),
        ({"Origin": "http://127.0.0.1:3000"}, False),
    ],
)
@pytest.mark.parametrize("settings", [{}, {"token": "t"}])
async def test_a_page_of_another_origin_changes_nothing(method, headers, served, settings):
    cookies = COOKIES if settings else {}
    answer = await ask(method, headers={**headers, **cookies}, **settings)
    assert code(answer) == ("inside" if served else (403, "origin_not_allowed"))


async def test_without_a_token_reading_is_left_to_the_browser():
    assert code(await ask(headers=ELSEWHERE)) == "inside"


async def test_the_cookie_does_not_count_for_a_page_of_another_origin():
    answer = await ask(headers={**ELSEWHERE, **COOKIES}, token="t")
    assert code(answer) == (403, "origin_not_allowed")


async def test_who_bears_the_token_may_come_from_anywhere():
    assert code(await ask("POST", headers={**ELSEWHERE, **BEARER}, token="t")) == "inside"


async def test_nobody_logs_in_from_another_origin():
    answer = await ask("POST", "/login", headers=ELSEWHERE, token="t")
    assert code(answer) == (403, "origin_not_allowed")


async def test_an_origin_that_was_named_is_served():
    answer = await ask("POST", headers=ELSEWHERE, allow_origins=("https://evil.example",))
    assert code(answer) == "inside"
    answer = await ask("POST", headers={**ELSEWHERE, **COOKIES}, allow_origins=("*",), token="t")
    assert code(answer) == (403, "origin_not_allowed")


@pytest.mark.parametrize(
    ("origin", "served"),
    [
        ("http://localhost:3000", True),
        ("http://127.0.0.1:3000", True),
        ("http://[::1]:3000", True),
        ("https://evil.example", False),
        ("null", False),
    ],
)
async def test_for_development_any_page_of_this_machine_is_served(origin, served):
    answer = await ask("POST", headers={"Origin": origin}, dev=True)
    assert (code(answer) == "inside") is served


async def test_what_is_no_request_passes():
    seen = []

    async def app(scope, receive, send):
        seen.append(scope["type"])

    await Guard(app, ServerSettings(token="t"), TokenCheck("t"))({"type": "lifespan"}, None, None)
    assert seen == ["lifespan"]
