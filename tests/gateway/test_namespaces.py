import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.errors import UnknownNamespace
from tidegate.gateway.brokers.base import HistoryPolicy
from tidegate.gateway.namespaces import Namespace, Namespaces


def test_the_defaults():
    namespace = Namespace()
    assert namespace.name == "default"
    assert namespace.policy == HistoryPolicy(size=1000, ttl=3600.0, idempotency_ttl=3600.0)
    assert (namespace.recovery, namespace.slow) == ("all", "evict")
    assert namespace.max_subscribers is None
    assert namespace.snapshot is None
    assert namespace.linked


@given(
    st.integers(0, 10_000_000),
    st.floats(0, 1e9, exclude_min=True),
    st.none() | st.floats(0, 1e9, exclude_min=True),
    st.sampled_from(["all", "latest"]),
)
def test_the_policy_says_what_a_broker_keeps(size, ttl, idempotency_ttl, recovery):
    policy = Namespace(
        history_size=size, history_ttl=ttl, idempotency_ttl=idempotency_ttl, recovery=recovery
    ).policy
    assert policy.size == (min(size, 1) if recovery == "latest" else size)
    assert policy.ttl == ttl
    assert policy.idempotency_ttl == (ttl if idempotency_ttl is None else idempotency_ttl)


@pytest.mark.parametrize(
    ("options", "linked"),
    [
        ({}, True),
        ({"slow": "drop_oldest"}, True),
        ({"slow": "conflate"}, False),
        ({"recovery": "latest"}, False),
    ],
)
def test_what_skips_on_purpose_is_not_linked(options, linked):
    assert Namespace(**options).linked == linked


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"name": ""}, ValueError),
        ({"name": "a:b"}, ValueError),
        ({"name": "a b"}, ValueError),
        ({"name": "x" * 201}, ValueError),
        ({"name": None}, TypeError),
        ({"history_size": -1}, ValueError),
        ({"history_size": 10_000_001}, ValueError),
        ({"history_size": True}, TypeError),
        ({"history_size": 1.0}, TypeError),
        ({"history_ttl": 0}, ValueError),
        ({"history_ttl": -1.0}, ValueError),
        ({"history_ttl": math.inf}, ValueError),
        ({"history_ttl": math.nan}, ValueError),
        ({"history_ttl": "1h"}, TypeError),
        ({"history_ttl": True}, TypeError),
        ({"history_ttl": None}, TypeError),
        ({"idempotency_ttl": 0}, ValueError),
        ({"idempotency_ttl": math.nan}, ValueError),
        ({"idempotency_ttl": "1h"}, TypeError),
        ({"recovery": "some"}, ValueError),
        ({"recovery": None}, ValueError),
        ({"slow": "wait"}, ValueError),
        ({"slow": ["evict"]}, ValueError),
        ({"max_subscribers": 0}, ValueError),
        ({"max_subscribers": True}, TypeError),
        ({"max_subscribers": "many"}, TypeError),
        ({"snapshot": "elsewhere"}, ValueError),
        ({"snapshot": "ftp://x"}, ValueError),
        ({"snapshot": 1}, TypeError),
    ],
)
def test_what_makes_no_sense_is_refused(options, error):
    with pytest.raises(error) as refused:
        Namespace(**options)
    assert str(refused.value).isascii()


@pytest.mark.parametrize("snapshot", ["stored", "http://x/y", "https://x/y", lambda name: None])
def test_snapshots_come_from_where_they_may(snapshot):
    assert Namespace(snapshot=snapshot).snapshot is snapshot


def test_options_cannot_be_changed():
    with pytest.raises(AttributeError):
        Namespace().history_size = 5


def test_without_any_configured_all_are_served_with_the_defaults():
    namespaces = Namespaces()
    assert namespaces.of("room:1") == Namespace()
    assert namespaces.policy_of("room:1") == HistoryPolicy()
    assert namespaces.of("bare") == Namespace()


def test_with_one_configured_unknown_ones_are_refused():
    room = Namespace(name="room", history_size=5)
    namespaces = Namespaces([room])
    assert namespaces.of("room:1") is room
    assert namespaces.of("room:") is room
    assert namespaces.policy_of("room:1") is namespaces.policy_of("room:2")
    assert namespaces.policy_of("room:1").size == 5
    for call in (namespaces.of, namespaces.policy_of):
        for name in ("rooms:1", "bare", "room", ":x"):
            with pytest.raises(UnknownNamespace):
                call(name)


def test_the_default_namespace_is_configured_by_its_name():
    namespaces = Namespaces([Namespace(history_size=7)])
    assert namespaces.of("bare").history_size == 7
    assert namespaces.of("default:x").history_size == 7


def test_open_to_all_serves_unknown_ones_with_the_defaults():
    namespaces = Namespaces([Namespace(name="room", history_size=5)], open_to_all=True)
    assert namespaces.of("room:1").history_size == 5
    assert namespaces.of("other:1") == Namespace()
    assert namespaces.policy_of("other:1") == HistoryPolicy()


def test_a_name_is_configured_once():
    with pytest.raises(ValueError, match="room is configured twice"):
        Namespaces([Namespace(name="room"), Namespace(name="room")])
