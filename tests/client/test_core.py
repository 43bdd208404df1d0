"""The rules of one logical stream, with no I/O at all."""

import json
import logging

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.client.support import control, frame, moving, published
from tests.client.support import opened as stream_open
from tidegate.client.core import Step, StreamCore
from tidegate.client.cursor import Cursor
from tidegate.client.reconnect import Verdict
from tidegate.client.selection import Selection
from tidegate.client.state import StreamState
from tidegate.errors import (
    ChainBroken,
    NotAnEventStream,
    SseLimitExceeded,
    StreamRefused,
    StreamUnavailable,
)

URL = "http://h/session/a1"
SSE = {"content-type": "text/event-stream"}


def make(url=URL, **options):
    options.setdefault("random", lambda: 0.0)
    return StreamCore(url, **options)


def opened(core=None, headers=None, **options):
    core = core or make(**options)
    assert core.step is Step.OPEN
    assert core.answered(200, {**SSE, **(headers or {})}) is Verdict.OPEN
    assert core.step is Step.READ
    return core


def drain(core):
    return [event.id for event in iter(core.take, None)]


def lose(core):
    """A cut, and back to the next request."""
    assert core.take() is None
    core.failed("cut")
    assert core.step is Step.WAIT
    core.waited()


def asked(core):
    return core.request().headers.get("Last-Event-ID")


def test_events_come_in_order_and_the_cursor_follows_the_consumer():
    core = opened()
    core.feed(frame(1) + frame(2))
    assert core.cursor is None
    assert core.take().id == 1
    assert core.cursor is None, "the first event is still being handled"
    assert core.take().id == 2
    assert core.cursor.text == "e1-1"
    assert core.take() is None
    assert core.cursor.text == "e1-2"


def test_the_request_asks_for_epochs_and_resumes_at_the_cursor():
    core = opened(last_event_id=0)
    assert core.request().url == f"{URL}/events?ids=epoch"
    assert asked(core) == "0"
    core.feed(frame(1))
    assert drain(core) == [1]
    lose(core)
    assert core.step is Step.OPEN
    assert asked(core) == "e1-1"


def test_a_place_that_no_session_has_is_refused_unless_the_stream_is_another_ones():
    with pytest.raises(ValueError, match="a number or <epoch>-<number>, not 'zz'"):
        StreamCore(URL, last_event_id="zz")
    assert StreamCore(URL, last_event_id="zz", plain=True).cursor.text == "zz"
    assert StreamCore("http://h/feed", last_event_id="zz").cursor.text == "zz"


def test_two_drops_without_an_event_ask_for_the_same_place():
    core = opened(last_event_id=7, epoch="e1")
    for _ in range(3):
        lose(core)
        assert (asked(core), core.request().headers["Tidegate-Epoch"]) == ("7", "e1")
        opened(core)


def test_a_plain_id_keeps_the_epoch_of_its_own_response():
    core = opened(headers={"tidegate-epoch": "old"})
    plain = frame(5).replace(b"id: e1-5", b"id: 5")
    core.feed(plain)
    assert core.take().epoch == "old"
    lose(core)
    opened(core, headers={"tidegate-epoch": "new"})
    lose(core)
    assert (asked(core), core.request().headers["Tidegate-Epoch"]) == ("5", "old")


@pytest.mark.parametrize("odd", ["", "é", "a b", "x" * 129, "e\u20ac", "a,b", "a\n", "\x1b[2J"])
def test_an_epoch_that_is_none_is_not_kept(odd):
    core = opened(headers={"tidegate-epoch": odd})
    core.feed(frame(5).replace(b"id: e1-5", b"id: 5"))
    assert core.take().epoch is None
    lose(core)
    assert asked(core) == "5"
    assert "Tidegate-Epoch" not in core.request().headers


def test_a_new_stream_begins_where_the_server_says_if_it_says():
    core = opened(headers={"last-event-id": "e1-40"})
    assert core.cursor.text == "e1-40"
    lose(core)
    assert asked(core) == "e1-40"
    opened(core, headers={"last-event-id": "e1-90"})
    assert core.cursor.text == "e1-40", "a client with a cursor knows better"


