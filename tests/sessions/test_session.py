import pytest

from tidegate.channel import Channel
from tidegate.errors import SnapshotConflict
from tidegate.sessions.session import Session, is_session_id


@pytest.fixture
def session():
    return Session("s", Channel("s"), 100.0)


@pytest.mark.parametrize("good", ["a", "AZaz09._~-", "x" * 128])
def test_what_is_a_session_id(good):
    assert is_session_id(good)


@pytest.mark.parametrize(
    "bad", ["", ".", "..", "x" * 129, "a b", "a/b", "é", "a\n", "a:b", None, 3]
)
def test_what_is_none(bad):
    assert not is_session_id(bad)


def test_publishing_goes_to_the_channel(session):
    event = session.publish("a", 1, originator_client_id="me")
    assert (event.id, event.type, event.data, event.originator_client_id) == (1, "a", 1, "me")


def test_a_snapshot_is_kept_if_it_fits(session):
    session.publish("a")
    session.put_snapshot({"n": 1}, 1)
    with pytest.raises(SnapshotConflict):
        session.put_snapshot({"n": 2}, 2)
    assert session.snapshot.state == {"n": 1}


def test_it_is_idle_since_it_was_made_or_touched(session):
    assert session.idle_for(130.0) == 30
    session.touch(140.0)
    assert session.idle_for(150.0) == 10


def test_a_publish_is_use(session):
    session.publish("a")
    assert session.idle_for(130.0) == 0
    assert session.idle_for(140.0) == 10


def test_a_subscriber_is_use(session):
    subscription = session.channel.subscribe()
    assert session.idle_for(130.0) == 0
    subscription.abort()
    assert session.idle_for(140.0) == 10


def test_a_live_run_is_use(session):
    session.runs.add(object())
    assert session.idle_for(130.0) == 0
    session.runs.clear()
    assert session.idle_for(140.0) == 10


def test_its_repr_says_which_and_where(session):
    session.publish("a")
    assert repr(session) == "<Session s at 1>"
