import asyncio
import json
import re
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager

import httpx
import pytest
from fastapi import FastAPI
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.applications import Starlette

from tests.gateway.support import HeldBroker, unavailable
from tests.servers import (
    open_stream,
    read_to_end,
    read_until,
    serve_app,
    unchunked,
    wait_until,
)
from tidegate.gateway import Gateway, Namespace
from tidegate.gateway.position import make_position
from tidegate.sse import Decoder

POSITION = make_position(7, b"rand")


class Served:
    """A gateway under uvicorn, a client of it, and short words for both."""

    def __init__(self, gateway, url, client):
        self.gateway = gateway
        self.url = url
        self.client = client

    def publish(self, channel, *data, **fields):
        body = [{"channel": channel, "type": "m", "data": one, **fields} for one in data]
        answer = self.client.post("/v1/publish", json=body)
        assert answer.status_code == 200, answer.text
        return [result["id"] for result in answer.json()["results"]]

    def stream(self, query, *headers):
        return Stream(open_stream(self.url.address, f"/v1/stream?{query}", *headers))

    def position(self, channel):
        return self.client.get(f"/v1/channels/{channel}").json()["position"]


class Stream:
    """A client's side of a stream over a bare socket."""

    def __init__(self, sock):
        self.sock = sock
        self.received = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.sock.close()

    def until(self, *types):
        """Read until the last frames have these types; return all frames."""
        while [event.type for event in self.events][-len(types) :] != list(types):
            chunk = self.sock.recv(65536)
            assert chunk, self.received
            self.received += chunk
        return self.events

    def until_count(self, type_, count):
        """Read until so many frames of a type have come; return all frames."""
        while sum(event.type == type_ for event in self.events) < count:
            chunk = self.sock.recv(65536)
            assert chunk, self.received
            self.received += chunk
        return self.events

    @property
    def events(self):
        try:
            return Decoder().feed(unchunked(self.received))
        except ValueError:
            # Cut within the size of a chunk.
            return []

    @property
    def headers(self):
        head = self.received.partition(b"\r\n\r\n")[0].decode().split("\r\n")
        return dict(line.lower().split(": ", 1) for line in head[1:]) | {"status": head[0]}


@pytest.fixture(scope="module")
def served():
    gateway = Gateway(
        namespaces=[
            Namespace(),
            Namespace(name="room"),
            Namespace(name="full", max_subscribers=1),
            Namespace(name="broken", snapshot=lambda channel: 1 / 0),
            Namespace(name="computed", snapshot=lambda channel: ({"of": channel},)),
        ],
        max_event_bytes=2000,
    )
    with (
        serve_app(gateway) as url,
        httpx.Client(base_url=str(url), trust_env=False, timeout=30) as client,
    ):
        yield Served(gateway, url, client)


def refused(answer, status, code):
    assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text
    assert answer.headers["content-type"] == "application/json"
    assert answer.json()["error"]


# -- streams -------------------------------------------------------------------------------


def test_a_stream_has_the_head_that_the_wire_asks_for(served):
    with served.stream("channel=head", "Accept: text/event-stream") as stream:
        (opened,) = stream.until("stream_open")
        data = json.loads(opened.data)["data"]
        headers = stream.headers
        assert headers["status"] == "HTTP/1.1 200 OK"
        for name in ("date", "server", "transfer-encoding"):
            headers.pop(name)
        assert headers == {
            "status": "HTTP/1.1 200 OK",
            "content-type": "text/event-stream",
            "cache-control": "no-cache, no-transform",
            "x-accel-buffering": "no",
            "tidegate-stream-id": data["streamId"],
            "last-event-id": opened.id.lower(),
        }
        assert data["node"] == served.gateway.node.name
        assert data["denied"] == {}
        assert data["channels"]["head"] | {"epoch": "e"} == {
            "epoch": "e",
            "position": "",
            "recovered": False,
            "linked": True,
        }
        assert re.match(rb"retry: \d+\n\nid: ", unchunked(stream.received))


