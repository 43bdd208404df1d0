import asyncio
import enum
import gc
import json
import logging
import signal
import sys
import threading
import warnings

import pytest

from tidegate.channel import Channel
from tidegate.errors import SubscriberLimitExceeded

MiB = 1024 * 1024


def told(frames):
    return [frame.id if frame.id is not None else (frame.type, frame.data) for frame in frames]


def ids(frames):
    return [frame.id for frame in frames if frame.id is not None]


class Recorder:
    def __init__(self, then=None):
        self.seen = []
        self.then = then

    def __call__(self, kind, data):
        self.seen.append((kind, data))
        if self.then is not None:
            self.then(kind, data)

    @property
    def kinds(self):
        return [kind for kind, _ in self.seen]


# -- construction ----------------------------------------------------------------------


def test_defaults_are_the_documented_ones():
    channel = Channel()
    assert (channel.name, channel.ring_size, channel.max_subscribers) == ("", 8000, 64)
    assert (channel._max_queued, channel._max_queued_bytes) == (256, 2 * MiB)
    assert channel._replay_budget == 8 * MiB
    assert not channel.closed
    assert (channel.last_event_id, channel.first_event_id) == (0, 1)


@pytest.mark.parametrize(
    "option",
    [
        "ring_size",
        "max_ring_bytes",
        "max_subscribers",
        "max_queued",
        "max_queued_bytes",
        "replay_budget_bytes",
    ],
)
def test_options_are_checked(option):
    for bad in (True, 1.0, "1"):
        with pytest.raises(TypeError, match=rf"^{option} must be an integer"):
            Channel(**{option: bad})
    with pytest.raises(ValueError, match=rf"^{option} must be at least"):
        Channel(**{option: -1})
    if option != "ring_size":
        with pytest.raises(ValueError, match=rf"^{option} must be at least 1, not 0$"):
            Channel(**{option: 0})
    Channel(**{option: 1})


def test_a_ring_that_is_too_large_is_clamped_with_a_warning_at_the_caller():
    with pytest.warns(UserWarning, match="1000000 is used") as caught:
        channel = Channel(ring_size=2_000_000)
    assert channel.ring_size == 1_000_000
    assert caught[0].filename == __file__


def test_name_and_callback_are_checked():
    with pytest.raises(TypeError, match=r"^name must be a string, not int$"):
        Channel(5)
    with pytest.raises(TypeError, match=r"^on_diagnostic must be callable$"):
        Channel(on_diagnostic=5)


def test_each_channel_has_an_epoch_of_its_own_fit_for_an_id():
    epochs = {Channel().epoch for _ in range(100)}
    assert len(epochs) == 100
    assert all(len(epoch) == 16 and int(epoch, 16) >= 0 for epoch in epochs)
    assert Channel(epoch="mine").epoch == "mine"
    for bad in (5, b"e"):
        with pytest.raises(TypeError, match=rf"^epoch must be a string, not {type(bad).__name__}$"):
            Channel(epoch=bad)
    with pytest.raises(ValueError, match=r"^epoch must not be empty$"):
        Channel(epoch="")


def test_the_repr_tells_name_place_and_state():
    channel = Channel("c")
    channel.publish("t")
    assert repr(channel) == "<Channel 'c' at 1, 0 subscribers>"
    channel.close()
    assert repr(channel) == "<Channel 'c' at 1, closed>"


# -- publish ---------------------------------------------------------------------------


def test_publish_numbers_from_one_and_stamps_the_time():
    channel = Channel(clock=lambda: 12.3456)
    first = channel.publish("a", {"x": 1})
    second = channel.publish("b")
    assert (first.id, first.v, first.type, first.data) == (1, 1, "a", {"x": 1})
    assert first.meta == {"serverTimestamp": 12345}
    assert first.originator_client_id is None
    assert (second.id, second.data, channel.last_event_id) == (2, None, 2)


def test_publish_takes_meta_and_originator():
    channel = Channel(clock=lambda: 1.0)
    given = {"a": 1}
    made = channel.publish("t", meta=given, originator_client_id="me")
    assert made.meta == {"a": 1, "serverTimestamp": 1000}
    assert given == {"a": 1}
    assert made.originator_client_id == "me"
    assert json.loads(made.to_json())["originatorClientId"] == "me"


