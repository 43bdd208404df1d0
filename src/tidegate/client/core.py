"""One logical stream over any number of connections, without the I/O. Pure.

`StreamCore` says what is to be done next (`Step`) and is told what came of it. The two layers
above it, for asyncio and for threads, only carry the steps out, so that no rule stands twice.
"""

from __future__ import annotations

import enum
import logging
import math
import random as random_module
import time
from collections import deque
from typing import TYPE_CHECKING, Final

from tidegate.client.capabilities import negotiated_max_queued
from tidegate.client.chain import Chains
from tidegate.client.cursor import Cursor, epoch_of
from tidegate.client.events import MalformedFrame, StreamEvent, parse_frame, plain_frame
from tidegate.client.reconnect import (
    DEFAULT_RETRY,
    Reconnect,
    Verdict,
    judge,
    retry_after,
    retry_seconds,
)
from tidegate.client.refusal import refusal, refused_by, shown
from tidegate.client.selection import Selection
from tidegate.client.state import EndReason, StreamState, StreamStatistics, report
from tidegate.client.target import Request, Target, bearer, shown_url
from tidegate.errors import (
    ChainBroken,
    NotAnEventStream,
    SseLimitExceeded,
    StreamRefused,
    StreamUnavailable,
)
from tidegate.sse import Decoder, ServerSentEvent

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tidegate.client.state import StateCallback

__all__ = ["Step", "StreamCore"]

_log = logging.getLogger("tidegate.client")

_SHOWN: Final = 80


class Step(enum.Enum):
    """What a stream needs next."""

    TOKEN = "token"  # noqa: S105 - a step's name
    PREFLIGHT = "preflight"
    OPEN = "open"
    READ = "read"
    WAIT = "wait"
    DONE = "done"