def test_head_is_the_head_of_the_stream_and_no_stream(served):
    for _ in range(3):
        answer = served.client.head("/v1/stream?channel=head-only")
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "text/event-stream"
        assert answer.headers["tidegate-stream-id"]
        assert "content-length" not in answer.headers
    listed = served.client.get("/v1/channels").json()["channels"]
    assert "head-only" not in [state["channel"] for state in listed]
    assert served.client.head("/v1/stream").status_code == 400
    assert served.client.head("/v1/stream?channel=none:1").status_code == 400


def test_a_publish_acknowledged_after_stream_open_is_delivered(served):
    with served.stream("channel=live-a&channel=live-b&channel=live-a") as stream:
        (opened,) = stream.until("stream_open")
        assert list(json.loads(opened.data)["data"]["channels"]) == ["live-a", "live-b"]
        (first,) = served.publish("live-a", {"x": 1}, tags={"k": "v"}, version=7, meta={"by": 2})
        stream.until("m")
        (second,) = served.publish("live-b", 2)
        _, one, two = stream.until("m", "m")
        envelope = json.loads(one.data)
        epoch = envelope.pop("epoch")
        assert epoch
        assert envelope.pop("_meta").keys() == {"by", "serverTimestamp"}
        assert envelope == {
            "id": first,
            "v": 1,
            "type": "m",
            "channel": "live-a",
            "prev": "",
            "data": {"x": 1},
            "tags": {"k": "v"},
            "version": 7,
        }
        assert json.loads(two.data)["id"] == second
        assert opened.id != one.id != two.id


def test_a_stream_goes_on_where_it_was_cut_off(served):
    channels = "channel=cut-a&channel=cut-b"
    with served.stream(channels) as stream:
        stream.until("stream_open")
        served.publish("cut-a", 1)
        cursor = stream.until("m")[-1].id
    served.publish("cut-b", 2)
    served.publish("cut-a", 3)
    with served.stream(channels, f"Last-Event-ID: {cursor}") as stream:
        events = stream.until_count("replay_complete", 2)
        assert events[0].type == "stream_open"
        assert stream.headers["last-event-id"] == cursor.lower()
        states = json.loads(events[0].data)["data"]["channels"]
        assert all(state["recovered"] for state in states.values())
        assert sorted(json.loads(e.data)["data"] for e in events if e.type == "m") == [2, 3]
        served.publish("cut-a", 4)
        assert json.loads(stream.until("m")[-1].data)["data"] == 4
    with served.stream(f"{channels}&lastEventId={cursor}&_=17") as stream:
        states = json.loads(stream.until_count("stream_open", 1)[0].data)["data"]["channels"]
        assert all(state["recovered"] for state in states.values())


@pytest.mark.parametrize(
    ("query", "expected"), [("tail=2", [2, 3]), ("from=beginning", [1, 2, 3]), ("tail=0", [])]
)
def test_a_new_stream_may_begin_in_the_past(served, query, expected):
    channel = "past-" + query.partition("=")[0] + str(len(expected))
    served.publish(channel, 1, 2, 3)
    with served.stream(f"channel={channel}&{query}") as stream:
        events = stream.until("replay_complete")
        assert [json.loads(e.data)["data"] for e in events if e.type == "m"] == expected


def test_a_stream_may_ask_for_tags(served):
    with served.stream("channel=tagged&tags=k:v,x:y") as stream:
        opened = stream.until("stream_open")[0]
        assert json.loads(opened.data)["data"]["channels"]["tagged"]["linked"] is False
        served.publish("tagged", 1, tags={"k": "v"})
        served.publish("tagged", 2, tags={"k": "v", "x": "y", "z": ""} | {"z": "w"})
        served.publish("tagged", 3)
        assert json.loads(stream.until("m")[-1].data)["data"] == 2
        stream.until("stream_cursor")


