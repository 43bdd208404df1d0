"""`Channel`: one ordered, resumable stream of events in one process."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
import weakref
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from tidegate.channel.backlog import Backlog
from tidegate.channel.diagnostics import Diagnostics
from tidegate.channel.event import ChannelEvent, stamped_meta
from tidegate.channel.frames import client_evicted, slow_client_warning
from tidegate.channel.handoff import Handoff
from tidegate.channel.names import escape_type, is_event_type
from tidegate.channel.options import checked_integer, checked_ring_size
from tidegate.channel.replay import plan_replay
from tidegate.channel.ring import Ring
from tidegate.channel.statistics import ChannelStatistics
from tidegate.channel.subscription import ChannelSubscription, Subscriber
from tidegate.errors import SubscriberLimitExceeded

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidegate.channel.diagnostics import DiagnosticCallback
    from tidegate.channel.frames import EvictionReason, Threshold

__all__ = ["Channel"]

_log = logging.getLogger("tidegate.channel")

_MAX_KNOWN_TYPES: Final = 1024
_ABSENT: Final = object()


class Channel:
    """One ordered stream of events with a bounded replay ring and any number of readers.

    Every event gets the next id, from 1 without gaps. A subscriber that comes back with
    the id it saw last gets what it missed, or is told that it cannot
    (``state_resync_required``). A subscriber that is too slow is warned, then cut
    (``client_evicted``), and nobody waits for it.

    Everything but `publish_threadsafe` belongs to one event loop and runs without a
    suspension point. A channel holds no task and may outlive its loop.

    Args:
        name: for logs and errors.
        ring_size: events kept for replay, 0 to 1,000,000.
        max_ring_bytes: bytes of events kept for replay; ``None`` for no bound.
        max_subscribers: subscribers at one time.
        max_queued: live frames that may wait for one subscriber.
        max_queued_bytes: bytes of live frames that may wait for one subscriber.
        replay_budget_bytes: bytes that one replay may have.
        on_diagnostic: called with a kind and its data; see `DiagnosticKind`. Without
            one, each is a line in the log ``tidegate.channel``. It may publish,
            subscribe, abort or close; what it raises is logged and changes nothing.
        clock: the time in seconds since 1970.
        epoch: the name of this life of the channel; by default a random one.

    Raises:
        TypeError: an option has the wrong type (a bool is not an integer).
        ValueError: an option is out of its range.
    """

    def __init__(
        self,
        name: str = "",
        *,
        ring_size: int = 8000,
        max_ring_bytes: int | None = None,
        max_subscribers: int = 64,
        max_queued: int = 256,
        max_queued_bytes: int = 2 * 1024 * 1024,
        replay_budget_bytes: int = 8 * 1024 * 1024,
        on_diagnostic: DiagnosticCallback | None = None,
        clock: Callable[[], float] = time.time,
        epoch: str | None = None,
    ) -> None:
        if not isinstance(name, str):
            raise TypeError(f"name must be a string, not {type(name).__name__}")
        if on_diagnostic is not None and not callable(on_diagnostic):
            raise TypeError("on_diagnostic must be callable")
        if max_ring_bytes is not None:
            checked_integer("max_ring_bytes", max_ring_bytes, 1)
        self._name = name
        self._ring_size = checked_ring_size(ring_size, stacklevel=2)
        self._max_subscribers = checked_integer("max_subscribers", max_subscribers, 1)
        self._max_queued = checked_integer("max_queued", max_queued, 1)
        self._max_queued_bytes = checked_integer("max_queued_bytes", max_queued_bytes, 1)
        self._replay_budget = checked_integer("replay_budget_bytes", replay_budget_bytes, 1)
        if epoch is None:
            epoch = secrets.token_hex(8)
        elif not isinstance(epoch, str):
            raise TypeError(f"epoch must be a string, not {type(epoch).__name__}")
        elif not epoch:
            raise ValueError("epoch must not be empty")
        self._epoch = epoch
        self._clock = clock
        self._ring = Ring(self._ring_size, max_ring_bytes)
        self._subscribers: dict[Subscriber, object] = {}
        # A fan-out walks a snapshot, made anew only after somebody came or went.
        self._snapshot: tuple[Subscriber, ...] | None = ()
        self._diagnostics = Diagnostics(name, on_diagnostic)
        self._failed: list[Subscriber] = []
        # What interrupts a call of ours (a signal handler, a finalizer that the garbage
        # collector runs, a model's own serializer) finds it half done, and has to wait.
        self._busy = False
        self._deferred: deque[tuple[Any, Any, Any, Any, bool]] = deque()
        self._known_types: set[object] = set()
        self._closing = False
        self._closed = False
        self._evicted = 0
        self._warned = 0
        # Weak, and one for all events: an event must not keep a channel alive.
        self._weak = weakref.ref(self)
        self._handoff = Handoff(self._publish_handed_over)
        self._bind_loop()

    # -- what one can ask --------------------------------------------------------------

    @property
    def name(self) -> str:
        """The name given at construction."""
        return self._name

    @property
    def epoch(self) -> str:
        """Names this life of the channel: ids of another epoch mean nothing here."""
        return self._epoch

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closing

    @property
    def last_event_id(self) -> int:
        """The id of the newest event; 0 before the first."""
        return self._ring.last

    @property
    def first_event_id(self) -> int:
        """The id of the oldest event that can be replayed; ``last_event_id + 1`` if none."""
        return self._ring.first

    @property
    def ring_size(self) -> int:
        """The most events kept for replay."""
        return self._ring_size

    @property
    def max_subscribers(self) -> int:
        """The most subscribers at one time."""
        return self._max_subscribers

    def statistics(self) -> ChannelStatistics:
        """Return the counters at this moment."""
        return ChannelStatistics(
            subscribers=len(self._subscribers),
            ring_events=len(self._ring),
            ring_bytes=self._ring.bytes,
            last_event_id=self._ring.last,
            published=self._ring.last,
            evicted=self._evicted,
            warned=self._warned,
        )

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"{len(self._subscribers)} subscribers"
        return f"<Channel {self._name!r} at {self._ring.last}, {state}>"

    # -- publish -----------------------------------------------------------------------

    def publish(
        self,
        type: str,  # noqa: A002 - the name of the field on the wire
        data: Any = None,
        *,
        meta: dict[str, Any] | None = None,
        originator_client_id: str | None = None,
    ) -> ChannelEvent | None:
        """Append an event and offer it to every subscriber; never raises, never waits.

        Args:
            type: 1 to 128 of ``A-Z a-z 0-9 . _ : -``, not ``open``, ``error`` or a
                reserved name. Another one is reported, and on the wire the event is
                replaced by one of type ``event_unserializable``.
            data: anything that JSON can express; must not be changed afterwards.
            meta: goes into the envelope's ``_meta``; copied. Not a dict: ignored. A
                ``serverTimestamp`` in it is kept if it is a finite number.
            originator_client_id: who caused the event.

        Returns:
            The event. ``None`` when the channel is closed; and when the call interrupted
            another call of this channel, as a signal handler or a finalizer may: the
            event is then published as soon as that one is done.
        """
        try:
            return self._publish(type, data, meta, originator_client_id)
        except RecursionError:
            # The stack was full before anything was done.
            return None

    def publish_threadsafe(
        self,
        type: str,  # noqa: A002
        data: Any = None,
        *,
        meta: dict[str, Any] | None = None,
        originator_client_id: str | None = None,
    ) -> None:
        """Publish from any thread; the order of one thread's calls is kept; never raises.

        The event is published on the loop that ran when the channel was made, else at
        its first subscribe. Without one, or with a closed one, or with over a million
        such events waiting, it is dropped and ``threadsafe_dropped`` is reported, in
        the calling thread.
        """
        reason = self._handoff.put((type, data, meta, originator_client_id))
        if reason is not None:
            self._report_dropped(type, reason)
            for lost in self._handoff.take_lost():
                self._report_dropped(lost[0], reason)

    def _report_dropped(self, type_: object, reason: str) -> None:
        self._diagnostics.emit_from_thread(
            "threadsafe_dropped", {"type": escape_type(type_), "reason": reason}
        )

    def _publish_handed_over(self, call: tuple[Any, ...]) -> None:
        event_type, data, meta, originator_client_id = call
        self.publish(event_type, data, meta=meta, originator_client_id=originator_client_id)

    def _publish_reserved(self, type: str, data: Any = None) -> ChannelEvent | None:  # noqa: A002
        """Publish an ordinary event under a reserved name: the server's own ``session_closed``."""
        return self._publish(type, data, None, None, reserved=True)

    def _publish(
        self,
        type: str,  # noqa: A002
        data: Any,
        meta: object,
        originator_client_id: str | None,
        *,
        reserved: bool = False,
    ) -> ChannelEvent | None:
        if self.closed:
            return None
        if self._busy:
            self._deferred.append((type, data, meta, originator_client_id, reserved))
            return None
        event = self._publish_now(type, data, meta, originator_client_id, reserved)
        if self._deferred or self._closing:
            self._settle()
        return event

    def _settle(self) -> None:
        """Do what came in the middle of another call."""
        while True:
            try:
                call = self._deferred.popleft()
            except IndexError:
                # Not asked before: a signal handler may publish, and settle, in between.
                break
            self._publish_now(*call)
        if self._closing:
            self.close()

    def _publish_now(
        self,
        type: str,  # noqa: A002
        data: Any,
        meta: object,
        originator_client_id: str | None,
        reserved: bool,
    ) -> ChannelEvent | None:
        self._busy = True
        done = False
        try:
            event = self._append(type, data, meta, originator_client_id, reserved)
            if event is not None:
                self._fan_out(event)
            done = True
        finally:
            self._busy = False
            if not done:
                # A KeyboardInterrupt, say: who knows which of them have the event?
                self._failed.extend(self._subscribers)
        if event is None:
            return None
        try:
            if self._failed:
                self._cut_failed()
            self._note(event)
            self._diagnostics.flush()
        except RecursionError:
            return event
        except Exception:  # noqa: BLE001 - no memory
            _log_failure("channel %r: a diagnostic could not be given", self._name)
        return event

    def _append(
        self,
        type: str,  # noqa: A002
        data: Any,
        meta: object,
        originator_client_id: str | None,
        reserved: bool,
    ) -> ChannelEvent | None:
        if self._closed:
            return None
        try:
            if self._failed:
                self._cut_failed()
            if type.__class__ is not str and isinstance(type, str):
                # A StrEnum's member, say: the wire and all who compare want its value.
                type = str.__str__(type)  # noqa: A001
            event = ChannelEvent(
                self._ring.last + 1,
                type,
                data,
                stamped_meta(meta, self._now_ms()),
                originator_client_id,
                sound=reserved or self._is_sound(type),
                owner=self._weak,
            )
            while self._snapshot is None:
                # Making it may run the garbage collector, which may abort a subscription.
                with contextlib.suppress(RuntimeError):
                    self._snapshot = tuple(self._subscribers)
            self._ring.append(event)
        except RecursionError:
            # Nothing was published, and no id was used. On a full stack not even the call
            # that logs would succeed.
            return None
        except Exception:  # noqa: BLE001 - a foreign dict or clock, no memory
            _log_failure("channel %r: an event could not be published", self._name)
            return None
        return event

    def _fan_out(self, event: ChannelEvent) -> None:
        for subscriber in self._snapshot or ():
            try:
                self._offer(subscriber, event)
            except Exception:  # noqa: BLE001 - a full stack, no memory
                # To be cut before the next event, so that it has no silent gap. Only
                # noted here: on a full stack a call would fail as well.
                self._failed.append(subscriber)

    def _is_sound(self, type_: object) -> bool:
        if type_.__class__ is str and type_ in self._known_types:
            return True
        if not is_event_type(type_):
            return False
        # Bounded: a publisher that makes up a type for each event must not grow it.
        if len(self._known_types) < _MAX_KNOWN_TYPES:
            self._known_types.add(type_)
        return True

    def _cut_failed(self) -> None:
        while self._failed:
            subscriber = self._failed[-1]
            self._detach(subscriber)
            subscriber.close()
            self._failed.pop()

    def _note(self, event: ChannelEvent) -> None:
        """Remember to report an event that is known to be unserializable, once."""
        if event.claim_report():
            self._diagnostics.add(
                "event_unserializable", {"id": event.id, "type": escape_type(event.type)}
            )

    def _report(self, event: ChannelEvent) -> None:
        """Report an event that was found unserializable, once, when the channel is consistent."""
        self._note(event)
        if not self._busy:
            self._diagnostics.flush()

    def _offer(self, subscriber: Subscriber, event: ChannelEvent) -> None:
        backlog = subscriber.backlog
        waited = backlog.waiting
        reason = backlog.push(event)
        if waited:
            subscriber.wake()
        if reason is not None:
            self._evict(subscriber, reason, event)
            return
        threshold = backlog.due_warning()
        if threshold is not None:
            self._warn(subscriber, threshold, event)

    def _warn(self, subscriber: Subscriber, threshold: Threshold, event: ChannelEvent) -> None:
        backlog = subscriber.backlog
        assert event.id is not None  # noqa: S101 - only live events are offered
        frame = slow_client_warning(
            self._now_ms(),
            queue_size=backlog.live_count,
            queued_bytes=backlog.live_bytes,
            max_queued=backlog.max_frames,
            max_queued_bytes=backlog.max_bytes,
            last_event_id=event.id,
            threshold=threshold,
        )
        self._warned += 1
        subscriber.warned += 1
        subscriber.backlog.force_push(frame)
        self._diagnostics.add("slow_client_warning", frame.data)

    def _evict(
        self, subscriber: Subscriber, reason: EvictionReason, rejected: ChannelEvent | None
    ) -> None:
        backlog = subscriber.backlog
        first_dropped = backlog.first_id() if rejected is None else rejected.id
        frame = client_evicted(
            self._now_ms(),
            reason=reason,
            queue_size=backlog.live_count,
            queued_bytes=backlog.live_bytes,
            max_queued=backlog.max_frames,
            max_queued_bytes=backlog.max_bytes,
            event_bytes=(
                rejected.size if rejected is not None and reason == "queue_bytes_overflow" else None
            ),
            first_dropped_id=self._ring.last + 1 if first_dropped is None else first_dropped,
        )
        self._evicted += 1
        subscriber.evicted = True
        subscriber.backlog.force_push(frame)
        self._detach(subscriber)
        subscriber.close()
        self._diagnostics.add("client_evicted", frame.data)

    def _evict_for_wire(self, subscriber: Subscriber, reason: EvictionReason) -> None:
        if not subscriber.backlog.closed:
            self._evict(subscriber, reason, None)
            self._diagnostics.flush()

    # -- subscribe ---------------------------------------------------------------------

    def subscribe(
        self,
        *,
        last_event_id: int | None = None,
        epoch: str | None = None,
        max_queued: int | None = None,
    ) -> ChannelSubscription:
        """Attach a subscriber; on return it misses nothing any more.

        Args:
            last_event_id: the id seen last; what follows it is replayed, then comes one
                ``replay_complete``. 0 is the beginning; ``None``: live events only.
            epoch: the epoch in which that id was seen, if known.
            max_queued: this subscriber's cap of live frames; by default the channel's.

        Returns:
            The subscription; one of a closed channel ends at once.

        Raises:
            SubscriberLimitExceeded: there are ``max_subscribers`` already.
            TypeError: an argument has the wrong type (a bool is not an integer).
            ValueError: ``last_event_id`` is negative or ``max_queued`` below 1.
            RuntimeError: called by a signal handler or a finalizer that interrupted
                another call of this channel.
        """
        if last_event_id is not None:
            checked_integer("last_event_id", last_event_id, 0)
        if epoch is not None and not isinstance(epoch, str):
            raise TypeError(f"epoch must be a string, not {type(epoch).__name__}")
        if max_queued is None:
            max_queued = self._max_queued
        backlog = Backlog(checked_integer("max_queued", max_queued, 1), self._max_queued_bytes)
        subscriber = Subscriber(self, backlog)
        if self.closed:
            backlog.close()
            return ChannelSubscription(subscriber)
        if len(self._subscribers) >= self._max_subscribers:
            raise SubscriberLimitExceeded(self._max_subscribers)
        if self._busy:
            raise RuntimeError("a channel cannot be subscribed to in the middle of another call")
        self._bind_loop()
        replayed: list[ChannelEvent] = []
        self._busy = True
        try:
            if last_event_id is not None:
                replayed = self._replay(subscriber, last_event_id, epoch)
            subscription = ChannelSubscription(subscriber)
            self._subscribers[subscriber] = None
            self._snapshot = None
        finally:
            self._busy = False
        # Last: a callback may publish, or close the channel.
        for frame in replayed:
            self._note(frame)
        self._diagnostics.flush()
        self._settle()
        return subscription

    def _replay(
        self, subscriber: Subscriber, last_event_id: int, epoch: str | None
    ) -> list[ChannelEvent]:
        replay = plan_replay(
            self._ring,
            ours=self._epoch,
            theirs=epoch,
            last_event_id=last_event_id,
            budget=self._replay_budget,
            now_ms=self._now_ms(),
        )
        for frame in replay.frames:
            subscriber.backlog.force_push(frame)
        subscriber.budget_exceeded = replay.budget_exceeded
        return replay.frames

    # -- the end -----------------------------------------------------------------------

    def close(self) -> None:
        """End the channel: subscribers take what waits for them, then end. Idempotent.

        In the middle of another call it is done as soon as that one is; `closed` is true
        at once.
        """
        self._closing = True
        if self._busy:
            return
        self._closed = True
        self._snapshot = ()
        while self._subscribers:
            subscriber, _ = self._subscribers.popitem()
            subscriber.close()

    def _detach(self, subscriber: Subscriber) -> bool:
        """Free a subscriber's place; tell whether it had one."""
        attached = self._subscribers.pop(subscriber, _ABSENT) is not _ABSENT
        if attached:
            self._snapshot = None
        return attached

    # -- small things ------------------------------------------------------------------

    def _now_ms(self) -> int:
        return int(self._clock() * 1000)

    def _bind_loop(self) -> None:
        if self._handoff.loop is None:
            try:
                self._handoff.loop = asyncio.get_running_loop()
            except RuntimeError:
                return


def _log_failure(message: str, name: str) -> None:
    # On a full stack logging fails as well, and publish must not raise.
    with contextlib.suppress(Exception):
        _log.exception(message, name)