def test_a_type_is_judged_the_same_at_each_publish():
    channel = Channel()
    assert [channel.publish(t).wire_type for t in ("a", "a b", "a", "a b")] == [
        "a",
        "event_unserializable",
        "a",
        "event_unserializable",
    ]


def test_what_is_remembered_of_types_is_bounded():
    channel = Channel(ring_size=0)
    for i in range(2000):
        assert channel.publish(f"t{i}").wire_type == f"t{i}"
    assert len(channel._known_types) == 1024


class NoHash(str):
    __slots__ = ()
    __hash__ = None


@pytest.mark.parametrize("bad", [None, 5, [], {}, object(), b"t", NoHash("a b")])
def test_a_type_that_is_no_string_is_an_event_all_the_same(bad):
    recorder = Recorder()
    channel = Channel(on_diagnostic=recorder)
    subscription = channel.subscribe()
    made = channel.publish(bad, 1)
    assert made.id == 1
    assert subscription.take() == [made]
    assert json.loads(made.to_json())["type"] == "event_unserializable"
    assert recorder.kinds == ["event_unserializable"]
    subscription.abort()


class Kind(str, enum.Enum):  # noqa: UP042 - the older way, whose str() is not its value
    MADE = "made"


@pytest.mark.parametrize("given", [NoHash("made"), Kind.MADE])
def test_a_string_of_another_class_is_a_type_by_its_value(given):
    event = Channel().publish(given)
    assert event.type.__class__ is str
    assert event.type == event.wire_type == "made"


@pytest.mark.parametrize("name", ["open", "error", "replay_complete", "session_closed"])
def test_a_reserved_type_is_replaced_on_the_wire_and_reported(name):
    recorder = Recorder()
    channel = Channel(on_diagnostic=recorder)
    made = channel.publish(name)
    assert made.wire_type == "event_unserializable"
    assert recorder.seen == [("event_unserializable", {"id": 1, "type": name})]


def test_the_server_may_publish_under_a_reserved_name():
    recorder = Recorder()
    channel = Channel(on_diagnostic=recorder)
    made = channel._publish_reserved("session_closed", {"reason": "x"})
    assert (made.id, made.wire_type, made.data) == (1, "session_closed", {"reason": "x"})
    assert recorder.seen == []


def test_an_unserializable_event_is_reported_once_and_others_are_not_affected():
    recorder = Recorder()
    channel = Channel(on_diagnostic=recorder)
    one, two = channel.subscribe(), channel.subscribe()
    made = channel.publish("t\u00e9"[:1], object())
    channel.publish("t", 2)
    assert recorder.seen == [("event_unserializable", {"id": 1, "type": "t"})]
    assert one.statistics().queued_frames == 2
    assert (
        one.statistics().queued_bytes
        == two.statistics().queued_bytes
        == channel.publish("t", 2).size
    )
    assert one.take()[0] is made
    late = channel.subscribe(last_event_id=0)
    assert recorder.kinds == ["event_unserializable"]
    for subscription in (one, two, late):
        subscription.abort()


def test_an_event_that_a_replay_finds_unserializable_is_reported():
    recorder = Recorder()
    channel = Channel(on_diagnostic=recorder)
    channel.publish("t", object())
    assert recorder.seen == []
    for _ in range(2):
        channel.subscribe(last_event_id=0).abort()
    assert recorder.seen == [("event_unserializable", {"id": 1, "type": "t"})]


def test_nobody_needs_the_bytes_so_nothing_is_serialized():
    assert Channel().publish("t").known_size == 0


def test_with_a_byte_cap_each_event_is_serialized_at_publish():
    recorder = Recorder()
    channel = Channel(max_ring_bytes=500, on_diagnostic=recorder)
    assert channel.publish("t").known_size > 0
    for _ in range(50):
        channel.publish("t")
    statistics = channel.statistics()
    assert 400 < statistics.ring_bytes <= 500
    assert statistics.ring_events == statistics.last_event_id + 1 - channel.first_event_id
    channel.publish("t", object())
    assert recorder.kinds == ["event_unserializable"]


