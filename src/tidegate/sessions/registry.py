"""`Sessions`: the sessions of one process, their lives, and their face as an ASGI app."""

from __future__ import annotations

import inspect
import logging
import random
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self

from tidegate.channel import Channel
from tidegate.channel.names import SESSION_CLOSED
from tidegate.channel.options import checked_integer
from tidegate.errors import InvalidSessionId, SessionLimitExceeded, SessionNotFound
from tidegate.sessions.repeated import Repeated
from tidegate.sessions.routes import SessionRoutes
from tidegate.sessions.run import Run, Runs
from tidegate.sessions.session import Session, is_session_id
from tidegate.sessions.snapshot import Loaded, Snapshot, load
from tidegate.stream import Drain

if TYPE_CHECKING:
    import builtins

    from starlette.routing import Route
    from starlette.types import Receive, Scope, Send

    from tidegate.stream.refusal import RefusalForm

__all__ = ["SessionDiagnosticCallback", "Sessions", "SnapshotProvider"]

SnapshotProvider = Callable[[str], "tuple[Any, int] | Awaitable[tuple[Any, int] | None] | None"]
"""Returns a session's full state and the last event id that it takes account of."""

SessionDiagnosticCallback = Callable[[str, str, dict[str, Any]], None]
"""Takes a session's id, the kind of a diagnostic and its data."""

_log = logging.getLogger("tidegate.sessions")

_MIB: Final = 1024 * 1024
_MAX_PAUSE: Final = 60.0