def test_a_body_may_describe_the_stream(served):
    served.publish("body", 1, 2)
    body = {"channels": ["body"], "tail": 1}
    with served.client.stream("POST", "/v1/stream", json=body) as answer:
        assert answer.status_code == 200
        lines = answer.iter_lines()
        cursor = ""
        for line in lines:
            cursor = line.removeprefix("id: ") if line.startswith("id: ") else cursor
            if line == "event: replay_complete":
                break
    served.publish("body", 3)
    body = {"channels": ["body"], "lastEventId": cursor}
    with served.client.stream("POST", "/v1/stream", json=body) as answer:
        assert answer.headers["last-event-id"] == cursor
        lines = answer.iter_lines()
        assert next(line for line in lines if '"data":3' in line)
    headers = {"Last-Event-ID": cursor}
    body = {"channels": ["body"], "lastEventId": "rubbish"}
    with served.client.stream("POST", "/v1/stream", json=body, headers=headers) as answer:
        assert answer.headers["last-event-id"] == cursor


def test_a_client_that_does_not_read_is_cut_and_another_one_is_not():
    gateway = Gateway()
    with (
        serve_app(gateway) as url,
        open_stream(url.address, "/v1/stream?channel=a", receive_buffer=4096) as stalled,
        open_stream(url.address, "/v1/stream?channel=a") as reader,
        ThreadPoolExecutor() as pool,
    ):
        reading = pool.submit(read_until, reader, b"event: last")
        wait_until(lambda: gateway.node.statistics().streams == 2)

        async def publish_until_cut():
            count = 0
            while gateway.node.statistics().streams == 2:
                await gateway.publish("a", "m", "x" * 10_000)
                count += 1
                await asyncio.sleep(0)
            await gateway.publish("a", "last")
            return count

        count = url.call(publish_until_cut)
        events = Decoder().feed(unchunked(reading.result(20)))
        assert [event.type for event in events].count("m") == count
        assert sum(gateway.node.statistics().evictions.values()) == 1
        with pytest.raises(ConnectionResetError):
            read_to_end(stalled)


BAD_STREAMS = {
    "": "channel_required",
    "channel=": "invalid_channel",
    "channel=a%0Ab": "invalid_channel",
    "channel=%FF": "invalid_channel",
    "&".join(f"channel=c{n}" for n in range(101)): "too_many_channels",
    "channel=a&tail=-1": "invalid_tail",
    "channel=a&tail=1001": "invalid_tail",
    "channel=a&from=end": "invalid_from",
    "channel=a&from=beginning&tail=1": "invalid_from",
    "channel=a&tags=x": "invalid_tags",
    "channel=none:1": "unknown_namespace",
}


@pytest.mark.parametrize("accept", ["*/*", "text/event-stream"])
@pytest.mark.parametrize("query", BAD_STREAMS)
def test_a_stream_that_makes_no_sense_is_refused(served, query, accept):
    answer = served.client.get(f"/v1/stream?{query}", headers={"Accept": accept})
    refused(answer, 400, BAD_STREAMS[query])


def test_a_hundred_channels_are_one_stream(served):
    with served.stream("&".join(f"channel=many-{n}" for n in range(100))) as stream:
        (opened,) = stream.until("stream_open")
        assert len(json.loads(opened.data)["data"]["channels"]) == 100
        assert len(opened.id) == 2407


@pytest.mark.parametrize("cursor", [b"rubbish", "é€".encode(), b"\xff\xfe", b"1" * 9000])
def test_a_cursor_that_is_none_is_told_so(served, cursor):
    with socket.create_connection(served.url.address) as sock:
        sock.settimeout(20)
        sock.sendall(
            b"GET /v1/stream?channel=bad-cursor HTTP/1.1\r\nHost: x\r\nLast-Event-ID: %b\r\n\r\n"
            % cursor
        )
        received = read_until(sock, b"replay_complete")
        assert b'"reason":"cursor_invalid"' in received
        assert b'"recovered":false' in received