def test_publish_on_a_closed_channel_is_none():
    channel = Channel()
    channel.close()
    assert channel.publish("t") is None
    assert channel._publish_reserved("t") is None
    channel.close()
    assert channel.closed


class EvilDict(dict):
    __slots__ = ()

    def keys(self):
        raise ZeroDivisionError

    def __iter__(self):
        raise ZeroDivisionError


def test_publish_never_raises_and_uses_no_id_when_it_fails(caplog):
    channel = Channel("c")
    channel.publish("t")
    assert channel.publish("t", meta=EvilDict(a=1)) is None
    assert channel.publish("t").id == 2
    assert [r.getMessage() for r in caplog.records] == [
        "channel 'c': an event could not be published"
    ]
    assert caplog.records[0].exc_info[0] is ZeroDivisionError


def test_a_stack_that_is_full_only_at_the_diagnostics_costs_no_event(monkeypatch):
    def full(_):
        raise RecursionError

    monkeypatch.setattr("tidegate.channel.diagnostics.Diagnostics.flush", full)
    channel = Channel()
    assert channel.publish("t").id == 1
    assert channel.last_event_id == 1


def test_publish_on_a_full_stack_never_raises_and_leaves_no_silent_gap():
    logging.getLogger("tidegate.channel").disabled = True
    try:
        channel = Channel(max_subscribers=500, max_queued=100_000, on_diagnostic=lambda *_: None)
        subscriptions = [channel.subscribe() for _ in range(3)]
        published = []

        def dive(depth):
            if depth:
                dive(depth - 1)
            else:
                published.append(channel.publish("t", object() if len(published) % 3 else 1))

        for depth in range(sys.getrecursionlimit()):
            try:
                dive(depth)
            except RecursionError:
                break
        taken = [e.id for e in published if e is not None]
        channel.publish("last")
        assert taken == list(range(1, channel.last_event_id))
        for subscription in subscriptions:
            got = ids(subscription.take(10**6, 10**9))
            assert got == list(range(1, len(got) + 1))
            assert subscription.ended or len(got) == channel.last_event_id
            subscription.abort()
    finally:
        logging.getLogger("tidegate.channel").disabled = False


def test_a_subscriber_that_cannot_be_served_is_cut_and_the_others_are_not():
    channel = Channel()
    broken, fine = channel.subscribe(), channel.subscribe()
    channel.publish("t", 1)
    broken.take()
    broken.arm()

    def fail():
        if not broken._subscriber.backlog.closed:
            raise MemoryError

    broken.on_ready = fail
    channel.publish("t", 2)
    channel.publish("t", 3)
    assert channel.statistics().subscribers == 1
    assert ids(broken.take()) == [2]
    assert broken.ended
    assert ids(fine.take()) == [1, 2, 3]
    fine.abort()


def test_a_subscriber_that_could_not_even_be_cut_is_cut_before_the_next_event(caplog):
    channel = Channel("c")
    broken = channel.subscribe()
    broken.arm()
    failures = [MemoryError(), MemoryError()]

    def fail():
        if failures:
            raise failures.pop()

    broken.on_ready = fail
    channel.publish("t", 1)
    assert [r.getMessage() for r in caplog.records] == [
        "channel 'c': a diagnostic could not be given"
    ]
    channel.publish("t", 2)
    assert ids(broken.take()) == [1]
    assert broken.ended
    assert channel._failed == []
    assert len(caplog.records) == 1


def test_a_failing_diagnostic_machinery_does_not_fail_the_publish(caplog):
    channel = Channel("c", max_queued=1)
    subscription = channel.subscribe()

    def flush():
        raise MemoryError

    channel._diagnostics = type(
        "Broken", (), {"flush": staticmethod(flush), "add": lambda *_: None}
    )()
    assert channel.publish("t").id == 1
    assert [r.getMessage() for r in caplog.records] == [
        "channel 'c': a diagnostic could not be given"
    ]
    subscription.abort()


