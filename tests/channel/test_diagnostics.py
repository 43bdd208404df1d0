import logging

import pytest

from tidegate.channel.diagnostics import Diagnostics


def test_reports_are_given_in_order_when_flushed():
    seen = []
    diagnostics = Diagnostics("c", lambda kind, data: seen.append((kind, data)))
    diagnostics.add("slow_client_warning", {"n": 1})
    diagnostics.add("client_evicted", {"n": 2})
    assert seen == []
    diagnostics.flush()
    assert seen == [("slow_client_warning", {"n": 1}), ("client_evicted", {"n": 2})]
    diagnostics.flush()
    assert len(seen) == 2


def test_a_callback_gets_a_copy():
    original = {"n": 1}
    diagnostics = Diagnostics("c", lambda kind, data: data.clear())
    diagnostics.add("client_evicted", original)
    diagnostics.flush()
    assert original == {"n": 1}


def test_without_a_callback_each_is_one_log_line(caplog):
    diagnostics = Diagnostics("c", None)
    diagnostics.add("client_evicted", {"n": 1})
    diagnostics.flush()
    assert [(r.name, r.levelno, r.getMessage()) for r in caplog.records] == [
        ("tidegate.channel", logging.WARNING, "channel 'c': client_evicted {'n': 1}")
    ]


def test_what_a_callback_raises_is_logged_and_changes_nothing(caplog):
    seen = []

    def callback(kind, data):
        seen.append(kind)
        raise ZeroDivisionError

    diagnostics = Diagnostics("c", callback)
    diagnostics.add("client_evicted", {})
    diagnostics.add("slow_client_warning", {})
    diagnostics.flush()
    assert seen == ["client_evicted", "slow_client_warning"]
    assert [r.getMessage() for r in caplog.records] == [
        "channel 'c': on_diagnostic('client_evicted') failed",
        "channel 'c': on_diagnostic('slow_client_warning') failed",
    ]
    assert caplog.records[0].exc_info[0] is ZeroDivisionError


def test_a_callback_that_causes_reports_for_ever_is_cut_off(caplog):
    given = []

    def callback(kind, data):
        given.append(data["n"])
        diagnostics.add("event_unserializable", {"n": data["n"] + 1})
        diagnostics.flush()

    diagnostics = Diagnostics("c", callback)
    for _ in range(2):
        given.clear()
        caplog.clear()
        diagnostics.add("event_unserializable", {"n": 1})
        diagnostics.flush()
        assert given == [1, 2, 3, 4, 5, 6, 7, 8]
        assert [r.getMessage() for r in caplog.records] == [
            "channel 'c': event_unserializable {'n': 9}"
        ]


def test_what_a_callback_causes_is_reported_after_what_was_there_before():
    log = []

    def callback(kind, data):
        log.append(("begin", data["n"]))
        if data["n"] < 3:
            diagnostics.add("client_evicted", {"n": data["n"] + 2})
            diagnostics.flush()
        log.append(("end", data["n"]))

    diagnostics = Diagnostics("c", callback)
    diagnostics.add("client_evicted", {"n": 1})
    diagnostics.add("client_evicted", {"n": 2})
    diagnostics.flush()
    assert log == [(what, n) for n in (1, 2, 3, 4) for what in ("begin", "end")]


def test_many_reports_of_one_publish_all_reach_a_callback_that_publishes():
    seen = []

    def callback(kind, data):
        seen.append(data["n"])
        diagnostics.flush()

    diagnostics = Diagnostics("c", callback)
    for n in range(50):
        diagnostics.add("client_evicted", {"n": n})
    diagnostics.flush()
    assert seen == list(range(50))


def test_from_another_thread_a_report_is_given_at_once():
    seen = []
    diagnostics = Diagnostics("c", lambda kind, data: seen.append((kind, data)))
    diagnostics.add("client_evicted", {})
    diagnostics.emit_from_thread("threadsafe_dropped", {"n": 1})
    assert seen == [("threadsafe_dropped", {"n": 1})]


def test_a_base_exception_of_a_callback_leaves_the_rest_for_the_next_flush():
    seen = []

    def callback(kind, data):
        seen.append(data["n"])
        if data["n"] == 1:
            raise KeyboardInterrupt

    diagnostics = Diagnostics("c", callback)
    diagnostics.add("client_evicted", {"n": 1})
    diagnostics.add("client_evicted", {"n": 2})
    with pytest.raises(KeyboardInterrupt):
        diagnostics.flush()
    diagnostics.flush()
    assert seen == [1, 2]