def test_an_id_alone_moves_the_cursor_when_what_came_before_is_done():
    core = opened()
    core.feed(frame(1) + b"id: e1-9\n\n")
    assert core.take().id == 1
    lose(core)
    assert asked(core) == "e1-9"


@pytest.mark.parametrize("bad", [b"{", b'{"v":2,"type":"x"}', b"[]", b'{"v":1}'])
def test_a_malformed_frame_is_counted_reported_once_and_moves_the_cursor(bad, caplog):
    core = opened()
    core.feed(b"id: e1-1\ndata: " + bad + b"\n\n" + frame(2) + b"id: e1-3\ndata: " + bad + b"\n\n")
    assert drain(core) == [2]
    assert core.cursor.text == "e1-3"
    assert core.statistics().malformed == 2
    assert caplog.text.count("a frame is passed over") == 1


def test_a_malformed_frame_reaches_no_log_unescaped(caplog):
    core = opened()
    core.feed("data: \x1b[31m\u202e".encode() + b"x" * 500 + b"\n\n")
    assert core.take() is None
    (record,) = caplog.records
    assert record.getMessage().isascii()
    assert record.getMessage().isprintable()
    assert len(record.getMessage()) < 400


def test_plain_takes_any_stream_and_adds_nothing_to_its_url():
    core = opened(url="http://h/s", plain=True)
    core.feed(b"id: 4\nevent: session_closed\ndata: {\n\n")
    event = core.take()
    assert (event.type, event.data, event.cursor) == ("session_closed", "{", "4")
    assert core.request().url == "http://h/s"
    lose(core)
    assert asked(core) == "4", "session_closed of another's stream means nothing"


def test_after_a_resync_a_server_without_epochs_counts_from_its_new_beginning():
    core = opened(last_event_id=100)
    resync = control("state_resync_required", reason="epoch_reset")
    core.feed(resync + frame(1).replace(b"id: e1-1", b"id: 1"))
    assert core.take().type == "state_resync_required"
    assert core.take().id == 1
    assert core.cursor.text == "100"
    lose(core)
    assert asked(core) == "1"


def test_a_clean_end_comes_back_too():
    core = opened()
    core.ended()
    assert core.step is Step.WAIT
    core.waited()
    assert core.step is Step.OPEN


def test_the_end_of_the_session_ends_the_stream():
    core = opened()
    core.feed(frame(1, "session_closed"))
    assert core.take().type == "session_closed"
    assert core.take() is None
    core.ended()
    assert (core.step, core.end_reason) == (Step.DONE, "session_closed")


def test_a_session_that_closed_is_not_come_back_to_after_a_cut_either():
    core = opened()
    core.feed(frame(1, "session_closed"))
    assert drain(core) == [1]
    core.failed("cut")
    assert core.end_reason == "session_closed"


def test_204_ends_without_an_error():
    core = make()
    assert core.answered(204, {}) is Verdict.FINISHED
    assert (core.step, core.end_reason) == (Step.DONE, "no_content")
    assert core.take() is None


def test_the_servers_retry_counts_from_when_it_came():
    core = opened(retry=5.0)
    core.ended()
    assert core.delay == 5.0
    core.waited()
    opened(core)
    core.feed(b"retry: 1500\n\n")
    core.ended()
    assert core.delay == 1.5


def test_failures_in_a_row_wait_longer_and_an_open_stream_begins_anew():
    core = make(random=lambda: 1.0, retry=0.0)
    delays = []
    for _ in range(7):
        core.failed("no connection")
        delays.append(core.delay)
        core.waited()
    assert delays == [1, 2, 4, 8, 16, 30, 30]
    opened(core)
    core.ended()
    assert core.delay == 1


REFUSAL = control("stream_error", error="come back later", errorKind="draining")


def refuse_by_status(core):
    core.answered(503, {"retry-after": "20"})


def refuse_by_stream(core):
    assert core.answered(200, SSE) is Verdict.OPEN
    for chunk in (b": hello\n\n", b"retry: 20000\n\n", REFUSAL[:20]):
        core.feed(chunk)
    core.feed(REFUSAL[20:])