class Panic(BaseException):
    """What PyO3 raises when Rust code fails: no `Exception`."""


class Model:
    """Its serializer does what the test says."""

    def __init__(self, act):
        self.act = act

    def model_dump(self, mode):
        return self.act()


def test_a_panic_of_a_foreign_serializer_makes_an_event_unserializable():
    def panic():
        raise Panic

    channel = Channel(max_ring_bytes=1000)
    subscription = channel.subscribe()
    assert channel.publish("t", Model(panic)).wire_type == "event_unserializable"
    assert ids(subscription.take()) == [1]
    subscription.abort()


@pytest.mark.parametrize("ring_bytes", [None, 1000])
def test_an_interrupt_in_the_middle_of_a_publish_leaves_no_silent_gap(ring_bytes):
    interrupts = [KeyboardInterrupt()]

    def interrupt():
        if interrupts:
            raise interrupts.pop()
        return "made"

    channel = Channel(max_ring_bytes=ring_bytes)
    one, two = channel.subscribe(), channel.subscribe()
    channel.publish("t")
    with pytest.raises(KeyboardInterrupt):
        channel.publish("t", Model(interrupt))
    last = channel.publish("t").id
    for subscription in (one, two):
        assert ids(subscription.take()) == [1]
        assert subscription.ended
    late = channel.subscribe(last_event_id=0)
    assert ids(late.take()) == list(range(1, last + 1))
    assert channel.statistics().ring_events == last
    late.abort()


def test_a_publish_that_interrupts_another_comes_after_it():
    channel = Channel(max_ring_bytes=10_000)
    results = []

    def publish():
        results.append(channel.publish("inner"))
        return "made"

    subscription = channel.subscribe()
    assert channel.publish("outer", Model(publish)).id == 1
    assert results == [None]
    assert [(e.id, e.type) for e in subscription.take()] == [(1, "outer"), (2, "inner")]
    assert channel.publish("t").id == 3
    subscription.abort()


def test_a_publish_that_interrupts_a_replay_comes_after_it():
    channel = Channel()
    channel.publish("outer", Model(lambda: channel.publish("inner") and None))
    subscription = channel.subscribe(last_event_id=0)
    assert [f.id or f.type for f in subscription.take()] == [1, "replay_complete", 2]
    subscription.abort()


def test_a_close_in_the_middle_of_a_publish_comes_after_it():
    def act():
        channel.publish("inner")
        channel.close()
        assert channel.closed
        assert channel.publish("too late") is None
        return "made"

    channel = Channel(max_ring_bytes=10_000)
    subscription = channel.subscribe()
    assert channel.publish("outer", Model(act)).id == 1
    assert channel.closed
    assert [e.type for e in subscription.take()] == ["outer", "inner"]
    assert subscription.ended
    assert channel.last_event_id == 2
    assert channel.statistics().subscribers == 0


def test_what_was_deferred_is_dropped_by_a_channel_that_a_callback_closes():
    def act():
        channel.publish("inner")
        return object()

    channel = Channel(max_ring_bytes=10_000, on_diagnostic=lambda *_: channel.close())
    channel.publish("outer", Model(act))
    assert channel.last_event_id == 1


def test_subscribing_in_the_middle_of_another_call_is_refused():
    refused = []

    def subscribe():
        with pytest.raises(RuntimeError, match="in the middle of another call"):
            channel.subscribe()
        refused.append(True)

    channel = Channel(max_ring_bytes=10_000)
    channel.publish("t", Model(subscribe))
    assert refused == [True]
    channel.subscribe().abort()


def test_finalizers_that_publish_and_abort_while_the_channel_works_break_nothing():
    """The garbage collector runs them at any allocation inside of `publish`."""
    channel = Channel(max_queued=10**6, max_queued_bytes=10**9, max_subscribers=10**6)

    class Publisher:
        def __init__(self):
            self.me = self

        def __del__(self):
            channel.publish("finalizer")

    class Holder:
        def __init__(self):
            self.me = self
            self.subscription = channel.subscribe()

    reader = channel.subscribe()
    thresholds = gc.get_threshold()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        try:
            gc.set_threshold(3, 2, 2)
            for i in range(2000):
                Publisher()
                Holder()
                assert channel.publish("t", {"i": [i]}, meta={"a": 1}) is not None
        finally:
            gc.set_threshold(*thresholds)
        gc.collect()
    seen = ids(reader.take(10**6, 10**9))
    assert seen == list(range(1, channel.last_event_id + 1))
    assert channel.last_event_id == 4000
    assert [e.id for e in channel._ring.after(0)] == seen
    assert channel.statistics().subscribers == 1
    reader.abort()


