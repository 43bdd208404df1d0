"""Where a channel's full state comes from: the broker, a callable of the user's, or a webhook."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tidegate.channel.event import encode_json
from tidegate.errors import MissingExtra
from tidegate.gateway.brokers.base import Snapshot

if TYPE_CHECKING:
    from tidegate.gateway.brokers.base import Broker, Head
    from tidegate.gateway.namespaces import Namespace

__all__ = ["fetch_snapshot", "on_one_line"]

_WEBHOOK_SECONDS: Final = 5.0
_MAX_BYTES: Final = 16 * 1024 * 1024


async def fetch_snapshot(broker: Broker, options: Namespace, channel: str) -> Snapshot | None:
    """Fetch a channel's state from where its namespace says; ``None`` if there is none.

    A computed state without a position takes account of everything that was published before
    it was asked for: the head of that moment is its position.

    Raises:
        BrokerUnavailable: the broker does not answer.
        MissingExtra: a webhook needs httpx.
        Exception: what the callable raised.
    """
    source = options.snapshot
    if source is None:
        return None
    if source == "stored":
        stored = await broker.get_snapshot(channel)
        if stored is None:
            return None
        return msgspec.structs.replace(stored, state=on_one_line(stored.state))
    head = (await broker.heads([channel]))[channel]
    if isinstance(source, str):
        return await _from_webhook(source, channel, head)
    computed = source(channel)
    if inspect.isawaitable(computed):
        computed = await computed
    return None if computed is None else _computed(computed, head)


def on_one_line(state: bytes) -> bytes:
    """Return JSON without line breaks: a line of a stream would end there.

    Only raw JSON that somebody else has written can have any, between its tokens.

    Raises:
        ValueError: it is no JSON; what has no line breaks is not looked at.
    """
    if b"\n" not in state and b"\r" not in state:
        return state
    # Not decoded: numbers stay as they were written.
    return msgspec.json.format(state, indent=-1)


def _computed(computed: Any, head: Head) -> Snapshot:
    if not isinstance(computed, tuple) or len(computed) not in {1, 2}:
        raise TypeError(
            "a snapshot provider returns None, (state,) or (state, position), "
            f"not {type(computed).__name__}"
        )
    position = computed[1] if len(computed) == 2 else head.position
    state = on_one_line(encode_json(computed[0]))
    return Snapshot(state=state, position=position, epoch=head.epoch)


class _Answer(msgspec.Struct):
    state: msgspec.Raw
    position: str | None = None


async def _from_webhook(url: str, channel: str, head: Head) -> Snapshot | None:
    """POST ``{"channel", "epoch", "position"}`` to ``url``; it answers 200 and a state, or 204."""
    try:
        import httpx  # noqa: PLC0415 - only for those who have a webhook
    except ImportError as error:
        raise MissingExtra("httpx", "client") from error
    question = {"channel": channel, "epoch": head.epoch, "position": head.position}
    async with (
        httpx.AsyncClient(timeout=_WEBHOOK_SECONDS) as client,
        client.stream("POST", url, json=question) as response,
    ):
        if response.status_code == 204:
            return None
        response.raise_for_status()
        body = bytearray()
        async for chunk in response.aiter_bytes():
            body += chunk
            if len(body) > _MAX_BYTES:
                raise ValueError(f"the webhook's answer has more than {_MAX_BYTES} bytes")
    answer = msgspec.json.decode(bytes(body), type=_Answer)
    return Snapshot(
        # Encoded again: what stands on one line of a stream must have no line breaks.
        state=msgspec.json.encode(msgspec.json.decode(answer.state)),
        position=head.position if answer.position is None else answer.position,
        epoch=head.epoch,
    )