class Sessions:
    """Named channels over HTTP, made on demand and swept away when idle.

    Enter it in your application's lifespan, and mount it as an ASGI app or add its
    ``routes`` to yours. Leaving it ends all streams, stops all runs and closes all
    channels. All of it belongs to one event loop, and all sessions live in this process.

    Args:
        max_sessions: sessions at one time.
        idle_seconds: after how long without a subscriber, a publish or a live run a
            session is ended; ``None``: never.
        ring_size: see `Channel`; so are ``max_ring_bytes``, ``max_subscribers``,
            ``max_queued``, ``max_queued_bytes`` and ``replay_budget_bytes``.
        on_diagnostic: called with a session's id, and then as `Channel` does it; without
            one, each report is a line in the log.
        snapshot: computes a session's state for a client that lost events; plain or
            async. It goes before the stored snapshot unless it returns ``None``.
        features: what ``GET /capabilities`` names besides its own: what is served beside these.
        max_body_bytes: how large a request's body may be.
        heartbeat: see `EventStream`; so are ``retry_ms``, ``write_timeout`` and
            ``refusal``.
        drain: what ends the streams when the process is to stop; by default one of its
            own, which it enters and leaves with itself.
        clock: a monotonic time in seconds, to measure idleness.
        rng: draws from [0, 1), for jitter.
        new_id: makes the ids of sessions that are created without one.
    """

    def __init__(
        self,
        *,
        max_sessions: int = 1000,
        idle_seconds: float | None = 1800,
        ring_size: int = 8000,
        max_ring_bytes: int | None = 64 * _MIB,
        max_subscribers: int = 64,
        max_queued: int = 256,
        max_queued_bytes: int = 2 * _MIB,
        replay_budget_bytes: int = 8 * _MIB,
        on_diagnostic: SessionDiagnosticCallback | None = None,
        snapshot: SnapshotProvider | None = None,
        features: Sequence[str] = (),
        max_body_bytes: int = _MIB,
        heartbeat: float = 15.0,
        retry_ms: int = 3000,
        write_timeout: float = 30.0,
        refusal: RefusalForm = "auto",
        drain: Drain | None = None,
        clock: Callable[[], float] = time.monotonic,
        rng: Callable[[], float] = random.random,
        new_id: Callable[[], str] = lambda: uuid.uuid4().hex,
    ) -> None:
        checked_integer("max_sessions", max_sessions, 1)
        if idle_seconds is not None and idle_seconds <= 0:
            raise ValueError("idle_seconds must be positive, or None for never")
        self.max_sessions = max_sessions
        self._idle_seconds = idle_seconds
        self._channel_options: dict[str, Any] = {
            "ring_size": ring_size,
            "max_ring_bytes": max_ring_bytes,
            "max_subscribers": max_subscribers,
            "max_queued": max_queued,
            "max_queued_bytes": max_queued_bytes,
            "replay_budget_bytes": replay_budget_bytes,
        }
        # Wrong options fail here, not at the first client; and the ring may be clamped.
        sample = Channel(**self._channel_options)
        self._channel_options["ring_size"] = sample.ring_size
        self.ring_size = sample.ring_size
        self.max_subscribers = sample.max_subscribers
        self._on_diagnostic = on_diagnostic
        self._provider = snapshot
        self.drain = Drain(retry_ms=retry_ms, rng=rng) if drain is None else drain
        self._owns_drain = drain is None
        self._clock = clock
        self._new_id = new_id
        self._sessions: dict[str, Session] = {}
        self._runs = Runs()
        self._stack: AsyncExitStack | None = None
        self._closed = False
        self._http = SessionRoutes(
            self,
            features=features,
            max_body_bytes=max_body_bytes,
            stream_options={
                "max_queued": None,
                "heartbeat": heartbeat,
                "retry_ms": retry_ms,
                "write_timeout": write_timeout,
                "refusal": refusal,
                "rng": rng,
            },
            rng=rng,
        )

    # -- HTTP ----------------------------------------------------------------------------

    @property
    def routes(self) -> builtins.list[Route]:
        """The routes, to be put among an application's own."""
        return self._http.routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request: the ASGI face, for mounting."""
        await self._http(scope, receive, send)

    # -- life ----------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        if self._stack is not None:
            raise RuntimeError("these Sessions were entered before; make new ones")
        async with AsyncExitStack() as stack:
            stack.callback(self._close)
            await stack.enter_async_context(self._runs)
            if self._owns_drain:
                await stack.enter_async_context(self.drain)
            if self._idle_seconds is not None:
                pause = min(self._idle_seconds / 4, _MAX_PAUSE)
                await stack.enter_async_context(Repeated(self.sweep, pause))
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._closed = True
        assert self._stack is not None  # noqa: S101 - entered
        await self._stack.aclose()

    def _close(self) -> None:
        for session in self._sessions.values():
            session.channel._publish_reserved(SESSION_CLOSED, {"reason": "shutdown"})  # noqa: SLF001
            session.channel.close()
        self._sessions.clear()

    # -- sessions ------------------------------------------------------------------------

    def create(self, session_id: str | None = None) -> Session:
        """Make a session, or return the one that has this id already.

        Args:
            session_id: its id; by default a new one.

        Raises:
            InvalidSessionId: the id is none.
            SessionLimitExceeded: there are ``max_sessions`` already.
            RuntimeError: these `Sessions` have been left.
        """
        if self._closed:
            raise RuntimeError("these Sessions have been left")
        if session_id is None:
            session_id = self._new_id()
        if not is_session_id(session_id):
            raise InvalidSessionId(session_id)
        session = self._sessions.get(session_id)
        if session is None:
            if len(self._sessions) >= self.max_sessions:
                raise SessionLimitExceeded(self.max_sessions)
            report = self._on_diagnostic
            channel = Channel(
                session_id,
                on_diagnostic=None if report is None else partial(report, session_id),
                **self._channel_options,
            )
            session = self._sessions[session_id] = Session(session_id, channel, self._clock())
        session.touch(self._clock())
        return session

    def get(self, session_id: str) -> Session:
        """Return a session.

        Raises:
            SessionNotFound: there is none of that id.
        """
        try:
            return self._sessions[session_id]
        except KeyError:
            raise SessionNotFound(session_id) from None

    def __contains__(self, session_id: object) -> bool:
        return session_id in self._sessions

    def list(self) -> builtins.list[Session]:
        """Return all sessions, oldest first."""
        return list(self._sessions.values())

    def delete(self, session_id: str, *, reason: str = "deleted") -> None:
        """End a session: its clients get ``session_closed``, its runs are cancelled.

        Args:
            session_id: its id.
            reason: goes into the event's data.

        Raises:
            SessionNotFound: there is none of that id.
        """
        session = self.get(session_id)
        del self._sessions[session_id]
        session.channel._publish_reserved(SESSION_CLOSED, {"reason": reason})  # noqa: SLF001
        session.channel.close()
        for run in session.runs:
            run.cancel()

    def touch(self, session: Session) -> None:
        """Note that a session is in use now."""
        session.touch(self._clock())

    async def load(self, session: Session) -> Loaded:
        """Return what a client of the session builds on after a resync.

        Raises:
            SnapshotConflict: the provider's snapshot is ahead of the session's channel.
            Exception: what the provider raised.
        """
        snapshot = session.snapshot
        if self._provider is not None:
            computed = self._provider(session.id)
            if inspect.isawaitable(computed):
                computed = await computed
            if computed is not None:
                snapshot = Snapshot(*computed)
        # No suspension point from here on: the ring must not move meanwhile.
        channel = session.channel
        return load(snapshot, first=channel.first_event_id, head=channel.last_event_id)

    # -- runs ----------------------------------------------------------------------------

    def start(self, session_id: str, source: AsyncIterator[Any]) -> Run:
        """Publish what an async generator yields, in a task of its own, and return at once.

        A yielded pair ``(type, data)``, or a dict of ``type`` and perhaps ``data`` and
        ``meta``, is that event; anything else is the data of a ``message``. If the
        generator raises, that is logged and the event ``run_failed`` published.

        Args:
            session_id: the session's id; it is created if there is none.
            source: the generator; it is closed at the end, whatever that is.

        Raises:
            InvalidSessionId: the id is none.
            SessionLimitExceeded: there are ``max_sessions`` already.
            RuntimeError: these `Sessions` have not been entered, or have been left.
            TypeError: ``source`` is no async generator or iterator.
        """
        self._runs.check_open()
        if not isinstance(source, AsyncIterator):
            raise TypeError(f"a run needs an async generator, not {type(source).__name__}")
        session = self.create(session_id)
        run = self._runs.start(session_id, session.channel, source)
        session.runs.add(run)

        def ended(_: object) -> None:
            session.runs.discard(run)
            self.touch(session)

        run.task.add_done_callback(ended)
        return run

    async def run(self, session_id: str, source: AsyncIterator[Any]) -> None:
        """Publish what an async generator yields, and return when it has ended.

        The generator runs in a task that belongs to these `Sessions`: if the caller is
        cancelled, as the handler of a request may be, it goes on all the same, and
        clients come and go while it does. See `start` for what is published.

        Raises:
            Exception: what the generator raised.
            RunCancelled: the session ended first.
            InvalidSessionId: as with `start`; so are the other errors.
        """
        await self.start(session_id, source).wait()

    # -- sweeping ------------------------------------------------------------------------

    def sweep(self) -> int:
        """End the sessions that have been idle for too long; return how many."""
        if self._idle_seconds is None:
            return 0
        now = self._clock()
        idle = [s.id for s in self._sessions.values() if s.idle_for(now) >= self._idle_seconds]
        for session_id in idle:
            _log.info("session %s ends: idle", session_id)
            self.delete(session_id, reason="idle")
        return len(idle)
