"""Typed payloads: `EventSchema`."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast, overload

import msgspec

from tidegate.client.control import CONTROL_PAYLOADS, is_event_type

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidegate.client.events import StreamEvent

__all__ = ["BadPayload", "EventSchema", "TypedEvent"]

_log = logging.getLogger("tidegate.client")

T = TypeVar("T")

_SHOWN: Final = 200


@dataclass(frozen=True, slots=True)
class TypedEvent:
    """An event with its payload as a typed object.

    Attributes:
        event: the event as it came.
        payload: an instance of the registered class; the data as it came where the type is unknown
            or the data does not fit.
        known: whether the type is registered.
        problem: why the data does not fit its class, or ``None``.
    """

    event: StreamEvent
    payload: Any
    known: bool
    problem: str | None = None

    @property
    def type(self) -> str:
        """The event's type."""
        return self.event.type


@dataclass(frozen=True, slots=True)
class BadPayload:
    """A payload that does not fit the class its type is registered with.

    Attributes:
        event: the event as it came.
        problem: what does not fit.
    """

    event: StreamEvent
    problem: str


class EventSchema:
    """Which class each event type's payload has.

    ::

        schema = EventSchema()

        @schema.register("token")
        class Token(msgspec.Struct):
            text: str

        match schema.decode(event).payload:
            case Token(text=text):
                print(text, end="")
            case StateResyncRequired(reason=reason):
                print(f"[{reason}]")

    Classes are msgspec structs, dataclasses, named tuples, typed dicts, or pydantic models, and
    are checked as strictly as each of them checks. Tidegate's control frames have
    theirs already (`StreamOpen`, `ReplayComplete`, `StateResyncRequired`, `ChannelSnapshot`,
    `StreamCursor`, `SlowClientWarning`, `ClientEvicted`, `StreamError`, `EventUnserializable`).

    `decode` never drops an event: one of an unknown type passes through, one that does not fit too,
    counted and reported. A schema may be shared by threads once all types are registered.

    Args:
        on_bad: called with each payload that does not fit, beside the log. What it raises comes out
            of `decode`.

    Attributes:
        bad: how many payloads did not fit.
        last_bad: the last of them.
    """

    def __init__(self, *, on_bad: Callable[[BadPayload], None] | None = None) -> None:
        self._on_bad = on_bad
        self._converters: dict[str, Callable[[Any], Any]] = {}
        self._classes: dict[str, type] = {}
        self.bad = 0
        self.last_bad: BadPayload | None = None
        for type_, payload_class in CONTROL_PAYLOADS.items():
            self._add(type_, payload_class)

    @overload
    def register(self, type_: str) -> Callable[[type[T]], type[T]]: ...

    @overload
    def register(self, type_: str, payload_class: type[T]) -> type[T]: ...

    def register(
        self, type_: str, payload_class: type[T] | None = None
    ) -> type[T] | Callable[[type[T]], type[T]]:
        """Say which class the payload of an event type has; also as a decorator of the class.

        Args:
            type_: 1 to 128 of ``A-Z a-z 0-9 . _ : -``; ``session_closed``, whose payload is the
                application's, may be registered too.
            payload_class: the class; without it, a decorator is returned.

        Raises:
            TypeError: it is no class that says what its fields are.
            ValueError: the type is none, or reserved, or registered with another class.
        """
        if not is_event_type(type_) and type_ != "session_closed":
            raise ValueError(
                "an event type is 1 to 128 of A-Z a-z 0-9 . _ : -, and not reserved: "
                f"{ascii(type_)[:_SHOWN]}"
            )

        def add(payload_class: type[T]) -> type[T]:
            if self._classes.get(type_, payload_class) is not payload_class:
                raise ValueError(f"{type_!r} is already registered, with {self._classes[type_]}")
            self._add(type_, payload_class)
            return payload_class

        return add if payload_class is None else add(payload_class)

    def decode(self, event: StreamEvent) -> TypedEvent:
        """Read an event's payload as the class that is registered for its type."""
        convert = self._converters.get(event.type)
        if convert is None:
            return TypedEvent(event, event.data, known=False)
        try:
            return TypedEvent(event, convert(event.data), known=True)
        except Exception as error:  # noqa: BLE001 - a validator of the class may raise anything
            problem = f"{type(error).__name__}: {error}"
        self.bad += 1
        self.last_bad = BadPayload(event, problem)
        _log.warning(
            "the payload of event %s does not fit its type %s: %s",
            event.id,
            ascii(event.type),
            ascii(problem[:_SHOWN]),
        )
        if self._on_bad is not None:
            self._on_bad(self.last_bad)
        return TypedEvent(event, event.data, known=True, problem=problem)

    def _add(self, type_: str, payload_class: type) -> None:
        self._converters[type_] = _converter(payload_class)
        self._classes[type_] = payload_class


def _converter(payload_class: type) -> Callable[[Any], Any]:
    validate = getattr(payload_class, "model_validate", None)
    if callable(validate):
        return cast("Callable[[Any], Any]", validate)
    if isinstance(msgspec.inspect.type_info(payload_class), msgspec.inspect.CustomType):
        raise TypeError(
            f"{payload_class!r} does not say what its fields are; take a msgspec.Struct, "
            "a dataclass or a pydantic model"
        )
    return lambda data: msgspec.convert(data, payload_class)
