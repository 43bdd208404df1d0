"""Phases are told to whoever wants to know, and nothing comes back."""

import pytest

from tidegate.client.state import StreamState, StreamStatistics, report


def test_a_state_is_told():
    told = []
    report(told.append, StreamState("open"))
    report(None, StreamState("open"))
    assert told == [StreamState("open", attempt=0, delay=0.0, cause="")]


def test_what_the_callback_raises_is_logged(caplog):
    def display(state):
        raise RuntimeError("no screen")

    report(display, StreamState("waiting", 1, 2.0, "gone"))
    assert "on_state raised for waiting" in caplog.text
    assert "no screen" in caplog.text


def test_statistics_cannot_be_changed():
    statistics = StreamStatistics(1, 2, 3, 4, 5, 200, "")
    with pytest.raises(AttributeError):
        statistics.events = 7
