"""URLs and headers of the routes that a client asks."""

import json

import pytest

from tidegate.client.cursor import Cursor
from tidegate.client.selection import Selection
from tidegate.client.target import MAX_URL, Target, bearer, gateway_url, shown_url

BASE = "http://h:1/api"
SESSION = Target(f"{BASE}/session/a~1/events", f"{BASE}/session/a~1/load", f"{BASE}/capabilities")


@pytest.mark.parametrize("end", ["", "/", "/events", "/events/", "/load", "/snapshot"])
def test_every_url_of_a_session_names_it(end):
    assert Target.read(f"{BASE}/session/a~1{end}") == SESSION


def test_a_session_at_the_root():
    assert Target.read("https://h/session/a") == Target(
        "https://h/session/a/events", "https://h/session/a/load", "https://h/capabilities"
    )


@pytest.mark.parametrize("name", ["events", "load", "session"])
def test_a_session_may_be_named_like_a_route(name):
    target = Target.read(f"http://h/session/{name}")
    assert target.events == f"http://h/session/{name}/events"
    assert Target.read(f"http://h/session/{name}/events") == target


def test_a_query_is_kept_for_the_stream_and_a_fragment_dropped():
    target = Target.read("http://h/session/a?ticket=t&x#top")
    assert target.events == "http://h/session/a/events?ticket=t&x"
    assert target.load == "http://h/session/a/load"
    assert target.capabilities == "http://h/capabilities"


@pytest.mark.parametrize(
    "url", ["http://h", "http://h/", "http://h/stream?a=b", "http://h/session", "http://h/session/"]
)
def test_any_other_url_is_taken_as_it_is(url):
    assert Target.read(url) == Target(url)


def test_the_session_of_a_base_url_is_escaped():
    assert Target.of_session(f"{BASE}/", "a~1") == SESSION
    assert Target.of_session("http://h", "a/b c").events == "http://h/session/a%2Fb%20c/events"


@pytest.mark.parametrize(
    "url", ["", "h/session/a", "ftp://h/x", "http:///x", "http://h:0/", "http://h:x/", "http://[/"]
)
def test_what_is_no_url_is_refused(url):
    with pytest.raises(ValueError, match="http://HOST"):
        Target.read(url)


def test_a_url_is_a_str():
    with pytest.raises(TypeError, match="a URL is a str, not bytes"):
        Target.read(b"http://h")


def stream(target=SESSION, cursor=None, token=None, headers=None, parameters=None):
    return target.stream(
        cursor=cursor, token=token, headers=headers or {}, parameters=parameters or {}
    )


def test_a_live_stream_asks_for_nothing_but_a_stream():
    request = stream()
    assert request.url == SESSION.events
    assert request.headers == {
        "Accept": "text/event-stream",
        "Accept-Encoding": "identity",
        "Cache-Control": "no-store",
    }


def test_parameters_join_the_query_unless_they_are_there():
    target = Target.read("http://h/session/a?ids=plain&x=1")
    assert stream(target, parameters={"ids": "epoch", "maxQueued": "16"}).url == (
        "http://h/session/a/events?ids=plain&x=1&maxQueued=16"
    )
    assert stream(parameters={"ids": "epoch"}).url == f"{SESSION.events}?ids=epoch"


def test_a_cursor_goes_into_a_header_and_its_epoch_beside_a_plain_number_only():
    assert stream(cursor=Cursor.given(5)).headers["Last-Event-ID"] == "5"
    assert "Tidegate-Epoch" not in stream(cursor=Cursor.given(5)).headers
    headers = stream(cursor=Cursor.given(5, "e1")).headers
    assert (headers["Last-Event-ID"], headers["Tidegate-Epoch"]) == ("5", "e1")
    headers = stream(cursor=Cursor.given("e1-5")).headers
    assert headers["Last-Event-ID"] == "e1-5"
    assert "Tidegate-Epoch" not in headers


def test_a_token_goes_into_a_header_and_not_into_the_url():
    request = stream(token="s3cret")
    assert request.headers["Authorization"] == "Bearer s3cret"
    assert "s3cret" not in request.url


def test_our_headers_stand_above_the_callers():
    given = {"accept": "*/*", "X-Mine": "1", "last-event-id": "9", "authorization": "Basic x"}
    headers = stream(cursor=Cursor.given(5), headers=given).headers
    assert headers["X-Mine"] == "1"
    assert headers["Last-Event-ID"] == "5"
    assert headers["authorization"] == "Basic x"
    assert "accept" not in headers
    assert "authorization" not in stream(token="t", headers=given).headers
    assert given["accept"] == "*/*"


def test_the_preflight_asks_for_json_with_the_token():
    request = SESSION.preflight(token="t", headers={"X-Mine": "1"})
    assert request.url == SESSION.capabilities
    assert request.headers == {
        "X-Mine": "1",
        "Accept": "application/json",
        "Accept-Encoding": "identity",
        "Authorization": "Bearer t",
    }


def test_a_stream_that_is_no_sessions_has_no_preflight():
    with pytest.raises(ValueError, match="session/ID/events"):
        Target.read("http://h/stream").preflight(token=None, headers={})