async def test_a_signal_handler_may_publish_at_any_moment():
    channel = Channel(max_queued=10**6, ring_size=10**5)
    handled = []

    def handler(*_):
        handled.append(channel.publish("signal"))

    previous = signal.signal(signal.SIGALRM, handler)
    got = []
    async with channel.subscribe() as subscription:
        signal.setitimer(signal.ITIMER_REAL, 0.0002, 0.0002)
        try:
            async with asyncio.timeout(50):
                while len(handled) < 200:
                    channel.publish("t")
                    got.append(await anext(subscription))
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, previous)
        got += subscription.take(10**6, 10**9)
    assert [e.id for e in got] == list(range(1, channel.last_event_id + 1))
    assert sum(e.type == "signal" for e in got) == len(handled)


# -- fan-out, warning, eviction ----------------------------------------------------------


def test_two_subscribers_each_get_all():
    channel = Channel()
    one, two = channel.subscribe(), channel.subscribe()
    for _ in range(3):
        channel.publish("t")
    assert ids(one.take()) == ids(two.take()) == [1, 2, 3]
    one.abort()
    two.abort()


def test_a_slow_subscriber_is_warned_then_evicted_with_exact_fields():
    recorder = Recorder()
    channel = Channel(max_queued=4, on_diagnostic=recorder, clock=lambda: 3.0)
    slow = channel.subscribe()
    size = channel.publish("t", 1).size
    for _ in range(4):
        channel.publish("t", 1)
    frames = slow.take()
    warning = {
        "queueSize": 3,
        "queuedBytes": 3 * size,
        "maxQueued": 4,
        "maxQueuedBytes": 2 * MiB,
        "lastEventId": 3,
        "threshold": "frames",
    }
    eviction = {
        "reason": "queue_overflow",
        "queueSize": 4,
        "queuedBytes": 4 * size,
        "maxQueued": 4,
        "maxQueuedBytes": 2 * MiB,
        "firstDroppedId": 5,
    }
    assert told(frames) == [
        1,
        2,
        3,
        ("slow_client_warning", warning),
        4,
        ("client_evicted", eviction),
    ]
    assert [f.meta for f in frames if f.id is None] == [{"serverTimestamp": 3000}] * 2
    assert recorder.seen == [("slow_client_warning", warning), ("client_evicted", eviction)]
    assert slow.ended
    statistics = channel.statistics()
    assert (statistics.subscribers, statistics.warned, statistics.evicted) == (0, 1, 1)
    assert slow.statistics().evicted
    assert slow.statistics().warned


def test_a_byte_overflow_names_the_events_size():
    recorder = Recorder()
    channel = Channel(max_queued_bytes=200, on_diagnostic=recorder)
    slow = channel.subscribe()
    first = channel.publish("t", "x" * 50)
    second = channel.publish("t", "y" * 90)
    assert told(slow.take())[-1] == (
        "client_evicted",
        {
            "reason": "queue_bytes_overflow",
            "queueSize": 1,
            "queuedBytes": first.size,
            "maxQueued": 256,
            "maxQueuedBytes": 200,
            "eventBytes": second.size,
            "firstDroppedId": 2,
        },
    )
    assert recorder.kinds == ["client_evicted"]


def test_an_eviction_leaves_others_without_a_gap_and_frees_the_place():
    channel = Channel(max_queued=2, max_subscribers=2)
    slow, quick = channel.subscribe(), channel.subscribe()
    got = []
    for _ in range(5):
        channel.publish("t")
        got += ids(quick.take())
    assert got == [1, 2, 3, 4, 5]
    assert slow.evicted
    assert not quick.evicted
    channel.subscribe().abort()
    quick.abort()


