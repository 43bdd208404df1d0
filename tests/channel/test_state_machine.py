"""`Channel` against a model that is as simple as the words of docs/channel.md."""

import asyncio
from collections import Counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from tidegate.channel import Channel
from tidegate.errors import SubscriberLimitExceeded


class ModelEvent:
    def __init__(self, event):
        self.id, self.type = event.id, event.type
        self.sound = event.type == "t" and isinstance(event.data, str)
        self.size = len(event.to_json()) if self.sound else 0


class ModelSubscriber:
    """A list of [label, counted, size]; every measure is recounted from it."""

    def __init__(self, max_queued, max_bytes):
        self.max_queued, self.max_bytes = max_queued, max_bytes
        self.entries = []
        self.waiting = self.warned = self.evicted = self.closed = self.attached = False
        self.delivered = self.warnings = 0

    def live(self):
        sizes = [size for _, counted, size in self.entries if counted]
        return len(sizes), sum(sizes)

    def force(self, label):
        self.waiting = False
        self.entries.append([label, False, 0])

    def offer(self, event, note, diagnostics):
        if self.waiting:
            self.force(event.id)
            reason = None
        else:
            count, size = self.live()
            reason = None
            if count < self.max_queued:
                note(event)
            if count >= self.max_queued:
                reason = "queue_overflow"
            elif count > 0 and size + event.size > self.max_bytes:
                reason = "queue_bytes_overflow"
            else:
                self.entries.append([event.id, True, event.size])
        if reason is not None:
            self.force("client_evicted")
            self.evicted, self.closed, self.attached = True, True, False
            diagnostics.append("client_evicted")
            return
        count, size = self.live()
        if self.warned and count <= 0.375 * self.max_queued and size <= 0.375 * self.max_bytes:
            self.warned = False
        elif not self.warned and (count >= 0.75 * self.max_queued or size >= 0.75 * self.max_bytes):
            self.warned = True
            self.warnings += 1
            self.force("slow_client_warning")
            diagnostics.append("slow_client_warning")

    def take(self):
        label = self.entries.pop(0)[0]
        self.delivered += isinstance(label, int)
        return label


class Reader:
    """A real subscription, its model, and what its consumer has seen."""

    def __init__(self, subscription, model, cursor):
        self.subscription, self.model, self.cursor = subscription, model, cursor
        self.task = None
        self.resynced = False

    def check(self, frame, label):
        assert (frame.id if frame.id is not None else frame.type) == label
        if frame.id is None:
            self.resynced |= frame.type == "state_resync_required"
            return
        if self.cursor is not None and not self.resynced:
            assert frame.id == self.cursor + 1, "a silent gap or a repetition"
        elif self.resynced and frame.id <= (self.cursor or 0):
            assert self.cursor is None or frame.id >= 1
        self.cursor, self.resynced = frame.id, False


