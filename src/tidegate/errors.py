"""Every public exception of Tidegate, in one tree.

::

    TidegateError
    ├── SseError
    │   ├── SseEncodeError (ValueError)     what was given would corrupt the stream
    │   ├── SseLimitExceeded                a line or an event is longer than the decoder's bound
    │   └── SseDecoderClosed (RuntimeError) bytes were fed to a decoder after its close()
    ├── SubscriberLimitExceeded             a channel has as many subscribers as it may have
    ├── ConcurrentConsumers (RuntimeError)  two tasks wait for the same subscription
    ├── SessionError
    │   ├── InvalidSessionId (ValueError)   not 1 to 128 of A-Z a-z 0-9 . _ ~ -, or . or ..
    │   ├── SessionNotFound (LookupError)   no session of that name lives here
    │   ├── SessionLimitExceeded            as many sessions as there may be
    │   ├── RunCancelled                    a run ended before its generator did
    │   └── SnapshotConflict (ValueError)   a snapshot's place does not fit the channel
    ├── GatewayError
    │   ├── InvalidChannelName (ValueError) not 1 to 200 of A-Z a-z 0-9 . _ ~ : @ -, or . or ..
    │   ├── UnknownNamespace (LookupError)  namespaces are configured, and this is none of them
    │   ├── InvalidEvent (ValueError)       an event that no channel takes
    │   ├── SnapshotAhead (ValueError)      a snapshot's position is none that fits the channel
    │   ├── BrokerUnavailable               the broker cannot be reached, or not in time
    │   └── StreamDenied                    no channel of a stream may be subscribed to
    ├── ConfigError (ValueError)            the configuration cannot be read or makes no sense
    ├── ClientError
    │   ├── StreamRefused                   the server's answer says: do not come back
    │   ├── NotAnEventStream                the answer is 200, but it is no event stream
    │   ├── StreamUnavailable               as many attempts in a row failed as were allowed
    │   ├── ChainBroken                     an event of a channel does not follow the one before it
    │   └── LoadFailed                      the state for a resync could not be loaded
    ├── PublishRefused                      the server did not take a publish
    │   └── ItemRefused                     or one item of it
    ├── ServeError                          the server cannot start as asked
    └── MissingExtra (ImportError)          a part of Tidegate needs a package that is not installed

Each class carries its facts as attributes and formats them in ``str()``.
Errors of misuse also derive from the built-in class that Python programmers expect.
"""

from __future__ import annotations

from typing import Any

__all__ = [
    "BrokerUnavailable",
    "ChainBroken",
    "ClientError",
    "ConcurrentConsumers",
    "ConfigError",
    "GatewayError",
    "InvalidChannelName",
    "InvalidEvent",
    "InvalidSessionId",
    "ItemRefused",
    "LoadFailed",
    "MissingExtra",
    "NotAnEventStream",
    "PublishRefused",
    "RunCancelled",
    "ServeError",
    "SessionError",
    "SessionLimitExceeded",
    "SessionNotFound",
    "SnapshotAhead",
    "SnapshotConflict",
    "SseDecoderClosed",
    "SseEncodeError",
    "SseError",
    "SseLimitExceeded",
    "StreamDenied",
    "StreamRefused",
    "StreamUnavailable",
    "SubscriberLimitExceeded",
    "TidegateError",
    "UnknownNamespace",
]


class TidegateError(Exception):
    """The root: ``except TidegateError`` catches whatever Tidegate raises on purpose."""


class SseError(TidegateError):
    """Something about the bytes of an event stream."""


class SseEncodeError(SseError, ValueError):
    """What was given cannot be written as SSE without corrupting the stream.

    Attributes:
        field: ``"id"``, ``"event"``, ``"data"``, ``"retry"`` or ``"comment"``.
    """

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(field, problem)
        self.field = field
        self.problem = problem

    def __str__(self) -> str:
        return f"SSE field {self.field!r}: {self.problem}"


class SseLimitExceeded(SseError):
    """A line or an event is longer than the decoder allows; the decoder is of no further use.

    Attributes:
        what: ``"line"`` or ``"event"``.
        limit: the bound, in bytes.
    """

    def __init__(self, what: str, limit: int) -> None:
        super().__init__(what, limit)
        self.what = what
        self.limit = limit

    def __str__(self) -> str:
        return (
            f"an SSE {self.what} is longer than {self.limit} bytes; "
            f"raise max_{self.what}_bytes if the sender is to be trusted"
        )


class SseDecoderClosed(SseError, RuntimeError):
    """Bytes were fed to a decoder after its ``close()``: each stream takes a decoder of its own."""

    def __str__(self) -> str:
        return "feed() after close(); make a new Decoder for each stream"


