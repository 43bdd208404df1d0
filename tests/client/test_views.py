"""A view's state machine: what is applied, what is not, and what ends."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.client import Applied, Loaded, SessionView, StreamEvent
from tidegate.client.cursor import Cursor
from tidegate.errors import LoadFailed


def event(number, kind="add", data=None, *, epoch="e1"):
    return StreamEvent(number, f"{epoch}-{number}", epoch, kind, number if data is None else data)


def control(kind, **data):
    return StreamEvent(None, None, None, kind, data)


def resync(reason="ring_evicted"):
    return control("state_resync_required", reason=reason)


def collect(state, event):
    return [*state, event.data]


def make(reduce=collect, initial=()):
    return SessionView(lambda: None, reduce, initial=list(initial))


def test_each_event_goes_through_reduce_once_in_order():
    view = make()
    assert [view.apply(event(n)) for n in (1, 2, 2, 1, 3)] == [
        Applied.CHANGED,
        Applied.CHANGED,
        Applied.NOTHING,
        Applied.NOTHING,
        Applied.CHANGED,
    ]
    assert view.state == [1, 2, 3]
    assert view.place == Cursor("e1-3", "e1", 3)


def test_an_event_of_another_epoch_is_another_event():
    view = make()
    view.apply(event(5))
    view.apply(event(1, epoch="e2"))
    assert (view.state, view.place.text) == ([5, 1], "e2-1")


def test_an_event_without_a_cursor_is_applied_and_the_place_stays():
    view = make()
    assert view.apply(StreamEvent(None, None, None, "add", 9)) is Applied.CHANGED
    assert (view.state, view.place) == ([9], None)


def test_what_reduce_raises_comes_out_and_the_event_is_not_applied():
    def reduce(state, event):
        if event.data == "bad":
            raise KeyError("bad")
        return collect(state, event)

    view = make(reduce)
    view.apply(event(1))
    with pytest.raises(KeyError):
        view.apply(event(2, data="bad"))
    assert (view.state, view.place.number) == ([1], 1)


@pytest.mark.parametrize("kind", ["slow_client_warning", "stream_open", "stream_cursor"])
def test_frames_about_the_stream_are_not_reduced(kind):
    view = make()
    assert view.apply(control(kind)) is Applied.NOTHING
    assert view.state == []


def test_the_end_of_a_replay_is_told_and_not_reduced():
    view = make()
    assert view.apply(control("replay_complete", replayedCount=0)) is Applied.CAUGHT_UP
    assert view.state == []


def test_an_unserializable_event_is_reduced_since_it_has_a_place():
    view = make()
    assert view.apply(event(1, "event_unserializable")) is Applied.CHANGED


def test_a_resync_stops_all_but_what_passes_through():
    view = make()
    view.apply(event(1))
    frame = resync()
    assert view.apply(frame) is Applied.RESYNC
    assert (view.awaiting_resync, view.resyncs, view.last_resync) == (True, 1, frame)
    for other in (event(7), control("replay_complete"), control("slow_client_warning")):
        view.apply(other)
    assert (view.state, view.place.number, view.awaiting_resync) == ([1], 1, True)
    assert view.apply(resync("epoch_reset")) is Applied.RESYNC
    view.apply(control("client_evicted"))
    assert view.terminal_event.type == "client_evicted"
    assert view.apply(event(8, "session_closed", "bye")) is Applied.CHANGED
    assert (view.state, view.place.number, view.awaiting_resync) == ([1, "bye"], 1, True)
    assert view.ended


def test_a_replay_budget_loses_nothing():
    view = make()
    view.apply(event(1))
    assert view.apply(resync("replay_budget_exceeded")) is Applied.NOTHING
    assert (view.awaiting_resync, view.resyncs) == (False, 0)
    view.apply(event(2))
    assert view.state == [1, 2]


def test_a_resync_whose_data_says_nothing_is_one():
    view = make()
    assert (
        view.apply(StreamEvent(None, None, None, "state_resync_required", None)) is Applied.RESYNC
    )


def test_a_loaded_state_begins_anew_at_its_place():
    view = make()
    view.apply(event(1))
    view.apply(resync())
    view.loaded({"state": [1, 2, 3], "lastEventId": 3, "epoch": "e1", "complete": True})
    assert not view.awaiting_resync
    assert (view.state, view.place) == ([1, 2, 3], Cursor("3", "e1", 3, plain=True))
    assert view.apply(event(3)) is Applied.NOTHING, "the state contains it"
    assert view.apply(event(4)) is Applied.CHANGED
    assert view.state == [1, 2, 3, 4]


def test_no_snapshot_begins_with_the_initial_state_unspoilt():
    def reduce(state, event):
        state.append(event.data)
        return state

    view = make(reduce, initial=[0])
    view.apply(event(1))
    view.loaded(Loaded(None))
    assert view.state == [0]
    view.apply(event(1))
    view.loaded(Loaded(None))
    assert view.state == [0]


def test_what_is_no_state_changes_nothing():
    view = make()
    view.apply(event(1))
    view.apply(resync())
    with pytest.raises(LoadFailed):
        view.loaded({"state": 1})
    assert (view.state, view.awaiting_resync) == ([1], True)


def test_an_incomplete_load_does_not_resync_again_for_the_same_gap():
    view = make()
    view.apply(resync())
    view.loaded(Loaded(None, 40, "e1", complete=False))
    assert not view.complete
    assert view.apply(resync("ring_evicted")) is Applied.NOTHING
    view.apply(event(45))
    assert view.state == [45]
    view.apply(control("replay_complete"))
    assert view.apply(resync("ring_evicted")) is Applied.RESYNC, "a gap of later"


def test_an_incomplete_load_still_resyncs_for_another_life():
    view = make()
    view.loaded(Loaded(None, 40, "e1", complete=False))
    assert view.apply(resync("epoch_reset")) is Applied.RESYNC


def test_a_snapshot_in_the_stream_ends_the_waiting():
    view = make()
    view.apply(resync())
    snapshot = StreamEvent(None, "e1-9", "e1", "channel_snapshot", {"state": [9], "position": "x"})
    assert view.apply(snapshot) is Applied.CHANGED
    assert (view.state, view.awaiting_resync, view.place.number) == ([9], False, 9)
    assert view.apply(event(10)) is Applied.CHANGED
    assert view.apply(control("channel_snapshot")) is Applied.NOTHING
    view.apply(control("channel_snapshot", state=[]))
    assert (view.state, view.place.number) == ([], 10)


def test_the_first_end_counts_and_a_sessions_wins_over_a_streams():
    view = make()
    view.apply(control("stream_error", n=1))
    view.apply(control("client_evicted"))
    assert view.terminal_event.data == {"n": 1}
    assert not view.ended
    view.apply(event(1, "session_closed"))
    view.apply(control("client_evicted"))
    view.apply(event(2, "session_closed"))
    assert (view.terminal_event.type, view.terminal_event.id) == ("session_closed", 1)
    assert view.ended


def test_a_load_forgets_the_end_of_a_stream_and_not_that_of_the_session():
    view = make()
    view.apply(control("client_evicted"))
    view.loaded(Loaded([]))
    assert view.terminal_event is None
    view.apply(event(1, "session_closed"))
    view.loaded(Loaded([]))
    assert view.ended


kinds = st.sampled_from(
    ["add", "add", "add", "client_evicted", "replay_complete", "budget", "resync", "load"]
)


@given(st.lists(kinds, max_size=60))
def test_the_state_is_always_what_the_history_says_up_to_its_place(steps):
    """Whatever comes between, no event is applied across a gap or twice."""
    view = make()
    head, missed = 0, False
    for step in steps:
        if step == "add":
            head += 1
            view.apply(event(head))
        elif step == "resync":
            head += 3  # these are gone for this stream
            missed = True
            view.apply(resync())
        elif step == "load":
            missed = False
            view.loaded(Loaded(list(range(1, head + 1)), head, "e1"))
        else:
            view.apply(resync("replay_budget_exceeded") if step == "budget" else control(step))
        assert view.awaiting_resync is missed
        place = 0 if view.place is None else view.place.number
        assert view.state == list(range(1, place + 1))
        assert missed or place == head