@pytest.fixture(params=[refuse_by_status, refuse_by_stream])
def refuse(request):
    return request.param


def test_both_forms_of_a_refusal_are_failed_attempts(refuse):
    told = []
    core = make(on_state=told.append, random=lambda: 1.0, max_attempts=4, last_event_id="e1-5")
    for n in range(3):
        refuse(core)
        assert (core.step, core.delay) == (Step.WAIT, 20 + 2**n)
        assert core.take() is None
        core.waited()
    assert asked(core) == "e1-5"
    with pytest.raises(StreamUnavailable, match="in 4 attempts"):
        refuse(core)
    assert (core.step, core.end_reason) == (Step.DONE, "unavailable")
    assert {state.phase for state in told} == {"connecting", "waiting", "finished"}
    statistics = core.statistics()
    assert (statistics.connects, statistics.events, statistics.retries) == (0, 0, 3)


def test_both_forms_of_a_refusal_leave_the_servers_own_retry_alone(refuse):
    core = opened(headers={"tidegate-stream-id": "s"})
    core.feed(b"retry: 1500\n\n")
    core.ended()
    core.waited()
    refuse(core)
    core.waited()
    core.failed("no connection")
    assert core.delay == 1.5


def test_both_forms_of_a_refusal_allow_no_other_token(refuse):
    core = make(token="old", refreshable=True)
    core.answered(401, {})
    core.got_token("new")
    refuse(core)
    core.waited()
    assert core.answered(401, {}) is Verdict.REFUSED


def test_a_refusal_as_a_stream_says_why_and_asks_for_no_more_than_it_may():
    told = []
    core = make(on_state=told.append)
    core.answered(200, SSE)
    core.feed(b"retry: %s\n\n" % (b"9" * 200) + REFUSAL + frame(1))
    assert told[-1] == StreamState("waiting", 1, 3600.0, "draining: come back later")
    assert core.take() is None
    core.waited()
    core.answered(200, SSE)
    core.feed(REFUSAL)
    assert core.delay == 3.0, "without a time of its own the client's counts"


@pytest.mark.parametrize("headers", [{"tidegate-stream-id": "s"}, {"last-event-id": "e1-4"}])
def test_a_stream_that_has_a_name_or_a_place_is_open_at_once_and_its_end_is_no_refusal(headers):
    told = []
    core = opened(headers=headers, on_state=told.append, max_attempts=1)
    assert told == [StreamState("open")]
    core.feed(b"retry: 20\n\n" + REFUSAL)
    assert core.take().type == "stream_error"
    core.ended()
    assert core.statistics().connects == 1


def test_a_refusal_behind_another_frame_is_a_stream_that_ends():
    told = []
    core = opened(on_state=told.append, max_attempts=1)
    core.feed(b"retry: 20000\n\n")
    assert told == []
    core.feed(control("replay_complete", replayedCount=0) + REFUSAL)
    assert told == [StreamState("open")]
    assert [event.type for event in iter(core.take, None)] == ["replay_complete", "stream_error"]
    core.ended()
    assert (core.statistics().connects, core.delay) == (1, 20.0)


def test_a_stream_that_is_not_tidegates_does_not_refuse_by_a_frame():
    core = opened(plain=True, max_attempts=1)
    core.feed(REFUSAL)
    assert core.take().type == "stream_error"


def test_a_response_that_ends_is_waited_for_and_one_that_may_be_silent_is_not():
    core = make()
    assert core.opening
    core.answered(200, {**SSE, "content-length": "99"})
    core.feed(b"retry: 20000\n\n")
    assert core.opening
    core.feed(REFUSAL)
    assert core.opening
    core.waited()
    core.answered(200, SSE)
    assert not core.opening
    core.ended()
    assert not core.opening, "it was open"
    assert core.statistics().connects == 1


def test_retry_after_may_be_a_date():
    core = make(now=lambda: 1893456000.0)
    core.answered(429, {"retry-after": "Tue, 01 Jan 2030 00:00:09 GMT"})
    assert core.delay == 9