@pytest.mark.parametrize(("accept", "status"), [("*/*", 429), ("text/event-stream", 200)])
def test_a_full_channel_is_a_refusal_for_now(served, accept, status):
    with served.stream("channel=full:1") as stream:
        stream.until("stream_open")
        answer = served.client.get("/v1/stream?channel=full:1", headers={"Accept": accept})
        assert answer.status_code == status
        assert "subscriber_limit" in answer.text
        with served.stream("channel=full:1&channel=a") as other:
            (opened,) = other.until("stream_open")
            assert json.loads(opened.data)["data"]["denied"] == {"full:1": "subscriber_limit"}
    wait_until(lambda: served.gateway.node.statistics().streams == 0)


# -- publishing ----------------------------------------------------------------------------


def test_a_publish_is_acknowledged_with_its_place(served):
    answer = served.client.post("/v1/publish", json={"channel": "ack", "type": "m"})
    assert answer.status_code == 200
    (result,) = answer.json()["results"]
    assert result.keys() == {"channel", "id", "epoch", "duplicate"}
    assert (result["channel"], result["duplicate"]) == ("ack", False)
    assert served.position("ack") == result["id"]


def test_one_event_may_go_to_several_channels(served):
    body = {"channels": ["several-a", "several-b", "several-a"], "type": "m", "data": 1}
    results = served.client.post("/v1/publish", json=body).json()["results"]
    assert [result["channel"] for result in results] == ["several-a", "several-b"]


def test_an_array_is_published_in_order(served):
    ids = served.publish("order", *range(300))
    assert ids == sorted(ids)
    history = served.client.get("/v1/channels/order/history?limit=1000").json()
    assert [event["id"] for event in history["events"]] == ids
    assert [event["data"] for event in history["events"]] == list(range(300))
    assert served.client.post("/v1/publish", json=[]).json() == {"results": []}


def test_a_key_publishes_once_and_an_old_version_not_at_all(served):
    def result(**fields):
        body = {"channel": "once", "type": "m", **fields}
        return served.client.post("/v1/publish", json=body).json()["results"][0]

    first = result(idempotencyKey="k")
    again = result(idempotencyKey="k")
    assert again == {**first, "duplicate": True}
    newer = result(version=2.0)
    older = result(version=2)
    assert older == {**newer, "suppressed": True}


BAD_PUBLISHES = [
    (b"", "invalid_json"),
    (b"{", "invalid_json"),
    (b"\xff", "invalid_json"),
    (b'{"channel":"bad","type":"m","data":NaN}', "invalid_json"),
    (b'{"channel":"bad","type":"m","data":"\\ud800"}', "invalid_json"),
    (b'{"channel":"bad","type":"m","data":' + b"[" * 100_000, "invalid_json"),
    (b"null", "invalid_body"),
    (b'"x"', "invalid_body"),
    (b'{"channel":"bad"}', "invalid_body"),
    (b'{"type":"m"}', "invalid_body"),
    (b'{"channel":"bad","type":"m","more":1}', "invalid_body"),
    (b'{"channel":"bad","channels":["bad"],"type":"m"}', "invalid_body"),
    (b'{"channels":[],"type":"m"}', "channel_required"),
    (b'{"channel":"","type":"m"}', "invalid_channel"),
    (b'{"channel":"b d","type":"m"}', "invalid_channel"),
    (b'{"channels":["bad","b\\u0000d"],"type":"m"}', "invalid_channel"),
    (b'{"channel":"none:1","type":"m"}', "unknown_namespace"),
    (b'{"channel":"bad","type":""}', "invalid_event_type"),
    (b'{"channel":"bad","type":"open"}', "invalid_event_type"),
    (b'{"channel":"bad","type":"a\\nb"}', "invalid_event_type"),
    (b'{"channel":"bad","type":"stream_open"}', "reserved_event_type"),
    (b'{"channel":"bad","type":"m","idempotencyKey":""}', "invalid_idempotency_key"),
    (b'{"channel":"bad","type":"m","idempotencyKey":1}', "invalid_body"),
    (b'{"channel":"bad","type":"m","version":-1}', "invalid_version"),
    (b'{"channel":"bad","type":"m","version":9007199254740992}', "invalid_version"),
    (b'{"channel":"bad","type":"m","version":true}', "invalid_body"),
    (b'{"channel":"bad","type":"m","version":1.5}', "invalid_version"),
    (b'{"channel":"bad","type":"m","version":1e300}', "invalid_version"),
    (b'{"channel":"bad","type":"m","version":-1.0}', "invalid_version"),
    (b'{"channel":"bad","type":"m","tags":{"a,b":"c"}}', "invalid_tags"),
    (b'{"channel":"bad","type":"m","tags":["a:b"]}', "invalid_body"),
    (b'{"channel":"bad","type":"m","meta":1}', "invalid_body"),
    (b'{"channel":"bad","type":"m","data":"%b"}' % (b"x" * 2000), "event_too_large"),
    (json.dumps([{"channel": "bad", "type": "m"}] * 1001).encode(), "too_many_events"),
]


