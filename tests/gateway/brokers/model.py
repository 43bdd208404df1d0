"""Stores against a model that is as simple as the words of `tidegate.gateway.brokers.base`."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from tidegate.errors import SnapshotAhead
from tidegate.gateway.brokers.base import (
    Head,
    HistoryPolicy,
    Publication,
    PublishRequest,
    PublishResult,
)
from tidegate.gateway.position import NONE, is_position, make_position, number_of

__all__ = ["Collector", "StoreMachine", "request"]

NAMES = st.sampled_from(["a", "b"])
DAY = 86400.0


def request(channel="a", payload=b'{"data":1}', **options):
    policy = HistoryPolicy(
        **{
            name: options.pop(name)
            for name in ("size", "ttl", "idempotency_ttl")
            if name in options
        }
    )
    return PublishRequest(channel=channel, type="t", payload=payload, policy=policy, **options)


class Collector:
    """A sink that keeps what it is told."""

    def __init__(self):
        self.told = []

    def on_publication(self, channel, publication):
        self.told.append((channel, publication))

    def on_reset(self, channel, head):
        self.told.append((channel, head))

    def on_disconnected(self):
        self.told.append("disconnected")

    def on_reconnected(self):
        self.told.append("reconnected")

    def positions(self, channel):
        return [p.position for c, p in self.told if c == channel and isinstance(p, Publication)]


class ModelChannel:
    def __init__(self, epoch, now):
        self.epoch = epoch
        self.events = []
        self.head = self.prev = self.last = self.since = NONE
        self.version = None
        self.expires = 0.0
        self.keys = {}
        self.snapshot = None
        self.used = now

    def visible(self, now):
        if now >= self.expires:
            self.events = []
        return self.events


class StoreMachine(RuleBasedStateMachine):
    """Give `make` in a subclass: it returns a store with the methods of `MemoryStore`."""

    def make(self):
        raise NotImplementedError

    @initialize()
    def start(self):
        self.now = 1_790_000_000.0
        self.channels = {}
        self.epochs = set()
        self.positions = set()
        self.payloads = 0
        self.store = self.make()

    def known(self, name, epoch=None):
        """The model's channel; one that is new takes the epoch that the store says."""
        if name not in self.channels:
            epoch = epoch or self.store.head(name, self.now).epoch
            assert epoch not in self.epochs
            assert len(epoch) == 16
            int(epoch, 16)
            self.epochs.add(epoch)
            self.channels[name] = ModelChannel(epoch, self.now)
        channel = self.channels[name]
        channel.used = max(channel.used, self.now)
        return channel

    @rule(
        name=NAMES,
        key=st.sampled_from([None, None, "k", "l"]),
        version=st.none() | st.integers(0, 5),
        size=st.sampled_from([0, 1, 2, 3, 3, 3, 10]),
        ttl=st.sampled_from([1.0, 50.0, 50.0]),
        idempotency_ttl=st.sampled_from([1.0, 20.0]),
        tags=st.sampled_from([None, {"k": "v"}]),
    )
    def publish(self, name, key, version, size, ttl, idempotency_ttl, tags):
        self.payloads += 1
        asked = request(
            name,
            b'{"data":%d}' % self.payloads,
            idempotency_key=key,
            version=version,
            size=size,
            ttl=ttl,
            idempotency_ttl=idempotency_ttl,
            tags=tags,
        )
        result, publication = self.store.append(asked, self.now)
        assert isinstance(result, PublishResult)
        channel = self.known(name, result.epoch)
        if key in channel.keys and self.now < channel.keys[key][0]:
            first = channel.keys[key][1]
            assert result.duplicate
            assert publication is None
            assert (result.position, result.prev, result.epoch, result.suppressed) == first
            return
        assert not result.duplicate
        assert result.epoch == channel.epoch
        if version is not None and channel.version is not None and version <= channel.version:
            assert result.suppressed
            assert publication is None
            assert (result.position, result.prev) == (channel.head, channel.prev)
        else:
            position = result.position
            assert not result.suppressed
            assert is_position(position)
            assert position not in self.positions
            assert number_of(position) == max(int(self.now * 1000), number_of(channel.last) + 1)
            assert position > channel.last
            self.positions.add(position)
            assert result.prev == channel.head
            assert publication == Publication(
                position=position,
                prev=channel.head,
                epoch=channel.epoch,
                type="t",
                payload=asked.payload,
                tags=tags,
                version=version,
            )
            events = [*channel.visible(self.now), publication]
            channel.events = events[len(events) - min(size, len(events)) :]
            channel.expires = self.now + ttl
            channel.prev, channel.head, channel.last = channel.head, position, position
            if version is not None:
                channel.version = version
        channel.used = self.now
        if key is not None:
            first = (result.position, result.prev, result.epoch, result.suppressed)
            channel.keys[key] = (self.now + idempotency_ttl, first)

    @rule(
        name=NAMES,
        index=st.none() | st.integers(0, 12),
        between=st.booleans(),
        limit=st.integers(0, 5),
        newest_first=st.booleans(),
    )
    def history(self, name, index, between, limit, newest_first):
        channel = self.known(name)
        events = list(channel.visible(self.now))
        after = None
        if index is not None:
            held = [NONE, channel.since, *(e.prev for e in events), channel.head]
            after = held[index % len(held)]
            if between and after:
                after = make_position(number_of(after), b"\xff\xff\xff\xff")
        page = self.store.history(
            name, self.now, after=after, limit=limit, newest_first=newest_first
        )
        if newest_first:
            events.reverse()
            events = [e for e in events if after is None or e.position < after]
        else:
            events = [e for e in events if after is None or e.position > after]
        assert list(page.publications) == events[:limit]
        assert page.complete == (len(events) <= limit)
        assert page.head == Head(channel.epoch, channel.head)

    @rule(name=NAMES)
    def head(self, name):
        channel = self.known(name)
        assert self.store.head(name, self.now) == Head(channel.epoch, channel.head)

    @rule(name=NAMES)
    def remove_history(self, name):
        channel = self.known(name)
        head = self.store.remove_history(name, self.now)
        assert head.position == NONE
        assert head.epoch not in self.epochs
        self.epochs.add(head.epoch)
        channel.epoch = head.epoch
        channel.events = []
        channel.head = channel.prev = NONE
        channel.since = channel.last
        channel.version = channel.snapshot = None

    @rule(
        name=NAMES,
        which=st.sampled_from(["none", "old", "event", "head", "beyond", "elsewhere", "nonsense"]),
    )
    def put_snapshot(self, name, which):
        channel = self.known(name)
        events = channel.visible(self.now)
        position = {
            "none": NONE,
            "old": channel.since,
            "event": events[0].position if events else channel.head,
            "head": channel.head,
            "beyond": make_position(number_of(channel.last) + 1, b"abcd"),
            "elsewhere": make_position(1, b"abcd"),
            "nonsense": "x",
        }[which]
        fits = (
            is_position(position)
            and (position == NONE or channel.since < position <= channel.head)
            and (
                channel.snapshot is None
                or channel.snapshot[2] != channel.epoch
                or position >= channel.snapshot[1]
            )
        )
        state = b"[%d]" % len(self.positions)
        if fits:
            stored = self.store.put_snapshot(name, state, position, self.now)
            channel.snapshot = (state, position, channel.epoch)
            assert (stored.state, stored.position, stored.epoch) == channel.snapshot
            return
        with pytest.raises(SnapshotAhead) as refused:
            self.store.put_snapshot(name, state, position, self.now)
        assert (refused.value.position, refused.value.head) == (position, channel.head)

    @rule(name=NAMES)
    def get_snapshot(self, name):
        stored = self.store.get_snapshot(name)
        channel = self.channels.get(name)
        found = None if stored is None else (stored.state, stored.position, stored.epoch)
        assert found == (None if channel is None else channel.snapshot)

    @rule(seconds=st.sampled_from([0.0, 0.001, 0.5, 1.0, 19.0, 60.0, -0.5, -30.0]))
    def time_goes_by(self, seconds):
        self.now += seconds

    @rule(keep=st.sets(NAMES), days=st.sampled_from([0, 0, 10]))
    def sweep(self, keep, days):
        self.now += days * DAY
        for _ in range(100):
            if self.store.sweep(self.now, keep=keep):
                break
        else:
            raise AssertionError("sweeping does not end")
        for name, channel in list(self.channels.items()):
            channel.keys = {k: v for k, v in channel.keys.items() if self.now < v[0]}
            if self.now - channel.used > 5 * DAY and name not in keep:
                del self.channels[name]