class SubscriberLimitExceeded(TidegateError):
    """A channel has as many subscribers as it may have.

    Attributes:
        limit: the channel's ``max_subscribers``.
    """

    def __init__(self, limit: int) -> None:
        super().__init__(limit)
        self.limit = limit

    def __str__(self) -> str:
        return f"the channel already has {self.limit} subscribers, its max_subscribers"


class ConcurrentConsumers(TidegateError, RuntimeError):
    """Two tasks wait for the next frame of the same subscription."""

    def __str__(self) -> str:
        return "another task already waits for this subscription; subscribe once for each consumer"


class SessionError(TidegateError):
    """Something about a session."""


class InvalidSessionId(SessionError, ValueError):
    """A session's name is not one.

    Attributes:
        session_id: the name as given.
    """

    def __init__(self, session_id: object) -> None:
        super().__init__(session_id)
        self.session_id = session_id

    def __str__(self) -> str:
        shown = ascii(self.session_id)
        if len(shown) > 80:
            shown = shown[:77] + "..."
        return f"a session id is 1 to 128 of A-Z a-z 0-9 . _ ~ -, not . or .., and not {shown}"


class SessionNotFound(SessionError, LookupError):
    """No session of that name lives in this process.

    Attributes:
        session_id: the name as given.
    """

    def __init__(self, session_id: str) -> None:
        super().__init__(session_id)
        self.session_id = session_id

    def __str__(self) -> str:
        return f"there is no session {self.session_id!a}; it has ended or was never created"


class SessionLimitExceeded(SessionError):
    """There are as many sessions as there may be.

    Attributes:
        limit: ``Sessions(max_sessions=…)``.
    """

    def __init__(self, limit: int) -> None:
        super().__init__(limit)
        self.limit = limit

    def __str__(self) -> str:
        return f"there are already {self.limit} sessions, its max_sessions"


class RunCancelled(SessionError):
    """A run was stopped before its generator had ended.

    Attributes:
        session_id: the session that it was publishing into.
    """

    def __init__(self, session_id: str) -> None:
        super().__init__(session_id)
        self.session_id = session_id

    def __str__(self) -> str:
        return f"the run was cancelled, or its session {self.session_id} ended first"


class SnapshotConflict(SessionError, ValueError):
    """A snapshot's place is ahead of the channel's head or behind the stored snapshot.

    Attributes:
        last_event_id: the place that was given.
        low: the lowest acceptable place, that of the stored snapshot.
        head: the highest acceptable one, the channel's last event id.
    """

    def __init__(self, last_event_id: int, low: int, head: int) -> None:
        super().__init__(last_event_id, low, head)
        self.last_event_id = last_event_id
        self.low = low
        self.head = head

    def __str__(self) -> str:
        return (
            f"a snapshot at event {self.last_event_id} does not fit: "
            f"the stored one is at {self.low}, the channel's head at {self.head}"
        )


class GatewayError(TidegateError):
    """Something about the channels of a gateway."""


class InvalidChannelName(GatewayError, ValueError):
    """A channel's name is not one.

    Attributes:
        name: as given.
    """

    def __init__(self, name: object) -> None:
        super().__init__(name)
        self.name = name

    def __str__(self) -> str:
        shown = ascii(self.name)
        if len(shown) > 80:
            shown = shown[:77] + "..."
        return (
            f"a channel name is 1 to 200 of A-Z a-z 0-9 . _ ~ : @ -, not . or .., and not {shown}"
        )


class UnknownNamespace(GatewayError, LookupError):
    """Namespaces are configured, and the channel's is none of them.

    Attributes:
        namespace: the part of the channel's name before the first ``:``.
    """

    def __init__(self, namespace: str) -> None:
        super().__init__(namespace)
        self.namespace = namespace

    def __str__(self) -> str:
        return (
            f"there is no namespace {self.namespace}; configure it, or use a channel "
            "of one that is configured"
        )


class InvalidEvent(GatewayError, ValueError):
    """An event that no channel takes: its type, its data or its size.

    Attributes:
        code: ``invalid_event_type``, ``reserved_event_type``, ``invalid_data``,
            ``event_too_large`` or another one in ``snake_case``.
        problem: a sentence.
    """

    def __init__(self, code: str, problem: str) -> None:
        super().__init__(code, problem)
        self.code = code
        self.problem = problem

    def __str__(self) -> str:
        return self.problem


class SnapshotAhead(GatewayError, ValueError):
    """A snapshot's position is none that the channel has reached, or is behind the stored one's.

    Attributes:
        position: as given.
        head: the channel's head.
    """

    def __init__(self, position: str, head: str) -> None:
        super().__init__(position, head)
        self.position = position
        self.head = head

    def __str__(self) -> str:
        return (
            f"a snapshot at position {self.position!a} does not fit: the channel's head is at "
            f"{self.head!a}, and a stored snapshot only moves forward"
        )