@pytest.mark.parametrize(("body", "code"), BAD_PUBLISHES)
def test_a_bad_publish_publishes_nothing(served, body, code):
    refused(served.client.post("/v1/publish", content=body), 400, code)
    if body.startswith(b"{") and body.endswith(b"}"):
        answer = served.client.post(
            "/v1/publish", content=b'[{"channel":"bad","type":"m"},%b]' % body
        )
        refused(answer, 400, code)
        if "invalid_json" != code != "invalid_body" and code != "channel_required":
            assert answer.json()["error"].startswith("event 1: ") or code == "unknown_namespace"
    assert served.position("bad") == ""


def test_a_body_over_one_mebibyte_is_refused(served):
    body = b" " * (1024 * 1024 + 1)
    refused(served.client.post("/v1/publish", content=body), 413, "body_too_large")
    refused(served.client.post("/v1/stream", content=body), 413, "body_too_large")
    refused(served.client.put("/v1/channels/a/snapshot", content=body), 413, "body_too_large")


@given(st.binary(max_size=200))
@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
def test_no_body_is_a_failure_of_the_server(served, body):
    for method, path in [
        ("POST", "/v1/publish"),
        ("POST", "/v1/stream"),
        ("PUT", "/v1/channels/fuzz/snapshot"),
    ]:
        assert served.client.request(method, path, content=body).status_code == 400


@given(st.text(min_size=1, max_size=50))
@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
def test_no_name_is_a_failure_of_the_server(served, name):
    path = "".join(f"%{byte:02x}" for byte in name.encode("utf-8", "replace"))
    answer = served.client.get(f"/v1/channels/{path}")
    assert answer.status_code in {200, 400, 404}, answer.text
    assert answer.headers["content-type"] == "application/json"


# -- channels ------------------------------------------------------------------------------


def test_the_channels_of_this_node_are_listed(served):
    with served.stream("channel=listed-a&channel=listed-b") as stream:
        stream.until("stream_open")
        (position,) = served.publish("listed-a", 1)
        listed = {
            state["channel"]: state
            for state in served.client.get("/v1/channels").json()["channels"]
        }
        assert listed["listed-a"]["position"] == position
        assert listed["listed-a"]["subscribers"] == listed["listed-b"]["subscribers"] == 1
        assert served.client.get("/v1/channels/listed-a").json() == listed["listed-a"]
    assert served.client.get("/v1/channels/unheard").json()["subscribers"] == 0