def test_a_401_asks_for_one_new_token():
    core = make(token="old", refreshable=True)
    assert core.answered(401, {}) is Verdict.REFRESH
    assert core.step is Step.TOKEN
    core.got_token("new")
    assert core.step is Step.OPEN
    assert core.request().headers["Authorization"] == "Bearer new"
    assert core.answered(401, {}) is Verdict.REFUSED
    error = core.refused("Unauthorized", b"")
    assert isinstance(error, StreamRefused)
    assert (error.status, error.code, error.message) == (401, None, "Unauthorized")
    assert core.end_reason == "refused"


def test_an_open_stream_allows_another_refresh():
    core = make(refreshable=True)
    assert core.step is Step.TOKEN
    core.got_token("one")
    for token in ("two", "three"):
        core.answered(401, {})
        core.got_token(token)
        opened(core)
        core.ended()
        core.waited()
    assert core.request().headers["Authorization"] == "Bearer three"


def test_without_a_source_of_tokens_a_401_is_final():
    assert make(token="t").answered(401, {}) is Verdict.REFUSED


def test_a_token_that_no_header_carries_is_refused():
    core = make(refreshable=True)
    with pytest.raises(ValueError, match="visible ASCII"):
        core.got_token("a b")
    assert core.step is Step.TOKEN


def test_another_content_type_is_final():
    core = make()
    with pytest.raises(NotAnEventStream) as raised:
        core.answered(200, {"content-type": "text/html"})
    assert raised.value.content_type == "text/html"
    assert core.end_reason == "refused"


def test_a_content_type_is_shown_harmless():
    with pytest.raises(NotAnEventStream) as raised:
        make().answered(200, {"content-type": "\x1b[2J" * 10**4})
    assert raised.value.content_type.isprintable()
    assert len(str(raised.value)) < 1200


def test_too_many_attempts_in_a_row_give_up():
    core = make(max_attempts=3)
    for _ in range(2):
        core.failed("no")
        core.waited()
    opened(core)
    core.ended()
    core.waited()
    core.answered(500, {})
    core.waited()
    core.failed("no")
    core.waited()
    with pytest.raises(StreamUnavailable, match="in 3 attempts: status 502"):
        core.answered(502, {})
    assert core.end_reason == "unavailable"
    assert core.statistics().last_problem == "status 502"


def test_a_frame_over_the_bound_ends_the_stream():
    core = opened()
    with pytest.raises(SseLimitExceeded):
        core.feed(b"data: " + b"x" * (17 * 1024 * 1024))
    assert core.end_reason == "limit"


@pytest.mark.parametrize("end", [StreamCore.ended, lambda core: core.failed("cut")])
def test_a_frame_over_the_bound_behind_good_ones_in_the_last_chunk_ends_the_stream(end):
    core = opened()
    core.feed(frame(1) + b"data: " + b"x" * (17 * 1024 * 1024))
    assert drain(core) == [1]
    with pytest.raises(SseLimitExceeded):
        end(core)
    assert (core.step, core.end_reason) == (Step.DONE, "limit")
    assert core.cursor.text == "e1-1"


def test_the_end_of_the_session_counts_whatever_stands_behind_it():
    core = opened()
    core.feed(frame(1, "session_closed") + b"data: " + b"x" * (17 * 1024 * 1024))
    assert drain(core) == [1]
    core.ended()
    assert core.end_reason == "session_closed"


CAPABLE = json.dumps(
    {"features": ["slow_client_warning"], "limits": {"maxQueued": [16, 2048]}}
).encode()


def test_max_queued_is_asked_about_once_and_then_sent():
    core = make(max_queued=100)
    assert core.step is Step.PREFLIGHT
    assert core.request().url == "http://h/capabilities"
    core.got_capabilities(200, {}, CAPABLE)
    assert core.request().url == f"{URL}/events?ids=epoch&maxQueued=100"
    opened(core)
    core.ended()
    core.waited()
    assert core.step is Step.OPEN