def test_every_eviction_is_counted():
    channel = Channel(max_queued=1)
    subscriptions = [channel.subscribe() for _ in range(3)]
    channel.publish("t")
    channel.publish("t")
    assert channel.statistics().evicted == len(subscriptions) == 3


def test_a_warning_comes_again_after_the_backlog_has_shrunk():
    channel = Channel(max_queued=8)
    subscription = channel.subscribe()
    kinds = []
    for _ in range(2):
        for _ in range(7):
            channel.publish("t")
        kinds.append([f.type for f in subscription.take()])
        channel.publish("t")
        subscription.take()
    assert kinds == [["t"] * 6 + ["slow_client_warning", "t"]] * 2
    assert channel.statistics().warned == subscription.statistics().warned == 2
    subscription.abort()


def test_a_subscription_may_have_its_own_cap_of_frames():
    channel = Channel(max_queued=2)
    wide, narrow = channel.subscribe(max_queued=5), channel.subscribe(max_queued=1)
    channel.publish("t")
    channel.publish("t")
    channel.publish("t")
    assert narrow.evicted
    assert not wide.evicted
    wide.abort()


# -- diagnostics -------------------------------------------------------------------------


def test_a_callback_may_publish_and_every_subscriber_sees_ids_in_order():
    def then(kind, data):
        if kind == "slow_client_warning" and len(recorder.seen) < 4:
            channel.publish("from-callback", kind)

    recorder = Recorder(then)
    channel = Channel(max_queued=4, on_diagnostic=recorder)
    slow, quick = channel.subscribe(), channel.subscribe(max_queued=100)
    for _ in range(5):
        channel.publish("t")
    assert ids(quick.take()) == list(range(1, channel.last_event_id + 1))
    got = ids(slow.take())
    assert got == list(range(1, len(got) + 1))
    quick.abort()


def test_a_callback_that_always_causes_another_report_ends_all_the_same(caplog):
    recorder = Recorder(lambda kind, data: channel.publish("bad type", object()))
    channel = Channel(on_diagnostic=recorder)
    assert channel.publish("bad type").id == 1
    assert channel.last_event_id == 9
    assert len(recorder.seen) == 8
    assert len(caplog.records) == 1


def test_a_callback_may_close_subscribe_and_abort():
    extra = []

    def then(kind, data):
        extra.append(channel.subscribe(last_event_id=0))
        quick.abort()
        channel.close()

    channel = Channel(max_queued=1, on_diagnostic=Recorder(then))
    slow, quick = channel.subscribe(), channel.subscribe(max_queued=100)
    channel.publish("t")
    assert channel.closed
    assert ids(slow.take()) == [1]
    assert ids(extra[0].take()) == [1]
    assert quick.aborted


def test_a_callback_of_a_replay_may_close_the_channel():
    channel = Channel(on_diagnostic=lambda *_: channel.close())
    channel.publish("t", object())
    subscription = channel.subscribe(last_event_id=0)
    assert channel.closed
    assert ids(subscription.take()) == [1]
    assert subscription.ended


def test_without_a_callback_each_diagnostic_is_one_log_line(caplog):
    channel = Channel("c", max_queued=1)
    subscription = channel.subscribe()
    channel.publish("t")
    channel.publish("t")
    assert [r.getMessage().split(" {")[0] for r in caplog.records] == [
        "channel 'c': slow_client_warning",
        "channel 'c': client_evicted",
    ]
    assert subscription.evicted


# -- subscribe ---------------------------------------------------------------------------


def test_a_subscriber_is_attached_on_return():
    channel = Channel()
    subscription = channel.subscribe()
    channel.publish("t")
    assert ids(subscription.take()) == [1]
    subscription.abort()


def test_without_a_cursor_there_is_no_control_frame_and_an_epoch_alone_is_ignored():
    channel = Channel()
    channel.publish("t")
    for epoch in (None, "x"):
        subscription = channel.subscribe(epoch=epoch)
        assert subscription.take() == []
        subscription.abort()