def test_a_history_is_read_page_by_page(served):
    ids = served.publish("pages", 1, 2, 3, 4, 5)
    page = served.client.get("/v1/channels/pages/history?limit=2").json()
    assert [event["data"] for event in page["events"]] == [1, 2]
    assert page["complete"] is False
    assert page["position"] == ids[-1]
    assert page["events"][0].keys() == {
        "id",
        "v",
        "type",
        "channel",
        "epoch",
        "prev",
        "data",
        "_meta",
    }
    page = served.client.get(f"/v1/channels/pages/history?after={ids[1]}").json()
    assert [event["id"] for event in page["events"]] == ids[2:]
    assert page["events"][0]["prev"] == ids[1]
    assert page["complete"] is True
    page = served.client.get(f"/v1/channels/pages/history?after={ids[-1]}").json()
    assert page["events"] == []


def test_a_snapshot_is_stored_and_a_stream_goes_on_from_it(served):
    refused(served.client.get("/v1/channels/snap/snapshot"), 404, "snapshot_not_found")
    one, two = served.publish("snap", 1, 2)
    stored = served.client.put(
        "/v1/channels/snap/snapshot", json={"state": {"sum": 1}, "position": one}
    )
    assert stored.status_code == 200
    snapshot = served.client.get("/v1/channels/snap/snapshot").json()
    assert snapshot == {"state": {"sum": 1}, **stored.json()}
    assert snapshot["position"] == one
    with served.stream("channel=snap", f"Last-Event-ID: {snapshot['cursor']}") as stream:
        events = stream.until("replay_complete")
        assert [json.loads(e.data)["data"] for e in events if e.type == "m"] == [2]
    at_head = served.client.put("/v1/channels/snap/snapshot", json={"state": 3}).json()
    assert at_head["position"] == two
    for position in (one, "0" * 15 + "1", "~" * 16):
        answer = served.client.put(
            "/v1/channels/snap/snapshot", json={"state": 1, "position": position}
        )
        refused(answer, 409, "snapshot_ahead")


def test_a_snapshot_may_be_computed(served):
    served.publish("computed:1", 1)
    snapshot = served.client.get("/v1/channels/computed:1/snapshot").json()
    assert snapshot["state"] == {"of": "computed:1"}
    assert snapshot["position"] == served.position("computed:1")


def test_a_snapshot_that_cannot_be_computed_is_an_error_without_a_traceback(served, caplog):
    answer = served.client.get("/v1/channels/broken:1/snapshot")
    refused(answer, 500, "snapshot_failed")
    assert "ZeroDivision" not in answer.text
    assert "ZeroDivision" in caplog.text


def test_a_history_that_is_dropped_begins_a_new_epoch(served):
    with served.stream("channel=dropped") as stream:
        stream.until("stream_open")
        served.publish("dropped", 1)
        epoch = json.loads(stream.until("m")[-1].data)["epoch"]
        answer = served.client.delete("/v1/channels/dropped/history")
        assert answer.status_code == 200
        removed = answer.json()
        assert removed["epoch"] != epoch
        assert removed == {"channel": "dropped", "epoch": removed["epoch"], "position": ""}
        resync = json.loads(stream.until("state_resync_required")[-1].data)["data"]
        assert (resync["reason"], resync["epoch"]) == ("epoch_reset", removed["epoch"])
        served.publish("dropped", 2)
        assert json.loads(stream.until("m")[-1].data)["prev"] == ""


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/v1/channels/a%20b", 400, "invalid_channel"),
        ("GET", "/v1/channels/" + "x" * 201, 400, "invalid_channel"),
        ("GET", "/v1/channels/a%20b/history", 400, "invalid_channel"),
        ("DELETE", "/v1/channels/a%20b/history", 400, "invalid_channel"),
        ("PUT", "/v1/channels/a%20b/snapshot", 400, "invalid_channel"),
        ("GET", "/v1/channels/none:1", 400, "unknown_namespace"),
        ("GET", "/v1/channels/none:1/history", 400, "unknown_namespace"),
        ("DELETE", "/v1/channels/none:1/history", 400, "unknown_namespace"),
        ("PUT", "/v1/channels/none:1/snapshot", 400, "unknown_namespace"),
        ("GET", "/v1/channels/none:1/snapshot", 400, "unknown_namespace"),
        ("GET", "/v1/channels/a/history?after=7", 400, "invalid_position"),
        ("GET", "/v1/channels/a/history?limit=0", 400, "invalid_limit"),
        ("GET", "/v1/channels/a/history?limit=1001", 400, "invalid_limit"),
        ("PUT", "/v1/channels/a/snapshot", 400, "invalid_json"),
        ("GET", "/v1/nothing", 404, "not_found"),
        ("GET", "/v1/stream/", 404, "not_found"),
        ("GET", "/", 404, "not_found"),
        ("GET", "/v1/publish", 405, "method_not_allowed"),
        ("DELETE", "/v1/stream", 405, "method_not_allowed"),
        ("POST", "/v1/channels/a/history", 405, "method_not_allowed"),
        ("DELETE", "/v1/channels/a/snapshot", 405, "method_not_allowed"),
    ],
)
def test_what_cannot_be_is_refused_with_a_code(served, method, path, status, code):
    answer = served.client.request(method, path)
    refused(answer, status, code)
    if status == 405:
        assert answer.headers["allow"]


