"""What the views of sessions and of channels have in common."""

import pytest

from tidegate.client import Applied, ChannelView, SessionView, StreamEvent


def collect(state, event):
    return [*state, event.data]


def control(kind, **data):
    return StreamEvent(None, None, None, kind, data)


@pytest.fixture(params=["session", "channel"])
def view(request):
    if request.param == "session":
        return SessionView(lambda: None, collect, initial=[])
    return ChannelView(lambda channel: None, collect, initial=[])


@pytest.mark.parametrize(
    "kind", ["slow_client_warning", "stream_open", "stream_cursor", "channel_snapshot"]
)
def test_what_speaks_of_the_stream_is_not_reduced(view, kind):
    assert view.apply(control(kind)) is Applied.NOTHING
    assert view.state == []


def test_an_event_without_a_place_is_applied(view):
    assert view.apply(control("add", n=1)) is Applied.CHANGED
    assert view.state == [{"n": 1}]


def test_what_passes_through_needs_no_state(view):
    assert view.apply(control("state_resync_required", reason="ring_evicted")) is Applied.RESYNC
    assert (view.awaiting_resync, view.awaiting_load, view.resyncs) == (True, True, 1)
    assert view.apply(control("add")) is Applied.NOTHING
    assert view.apply(control("client_evicted")) is Applied.NOTHING
    assert view.terminal_event.type == "client_evicted"
    assert view.apply(control("replay_complete")) is Applied.CAUGHT_UP
    assert view.awaiting_resync, "nothing of these ends the waiting"
    assert view.apply(control("session_closed")) is Applied.CHANGED
    assert (view.ended, view.terminal_event.type) == (True, "session_closed")


def test_a_replay_budget_loses_nothing(view):
    event = control("state_resync_required", reason="replay_budget_exceeded")
    assert view.apply(event) is Applied.NOTHING
    assert not view.awaiting_resync


def test_the_initial_state_is_copied(view):
    view.state.append(1)
    assert type(view)(None, collect, initial=view._initial).state == []
