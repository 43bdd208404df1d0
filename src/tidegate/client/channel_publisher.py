"""Publish to channels, over HTTP or straight to their broker: `Publisher`."""

from __future__ import annotations

import random as random_module
import time
import uuid
from typing import TYPE_CHECKING, Any, Self

import msgspec

from tidegate.client.broker_door import BrokerDoor
from tidegate.client.items import Published, PublishItem
from tidegate.client.posting import DEADLINE, Poster
from tidegate.client.refusal import shown
from tidegate.client.selection import checked_channel
from tidegate.client.target import gateway_url
from tidegate.client.transport import checked_url
from tidegate.errors import ClientError, ItemRefused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from types import TracebackType

    import httpx

    from tidegate.gateway.brokers.base import Broker
    from tidegate.gateway.namespaces import Namespace

__all__ = ["Publisher"]


class _Result(msgspec.Struct):
    channel: str = ""
    id: str | None = None
    epoch: str = ""
    duplicate: bool = False
    suppressed: bool = False
    error: str = ""
    code: str | None = None


class _Results(msgspec.Struct):
    results: list[_Result]


class Publisher:
    """Publishes to channels; it holds no stream. An async context manager.

    ::

        async with Publisher("http://127.0.0.1:8765", token="…") as publisher:
            await publisher.publish("room:1", "message", {"text": "hello"})

    Each event has an idempotency key, made here if none is given. So a call is repeated where that
    may help (no connection, no answer, 5xx, 408, 429, after what ``Retry-After`` says or a random
    time up to 1 s, 2 s, 4 s, … 30 s) and publishes once all the same, for as long as the server
    remembers keys. Tasks may share a publisher; only what one task awaits in turn keeps its order.
    A cancelled call may have published.

    Args:
        url: the server, ``http://HOST:PORT``, with the path that a gateway is mounted below.
        broker: in place of it, the broker: its URL, or an object that was not started; it is
            started at entering and stopped at leaving.
        namespaces: with a broker: the same that the nodes have. They say how much is kept.
        token: sent as ``Authorization: Bearer``.
        headers: more headers.
        client: whose connections to use; it is not closed.
        deadline: seconds in which a call has come to its end, unless it says otherwise.
        retries: whether calls are repeated at all; without, every failure raises at once.
        make_key: makes an idempotency key.
        random: gives a number from 0 up to 1.
        now: the time in seconds since 1970.

    Raises:
        TypeError: not exactly one of ``url`` and ``broker`` is given.
        ValueError: ``url`` is no URL, or the token is none.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        broker: str | Broker | None = None,
        namespaces: Iterable[Namespace] = (),
        token: str | None = None,
        headers: Mapping[str, str] | None = None,
        client: httpx.AsyncClient | None = None,
        deadline: float = DEADLINE,
        retries: bool = True,
        make_key: Callable[[], str] = lambda: uuid.uuid4().hex,
        random: Callable[[], float] = random_module.random,
        now: Callable[[], float] = time.time,
    ) -> None:
        if (url is None) == (broker is None):
            raise TypeError("a publisher has a url or a broker, one of them")
        self._deadline = deadline
        self._make_key = make_key
        self._door: BrokerDoor | None = None
        self._poster: Poster | None = None
        self._url = ""
        if url is not None:
            self._url = gateway_url(checked_url(url), "publish")
            self._poster = Poster(
                token=token, headers=headers, client=client, retries=retries, random=random, now=now
            )
        elif broker is not None:
            self._door = BrokerDoor(broker, namespaces, retries=retries, random=random, now=now)

    async def __aenter__(self) -> Self:
        """Start the broker, if it is one.

        Raises:
            BrokerUnavailable: it does not answer.
            ConfigError: its URL is none of a broker that this version has.
        """
        if self._door is not None:
            await self._door.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections, if they are its own, or stop the broker. Idempotent."""
        if self._poster is not None:
            await self._poster.aclose()
        if self._door is not None:
            await self._door.stop()

    async def publish(
        self,
        channel: str,
        type: str,  # noqa: A002 - the name of the field on the wire
        data: Any = None,
        *,
        idempotency_key: str | None = None,
        version: int | None = None,
        tags: Mapping[str, str] | None = None,
        meta: Mapping[str, Any] | None = None,
        deadline: float | None = None,
    ) -> Published:
        """Publish an event.

        Args:
            channel: where.
            type: what happened.
            data: anything that JSON can express.
            idempotency_key: a second publish of the same key in the same channel returns the first
                one's result.
            version: the event is suppressed unless it is above the channel's last version.
            tags: what streams may filter by.
            meta: the publisher's own metadata.
            deadline: seconds in which the call has come to its end.

        Raises:
            InvalidChannelName: the channel's name is none; a ``ValueError``.
            TypeError: the event cannot be written as JSON.
            ValueError: likewise, a text with a lone surrogate.
            PublishRefused: the server said no; nothing was published.
            InvalidEvent: straight to a broker: the event is none that channels take.
            UnknownNamespace: straight to a broker: the channel's namespace is not configured.
            ClientError: no answer came, or not in time, or 5xx: it may have been published.
        """
        item = PublishItem(channel, type, data, idempotency_key, version, tags, meta)
        (result,) = await self.publish_many([item], deadline=deadline)
        if isinstance(result, ItemRefused):
            raise result
        return result

    async def publish_many(
        self,
        items: Iterable[PublishItem | Mapping[str, Any]],
        *,
        deadline: float | None = None,
    ) -> list[Published | ItemRefused]:
        """Publish events in their order, in one request.

        If one of them is none that channels take, nothing is published. Otherwise each has its own
        result, since access, limits and the broker may differ from channel to channel.

        Args:
            items: each a `PublishItem`, or its arguments as a mapping. None at all is no request.
            deadline: seconds in which the call has come to its end.

        Returns:
            For each item, in order, what became of it: an `ItemRefused` is returned, not raised.

        Raises:
            TypeError: an item has other arguments, or cannot be written as JSON.
            PublishRefused: the server said no to all of them; nothing was published.
            Exception: what else `publish` raises.
        """
        batch = [self._checked(item) for item in items]
        if not batch:
            return []
        seconds = self._deadline if deadline is None else deadline
        if self._poster is not None:
            return await self._post(self._poster, batch, seconds)
        assert self._door is not None  # noqa: S101 - one of the two
        return await self._door.publish(batch, seconds)

    def _checked(self, item: PublishItem | Mapping[str, Any]) -> PublishItem:
        made = item if isinstance(item, PublishItem) else PublishItem(**item)
        checked_channel(made.channel)
        if made.idempotency_key is not None:
            return made
        return msgspec.structs.replace(made, idempotency_key=self._make_key())

    async def _post(
        self, poster: Poster, batch: list[PublishItem], seconds: float
    ) -> list[Published | ItemRefused]:
        body = [_on_wire(item) for item in batch]
        answer = await poster.post(self._url, body, _Results, seconds, harmless=True)
        if len(answer.results) != len(batch):
            raise ClientError(
                f"the server answered with {len(answer.results)} results to {len(batch)} events"
            )
        return [_told(item, result) for item, result in zip(batch, answer.results, strict=True)]


def _on_wire(item: PublishItem) -> dict[str, Any]:
    fields = {
        "channel": item.channel,
        "type": item.type,
        "data": item.data,
        "idempotencyKey": item.idempotency_key,
        "version": item.version,
        "tags": item.tags,
        "meta": item.meta,
    }
    return {name: value for name, value in fields.items() if value is not None}


def _told(item: PublishItem, result: _Result) -> Published | ItemRefused:
    if result.id is None:
        code = None if result.code is None else shown(result.code)
        return ItemRefused(200, code, shown(result.error) or "no reason given", item.channel)
    return Published(item.channel, result.id, result.epoch, result.duplicate, result.suppressed)