def test_max_queued_is_left_out_where_the_server_does_not_know_it(caplog):
    core = make(max_queued=100)
    core.got_capabilities(404, {}, b"")
    assert core.request().url == f"{URL}/events?ids=epoch"
    assert "is not sent" in caplog.text


def test_max_queued_out_of_range_is_final():
    core = make(max_queued=5000)
    with pytest.raises(ValueError, match="16 to 2048 here, not 5000"):
        core.got_capabilities(200, {}, CAPABLE)
    assert core.end_reason == "refused"


def test_the_preflight_is_tried_again_like_the_stream():
    core = make(max_queued=100, token="old", refreshable=True)
    core.failed("no connection")
    core.waited()
    assert core.step is Step.PREFLIGHT
    core.got_capabilities(503, {"retry-after": "9"}, b"")
    assert (core.step, core.delay) == (Step.WAIT, 9)
    core.waited()
    core.got_capabilities(401, {}, b"")
    assert core.step is Step.TOKEN
    core.got_token("new")
    assert core.step is Step.PREFLIGHT
    with pytest.raises(StreamRefused, match=r"401 \(unauthorized\): who are you"):
        core.got_capabilities(401, {}, b'{"error": "who are you", "code": "unauthorized"}')


def test_max_queued_needs_a_sessions_url():
    with pytest.raises(ValueError, match="session/ID/events"):
        make("http://h/stream", max_queued=100)


@pytest.mark.parametrize("name", ["max_queued", "max_attempts"])
def test_counts_are_positive_integers(name):
    for wrong in (True, "5", 5.0):
        with pytest.raises(TypeError, match=f"{name} is an int"):
            make(**{name: wrong})
    with pytest.raises(ValueError, match=f"{name} is at least 1"):
        make(**{name: 0})


@pytest.mark.parametrize("retry", [-1.0, float("inf"), float("nan")])
def test_retry_is_a_time(retry):
    with pytest.raises(ValueError, match="retry is 0 s or more"):
        make(retry=retry)


def test_reopen_drops_what_came_and_goes_on_elsewhere_at_once():
    core = opened()
    core.feed(frame(1) + frame(2) + frame(3, "session_closed"))
    assert core.take().id == 1
    core.take()
    core.take()
    core.reopen(None)
    assert core.step is Step.OPEN
    assert asked(core) is None
    opened(core)
    core.ended()
    assert core.step is Step.WAIT, "the end of the session was dropped too"


def test_reopen_after_a_resync_keeps_to_its_place():
    core = opened()
    core.feed(control("state_resync_required", reason="ring_evicted"))
    core.take()
    core.reopen(Cursor.given("e1-40"))
    opened(core)
    core.feed(frame(39))
    assert drain(core) == [39]
    assert core.cursor.text == "e1-40"


def test_reopen_after_a_refusal_tries_again():
    core = make(max_attempts=1)
    with pytest.raises(StreamUnavailable):
        core.failed("no")
    core.reopen(None)
    assert (core.step, core.end_reason) == (Step.OPEN, None)
    with pytest.raises(StreamUnavailable, match="in 1 attempts"):
        core.failed("no")


def test_close_ends_all_and_keeps_the_first_reason():
    core = opened()
    core.feed(frame(1))
    core.close()
    assert (core.step, core.end_reason, core.take()) == (Step.DONE, "closed", None)
    other = make()
    other.answered(204, {})
    other.close()
    assert other.end_reason == "no_content"


def test_each_phase_is_told():
    told = []
    core = make(on_state=told.append, retry=2.0)
    assert told == []
    core.request()
    opened(core)
    core.ended()
    core.waited()
    core.request()
    core.close()
    assert told == [
        StreamState("connecting"),
        StreamState("open"),
        StreamState("waiting", 1, 2.0, "the stream ended"),
        StreamState("connecting", 1),
        StreamState("finished", cause="closed"),
    ]


def test_an_outage_is_a_warning_once(caplog):
    caplog.set_level(logging.INFO, "tidegate.client")
    core = make("http://u:pw@h/session/a1?ticket=t")
    for _ in range(3):
        core.failed("ConnectError")
        core.waited()
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO", "INFO"]
    assert "pw" not in caplog.text
    assert "ticket" not in caplog.text


