"""The chain rule: an event follows what is held, or there is an error; nothing in between."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.client import StreamEvent
from tidegate.client.chain import Chains
from tidegate.errors import ChainBroken


def event(position, prev, channel="a", epoch="e1"):
    return StreamEvent(position, "c", epoch, "tick", channel=channel, prev=prev)


def control(kind, **data):
    return StreamEvent(None, "c", data.get("epoch"), kind, data, channel=data.get("channel"))


def opened(position="p0", channel="a", epoch="e1", linked=True, **more):
    start = {"epoch": epoch, "position": position, "recovered": False, "linked": linked}
    return control("stream_open", channels={channel: start, **more}, denied={})


def resync(channel="a", reason="ring_evicted", **place):
    return control("state_resync_required", channel=channel, reason=reason, **place)


@pytest.fixture
def chains():
    made = Chains()
    assert made.take(opened())
    return made


def test_events_that_follow_each_other_are_new(chains):
    assert chains.take(event("p1", "p0"))
    assert chains.take(event("p2", "p1"))
    assert chains.held("a") == "p2"


def test_a_gap_is_an_error_that_says_what_is_missing(chains):
    chains.take(event("p1", "p0"))
    late = event("p3", "p2")
    with pytest.raises(ChainBroken, match="events of channel 'a' are missing") as raised:
        chains.take(late)
    told = raised.value
    assert (told.channel, told.expected, told.got, told.event) == ("a", "p1", "p2", late)


def test_a_stream_that_begins_beyond_its_first_event_is_a_gap(chains):
    with pytest.raises(ChainBroken):
        chains.take(event("p2", "p1"))


def test_a_gap_is_told_once_and_the_next_connection_puts_the_chain_down_anew(chains):
    with pytest.raises(ChainBroken):
        chains.take(event("p2", "p1"))
    chains.take(opened("p5"))
    assert chains.take(event("p6", "p5"))


def test_an_event_that_comes_again_is_not_new(chains):
    assert chains.take(event("p1", "p0"))
    assert not chains.take(event("p1", "p0"))
    assert chains.take(event("p2", "p1"))


def test_another_connection_goes_on_with_what_is_held(chains):
    chains.take(event("p1", "p0"))
    chains.take(opened("p1"))
    assert chains.take(event("p2", "p1"))


def test_another_connection_that_begins_elsewhere_without_a_word_is_a_gap(chains):
    chains.take(event("p1", "p0"))
    chains.take(opened("p7"))
    with pytest.raises(ChainBroken) as raised:
        chains.take(event("p8", "p7"))
    assert raised.value.expected == "p1"


def test_a_resync_puts_the_chain_down_where_it_says(chains):
    chains.take(resync(epoch="e1", position="p8"))
    with pytest.raises(ChainBroken):
        chains.take(event("pB", "pA"))
    chains.take(resync(epoch="e1", position="p8"))
    assert chains.take(event("p9", "p8"))


def test_a_resync_that_does_not_say_where_begins_with_what_comes(chains):
    chains.take(resync())
    assert chains.take(event("p9", "p8"))
    with pytest.raises(ChainBroken):
        chains.take(event("pB", "pA"))


def test_a_resync_of_no_channel_is_one_of_all(chains):
    chains.take(StreamEvent(None, None, None, "state_resync_required", {"reason": "x"}))
    assert chains.take(event("p9", "p8"))


def test_a_resync_of_another_channel_is_none(chains):
    chains.take(resync("b"))
    with pytest.raises(ChainBroken):
        chains.take(event("p9", "p8"))


def test_a_replay_budget_loses_nothing(chains):
    chains.take(resync(reason="replay_budget_exceeded"))
    with pytest.raises(ChainBroken):
        chains.take(event("p9", "p8"))


def test_a_snapshot_puts_the_chain_down(chains):
    chains.take(control("channel_snapshot", channel="a", epoch="e1", position="p5", state=1))
    assert chains.take(event("p6", "p5"))


def test_a_new_epoch_begins_with_its_first_event(chains):
    assert chains.take(event("q1", "", epoch="e2"))
    assert chains.take(event("q2", "q1", epoch="e2"))


def test_a_new_epoch_whose_first_events_are_missing_is_a_gap(chains):
    with pytest.raises(ChainBroken) as raised:
        chains.take(event("q2", "q1", epoch="e2"))
    assert raised.value.expected == ""


def test_a_connection_in_a_new_epoch_puts_the_chain_down(chains):
    chains.take(opened("q4", epoch="e2"))
    assert chains.take(event("q5", "q4", epoch="e2"))


def test_where_the_server_skips_on_purpose_nothing_is_checked_but_what_comes_again(chains):
    chains.take(opened(linked=False))
    assert chains.take(event("p5", "p4"))
    assert not chains.take(event("p5", "p4"))
    assert chains.take(event("p9", "p8"))


def test_channels_are_checked_each_for_itself(chains):
    chains.take(opened("r0", channel="b"))
    assert chains.take(event("r1", "r0", channel="b"))
    assert chains.take(event("p1", "p0"))
    assert chains.take(event("r2", "r1", channel="b"))


def test_a_channel_that_the_server_has_not_spoken_of_is_not_checked(chains):
    assert chains.take(event("x5", "x4", channel="x"))
    assert chains.take(event("x9", "x8", channel="x"))


def test_what_is_forgotten_is_not_missed(chains):
    chains.take(event("p1", "p0"))
    chains.forget()
    assert chains.held("a") is None
    assert chains.take(event("p1", "p0"))
    chains.take(opened("p1"))
    assert chains.take(event("p2", "p1"))


@pytest.mark.parametrize("data", [None, 5, {}, {"channels": 5}, {"channels": {"a": 5}}])
def test_a_control_frame_of_another_form_changes_nothing(chains, data):
    for kind in ("stream_open", "replay_complete", "x"):
        assert chains.take(StreamEvent(None, None, None, kind, data))
    with pytest.raises(ChainBroken):
        chains.take(event("p9", "p8"))


def test_events_of_sessions_are_let_through(chains):
    assert chains.take(StreamEvent(5, "e1-5", "e1", "tick"))
    assert chains.take(StreamEvent(9, "e1-9", "e1", "tick"))


@given(
    st.integers(1, 30).flatmap(
        lambda count: st.tuples(
            st.just(count),
            st.sets(st.integers(1, count)),
            st.lists(st.integers(0, count), max_size=5),
        )
    )
)
def test_whatever_is_lost_is_noticed_and_nothing_else(drawn):
    """Events 1 to count: some are lost, each comes twice, connections break now and then."""
    count, lost, breaks = drawn
    chains = Chains()
    chains.take(opened("0"))
    held, told, handed = 0, [], []
    for number in range(1, count + 1):
        if number in breaks:
            chains.take(opened(str(held)))
        if number in lost:
            continue
        try:
            assert chains.take(event(str(number), str(number - 1) if number > 1 else "0"))
        except ChainBroken as broken:
            told.append((int(broken.expected), int(broken.got)))
            chains.take(opened(str(number - 1)))  # the gap is accepted
            assert chains.take(event(str(number), str(number - 1)))
        assert not chains.take(event(str(number), str(number - 1)))
        handed.append(number)
        held = number
    came = [0, *(n for n in range(1, count + 1) if n not in lost)]
    assert told == [(a, b - 1) for a, b in pairwise(came) if b > a + 1]
    assert handed == came[1:]