# -- the document --------------------------------------------------------------------------


def test_the_document_knows_every_route_and_method(served):
    document = served.client.get("/v1/openapi.json").json()
    known = {
        (path, method.upper())
        for path, item in document["paths"].items()
        for method in item
        if method != "parameters"
    }
    assert known == {
        (route.path, method)
        for route in served.gateway.routes
        for method in route.methods
        if method != "HEAD"
    }


def entered(gateway):
    @asynccontextmanager
    async def lifespan(app):
        async with gateway:
            yield

    return lifespan


def test_below_a_path_the_document_says_so():
    gateway = Gateway()
    app = FastAPI(lifespan=entered(gateway))
    app.mount("/live", gateway)
    with serve_app(app) as url, httpx.Client(base_url=str(url), trust_env=False) as client:
        document = client.get("/live/v1/openapi.json").json()
        assert document["servers"] == [{"url": "/live"}]
        refused(client.get("/live/nothing"), 404, "not_found")
        with open_stream(url.address, "/live/v1/stream?channel=a") as stream:
            read_until(stream, b"stream_open")
            body = {"channel": "a", "type": "m", "data": 1}
            assert client.post("/live/v1/publish", json=body).status_code == 200
            read_until(stream, b"event: m")


def test_the_routes_may_stand_among_others():
    gateway = Gateway()
    app = Starlette(routes=gateway.routes, lifespan=entered(gateway))
    with serve_app(app) as url, httpx.Client(base_url=str(url), trust_env=False) as client:
        body = {"channel": "a", "type": "m"}
        assert client.post("/v1/publish", json=body).status_code == 200
        refused(client.get("/v1/stream"), 400, "channel_required")


# -- a broker that is away -------------------------------------------------------------------


class Away(HeldBroker):
    """A broker that has started and then does not answer."""

    async def publish(self, batch):
        await self.stop()
        return await super().publish(batch)


def test_a_broker_that_is_away_is_said_so_everywhere():
    broker = Away()
    broker.failures = dict.fromkeys(["history", "heads", "subscribe"], unavailable())
    with (
        serve_app(Gateway(broker)) as url,
        httpx.Client(base_url=str(url), trust_env=False) as client,
    ):
        for method, path, body in [
            ("GET", "/v1/stream?channel=a", None),
            ("GET", "/v1/channels/a", None),
            ("GET", "/v1/channels/a/history", None),
            ("PUT", "/v1/channels/a/snapshot", {"state": 1}),
            ("POST", "/v1/publish", {"channel": "a", "type": "m"}),
            ("POST", "/v1/publish", [{"channel": "a", "type": "m"}] * 3),
            ("GET", "/v1/channels/a/snapshot", None),
            ("DELETE", "/v1/channels/a/history", None),
        ]:
            answer = client.request(method, path, json=body)
            refused(answer, 503, "broker_unavailable")
            assert 10 <= int(answer.headers["retry-after"]) <= 30
        answer = client.get("/v1/stream?channel=a", headers={"Accept": "text/event-stream"})
        assert answer.status_code == 200
        (error,) = Decoder().feed(answer.content)
        assert json.loads(error.data)["data"]["errorKind"] == "broker_unavailable"


