import pytest

from tidegate.channel import Channel
from tidegate.sse import Decoder
from tidegate.stream.feed import Feed


@pytest.fixture
def channel():
    return Channel("c", epoch="e", max_queued=8)


@pytest.fixture
def feed_of():
    """Make feeds of subscriptions that are ended with the test."""
    subscriptions = []

    def make(subscription, *args):
        subscriptions.append(subscription)
        return Feed(subscription, *args)

    yield make
    for subscription in subscriptions:
        subscription.abort()


def types(data):
    return [event.type for event in Decoder().feed(data)]


def ids(data):
    return [event.id for event in Decoder().feed(data)]


def test_a_chunk_is_all_that_waits_as_whole_frames(channel, feed_of):
    feed = feed_of(channel.subscribe())
    assert feed.chunk() == b""
    channel.publish("a")
    channel.publish("b")
    assert types(feed.chunk()) == ["a", "b"]
    assert feed.chunk() == b""
    assert not feed.done


def test_the_prefix_goes_before_every_id(channel, feed_of):
    feed = feed_of(channel.subscribe(), b"e-")
    channel.publish("a")
    channel.publish("b")
    assert ids(feed.chunk()) == ["e-1", "e-2"]


def test_it_is_done_when_the_channel_has_closed_and_all_was_taken(channel, feed_of):
    feed = feed_of(channel.subscribe())
    channel.publish("a")
    channel.close()
    assert not feed.done
    assert types(feed.chunk()) == ["a"]
    assert feed.done


def test_the_rest_is_all_batches_at_once(feed_of):
    channel = Channel("c", max_queued=1000)
    feed = feed_of(channel.subscribe())
    for _ in range(200):
        channel.publish("a")
    assert len(types(feed.rest())) == 200
    assert feed.rest() == b""


def test_a_replay_over_budget_ends_the_stream_behind_replay_complete(feed_of):
    channel = Channel("c", replay_budget_bytes=150)
    for number in range(5):
        channel.publish("a", "x" * 50 + str(number))
    feed = feed_of(channel.subscribe(last_event_id=0))
    channel.publish("live")
    assert types(feed.rest()) == ["a", "state_resync_required", "replay_complete"]
    assert feed.done
    assert channel.statistics().subscribers == 0


def test_a_replay_within_budget_goes_on_live(channel, feed_of):
    channel.publish("a")
    feed = feed_of(channel.subscribe(last_event_id=0))
    channel.publish("live")
    assert types(feed.rest()) == ["a", "replay_complete", "live"]
    assert not feed.done


def test_a_users_event_of_that_name_ends_nothing(feed_of):
    channel = Channel("c", replay_budget_bytes=1)
    channel.publish("replay_complete")
    channel.publish("a")
    feed = feed_of(channel.subscribe(last_event_id=0))
    assert types(feed.rest()) == [
        "event_unserializable",
        "state_resync_required",
        "replay_complete",
    ]


def test_an_unserializable_event_is_reported_by_the_wire(feed_of):
    reports = []
    channel = Channel("c", on_diagnostic=lambda kind, data: reports.append(kind))
    feed = feed_of(channel.subscribe())
    channel.publish("a", object())
    assert types(feed.chunk()) == ["event_unserializable"]
    assert reports == ["event_unserializable"]
