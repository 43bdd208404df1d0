"""One event, or one control frame, and its wire envelope. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol

import msgspec

from tidegate.channel.names import EVENT_UNSERIALIZABLE, escape_type

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["ChannelEvent", "EventOwner", "encode_json", "stamped_meta"]


def _plain(value: object) -> object:
    """Turn an object that msgspec does not know into one that it does."""
    # numpy's float64 is a float, many a library's string a str: by value.
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int.__int__(value)
    if isinstance(value, float):
        return float.__float__(value)
    # pydantic models by their own method: importing pydantic to ask would make
    # it a dependency.
    dump = getattr(value, "model_dump", None)
    if callable(dump) and not isinstance(value, type):
        return dump(mode="json")
    raise TypeError(f"objects of type {type(value).__name__} cannot be encoded as JSON")


_MAX_TIME: Final = 1e300

_encode = msgspec.json.Encoder(enc_hook=_plain).encode


def encode_json(value: object) -> bytes:
    """Write a publisher's value as compact JSON, NaN and the infinities as ``null``.

    Dataclasses, msgspec structs and pydantic models are written by what they hold.

    Raises:
        ValueError: it is not expressible in JSON.
    """
    try:
        return _encode(value)
    except (KeyboardInterrupt, SystemExit):
        raise
    except RecursionError:
        raise ValueError("it is nested too deeply, or holds itself") from None
    except BaseException as error:  # unknown objects, lone surrogates, a panic in Rust
        raise ValueError(str(error) or type(error).__name__) from error


class EventOwner(Protocol):
    """Who is told that an event turned out to be unserializable."""

    def _report(self, event: ChannelEvent) -> None: ...


class ChannelEvent:
    """An event of a channel or, without an ``id``, a control frame for one subscriber.

    Subscribers share it: treat it, and what ``data`` holds, as read-only.

    Attributes:
        id: the place in the channel, from 1 without gaps; ``None`` for a control frame.
        v: the version of the envelope, 1.
        type: what happened.
        data: what the publisher gave; anything that JSON can express, dataclasses,
            msgspec structs and pydantic models included.
        meta: the publisher's own, and ``serverTimestamp`` in ms since 1970.
        originator_client_id: who caused it, if the publisher said so.
    """

    __slots__ = (
        "_json",
        "_owner",
        "_reported",
        "_wire_type",
        "data",
        "id",
        "meta",
        "originator_client_id",
        "type",
    )

    v: ClassVar[int] = 1

    def __init__(
        self,
        id: int | None,  # noqa: A002 - the name of the field on the wire
        type: str,  # noqa: A002
        data: Any,
        meta: dict[str, Any],
        originator_client_id: str | None = None,
        *,
        sound: bool = True,
        owner: Callable[[], EventOwner | None] | None = None,
    ) -> None:
        self.id = id
        self.type = type
        self.data = data
        self.meta = meta
        self.originator_client_id = originator_client_id
        self._json: bytes | None = None
        self._wire_type: str = type if sound else EVENT_UNSERIALIZABLE
        self._reported = sound
        self._owner = owner

    def to_json(self) -> bytes:
        """Return the wire envelope: compact JSON in UTF-8, encoded at most once.

        NaN and the infinities become ``null``. Never raises: what cannot be encoded, or
        has a type that may not travel, is replaced by an envelope of the same id and of
        type ``event_unserializable``, so that the sequence has no silent hole; that is
        reported once through the channel's diagnostics.
        """
        if self._json is None:
            self._json = self._encode()
            if not self._reported and self._owner is not None:
                owner = self._owner()
                if owner is not None:
                    owner._report(self)  # noqa: SLF001 - between the event and its channel
        return self._json

    @property
    def wire_type(self) -> str:
        """The type on the wire: ``type``, or ``event_unserializable`` where that is put."""
        self.to_json()
        return self._wire_type

    @property
    def serializable(self) -> bool:
        """Whether the event itself, not a replacement, goes on a wire."""
        return self.wire_type != EVENT_UNSERIALIZABLE

    @property
    def size(self) -> int:
        """What the event counts in byte caps: its envelope's bytes; 0 if unserializable."""
        return len(self.to_json()) if self.serializable else 0

    @property
    def known_size(self) -> int:
        """The envelope's bytes if it has been encoded already, else 0."""
        return 0 if self._json is None else len(self._json)

    def claim_report(self) -> bool:
        """Tell, once, that the event is known to be unserializable. For its channel."""
        if self._reported:
            return False
        self._reported = True
        return True

    def _encode(self) -> bytes:
        if self._wire_type != EVENT_UNSERIALIZABLE:
            try:
                envelope = self._envelope(self.type, self.data, self.meta)
                if self.originator_client_id is not None:
                    envelope["originatorClientId"] = self.originator_client_id
                return _encode(envelope)
            except (KeyboardInterrupt, SystemExit):
                raise
            except BaseException:  # noqa: BLE001 - cycles, depth, unknown objects, a panic in Rust
                self._wire_type = EVENT_UNSERIALIZABLE
                self._reported = False
        # Nothing of the publisher's but the time goes into the replacement: any
        # part of the original may be what could not be encoded.
        return _encode(
            self._envelope(
                EVENT_UNSERIALIZABLE,
                {"type": escape_type(self.type)},
                {"serverTimestamp": self.meta["serverTimestamp"]},
            )
        )

    def _envelope(self, type_: str, data: object, meta: dict[str, Any]) -> dict[str, object]:
        envelope: dict[str, object] = {} if self.id is None else {"id": self.id}
        envelope |= {"v": 1, "type": type_, "data": data, "_meta": meta}
        return envelope

    def __repr__(self) -> str:
        return f"ChannelEvent(id={self.id!r}, type={self.type!r}, data={self.data!r})"


def stamped_meta(meta: object, now_ms: int) -> dict[str, Any]:
    """Copy ``meta`` and see that it has a ``serverTimestamp``.

    Args:
        meta: the publisher's dict; anything else is ignored.
        now_ms: what to stamp unless ``meta`` has a finite number there, in ms since 1970.
    """
    if not isinstance(meta, dict) or not meta:
        return {"serverTimestamp": now_ms}
    stamped: dict[str, Any] = dict(meta)
    given = stamped.get("serverTimestamp")
    # A bool is an int to Python, but nobody means it as a time. And what does not fit a
    # float is no time in JSON, where it could not even be written.
    if isinstance(given, bool) or not isinstance(given, int | float) or not abs(given) <= _MAX_TIME:
        stamped["serverTimestamp"] = now_ms
    return stamped