def test_with_a_cursor_replay_comes_before_live():
    channel = Channel(clock=lambda: 2.0)
    for _ in range(3):
        channel.publish("t")
    subscription = channel.subscribe(last_event_id=1, epoch=channel.epoch)
    channel.publish("t")
    frames = subscription.take()
    assert told(frames) == [
        2,
        3,
        ("replay_complete", {"replayedCount": 2, "lastReplayedEventId": 3}),
        4,
    ]
    assert frames[2].meta == {"serverTimestamp": 2000}
    assert subscription.statistics().delivered == 3
    subscription.abort()


def test_the_cursor_nought_counts_as_given():
    channel = Channel()
    subscription = channel.subscribe(last_event_id=0)
    assert told(subscription.take()) == [("replay_complete", {"replayedCount": 0})]
    subscription.abort()


def test_an_epoch_that_is_not_ours_resets():
    channel = Channel()
    channel.publish("t")
    subscription = channel.subscribe(last_event_id=1, epoch="other")
    assert subscription.take()[0].data["detail"] == "epoch_mismatch"
    subscription.abort()


def test_a_replay_is_not_cut_by_the_caps_of_live_frames():
    channel = Channel(max_queued=2, max_queued_bytes=100)
    for _ in range(10):
        channel.publish("t")
    subscription = channel.subscribe(last_event_id=0)
    assert subscription.statistics().queued_frames == 0
    channel.publish("t")
    assert not subscription.evicted
    assert ids(subscription.take()) == list(range(1, 12))
    subscription.abort()


def test_in_process_live_events_go_on_after_the_replay_budget():
    channel = Channel(replay_budget_bytes=1)
    for _ in range(3):
        channel.publish("t")
    subscription = channel.subscribe(last_event_id=0)
    channel.publish("t")
    frames = subscription.take()
    assert [f.id or f.type for f in frames] == [1, "state_resync_required", "replay_complete", 4]
    subscription.abort()


def test_the_subscriber_limit_is_an_error_with_its_limit():
    channel = Channel(max_subscribers=1)
    subscription = channel.subscribe()
    with pytest.raises(SubscriberLimitExceeded) as caught:
        channel.subscribe()
    assert caught.value.limit == 1
    subscription.abort()
    channel.subscribe().abort()


async def test_a_closed_channel_gives_a_subscription_that_ends_at_once():
    channel = Channel(max_subscribers=1)
    channel.publish("t")
    channel.close()
    for _ in range(2):
        subscription = channel.subscribe(last_event_id=0)
        assert [e async for e in subscription] == []
    assert channel.statistics().subscribers == 0


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"last_event_id": "1"}, TypeError, "last_event_id must be an integer, not str"),
        ({"last_event_id": True}, TypeError, "last_event_id must be an integer, not bool"),
        ({"last_event_id": 1.0}, TypeError, "last_event_id must be an integer, not float"),
        ({"last_event_id": -1}, ValueError, "last_event_id must be at least 0, not -1"),
        ({"max_queued": 0}, ValueError, "max_queued must be at least 1, not 0"),
        ({"max_queued": True}, TypeError, "max_queued must be an integer, not bool"),
        ({"epoch": 5}, TypeError, "epoch must be a string, not int"),
    ],
)
@pytest.mark.parametrize("closed", [False, True])
def test_arguments_are_checked(arguments, error, message, closed):
    channel = Channel()
    if closed:
        channel.close()
    with pytest.raises(error, match=f"^{message}$"):
        channel.subscribe(**arguments)
    assert channel.statistics().subscribers == 0


def test_close_drains_every_backlog_and_removes_the_subscribers():
    channel = Channel()
    one, two = channel.subscribe(), channel.subscribe(last_event_id=0)
    channel.publish("t")
    channel.close()
    assert channel.statistics().subscribers == 0
    assert ids(one.take()) == ids(two.take()) == [1]
    assert one.ended
    assert two.ended
    assert not one.evicted