class BrokerUnavailable(GatewayError):
    """The broker cannot be reached, or did not answer in time.

    Attributes:
        problem: a sentence; the error behind it, if any, is ``__cause__``.
    """

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem

    def __str__(self) -> str:
        return self.problem


class StreamDenied(GatewayError):
    """No channel of a stream may be subscribed to.

    Attributes:
        denied: the code of each channel, by name.
    """

    def __init__(self, denied: dict[str, str]) -> None:
        super().__init__(denied)
        self.denied = denied

    def __str__(self) -> str:
        reasons = ", ".join(sorted(set(self.denied.values())))
        return f"none of the channels may be subscribed to: {reasons}"


class ConfigError(TidegateError, ValueError):
    """The configuration cannot be read or makes no sense; the message says what to change."""


class ClientError(TidegateError):
    """Something went wrong on the client's side of a stream."""


class StreamRefused(ClientError):
    """The server's answer to a stream request is final: coming back would not help.

    Attributes:
        status: the HTTP status.
        code: the ``code`` of the answer's body, or ``None``.
        message: the ``error`` sentence of the body, or the reason phrase.
    """

    def __init__(self, status: int, code: str | None, message: str) -> None:
        super().__init__(status, code, message)
        self.status = status
        self.code = code
        self.message = message

    def __str__(self) -> str:
        code = f" ({self.code})" if self.code else ""
        return f"the server refused the stream with {self.status}{code}: {self.message}"


class NotAnEventStream(ClientError):
    """The answer is 200, but its content type is not ``text/event-stream``.

    Attributes:
        content_type: what the answer declared.
    """

    def __init__(self, content_type: str) -> None:
        super().__init__(content_type)
        self.content_type = content_type

    def __str__(self) -> str:
        return (
            f"the answer's content type is {self.content_type!r}, not text/event-stream; "
            "is the URL right, and does a proxy answer in the server's place?"
        )


class StreamUnavailable(ClientError):
    """The stream could not be opened in as many attempts in a row as were allowed.

    Attributes:
        attempts: how many there were.
        problem: what the last one met; the error behind it, if any, is ``__cause__``.
    """

    def __init__(self, attempts: int, problem: str) -> None:
        super().__init__(attempts, problem)
        self.attempts = attempts
        self.problem = problem

    def __str__(self) -> str:
        return f"the stream could not be opened in {self.attempts} attempts: {self.problem}"


class ChainBroken(ClientError):
    """An event of a channel does not follow the one that the client had before it.

    Something between the two was lost without a word. The stream's cursor stands before the gap:
    asking for the next event goes back there over a new connection, ``reopen`` goes elsewhere.

    Attributes:
        channel: the channel's name.
        expected: the position that the event should have named as its predecessor.
        got: the one that it names.
        event: the event, a `tidegate.client.StreamEvent`. It was not handed out.
    """

    def __init__(self, channel: str, expected: str, got: str | None, event: Any) -> None:
        super().__init__(channel, expected, got, event)
        self.channel = channel
        self.expected = expected
        self.got = got
        self.event = event

    def __str__(self) -> str:
        return (
            f"events of channel {self.channel!a} are missing: the next one follows {self.got!a}, "
            f"and what came last is {self.expected!a}"
        )


class LoadFailed(ClientError):
    """The state for a resync could not be loaded."""


class PublishRefused(TidegateError):
    """The server did not take a publish; nothing of it was published.

    Attributes:
        status: the HTTP status.
        code: the ``code`` of the answer's body, or ``None``.
        message: the ``error`` sentence of the body, or the reason phrase.
    """

    def __init__(self, status: int, code: str | None, message: str) -> None:
        super().__init__(status, code, message)
        self.status = status
        self.code = code
        self.message = message

    def __str__(self) -> str:
        code = f" ({self.code})" if self.code else ""
        return f"the server refused the publish with {self.status}{code}: {self.message}"


class ItemRefused(PublishRefused):
    """One item of a publish was not taken; others of the same call may have been.

    Attributes:
        channel: the channel that it was for.
        status: the HTTP status of the whole answer; 0 for a publish straight to a broker.
    """

    def __init__(self, status: int, code: str | None, message: str, channel: str) -> None:
        super().__init__(status, code, message)
        self.args = (status, code, message, channel)
        self.channel = channel

    def __str__(self) -> str:
        code = f" ({self.code})" if self.code else ""
        return f"nothing was published to channel {self.channel}{code}: {self.message}"


class ServeError(TidegateError):
    """The server cannot start as asked; the message says what to change."""


class MissingExtra(TidegateError, ImportError):
    """A part of Tidegate needs a package that is not installed.

    Attributes:
        package: the package that could not be imported.
        extra: the extra that brings it.
    """

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(package, extra)
        self.package = package
        self.extra = extra

    def __str__(self) -> str:
        return f"{self.package} is not installed; run: pip install 'tidegate[{self.extra}]'"