def test_statistics_count_what_happened():
    core = opened()
    core.feed(frame(1) + frame(2))
    drain(core)
    lose(core)
    core.answered(500, {})
    statistics = core.statistics()
    assert statistics.bytes_received == len(frame(1) + frame(2))
    assert (statistics.connects, statistics.retries, statistics.events) == (1, 2, 2)
    assert (statistics.last_status, statistics.last_problem) == (500, "status 500")


class Server:
    """A session's history, from which each connection sends a part of what follows its cursor."""

    def __init__(self, events):
        self.events = events
        self.epoch = 1

    def after(self, cursor):
        epoch, _, number = (cursor or "e1-0").rpartition("-")
        known = int(number) if epoch == f"e{self.epoch}" else 0
        return [frame(n, epoch=f"e{self.epoch}") for n in range(known + 1, self.events + 1)]


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 30), st.lists(st.integers(1, 400), max_size=40), st.data())
def test_cut_anywhere_each_event_comes_exactly_once(events, cuts, data):
    server = Server(events)
    core = make(last_event_id="e1-0")
    got = []
    for cut in [*cuts, None]:
        opened(core)
        sent = b"retry: 5\n\n" + b"".join(server.after(asked(core)))
        sent = sent[:cut]
        while sent:
            size = data.draw(st.integers(1, 120)) if cut else len(sent)
            core.feed(sent[:size])
            sent = sent[size:]
            got += drain(core)
        lose(core)
    assert got == list(range(1, events + 1))


def channels(*names, url="http://h", selection=None, **options):
    selection = selection or {}
    return make(url, selection=Selection.given(names or ["a"], **selection), **options)


def positions(core):
    return [event.position for event in iter(core.take, None)]


def test_a_stream_of_channels_asks_for_nothing_of_sessions():
    core = channels("a", "b", last_event_id="5")
    request = core.request()
    assert request.url == "http://h/v1/stream?channel=a&channel=b"
    assert core.channels == ("a", "b")
    assert core.cursor == Cursor("5"), "a number it may look like, but it is none"
    assert make("http://h/v1/stream?channel=x").channels == ("x",)
    assert make().channels == ()


def test_a_place_in_channels_is_a_text():
    with pytest.raises(TypeError, match="a text, not int"):
        channels("a", last_event_id=5)
    with pytest.raises(ValueError, match="carries its epochs"):
        channels("a", last_event_id="5", epoch="e1")


def test_the_url_of_a_stream_without_channels_is_refused_unless_it_is_anothers():
    with pytest.raises(ValueError, match="a stream of channels names them"):
        make("http://h/v1/stream")
    assert make("http://h/v1/stream", plain=True).request().url == "http://h/v1/stream"


@pytest.mark.parametrize("cursor", ["5", "e1-5"])
def test_a_cursor_of_channels_that_looks_older_is_the_servers_word(cursor):
    core = opened(channels("a", last_event_id="e1-9"))
    core.feed(published(1).replace(b"id: c.p01", f"id: {cursor}".encode()))
    assert positions(core) == ["p01"]
    lose(core)
    assert asked(core) == cursor


@pytest.mark.parametrize(
    "kind",
    [
        "stream_open",
        "replay_complete",
        "state_resync_required",
        "channel_snapshot",
        "stream_cursor",
    ],
)
def test_a_control_frame_with_an_id_moves_the_cursor(kind):
    core = opened(channels("a", last_event_id="c.0"))
    core.feed(moving(kind, "c.7"))
    assert core.take().cursor == "c.7"
    assert core.cursor.text == "c.0", "it is still being handled"
    lose(core)
    assert asked(core) == "c.7"


def test_a_control_frame_without_an_id_moves_nothing():
    core = opened(channels("a", last_event_id="c.0"))
    core.feed(control("slow_client_warning"))
    assert core.take().type == "slow_client_warning"
    lose(core)
    assert asked(core) == "c.0"