def test_statistics_count_everything():
    channel = Channel(ring_size=2)
    subscription = channel.subscribe()
    for _ in range(3):
        channel.publish("t")
    statistics = channel.statistics()
    assert statistics.subscribers == 1
    assert statistics.ring_events == 2
    assert statistics.ring_bytes == 0
    assert statistics.last_event_id == 3
    assert statistics.published == 3
    assert statistics.evicted == 0
    assert statistics.warned == 0
    subscription.abort()


# -- threads and loops ---------------------------------------------------------------------


async def test_publish_threadsafe_keeps_each_threads_order():
    channel = Channel(max_queued=100_000)
    async with channel.subscribe() as subscription:

        def work(who):
            for i in range(500):
                channel.publish_threadsafe(
                    "t", [who, i], meta={"m": i}, originator_client_id=str(who)
                )

        threads = [threading.Thread(target=work, args=(n,)) for n in range(3)]
        for thread in threads:
            thread.start()
        async with asyncio.timeout(30):
            got = [await anext(subscription) for _ in range(1500)]
        for thread in threads:
            thread.join()
    assert [e.id for e in got] == list(range(1, 1501))
    assert {e.type for e in got} == {"t"}
    for who in range(3):
        mine = [e for e in got if e.originator_client_id == str(who)]
        assert [e.data for e in mine] == [[who, i] for i in range(500)]
        assert [e.meta["m"] for e in mine] == list(range(500))


def test_publish_threadsafe_without_a_loop_is_reported_and_dropped():
    recorder = Recorder()
    channel = Channel(on_diagnostic=recorder)
    channel.publish_threadsafe("a\n", 1)
    assert recorder.seen == [("threadsafe_dropped", {"type": "a\\n", "reason": "no_loop"})]
    assert channel.last_event_id == 0


def test_publish_threadsafe_uses_the_loop_of_construction_else_of_the_first_subscribe():
    async def construct():
        return Channel(on_diagnostic=recorder)

    recorder = Recorder()
    channel = asyncio.run(construct())
    channel.publish_threadsafe("t")
    assert recorder.seen == [("threadsafe_dropped", {"type": "t", "reason": "loop_closed"})]

    channel = Channel()

    async def subscribe():
        async with channel.subscribe() as subscription:
            channel.publish_threadsafe("t", 1)
            async with asyncio.timeout(10):
                return await anext(subscription)

    assert asyncio.run(subscribe()).data == 1


def test_events_that_wait_when_their_loop_closes_are_reported_at_the_next_call():
    async def construct():
        return Channel(on_diagnostic=recorder)

    recorder = Recorder()
    loop = asyncio.new_event_loop()
    channel = loop.run_until_complete(construct())
    channel.publish_threadsafe("a")
    channel.publish_threadsafe("b")
    loop.close()
    channel.publish_threadsafe("c")
    assert [(kind, data["type"], data["reason"]) for kind, data in recorder.seen] == [
        ("threadsafe_dropped", event_type, "loop_closed") for event_type in ("c", "a", "b")
    ]


def test_publish_threadsafe_after_close_is_nothing():
    async def main():
        channel = Channel()
        channel.publish_threadsafe("t")
        channel.close()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return channel.last_event_id

    assert asyncio.run(main()) == 0


def test_a_channel_serves_three_event_loops_in_turn():
    channel = Channel()

    async def use(expected):
        async with channel.subscribe() as subscription:
            task = asyncio.create_task(subscription.__anext__())
            await asyncio.sleep(0)
            channel.publish("t")
            async with asyncio.timeout(10):
                assert (await task).id == expected

    for i in (1, 2, 3):
        asyncio.run(use(i))
    assert channel.statistics().subscribers == 0


def test_two_threads_at_once_use_channels_of_their_own():
    results = {}

    def run(who):
        async def main():
            channel = Channel()
            got = []
            async with channel.subscribe() as subscription:

                async def consume():
                    got.extend([event.id async for event in subscription])

                task = asyncio.create_task(consume())
                for _ in range(2000):
                    channel.publish("t")
                    await asyncio.sleep(0)
                channel.close()
                await task
            results[who] = got

        asyncio.run(main())

    threads = [threading.Thread(target=run, args=(n,)) for n in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert results == {0: list(range(1, 2001)), 1: list(range(1, 2001))}