@pytest.mark.parametrize("accept", ["*/*", "text/event-stream"])
def test_head_says_what_get_would_when_the_channels_are_full(served, accept):
    def both(query):
        answers = [
            served.client.request(method, f"/v1/stream?{query}", headers={"Accept": accept})
            for method in ("GET", "HEAD")
        ]
        names = ("content-type", "cache-control")
        got, head = [(one.status_code, *map(one.headers.get, names)) for one in answers]
        assert got == head
        assert ("retry-after" in answers[0].headers) == ("retry-after" in answers[1].headers)
        assert answers[1].content == b""
        return head[0]

    with served.stream("channel=full:head") as stream:
        stream.until("stream_open")
        assert both("channel=full:head") == (429 if accept == "*/*" else 200)
        assert both("channel=full:head&channel=none:1") == 403
        assert served.client.head("/v1/stream?channel=full:head&channel=a").status_code == 200
        assert served.client.head("/v1/stream?channel=full:other").status_code == 200


async def test_head_says_what_get_would_when_the_broker_is_away():
    broker = HeldBroker()
    gateway = Gateway(broker)
    async with (
        gateway,
        httpx.AsyncClient(
            transport=httpx.ASGITransport(gateway), base_url="http://test", trust_env=False
        ) as client,
        gateway.subscribe("here"),
    ):
        # The node asks now and then whether it is back.
        broker.failures["heads"] = unavailable()
        gateway.node.on_disconnected()
        for query, status in [
            ("channel=there", 503),
            ("channel=here&channel=there", 503),
            ("channel=here&tail=2", 503),
            ("channel=here&from=beginning", 503),
            ("channel=here", 200),
        ]:
            answer = await client.head(f"/v1/stream?{query}")
            assert answer.status_code == status, query
            assert ("retry-after" in answer.headers) == (status == 503)
        broker.failures.clear()
        gateway.node.on_reconnected()
        assert (await client.head("/v1/stream?channel=there")).status_code == 200
        assert [one.channel for one in gateway.channels()] == ["here"]


def test_a_broker_that_stores_a_part_answers_for_each_event():
    class Partly(HeldBroker):
        async def publish(self, batch):
            if any(request.channel == "bad" for request in batch):
                kept = await super().publish(batch[:1])
                await self.stop()
                return kept + await super().publish(batch[1:])
            return await super().publish(batch)

    with (
        serve_app(Gateway(Partly())) as url,
        httpx.Client(base_url=str(url), trust_env=False) as client,
    ):
        body = [{"channel": channel, "type": "m"} for channel in ("good", "bad")]
        answer = client.post("/v1/publish", json=body)
        assert answer.status_code == 200
        good, bad = answer.json()["results"]
        assert good["id"]
        assert bad.keys() == {"channel", "error", "code"}
        assert bad["code"] == "broker_unavailable"


def test_a_snapshot_that_does_not_come_is_not_waited_for(monkeypatch):
    monkeypatch.setattr("tidegate.gateway.routes._SNAPSHOT_SECONDS", 0.01)

    async def never(channel):
        await asyncio.Event().wait()

    gateway = Gateway(namespaces=[Namespace(snapshot=never)])
    with serve_app(gateway) as url, httpx.Client(base_url=str(url), trust_env=False) as client:
        refused(client.get("/v1/channels/a/snapshot"), 503, "snapshot_timeout")
