"""A view of channels: what is applied, what is not, and where it goes on, alone and on streams."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.client.support import moving, opened, published, scripted
from tests.servers import eventually, wait_until
from tidegate.client import (
    Applied,
    ChannelSnapshot,
    ChannelView,
    Following,
    LoadedChannel,
    StreamEvent,
    connect,
    connect_sync,
    load_channel,
    load_channel_sync,
)
from tidegate.client.follow import LoadPatience
from tidegate.errors import ChainBroken, ClientError, LoadFailed


def event(number, channel="a", epoch="e1", *, prev=None, data=None):
    before = number - 1 if prev is None else prev
    return StreamEvent(
        f"p{number:02}",
        f"c.{channel}{number:02}",
        epoch,
        "add",
        number if data is None else data,
        channel=channel,
        prev=f"p{before:02}" if before else "",
    )


def control(kind, channel="a", cursor="c.x", **data):
    data = {"channel": channel, **data}
    return StreamEvent(None, cursor, data.get("epoch"), kind, data, channel=channel)


def stream_open(number=0, *channels, epoch="e1", recovered=False, denied=()):
    start = {
        "epoch": epoch,
        "position": f"p{number:02}" if number else "",
        "recovered": recovered,
        "linked": True,
    }
    data = {
        "channels": dict.fromkeys(channels or ("a",), start),
        "denied": dict.fromkeys(denied, "access_denied"),
    }
    return StreamEvent(None, "c.open", None, "stream_open", data)


def resync(number=0, channel="a", epoch="e1", reason="ring_evicted"):
    position = f"p{number:02}" if number else ""
    return control("state_resync_required", channel, epoch=epoch, position=position, reason=reason)


def loaded(number, state, epoch="e1", channel="a"):
    return LoadedChannel(state, f"p{number:02}", epoch, f"c.{channel}{number:02}")


def collect(state, event):
    return [*state, event.data]


def make(load=lambda channel: None, reduce=collect, initial=(), **options):
    return ChannelView(load, reduce, initial=list(initial), **options)


def put(state, snapshot):
    return {**state, snapshot.channel: snapshot.state or []}


def add(state, event):
    return {**state, event.channel: [*state.get(event.channel, []), event.data]}


def several(*channels):
    view = ChannelView(lambda channel: None, add, initial={}, merge=put)
    view.wants_load(channels or ("a", "b"))
    return view


def test_each_event_goes_through_reduce_once_in_order():
    view = make()
    view.apply(stream_open())
    assert [view.apply(event(n)) for n in (1, 2, 2, 3)] == [
        Applied.CHANGED,
        Applied.CHANGED,
        Applied.NOTHING,
        Applied.CHANGED,
    ]
    assert (view.state, view.place.text) == ([1, 2, 3], "c.a03")
    assert view.complete


def test_a_view_that_begins_within_a_history_is_not_complete():
    view = make()
    view.apply(stream_open(5))
    assert not view.complete
    view = make()
    view.apply(stream_open(5, recovered=True))
    assert view.complete, "the caller has put state and cursor together"


def test_what_reduce_raises_comes_out_and_the_event_is_not_applied():
    def reduce(state, event):
        if event.data == "bad":
            raise KeyError("bad")
        return collect(state, event)

    view = make(reduce=reduce)
    view.apply(stream_open())
    view.apply(event(1))
    with pytest.raises(KeyError):
        view.apply(event(2, data="bad"))
    assert (view.state, view.place.text) == ([1], "c.a01")
    assert view.apply(event(2)) is Applied.CHANGED


def test_a_resync_stops_the_events_of_its_channel_until_a_state_was_loaded():
    view = make()
    view.apply(stream_open())
    view.apply(event(1))
    frame = resync(7)
    assert view.apply(frame) is Applied.RESYNC
    assert (view.awaiting_resync, view.resyncs, view.last_resync) == (True, 1, frame)
    assert view.place is None, "no place goes with the old state"
    view.apply(event(8))
    view.apply(control("replay_complete"))
    assert (view.state, view.place) == ([1], None)
    view.loaded({"state": [1, 2, 3], "position": "p03", "epoch": "e1", "cursor": "c.a03"})
    assert (view.state, view.awaiting_resync) == ([1, 2, 3], False)
    assert view.reopen_at.text == view.place.text == "c.a03"
    view.apply(stream_open(3, recovered=True))
    assert view.apply(event(4)) is Applied.CHANGED
    assert (view.state, view.complete) == ([1, 2, 3, 4], True)


def test_a_state_at_the_streams_own_place_needs_no_other_stream():
    view = make()
    view.apply(resync(7))
    view.loaded(loaded(7, ["x"]))
    assert view.reopen_at is None
    view.apply(event(8))
    assert (view.state, view.complete) == (["x", 8], True)


def test_where_nothing_is_stored_it_begins_with_the_survivors():
    view = make(initial=[0])
    view.apply(stream_open())
    view.apply(event(1))
    view.apply(resync(7))
    view.loaded({"state": None, "cursor": None})
    assert (view.state, view.reopen_at, view.complete) == ([0], None, False)
    view.apply(event(8))
    assert view.state == [0, 8]


def test_where_nothing_is_stored_and_a_new_life_begins_nothing_is_missing():
    view = make()
    view.apply(stream_open())
    view.apply(event(1))
    view.apply(resync(epoch="e2", reason="epoch_reset"))
    view.loaded(None)
    assert (view.state, view.complete) == ([], True)
    view.apply(event(1, epoch="e2"))
    assert view.state == [1]


def test_a_state_that_is_too_old_is_gone_on_from_once_it_is_known_that_nothing_better_comes():
    view = make()
    view.apply(resync(7))
    view.loaded(loaded(3, ["old"]))
    assert view.reopen_at.text == "c.a03"
    view.apply(stream_open(3))
    assert view.apply(resync(7)) is Applied.RESYNC
    view.loaded(loaded(3, ["old"]))
    assert (view.reopen_at, view.complete) == (None, False)
    view.apply(event(8))
    assert view.state == ["old", 8]
    view.apply(resync(20))
    view.loaded(loaded(15, ["new"]))
    assert (view.reopen_at.text, view.complete) == ("c.a15", True)


def test_a_snapshot_in_the_stream_ends_the_waiting():
    view = make()
    view.apply(resync(7))
    frame = control("channel_snapshot", cursor="c.a09", state=[9], position="p09", epoch="e1")
    assert view.apply(frame) is Applied.CHANGED
    assert (view.state, view.awaiting_resync, view.place.text) == ([9], False, "c.a09")
    view.apply(event(9))
    view.apply(event(10))
    assert (view.state, view.complete) == ([9, 10], True)


def test_without_load_a_state_comes_in_the_stream_alone():
    view = make(load=None)
    assert not view.wants_load(("a",))
    view.apply(resync(7))
    assert (view.awaiting_resync, view.awaiting_load) == (True, False)
    view.apply(event(8))
    assert view.state == []
    view.apply(control("channel_snapshot", state=[8], position="p08", epoch="e1"))
    view.apply(event(9))
    assert view.state == [8, 9]


def test_what_is_no_state_changes_nothing():
    view = make()
    view.apply(resync(7))
    with pytest.raises(LoadFailed):
        view.loaded({"state": 1, "cursor": 5})
    assert (view.state, view.awaiting_resync) == ([], True)
    with pytest.raises(ValueError, match="say whose state it is"):
        make().loaded(None)


def test_the_end_of_a_stream_is_forgotten_with_a_load():
    view = make()
    view.apply(control("client_evicted"))
    view.apply(resync(7))
    assert view.terminal_event.type == "client_evicted"
    view.loaded(None)
    assert view.terminal_event is None


# Several channels.


def test_each_channels_part_of_the_state_is_its_own():
    view = several()
    view.loaded(loaded(2, [1, 2]))
    view.loaded(None)
    assert (view.awaiting_resync, view.reopen_at) == (False, None)
    view.apply(stream_open(0, "a", "b"))
    assert view.place is None, "the state is ahead of the stream"
    for one in (event(1), event(1, "b"), event(2), event(3), event(2, "b")):
        view.apply(one)
    assert view.state == {"a": [1, 2, 3], "b": [1, 2]}
    assert (view.place.text, view.complete) == ("c.b02", True)


def test_a_resync_of_one_channel_is_none_of_another():
    view = several()
    view.loaded(None)
    view.loaded(None)
    view.apply(stream_open(0, "a", "b"))
    view.apply(event(1))
    view.apply(resync(5))
    view.apply(event(1, "b"))
    view.apply(event(6))
    assert view.state == {"a": [1], "b": [1]}
    assert view.place is None
    view.loaded(loaded(7, ["all"]))
    assert (view.reopen_at, view.place) == (None, None)
    view.apply(event(7))
    assert view.place.text == "c.a07"
    view.apply(event(8))
    assert (view.state, view.complete) == ({"a": ["all", 8], "b": [1]}, True)


def test_with_several_a_state_from_before_the_stream_is_not_complete():
    view = several()
    view.loaded(loaded(2, [2]))
    view.loaded(loaded(5, [5]))
    view.apply(stream_open(5, "a", "b"))
    assert not view.complete
    view.apply(event(6))
    assert view.state == {"a": [2, 6], "b": [5]}
    view.apply(resync(8))
    view.loaded(loaded(8, [8]))
    assert view.complete


def test_a_state_of_another_life_is_not_complete():
    view = several()
    view.loaded(loaded(9, [9]))
    view.loaded(None)
    view.apply(stream_open(0, "a", "b", epoch="e2"))
    assert not view.complete
    view.apply(event(1, epoch="e2"))
    assert view.state == {"a": [9, 1], "b": []}


def test_a_state_that_the_stream_never_comes_to_is_not_complete():
    view = several()
    view.loaded(loaded(4, [4]))
    view.loaded(None)
    view.apply(stream_open(2, "a"))
    view.apply(event(3))
    view.apply(event(7, prev=6))
    assert (view.state["a"], view.complete) == ([4, 7], False)


def test_a_channel_that_is_denied_is_not_waited_for():
    view = several()
    view.loaded(loaded(4, [4]))
    view.loaded(loaded(4, [4]))
    view.apply(stream_open(4, "a", denied=["b"]))
    view.apply(event(5))
    assert view.place.text == "c.a05"


def test_a_snapshot_in_the_stream_is_merged():
    view = several()
    view.apply(control("channel_snapshot", "b", state=[5], position="p05", epoch="e1"))
    assert view.state == {"b": [5]}
    view.loaded(None)
    view.apply(event(6, "b"))
    assert view.state == {"a": [], "b": [5, 6]}


def test_several_channels_need_to_be_told_how_states_are_merged():
    with pytest.raises(TypeError, match="takes merge="):
        make().wants_load(("a", "b"))
    view = make(load=None)
    view.apply(stream_open(0, "a", "b"))
    view.apply(event(1))
    view.apply(event(1, "b"))
    assert view.state == [1, 1], "events alone need no merge"
    with pytest.raises(TypeError, match="takes merge="):
        view.apply(control("channel_snapshot", state=1, position="p05", epoch="e1"))


def test_merge_sees_whose_state_it_is_and_that_there_is_none():
    seen = []
    view = ChannelView(
        lambda channel: None, add, merge=lambda state, snapshot: seen.append(snapshot)
    )
    view.wants_load(("a", "b"))
    view.loaded(loaded(2, [1, 2]))
    view.loaded(None, "b")
    assert seen == [
        ChannelSnapshot(channel="a", state=[1, 2], position="p02", epoch="e1"),
        ChannelSnapshot(channel="b", state=None),
    ]


def test_a_view_that_was_left_while_it_waited_begins_anew_with_the_next_stream():
    view = several()
    view.loaded(None)
    view.loaded(None)
    view.apply(stream_open(0, "a", "b"))
    view.apply(event(1))
    view.apply(resync(7))
    assert view.wants_load(("a", "b"))
    view.loaded(loaded(5, [5]), "a")
    view.loaded(None, "b")
    assert view.place is None
    view.apply(stream_open(5, "a", "b"))
    assert (view.place.text, view.complete) == ("c.open", False)
    view.apply(event(6))
    assert view.state == {"a": [5, 6], "b": []}


steps = st.lists(
    st.tuples(
        st.sampled_from("aab"),
        st.sampled_from(["add", "add", "add", "again", "lost", "load", "snapshot"]),
    ),
    max_size=60,
)


@given(steps)
def test_the_state_is_always_what_the_histories_say(drawn):
    """Whatever comes between, no event is applied across a gap or twice."""
    view = several()
    view.loaded(None)
    view.loaded(None)
    view.apply(stream_open(0, "a", "b"))
    heads, missed = {"a": 0, "b": 0}, set()
    for channel, step in drawn:
        head = heads[channel]
        whole = list(range(1, head + 1))
        if step == "add":
            heads[channel] += 1
            view.apply(event(head + 1, channel))
        elif step == "again" and head:
            view.apply(event(head, channel))
        elif step == "lost":
            heads[channel] += 3
            missed.add(channel)
            view.apply(resync(head + 3, channel))
        elif step == "load" and channel in missed:
            missed.discard(channel)
            view.loaded(loaded(head, whole) if head else None, channel)
        elif step == "snapshot":
            missed.discard(channel)
            position = f"p{head:02}" if head else ""
            view.apply(
                control("channel_snapshot", channel, state=whole, position=position, epoch="e1")
            )
        assert view.awaiting_resync is bool(missed)
        for name in heads.keys() - missed:
            assert view.state.get(name, []) == list(range(1, heads[name] + 1))
        assert view.complete
        assert missed or view.place is not None


# On streams.


class Channel:
    """A channel whose history begins behind ``first``, with a snapshot at ``snapshot``."""

    def __init__(self, events=10, first=0, snapshot=None):
        self.events, self.first, self.snapshot = events, first, snapshot
        self.loads = 0
        self.asked = []

    def __call__(self, peer):
        if peer.path.endswith("/snapshot"):
            self.loads += 1
            if self.snapshot is None:
                peer.answer(404, {"error": "none", "code": "snapshot_not_found"})
            else:
                state, position = list(range(1, self.snapshot + 1)), f"p{self.snapshot:02}"
                answer = {"state": state, "position": position, "epoch": "e1"}
                peer.answer(200, {**answer, "cursor": f"c.{position}"})
            return
        self.asked.append((peer.cursor, peer.query.get("from")))
        at = self.first if peer.cursor is None else int(peer.cursor.removeprefix("c.p"))
        frames = [b"retry: 0\n\n", opened("a", position=f"p{at:02}" if at else "")]
        if at < self.first:
            place = {"epoch": "e1", "position": f"p{self.first:02}"}
            frames.append(
                moving("state_resync_required", f"c.p{self.first:02}", channel="a", **place)
            )
            at = self.first
        for number in range(at + 1, self.events + 1):
            more = {"prev": ""} if number == 1 else {}
            frames.append(published(number, **more))
        peer.stream(*frames)
        peer.wait_gone()


async def all_of(states, last):
    got = [await anext(states)]
    while got[-1][-1:] != [last]:
        got.append(await anext(states))
    return got


async def test_a_fresh_view_loads_and_follows_from_there():
    channel = Channel(events=5, snapshot=2)
    with scripted(channel) as server:
        view = make(lambda name: load_channel(server.url, name))
        async with asyncio.timeout(20), view.follow(server.url, channels=["a"]) as states:
            got = await all_of(states, 5)
        assert (got[0], got[-1]) == ([1, 2], [1, 2, 3, 4, 5])
        assert (channel.loads, channel.asked) == (1, [("c.p02", None)])
        await eventually(lambda: not server.open)


async def test_where_nothing_is_stored_a_view_begins_at_the_beginning():
    channel = Channel(events=3)
    with scripted(channel) as server:
        view = make(lambda name: load_channel(server.url, name))
        async with asyncio.timeout(20), view.follow(server.url, channels=["a"]) as states:
            assert (await all_of(states, 3))[-1] == [1, 2, 3]
        assert view.complete
        assert channel.asked == [(None, "beginning")]


def test_the_same_without_a_loop():
    channel = Channel(events=3)
    with scripted(channel) as server:
        view = make(lambda name: load_channel_sync(server.url, name))
        with view.follow_sync(server.url, channels=["a"]) as states:
            while next(states) != [1, 2, 3]:
                pass
        assert channel.asked == [(None, "beginning")]
        wait_until(lambda: not server.open)


async def test_a_resync_is_answered_with_a_load_and_a_stream_from_there():
    channel = Channel(events=20, first=10, snapshot=15)
    with scripted(channel) as server:
        view = make(lambda name: load_channel(server.url, name))
        source = connect(
            server.url, channels=["a"], last_event_id="c.p03", retry=0.0, random=lambda: 0.0
        )
        async with asyncio.timeout(20), view.follow(source) as states:
            got = await all_of(states, 20)
        assert got[0] == list(range(1, 16)), "the survivors were not applied to the old state"
        assert got[-1] == list(range(1, 21))
        assert (view.resyncs, view.complete) == (1, True)
        assert channel.asked == [("c.p03", None), ("c.p15", None)]


def test_a_snapshot_that_is_too_old_is_lived_with():
    channel = Channel(events=12, first=10, snapshot=5)
    with scripted(channel) as server:
        view = make(lambda name: load_channel_sync(server.url, name))
        source = connect_sync(server.url, channels=["a"], retry=0.0, random=lambda: 0.0)
        with view.follow_sync(source) as states:
            while next(states)[-1:] != [12]:
                pass
        assert (view.state, view.complete) == ([1, 2, 3, 4, 5, 11, 12], False)
        assert channel.loads == 2


async def test_a_view_goes_on_where_it_stopped():
    channel = Channel(events=6)
    with scripted(channel) as server:
        view = make(lambda name: load_channel(server.url, name))
        async with asyncio.timeout(20):
            async with view.follow(server.url, channels=["a"]) as states:
                await all_of(states, 3)
            async with view.follow(server.url, channels=["a"]) as states:
                assert (await all_of(states, 6))[-1] == [1, 2, 3, 4, 5, 6]
        assert channel.loads == 1
        assert channel.asked == [(None, "beginning"), ("c.p03", None)]


async def test_many_channels_are_loaded_in_turn_without_a_wait():
    names = [f"room:{n}" for n in range(12)]
    asked = []

    async def load(channel):
        asked.append(channel)
        return loaded(1, [channel], channel=channel)

    def script(peer):
        peer.stream(opened(*names, position="p01"), published(2, names[3]))
        peer.wait_gone()

    with scripted(script) as server:
        view = ChannelView(load, add, initial={}, merge=put)
        patience = LoadPatience(random=lambda: 1.0)
        source = connect(server.url, channels=names)
        async with asyncio.timeout(20), Following(view, source, patience=patience) as states:
            for _ in names:
                await anext(states)
            state = await anext(states)
        assert asked == names
        assert state == {name: [name] for name in names} | {names[3]: [names[3], 2]}
        assert view.complete


async def test_a_load_that_fails_is_tried_again_for_the_same_channel():
    answers = iter([ClientError("away"), None])
    asked = []

    async def load(channel):
        asked.append(channel)
        answer = next(answers)
        if answer is not None:
            raise answer

    with scripted(Channel(events=1)) as server:
        view = make(load)
        source = connect(server.url, channels=["a"], from_beginning=True)
        patience = LoadPatience(random=lambda: 0.0)
        async with asyncio.timeout(20), Following(view, source, patience=patience) as states:
            assert [await anext(states), await anext(states)] == [[], [1]]
        assert asked == ["a", "a"]


async def test_a_gap_in_the_stream_comes_out_and_nothing_behind_it_is_applied():
    def script(peer):
        peer.stream(opened("a"), published(1), published(3))
        peer.wait_gone()

    with scripted(script) as server:
        view = make(load=None)
        async with asyncio.timeout(20), view.follow(server.url, channels=["a"]) as states:
            assert await anext(states) == [1]
            with pytest.raises(ChainBroken):
                await anext(states)
        assert (view.state, view.place.text) == ([1], "c.p01")
        await eventually(lambda: not server.open)