def test_two_drops_without_an_event_ask_for_the_same_place_in_channels():
    core = opened(channels("a"), headers={"last-event-id": "c.p00"})
    for _ in range(3):
        lose(core)
        assert asked(core) == "c.p00"
        opened(core, headers={"last-event-id": "c.p05"})


def test_the_beginning_is_asked_for_until_there_is_a_cursor():
    for selection, query in (
        ({"tail": 3}, "&tail=3"),
        ({"from_beginning": True}, "&from=beginning"),
    ):
        core = channels("a", selection=selection)
        assert core.request().url == f"http://h/v1/stream?channel=a{query}"
        core.failed("no connection")
        core.waited()
        assert core.request().url == f"http://h/v1/stream?channel=a{query}"
        opened(core).feed(stream_open("a"))
        assert core.take().type == "stream_open"
        lose(core)
        assert core.request().url == "http://h/v1/stream?channel=a"
        assert asked(core) == "c.p00"
    core = channels("a", selection={"tail": 3}, last_event_id="c.9")
    assert core.request().url == "http://h/v1/stream?channel=a"


def test_a_stream_that_is_reopened_without_a_place_is_live():
    core = channels("a", selection={"from_beginning": True})
    core.reopen(None)
    assert core.request().url == "http://h/v1/stream?channel=a"


def test_a_gap_raises_once_and_the_next_step_goes_back_before_it():
    core = opened(channels("a"))
    core.feed(stream_open("a") + published(1) + published(3) + published(4))
    assert core.take().type == "stream_open"
    assert core.take().position == "p01"
    with pytest.raises(ChainBroken) as raised:
        core.take()
    assert (raised.value.expected, raised.value.got) == ("p01", "p02")
    assert raised.value.event.position == "p03"
    assert core.cursor.text == "c.p01"
    assert core.step is Step.WAIT
    assert core.statistics().last_problem == "events of a are missing"
    assert core.take() is None, "what came behind it is of no more use"
    core.waited()
    assert asked(core) == "c.p01"
    opened(core).feed(stream_open("a", position="p01") + published(2) + published(3))
    assert positions(core) == [None, "p02", "p03"]


def test_a_gap_that_the_caller_accepts_is_passed():
    core = opened(channels("a"))
    core.feed(stream_open("a") + published(1) + published(3))
    with pytest.raises(ChainBroken) as raised:
        positions(core)
    core.reopen(core.given(raised.value.event.cursor))
    assert asked(core) == "c.p03"
    opened(core).feed(stream_open("a", position="p03") + published(4))
    assert positions(core) == [None, "p04"]


def test_an_event_that_comes_again_is_not_handed_out_again_and_moves_the_cursor():
    core = opened(channels("a"))
    core.feed(stream_open("a") + published(1))
    assert positions(core) == [None, "p01"]
    lose(core)
    again = published(1).replace(b"id: c.p01", b"id: c.p01b")
    opened(core).feed(stream_open("a", position="p01") + again + published(2))
    assert positions(core) == [None, "p02"]
    assert core.statistics().events == 4
    lose(core)
    opened(core).feed(stream_open("a", position="p02") + published(2).replace(b"c.p02", b"c.x"))
    assert positions(core) == [None]
    assert core.cursor.text == "c.x"


def test_a_malformed_event_of_a_channel_is_a_gap():
    core = opened(channels("a"))
    bad = published(1).replace(b'"v": 1', b'"v": 2')
    core.feed(stream_open("a") + bad + published(2))
    with pytest.raises(ChainBroken):
        positions(core)
    assert core.cursor.text == "c.p01"
    core.waited()
    opened(core).feed(stream_open("a", position="p01") + published(2))
    assert positions(core) == [None, "p02"]


def test_the_chain_is_checked_on_any_stream_that_speaks_of_channels():
    core = opened(make("http://h/my-room"))
    core.feed(stream_open("a") + published(2))
    with pytest.raises(ChainBroken):
        positions(core)
    core = opened(make("http://h/my-room", plain=True))
    core.feed(stream_open("a") + published(2))
    assert len(drain(core)) == 2