class ChannelMachine(RuleBasedStateMachine):
    @initialize(
        ring_size=st.integers(0, 6),
        ring_bytes=st.none() | st.integers(100, 600),
        max_queued=st.integers(1, 5),
        max_bytes=st.integers(100, 500),
        budget=st.integers(1, 500),
    )
    def make(self, ring_size, ring_bytes, max_queued, max_bytes, budget):
        self.loop = asyncio.new_event_loop()
        self.channel = Channel(
            ring_size=ring_size,
            max_ring_bytes=ring_bytes,
            max_subscribers=4,
            max_queued=max_queued,
            max_queued_bytes=max_bytes,
            replay_budget_bytes=budget,
            on_diagnostic=self.on_diagnostic,
            epoch="ours",
        )
        self.ring_size, self.ring_bytes = ring_size, ring_bytes
        self.max_queued, self.max_bytes, self.budget = max_queued, max_bytes, budget
        self.events, self.ring, self.readers, self.gone = [], [], [], []
        self.real_kinds, self.model_kinds = [], []
        self.nested = self.model_nested = 0
        self.reported, self.pending = set(), []
        self.published = []

    # -- the real one ------------------------------------------------------------------

    def on_diagnostic(self, kind, data):
        self.real_kinds.append(kind)
        if self.nested:
            self.nested -= 1
            self.published.append(self.channel.publish("t", "nested"))

    # -- the model ---------------------------------------------------------------------

    def model_publish(self, event):
        event = ModelEvent(event)
        assert event.id == len(self.events) + 1
        self.events.append(event)
        self.ring.append(event)
        while len(self.ring) > self.ring_size or (
            self.ring_bytes and sum(e.size for e in self.ring) > self.ring_bytes
        ):
            self.ring.pop(0)
        if self.ring_bytes is not None and self.ring_size > 0:
            self.model_note(event)
        for reader in list(self.readers):
            if reader.model.attached:
                reader.model.offer(event, self.model_note, self.pending)
        if event.type != "t":
            self.model_note(event)

    def model_note(self, event):
        if not event.sound and event.id not in self.reported:
            self.reported.add(event.id)
            self.pending.append("event_unserializable")

    def model_flush(self):
        while self.pending:
            self.model_kinds.append(self.pending.pop(0))
            if self.model_nested:
                self.model_nested -= 1
                self.model_publish(self.published.pop(0))

    # -- rules -------------------------------------------------------------------------

    @rule(
        kind=st.sampled_from(["plain"] * 6 + ["object", "bad type"]),
        length=st.integers(0, 200),
        nested=st.integers(0, 2),
    )
    def publish(self, kind, length, nested):
        self.nested = self.model_nested = nested
        self.published = []
        data = object() if kind == "object" else "x" * length
        event = self.channel.publish("bad type" if kind == "bad type" else "t", data)
        if self.channel.closed:
            assert event is None
            return
        self.model_publish(event)
        self.model_flush()
        self.nested = self.model_nested = 0

    @rule(
        cursor=st.none() | st.integers(0, 20),
        epoch=st.sampled_from([None, None, "ours", "theirs"]),
        max_queued=st.none() | st.integers(1, 5),
    )
    def subscribe(self, cursor, epoch, max_queued):
        self.nested = self.model_nested = 0
        attached = sum(r.model.attached for r in self.readers)
        closed = self.channel.closed
        try:
            subscription = self.channel.subscribe(
                last_event_id=cursor, epoch=epoch, max_queued=max_queued
            )
        except SubscriberLimitExceeded:
            assert attached == 4
            assert not closed
            return
        assert closed or attached < 4
        model = ModelSubscriber(max_queued or self.max_queued, self.max_bytes)
        model.attached, model.closed = not closed, closed
        head = len(self.events)
        if cursor is not None and not closed:
            self.model_replay(model, cursor, epoch, head)
            self.model_flush()
        seen = cursor
        if cursor is None:
            seen = head
        self.readers.append(Reader(subscription, model, seen))

    def model_replay(self, model, cursor, epoch, head):
        earliest = self.ring[0].id if self.ring else head + 1
        start = cursor
        if epoch == "theirs" or cursor > head:
            model.force("state_resync_required")
            start = 0
        elif earliest > cursor + 1:
            model.force("state_resync_required")
        spent = count = 0
        for event in self.ring:
            if event.id > start:
                spent += event.size
                if spent > self.budget and count:
                    model.force("state_resync_required")
                    break
                self.model_note(event)
                model.force(event.id)
                count += 1
        model.force("replay_complete")

    @precondition(lambda self: self.readers)
    @rule(data=st.data(), count=st.integers(1, 6))
    def consume(self, data, count):
        reader = data.draw(st.sampled_from(self.readers))
        if reader.task is not None:
            return
        for _ in range(count):
            if reader.model.entries:
                frame = self.loop.run_until_complete(anext(reader.subscription))
                reader.check(frame, reader.model.take())
            elif reader.model.closed:
                assert self.ends(anext(reader.subscription))
                self.drop(reader)
                return

    @precondition(lambda self: self.readers)
    @rule(data=st.data())
    def wait(self, data):
        reader = data.draw(st.sampled_from(self.readers))
        if reader.task is None and not reader.model.entries and not reader.model.closed:
            reader.task = self.loop.create_task(reader.subscription.__anext__())
            self.step()
            reader.model.waiting = True

    @precondition(lambda self: any(r.task for r in self.readers))
    @rule(data=st.data(), let_run=st.booleans())
    def end_wait(self, data, let_run):
        """Cancel a waiting consumer, also in the moment an event is handed to it."""
        reader = data.draw(st.sampled_from([r for r in self.readers if r.task]))
        task, reader.task = reader.task, None
        if let_run:
            self.step()
        if task.done():
            if task.exception() is not None:
                assert isinstance(task.exception(), StopAsyncIteration)
                self.drop(reader)
            else:
                reader.check(task.result(), reader.model.take())
            return
        task.cancel()
        self.step()
        assert task.cancelled()
        reader.model.waiting = False

    @precondition(lambda self: self.readers)
    @rule(data=st.data())
    def abort(self, data):
        reader = data.draw(st.sampled_from(self.readers))
        # One that got its event before the abort keeps it.
        served = reader.task is not None and reader.task.done()
        reader.subscription.abort()
        reader.subscription.abort()
        if reader.task is not None and not (served and reader.task.exception() is None):
            assert self.ends(reader.task)
        self.drop(reader)

    @rule(sure=st.integers(0, 9))
    def close(self, sure):
        if sure:
            return
        self.channel.close()
        for reader in self.readers:
            reader.model.closed, reader.model.attached = True, False
            reader.model.waiting = False

    # -- helpers -----------------------------------------------------------------------

    def step(self):
        self.loop.call_soon(self.loop.stop)
        self.loop.run_forever()

    def ends(self, awaitable):
        async def run():
            try:
                await awaitable
            except StopAsyncIteration:
                return True
            return False

        return self.loop.run_until_complete(asyncio.wait_for(run(), 5))

    def drop(self, reader):
        reader.subscription.abort()
        reader.model.attached = False
        self.gone.append(reader)
        self.readers.remove(reader)

    # -- what always holds -------------------------------------------------------------

    @invariant()
    def counters_equal_a_recount(self):
        statistics = self.channel.statistics()
        assert statistics.subscribers == sum(r.model.attached for r in self.readers)
        assert statistics.last_event_id == statistics.published == len(self.events)
        assert statistics.ring_events == len(self.ring)
        assert statistics.ring_bytes == (sum(e.size for e in self.ring) if self.ring_bytes else 0)
        assert self.real_kinds == self.model_kinds
        kinds = Counter(self.model_kinds)
        assert statistics.warned == kinds["slow_client_warning"]
        assert statistics.evicted == kinds["client_evicted"]
        for reader in self.readers:
            own, model = reader.subscription.statistics(), reader.model
            assert (own.queued_frames, own.queued_bytes) == model.live()
            assert (own.warned, own.evicted) == (model.warnings, model.evicted)
            assert own.queued_bytes <= self.max_bytes or own.queued_frames == 1
            assert own.queued_frames <= model.max_queued
            if reader.task is None or not reader.task.done():
                assert own.delivered == model.delivered

    def teardown(self):
        if not hasattr(self, "loop"):
            return
        for reader in list(self.readers):
            reader.subscription.abort()
            if reader.task is not None:
                reader.task.cancel()
                self.loop.run_until_complete(asyncio.wait([reader.task]))
                if not reader.task.cancelled():
                    reader.task.exception()
        self.loop.close()


TestChannelMachine = pytest.mark.slow(pytest.mark.timeout(300)(ChannelMachine.TestCase))
TestChannelMachine.settings = settings(max_examples=150, stateful_step_count=50, deadline=None)
