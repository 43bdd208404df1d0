import json

import pytest

from tests.stream.driver import make_scope
from tidegate.sse import Decoder
from tidegate.stream.refusal import accepts_event_stream, refuse, retry_after


@pytest.mark.parametrize(
    "accept",
    [
        b"text/event-stream",
        b"Text/Event-Stream",
        b"application/json, text/event-stream",
        b"text/event-stream;q=0.1",
        b"text/event-stream; q=1",
        b"text/event-stream; charset=utf-8",
        b"text/event-stream;q=0, text/event-stream",
        b"text/event-stream;q=",
        b"text/event-stream;q=junk",
    ],
)
def test_who_names_the_type_accepts_event_streams(accept):
    assert accepts_event_stream([accept])


@pytest.mark.parametrize(
    "accept",
    [
        b"",
        b"*/*",
        b"text/*",
        b"application/json",
        b"text/event-streams",
        b"text/event-stream;q=0",
        b"text/event-stream; Q = 0.000",
        b"text/event-stream;q=0.",
        b'application/x; p="text/event-stream"',
    ],
)
def test_who_does_not_name_it_is_no_event_source(accept):
    assert not accepts_event_stream([accept])


def test_every_accept_header_counts():
    assert not accepts_event_stream([])
    assert accepts_event_stream([b"text/html", b"text/event-stream"])


def refused(accept, **options):
    scope = make_scope(headers=[(b"accept", accept)])
    return refuse(scope, "draining", "bye", rng=lambda: 0.5, clock=lambda: 1.5, **options)


def test_an_event_source_is_refused_by_a_stream_that_ends():
    answer = refused(b"text/event-stream")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/event-stream"
    assert answer.headers["cache-control"] == "no-cache, no-transform"
    decoder = Decoder()
    (event,) = decoder.feed(answer.body)
    assert decoder.retry == 20000
    assert event.type == "stream_error"
    assert json.loads(event.data) == {
        "v": 1,
        "type": "stream_error",
        "data": {"error": "bye", "errorKind": "draining"},
        "_meta": {"serverTimestamp": 1500},
    }


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("subscriber_limit", 429),
        ("stream_limit", 429),
        ("rate_limited", 429),
        ("draining", 503),
        ("broker_unavailable", 503),
    ],
)
def test_any_other_client_is_refused_by_a_status(kind, status):
    answer = refuse(make_scope(), kind, "no", rng=lambda: 0.0)
    assert answer.status_code == status
    assert answer.headers["retry-after"] == "10"
    assert json.loads(answer.body) == {"error": "no", "code": kind}


def test_the_plain_status_can_be_had_for_everyone():
    assert refused(b"text/event-stream", form="status").status_code == 503


def test_retry_after_is_10_to_30_seconds():
    assert retry_after(lambda: 0.999999) == {"retry-after": "30"}
    assert 10 <= int(retry_after()["retry-after"]) <= 30
