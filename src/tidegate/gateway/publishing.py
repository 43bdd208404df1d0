"""Publishing: an event is checked and encoded once, then handed to the broker."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tidegate.channel.event import encode_json, stamped_meta
from tidegate.channel.names import event_type_problem
from tidegate.errors import BrokerUnavailable, InvalidEvent
from tidegate.gateway.brokers.base import PublishError, PublishRequest
from tidegate.gateway.names import checked_name
from tidegate.gateway.pacing import TURN_BYTES, TURN_EVENTS, Pacer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tidegate.gateway.brokers.base import Broker, PublishResult
    from tidegate.gateway.namespaces import Namespaces

__all__ = ["Publishable", "Published", "checked_tags", "encode_event", "publish_all", "published"]

_MAX_TAGS: Final = 16
_TAG = re.compile(r"[^\s\x00-\x1f\x7f-\x9f\ud800-\udfff,]{1,128}")
_MAX_VERSION: Final = 2**53 - 1
_KEY = re.compile(r"[!-~]{1,256}", re.ASCII)
_PLAIN_LEVELS: Final = 100
_SPARE_LEVELS: Final = 64


class Publishable(msgspec.Struct, frozen=True, kw_only=True):
    """An event to be published.

    Attributes:
        channel: the channel's name.
        type: what happened.
        data: anything that JSON can express, dataclasses, msgspec structs and pydantic models
            included.
        idempotency_key: a second publish of the same key in the same channel returns the first
            one's result; 1 to 256 visible ASCII characters.
        version: the event is suppressed unless it is above the channel's last one; 0 to 2^53-1.
        tags: what streams may filter by: up to 16, each key and value 1 to 128 visible
            characters, without ``,``, and without ``:`` in keys.
        meta: the publisher's own metadata.
    """

    channel: str
    type: str
    data: Any = None
    idempotency_key: str | None = None
    version: int | None = None
    tags: Mapping[str, str] | None = None
    meta: dict[str, Any] | None = None


class Published(msgspec.Struct, frozen=True, kw_only=True):
    """What became of an event: it is stored.

    Attributes:
        channel: the channel's name.
        id: its position; of a duplicate the first one's, of a suppressed one the head.
        epoch: the life of the channel's history that the position belongs to.
        duplicate: its idempotency key was known: nothing was published now.
        suppressed: its version was not above the last one: nothing was published.
    """

    channel: str
    id: str
    epoch: str
    duplicate: bool = False
    suppressed: bool = False


def encode_event(
    event: Publishable,
    namespaces: Namespaces,
    *,
    now_ms: int,
    max_event_bytes: int,
    channels: Sequence[str] | None = None,
) -> list[PublishRequest]:
    """Check an event and encode it, once for all channels that it goes to.

    Args:
        event: what to publish.
        namespaces: what to keep of which channel.
        now_ms: the time to stamp, in ms since 1970.
        max_event_bytes: how large data and metadata may be, encoded.
        channels: where it goes in place of ``event.channel``.

    Raises:
        InvalidChannelName: a channel's name is none.
        InvalidEvent: its code says what of it is wrong.
        UnknownNamespace: a channel's namespace is not configured.
    """
    names = [str.__str__(checked_name(name)) for name in channels or (event.channel,)]
    policies = [namespaces.policy_of(name) for name in names]
    type_ = _checked_type(event.type)
    tags = None if event.tags is None else checked_tags(event.tags)
    version = _checked_version(event.version)
    key = _checked_key(event.idempotency_key)
    payload = _payload(event, tags, version, now_ms)
    if len(payload) > max_event_bytes:
        raise InvalidEvent(
            "event_too_large",
            f"data and metadata of an event are at most {max_event_bytes} bytes as JSON, "
            f"not {len(payload)}",
        )
    return [
        PublishRequest(
            channel=name,
            type=type_,
            payload=payload,
            tags=tags,
            version=version,
            idempotency_key=key,
            policy=policy,
        )
        for name, policy in zip(names, policies, strict=True)
    ]


async def publish_all(
    broker: Broker, requests: Sequence[PublishRequest], *, pacer: Pacer | None = None
) -> list[PublishResult | PublishError]:
    """Publish any number of events, in order; one result for each.

    Cancelled, some may have been published.

    Args:
        broker: where.
        requests: what.
        pacer: what gives readers in this process their turn; by default one for this call.
    """
    pacer = Pacer() if pacer is None else pacer
    results: list[PublishResult | PublishError] = []
    start = 0
    while start < len(requests):
        end, size = start, 0
        while end < min(start + TURN_EVENTS, len(requests)) and (end == start or size < TURN_BYTES):
            size += len(requests[end].payload)
            end += 1
        await pacer.admit(end - start, size)
        results += await broker.publish(requests[start:end])
        start = end
    return results


def published(result: PublishResult | PublishError) -> Published:
    """Return what a broker's result says to the publisher.

    Raises:
        BrokerUnavailable: it is not known to be stored.
    """
    if isinstance(result, PublishError):
        raise BrokerUnavailable(result.error)
    return Published(
        channel=result.channel,
        id=result.position,
        epoch=result.epoch,
        duplicate=result.duplicate,
        suppressed=result.suppressed,
    )


def checked_tags(tags: Mapping[str, str]) -> dict[str, str]:
    """Copy tags that are sound.

    Raises:
        InvalidEvent: ``invalid_tags``.
    """
    try:
        pairs = dict(tags)
    except (TypeError, ValueError):
        raise _bad_tags(f"tags are a mapping, not {type(tags).__name__}") from None
    if len(pairs) > _MAX_TAGS:
        raise _bad_tags(f"an event has at most {_MAX_TAGS} tags, not {len(pairs)}")
    checked: dict[str, str] = {}
    for key, value in pairs.items():
        if not _is_tag(key) or ":" in key:
            raise _bad_tags("a tag's key is 1 to 128 visible characters without ':' and ','")
        if not _is_tag(value):
            raise _bad_tags("a tag's value is 1 to 128 visible characters without ','")
        checked[str.__str__(key)] = str.__str__(value)
    return checked


def _is_tag(text: object) -> bool:
    return isinstance(text, str) and _TAG.fullmatch(text) is not None


def _bad_tags(problem: str) -> InvalidEvent:
    return InvalidEvent("invalid_tags", problem)


def _checked_type(given: object) -> str:
    if not isinstance(given, str):
        raise InvalidEvent(
            "invalid_event_type", f"an event type is a string, not {type(given).__name__}"
        )
    # Whatever a subclass makes of itself: it goes into the bytes of streams.
    name = str.__str__(given)
    problem = event_type_problem(name)
    if problem is not None:
        raise InvalidEvent(*problem)
    return name


def _checked_version(version: object) -> int | None:
    if version is None:
        return None
    if isinstance(version, bool) or not isinstance(version, int):
        raise InvalidEvent(
            "invalid_version", f"a version is an integer, not {type(version).__name__}"
        )
    if not 0 <= version <= _MAX_VERSION:
        raise InvalidEvent("invalid_version", f"a version is from 0 to {_MAX_VERSION}")
    return int(version)


def _checked_key(key: object) -> str | None:
    if key is None:
        return None
    if not isinstance(key, str) or _KEY.fullmatch(key) is None:
        raise InvalidEvent(
            "invalid_idempotency_key",
            "an idempotency key is 1 to 256 visible ASCII characters",
        )
    return str.__str__(key)


def _payload(
    event: Publishable, tags: Mapping[str, str] | None, version: int | None, now_ms: int
) -> bytes:
    if event.meta is not None and not isinstance(event.meta, dict):
        raise InvalidEvent("invalid_meta", f"meta is a dict, not {type(event.meta).__name__}")
    body: dict[str, object] = {"data": event.data, "_meta": stamped_meta(event.meta, now_ms)}
    if tags is not None:
        body["tags"] = tags
    if version is not None:
        body["version"] = version
    try:
        payload = encode_json(body)
        if payload.count(b"[") + payload.count(b"{") > _PLAIN_LEVELS:
            # What can just be encoded here might not be decoded where it is consumed, which
            # stops at the interpreter's recursion limit as well.
            msgspec.json.decode(b"[" * _SPARE_LEVELS + payload + b"]" * _SPARE_LEVELS)
    except RecursionError:
        raise InvalidEvent("invalid_data", "the event is nested too deeply") from None
    except ValueError as error:
        raise InvalidEvent("invalid_data", f"the event is not JSON: {error}") from error
    if b"\n" in payload or b"\r" in payload:
        # A line of a stream would end there.
        raise InvalidEvent("invalid_data", "raw JSON must not contain line breaks")
    return payload