@pytest.mark.parametrize("token", ["", "a b", "a\r\nX: y", "é", "\x7f", "a\0"])
def test_a_token_that_no_header_carries_is_refused_and_not_shown(token):
    with pytest.raises(ValueError, match="visible ASCII") as raised:
        bearer(token)
    assert not token or token not in str(raised.value)


def test_a_token_is_a_str():
    with pytest.raises(TypeError, match="a token is a str, not bytes"):
        bearer(b"t")
    assert bearer(None) == {}


def test_a_log_gets_neither_password_nor_query():
    assert shown_url("http://me:pw@h:1/session/a/events?ticket=t") == "http://h:1/session/a/events"
    assert shown_url("http://h/é") == "http://h/\\xe9"


def asks(url, *channels, cursor=None, parameters=None, **options):
    target = Target.of_channels(url, Selection.given(channels or None, **options))
    return target.stream(
        cursor=Cursor.opaque(cursor or ""), token=None, headers={}, parameters=parameters or {}
    )


@pytest.mark.parametrize(
    ("url", "where"),
    [
        ("http://h", "http://h/v1/stream"),
        ("http://h/", "http://h/v1/stream"),
        ("http://h/live/", "http://h/live/v1/stream"),
        ("http://h/live/v1/stream", "http://h/live/v1/stream"),
        ("http://h/v1/stream/", "http://h/v1/stream/"),
        ("http://h/v1/publish", "http://h/v1/stream"),
    ],
)
def test_channels_are_below_a_base_url(url, where):
    assert asks(url, "room:1", "b@c").url == f"{where}?channel=room:1&channel=b@c"


def test_a_query_of_the_callers_is_kept_beside_the_channels():
    request = asks("http://h/?ticket=t", "a", tail=5)
    assert request.url == "http://h/v1/stream?ticket=t&channel=a&tail=5"
    assert (request.method, request.body) == ("GET", None)


def test_a_url_may_name_its_channels_itself():
    url = "http://h/v1/stream?channel=a&channel=b%3A1&channel=a"
    target = Target.read(url)
    assert target.channels == ("a", "b:1")
    assert asks(url).url == url
    assert asks(url, tags={"k": "v"}, from_beginning=True).url == f"{url}&from=beginning&tags=k:v"


def test_beside_a_cursor_nothing_is_said_of_the_beginning():
    request = asks("http://h", "a", cursor="1x", tail=5, tags={"k": "v"})
    assert request.url == "http://h/v1/stream?channel=a&tags=k:v"
    assert request.headers["Last-Event-ID"] == "1x"
    assert "Tidegate-Epoch" not in request.headers


def test_a_stream_that_was_reopened_live_says_nothing_of_the_beginning():
    target = Target.of_channels("http://h", Selection.given(["a"], tail=5)).live_only()
    request = target.stream(cursor=None, token=None, headers={}, parameters={})
    assert request.url == "http://h/v1/stream?channel=a"


def test_channels_that_no_url_holds_go_into_a_body():
    names = [f"{n:0>200}" for n in range(40)]
    request = asks("http://h/?ticket=t", *names, tail=3, tags={"k": "v"})
    assert (request.method, request.url) == ("POST", "http://h/v1/stream?ticket=t")
    assert request.headers["Content-Type"] == "application/json"
    assert json.loads(request.body) == {"channels": names, "tail": 3, "tags": {"k": "v"}}
    assert request.headers["Accept"] == "text/event-stream"
    few = asks("http://h", *names[:37])
    assert few.method == "GET"
    assert len(few.url) <= MAX_URL


def test_a_url_that_names_its_channels_is_never_made_a_body():
    url = "http://h/v1/stream?" + "&".join(f"channel={n:0>200}" for n in range(50))
    assert (asks(url).method, asks(url).url) == ("GET", url)


@pytest.mark.parametrize("url", ["http://h", "http://h/v1/stream", "http://h/feed"])
def test_channels_have_to_stand_somewhere(url):
    with pytest.raises(ValueError, match=r"channels=\[…\], or \?channel="):
        Target.of_channels(url, Selection.given(None, tail=5))


def test_channels_stand_in_one_place():
    with pytest.raises(ValueError, match="names its channels already"):
        asks("http://h/v1/stream?channel=a", "b")
    with pytest.raises(ValueError, match="not with a session's"):
        asks("http://h/session/a", "b")
    with pytest.raises(ValueError, match="a channel name is"):
        asks("http://h/v1/stream?channel=a%20b")


@pytest.mark.parametrize(
    ("url", "where"),
    [
        ("http://h", "http://h/v1/channels/a:b@c/snapshot"),
        ("http://h/live/v1/stream?channel=x#y", "http://h/live/v1/channels/a:b@c/snapshot"),
        ("http://h/v1/publish?ticket=t", "http://h/v1/channels/a:b@c/snapshot"),
    ],
)
def test_a_gateways_other_routes_are_beside_its_stream(url, where):
    assert gateway_url(url, "channels", "a:b@c", "snapshot") == where


def test_a_gateways_url_is_one():
    with pytest.raises(ValueError, match="http://HOST"):
        gateway_url("h", "publish")