class StreamCore:
    """The rules of one logical stream.

    Args:
        url: where it is; see `Target.read`.
        last_event_id: where to begin; ``None`` for live only.
        epoch: the life that a plain ``last_event_id`` belongs to.
        token: the bearer token to begin with.
        refreshable: a new token can be had by asking.
        max_queued: the backlog to ask the server for.
        selection: the channels and where they begin; ``None`` for a stream that names none.
        headers: the caller's own.
        plain: frames carry no envelope; nothing of Tidegate's is added to the query.
        retry: seconds to wait until the server has named its own time.
        max_attempts: failed attempts in a row before it gives up; ``None`` for no end.
        on_state: told of each phase.
        random: gives a number from 0 up to 1.
        now: the time in seconds since 1970.

    Raises:
        TypeError: an argument is of the wrong type.
        ValueError: one is out of range, or ``max_queued`` is asked of a URL that is no session's.

    Attributes:
        step: what is to be done next.
        delay: in `Step.WAIT`: for how many seconds.
        end_reason: in `Step.DONE`: why.
    """

    def __init__(
        self,
        url: str,
        *,
        last_event_id: int | str | None = None,
        epoch: str | None = None,
        token: str | None = None,
        refreshable: bool = False,
        max_queued: int | None = None,
        selection: Selection | None = None,
        headers: Mapping[str, str] | None = None,
        plain: bool = False,
        retry: float = DEFAULT_RETRY,
        max_attempts: int | None = None,
        on_state: StateCallback | None = None,
        random: Callable[[], float] = random_module.random,
        now: Callable[[], float] = time.time,
    ) -> None:
        for name, value in (("max_queued", max_queued), ("max_attempts", max_attempts)):
            if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
                raise TypeError(f"{name} is an int, not {type(value).__name__}")
            if value is not None and value < 1:
                raise ValueError(f"{name} is at least 1, not {value}")
        if not 0 <= retry < math.inf:
            raise ValueError(f"retry is 0 s or more, not {retry}")
        bearer(token)
        self._target = target = _target(url, selection, plain)
        # An id of a stream of channels is the server's word; of another one it may be read.
        self._opaque = target.channels is not None and not plain
        self._read_cursor = Cursor.opaque if self._opaque else Cursor.read
        self._chains = None if plain else Chains()
        if max_queued is not None:
            target.preflight(token=None, headers={})
        self._token = token
        self._refreshable = refreshable
        self._refreshed = False
        self._max_queued = max_queued
        self._asks_first = max_queued is not None
        self._headers = dict(headers or {})
        self._plain = plain
        self._max_attempts = max_attempts
        self._on_state = on_state
        self._random = random
        self._now = now
        cursor = self.given(last_event_id, epoch)
        if cursor is not None and cursor.number is None and not plain and target.load is not None:
            raise ValueError(
                "a place in a session is a number or <epoch>-<number>, "
                f"not {cursor.text[:_SHOWN]!r}"
            )
        self._reconnect = Reconnect(cursor, retry)
        self._decoder = Decoder()
        # Of the response that is being read:
        self._epoch: str | None = None
        self._start: Cursor | None = None
        self._finite = False
        self._admitted = False  # it is a stream, and no refusal in the form of one
        self._pending: deque[ServerSentEvent] = deque()
        self._handed: Cursor | None = None  # of the frame that the consumer is at
        self._resync_handed = False
        self._session_closed = False
        self._failures = 0
        self._connects = self._retries = self._events = self._malformed = self._bytes = 0
        self._status = 0
        self._problem = ""
        self.delay = 0.0
        self.end_reason: EndReason | None = None
        self.step = Step.DONE
        self._begin()

    @property
    def cursor(self) -> Cursor | None:
        """The place to come back to: after the last event that the consumer is done with."""
        return self._reconnect.cursor

    @property
    def channels(self) -> tuple[str, ...]:
        """The channels of the stream, as far as they are named; none for a session's."""
        return self._target.channels or ()

    def given(self, last_event_id: int | str | None, epoch: str | None = None) -> Cursor | None:
        """Check a place that a caller gives, of the kind that this stream has.

        Raises:
            TypeError: it is of the wrong type.
            ValueError: it is out of range.
        """
        check = Cursor.given_opaque if self._opaque else Cursor.given
        return check(last_event_id, epoch)

    @property
    def opening(self) -> bool:
        """Whether there is something to wait for before the stream can be called open.

        A response without an end may say nothing for long, and is not waited for.
        """
        if self._connects or self.step is Step.DONE:
            return False
        return self.step is not Step.READ or self._finite

    def statistics(self) -> StreamStatistics:
        """Return the counts so far."""
        return StreamStatistics(
            connects=self._connects,
            retries=self._retries,
            events=self._events,
            malformed=self._malformed,
            bytes_received=self._bytes,
            last_status=self._status,
            last_problem=self._problem,
        )

    # What the consumer does.

    def take(self) -> StreamEvent | None:
        """Hand out the next frame that has come; the one before it is thereby done with.

        Returns:
            The event, or ``None`` if `step` has to be taken first.

        Raises:
            ChainBroken: the event does not follow the one before it. It is not handed out, and
                what is read is of no more use: the next step goes back to the place before it.
        """
        self._acknowledge()
        while self._pending:
            frame = self._pending.popleft()
            cursor = self._read_cursor(frame.id, self._epoch)
            event = self._read(frame, cursor)
            new = event is None or self._chains is None or self._linked(self._chains, event)
            self._handed = cursor
            if event is not None and new:
                self._events += 1
                if not self._plain:
                    self._resync_handed = event.type == "state_resync_required"
                    self._session_closed |= event.type == "session_closed"
                return event
            self._acknowledge()
        return None

    def reopen(self, cursor: Cursor | None) -> None:
        """Drop what has come, and go on at another place at once."""
        self._pending.clear()
        self._handed = None
        self._resync_handed = self._session_closed = self._refreshed = False
        self._failures = 0
        if self._chains is not None:
            self._chains.forget()
        if cursor is None:
            self._target = self._target.live_only()
        self._reconnect.restarted(cursor)
        self.end_reason = None
        self._begin()

    def close(self) -> None:
        """The consumer has left; nothing more is handed out."""
        self._pending.clear()
        if self.step is not Step.DONE:
            self._finish("closed")

    # What the I/O layer does.

    def request(self) -> Request:
        """Return the request of `Step.PREFLIGHT` or `Step.OPEN`, which is to be made now."""
        report(self._on_state, StreamState("connecting", self._reconnect.attempt))
        if self.step is Step.PREFLIGHT:
            return self._target.preflight(token=self._token, headers=self._headers)
        parameters = {} if self._plain or self._opaque else {"ids": "epoch"}
        if self._max_queued is not None:
            parameters["maxQueued"] = str(self._max_queued)
        return self._target.stream(
            cursor=self._reconnect.cursor,
            token=self._token,
            headers=self._headers,
            parameters=parameters,
        )

    def got_token(self, token: str) -> None:
        """`Step.TOKEN` is done.

        Raises:
            TypeError: the token is no ``str``.
            ValueError: no header can carry it.
        """
        bearer(token)
        self._token = token
        self._begin()

    def got_capabilities(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        """`Step.PREFLIGHT` is done: an answer has come, redirects followed.

        Raises:
            StreamRefused: the server does not know who asks.
            StreamUnavailable: this was the last attempt.
            ValueError: the server allows another range for ``max_queued``.
        """
        self._status = status
        verdict = judge(status, "", can_refresh=self._can_refresh)
        if verdict in {Verdict.REFRESH, Verdict.RETRY}:
            self._again(verdict, headers)
        elif status == 401:
            raise self.refused("", body)
        else:
            try:
                self._max_queued = negotiated_max_queued(self._max_queued or 0, status, body)
            except ValueError:
                self.give_up()
                raise
            self._asks_first = False
            self._begin()

    def answered(self, status: int, headers: Mapping[str, str]) -> Verdict:
        """`Step.OPEN` is done: the head of an answer has come, redirects followed.

        Args:
            status: of the answer.
            headers: of the answer; looked up by lower-case names.

        Returns:
            `Verdict.OPEN`: read its body, in steps of `Step.READ`. `Verdict.REFUSED`: read a
            bounded part of the body, and raise what `refused` returns. Else the answer is of no
            more use.

        Raises:
            NotAnEventStream: the answer is 200 of another content type.
            StreamUnavailable: this was the last attempt.
        """
        self._status = status
        content_type = headers.get("content-type", "")
        verdict = judge(status, content_type, can_refresh=self._can_refresh)
        if verdict is Verdict.OPEN:
            self._opened(headers)
        elif verdict in {Verdict.REFRESH, Verdict.RETRY}:
            self._again(verdict, headers)
        elif verdict is Verdict.FINISHED:
            self._finish("no_content")
        elif verdict is Verdict.NOT_AN_EVENT_STREAM:
            self.give_up()
            raise NotAnEventStream(shown(content_type))
        return verdict

    def refused(self, reason: str, body: bytes) -> StreamRefused:
        """Finish for good, and return the error that says why."""
        self.give_up()
        return StreamRefused(self._status, *refusal(reason, body))

    def give_up(self) -> None:
        """Finish for good: coming back would meet the same again."""
        self._finish("refused")

    def feed(self, chunk: bytes) -> None:
        """`Step.READ` is done: bytes have come.

        Raises:
            SseLimitExceeded: a frame is longer than the decoder allows. The stream has finished.
            StreamUnavailable: the stream is a refusal, and this was the last attempt.
        """
        self._bytes += len(chunk)
        frames = self._decode(chunk)
        if frames and not self._admitted:
            problem = refused_by(frames[0])
            if problem is not None:
                asked = self._decoder.retry
                self._unavailable(problem, None if asked is None else retry_seconds(asked))
                return
            self._admit()
        self._pending += frames
        self._take_retry()

    def ended(self) -> None:
        """`Step.READ` is done: the response ended as it should.

        Raises:
            SseLimitExceeded: as in `feed`, of a frame behind others in the last chunk.
        """
        self._lost("the stream ended")

    def failed(self, problem: str) -> None:
        """A step did not come to its end: no connection, a cut, nothing within the time.

        Raises:
            SseLimitExceeded: as in `ended`.
            StreamUnavailable: this was the last attempt to open the stream.
        """
        if self.step is Step.READ:
            self._lost(problem)
        else:
            self._unavailable(problem, None)

    def waited(self) -> None:
        """`Step.WAIT` is done."""
        self._begin()

    # The rules.

    @property
    def _can_refresh(self) -> bool:
        return self._refreshable and not self._refreshed

    def _begin(self) -> None:
        if self._token is None and self._refreshable:
            self.step = Step.TOKEN
        else:
            self.step = Step.PREFLIGHT if self._asks_first else Step.OPEN

    def _opened(self, headers: Mapping[str, str]) -> None:
        self._epoch = epoch_of(headers.get("tidegate-epoch"))
        self._start = self._read_cursor(headers.get("last-event-id", ""), self._epoch)
        self._finite = "content-length" in headers
        self._decoder = Decoder()
        self._admitted = False
        self.step = Step.READ
        # A stream that has a name or a place is one. Without them it may yet be a refusal, which
        # has the form of a stream for browsers' sake: then the first frame tells.
        if self._plain or self._start is not None or "tidegate-stream-id" in headers:
            self._admit()

    def _admit(self) -> None:
        self._admitted = True
        self._connects += 1
        self._failures = 0
        self._refreshed = False
        self._reconnect.opened()
        if self._reconnect.cursor is None and self._start is not None:
            # Where a new stream begins, if the server says so: what comes between here and a cut
            # before the first event is then not lost.
            self._reconnect.moved(self._start)
        self._take_retry()
        _log.debug("open: %s", shown_url(self._target.events))
        report(self._on_state, StreamState("open"))

    def _take_retry(self) -> None:
        if self._admitted and self._decoder.retry is not None:
            self._reconnect.asked(self._decoder.retry)

    def _decode(self, chunk: bytes) -> list[ServerSentEvent]:
        try:
            return self._decoder.feed(chunk)
        except SseLimitExceeded:
            self._finish("limit")
            raise

    def _again(self, verdict: Verdict, headers: Mapping[str, str]) -> None:
        if verdict is Verdict.REFRESH:
            self._refreshed = True
            self._token = None
            self._begin()
            return
        after = retry_after(headers.get("retry-after"), self._now())
        self._unavailable(f"status {self._status}", after)

    def _unavailable(self, problem: str, after: float | None) -> None:
        self._failures += 1
        if self._max_attempts is not None and self._failures >= self._max_attempts:
            self._problem = problem
            self._finish("unavailable")
            raise StreamUnavailable(self._failures, problem)
        self._wait(problem, after)

    def _lost(self, problem: str) -> None:
        if not self._admitted:
            self._admit()  # it said nothing at all, so it did not refuse
        # Everything that came has been handed out: only then is the next chunk read. What is left
        # is an id that stood alone, or a frame over the bound that a return would meet again.
        cursor = self._read_cursor(self._decoder.last_event_id, self._epoch)
        if cursor is not None:
            self._reconnect.moved(cursor)
        if self._session_closed:
            self._finish("session_closed")
        else:
            self._decode(b"")
            self._wait(problem, None)

    def _wait(self, problem: str, after: float | None) -> None:
        self._decoder = Decoder()
        self._problem = problem
        self._retries += 1
        self.delay = self._reconnect.delay(self._random, after)
        self.step = Step.WAIT
        # The first failure of an outage is for everyone to see; an end is how streams are.
        level = logging.WARNING if self._failures == 1 else logging.INFO
        url, attempt = shown_url(self._target.events), self._reconnect.attempt
        what = (url, problem, self.delay)
        # A program that shows the phases itself can tell this record by its mark.
        _log.log(level, "%s: %s; again in %.1f s", *what, extra={"stream_phase": "waiting"})
        report(self._on_state, StreamState("waiting", attempt, self.delay, problem))

    def _finish(self, reason: EndReason) -> None:
        self.step = Step.DONE
        self.end_reason = reason
        report(self._on_state, StreamState("finished", cause=reason))

    def _linked(self, chains: Chains, event: StreamEvent) -> bool:
        """Tell whether an event is new."""
        try:
            return chains.take(event)
        except ChainBroken as broken:
            self._pending.clear()
            self._wait(f"events of {broken.channel} are missing", None)
            raise

    def _acknowledge(self) -> None:
        if self._handed is not None:
            self._reconnect.moved(self._handed)
            self._handed = None
        if self._resync_handed:
            self._resync_handed = False
            self._reconnect.resynced()

    def _read(self, frame: ServerSentEvent, cursor: Cursor | None) -> StreamEvent | None:
        if self._plain:
            return plain_frame(frame, cursor)
        try:
            return parse_frame(frame, cursor)
        except MalformedFrame as error:
            self._malformed += 1
            if self._malformed == 1:
                _log.warning(
                    "%s: a frame is passed over, %s: %s (further ones are only counted; "
                    "plain=True takes a stream that is not Tidegate's)",
                    shown_url(self._target.events),
                    error,
                    ascii(frame.data[:_SHOWN]),
                )
            return None


def _target(url: str, selection: Selection | None, plain: bool) -> Target:
    target = Target.read(url)
    if selection is None and (plain or target.channels is None):
        return target
    return Target.of_channels(url, selection or Selection())
