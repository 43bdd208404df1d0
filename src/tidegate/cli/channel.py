"""A channel as the commands that write to it see it: away or refusing, and never twice."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
import uuid
from typing import TYPE_CHECKING, Any, Final, Self

from tidegate.cli.causes import not_let_in, why_away
from tidegate.cli.console import CommandFailed
from tidegate.cli.delivery import Away, Refused, retry_delay
from tidegate.client import Publisher
from tidegate.client.refusal import refusal
from tidegate.client.target import bearer, gateway_url
from tidegate.client.transport import httpx, problem_of, read_body, timeouts, unusable
from tidegate.errors import ClientError, ItemRefused, PublishRefused

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from tidegate.client import Published

__all__ = ["ChannelDoor"]

_NOT_NOW: Final = {408, 429, 502, 503, 504}
_ABOUT_EVENTS: Final = {400, 413, 422}
_FIELDS: Final = {"idempotencyKey": "idempotency_key"}

# What is said of one event among others that were taken.
_ITEM_NOT_NOW: Final = {"broker_unavailable", "rate_limited"}
_ITEM_ABOUT_EVENT: Final = {"broker_error"}


class ChannelDoor:
    """The way into one channel; an async context manager.

    An event that has no idempotency key is given one, in the dict itself: the same dict published
    again, alone or among others, is the same event, and the channel has it once.

    Args:
        url: the server's base URL.
        channel: the channel's name.
        token: the server's token, if it wants one.
        retries: repeat a publish within ``deadline``; it publishes once all the same.
        deadline: seconds in which one publish has come to its end.
        new_key: makes an idempotency key.

    Raises:
        CommandFailed: the token is none.
    """

    def __init__(
        self,
        url: str,
        channel: str,
        *,
        token: str | None = None,
        retries: bool = False,
        deadline: float = 15.0,
        new_key: Callable[[], str] = lambda: uuid.uuid4().hex,
    ) -> None:
        self._url = url
        self._channel = channel
        self._token = token
        self._retries = retries
        self._deadline = deadline
        self._new_key = new_key
        self._last: Published | None = None
        try:
            self._headers = bearer(token)
        except ValueError as error:
            raise CommandFailed(str(error), 2) from None

    async def __aenter__(self) -> Self:
        self._client = httpx.AsyncClient()
        self._publisher = Publisher(
            self._url,
            token=self._token,
            client=self._client,
            deadline=self._deadline,
            retries=self._retries,
        )
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._publisher.aclose()
        await self._client.aclose()

    async def attach(
        self,
        patience: float = 0.0,
        *,
        clock: Callable[[], float] = time.monotonic,
        rng: Callable[[], float] = random.random,
    ) -> None:
        """Find that the server is there and has such a channel.

        Args:
            patience: seconds in which to try again while the server is away.
            clock: a monotonic time in seconds.
            rng: uniform in [0, 1), for the spread of the delays.

        Raises:
            Away: the server cannot do it now, and the patience is over.
            Refused: it will not.
        """
        end = clock() + patience
        for attempt in itertools.count(1):
            problem = await self._ask()
            if problem is None:
                return
            left = end - clock()
            if isinstance(problem, Refused) or left <= 0:
                raise problem
            await asyncio.sleep(min(left, retry_delay(attempt, None, rng)))

    async def publish(self, events: list[dict[str, Any]]) -> str:
        """Publish at least one event; return the last one's position.

        Raises:
            Away: the server cannot do it now, or nobody knows whether it did. The same events,
                the same dicts, may be published again.
            Refused: it will not.
        """
        for event in events:
            event.setdefault("idempotencyKey", self._new_key())
        items = [
            {"channel": self._channel}
            | {_FIELDS.get(name, name): value for name, value in event.items()}
            for event in events
        ]
        try:
            results = await self._publisher.publish_many(items)
        except PublishRefused as refused:
            raise self._meaning(refused) from None
        except ClientError as error:
            raise self._away(error.__cause__, str(error)) from None
        for result in results:
            if isinstance(result, ItemRefused):
                if result.code in _ITEM_NOT_NOW:
                    raise Away(str(result))
                raise Refused(str(result), about_events=result.code in _ITEM_ABOUT_EVENT)
            self._last = result
        return "" if self._last is None else self._last.id

    def receipt(self) -> dict[str, Any]:
        """Return what the server said of the last event, as it does."""
        last = self._last
        if last is None:
            return {}
        suppressed = {"suppressed": True} if last.suppressed else {}
        return {
            "channel": last.channel,
            "id": last.id,
            "epoch": last.epoch,
            "duplicate": last.duplicate,
            **suppressed,
        }

    async def _ask(self) -> Away | Refused | None:
        """Ask for the channel; return what stands in the way of publishing, if anything does."""
        url = gateway_url(self._url, "channels", self._channel)
        headers = {**self._headers, "Accept": "application/json", "Accept-Encoding": "identity"}
        try:
            async with self._client.stream(
                "GET",
                url,
                headers=headers,
                timeout=timeouts(self._deadline),
            ) as response:
                body = await read_body(response)
        except httpx.RequestError as error:
            final = unusable(error)
            return self._away(error, problem_of(error)) if final is None else Refused(str(final))
        # 403: whoever may publish need not be allowed to look.
        if response.is_success or response.status_code == 403:
            return None
        said = PublishRefused(response.status_code, *refusal(response.reason_phrase, body))
        return self._meaning(said)

    def _away(self, cause: object, problem: str) -> Away:
        known = why_away(problem_of(cause), self._url) if isinstance(cause, Exception) else None
        return Away(known or problem)

    def _meaning(self, refused: PublishRefused) -> Away | Refused:
        """Tell a server that cannot now from one that will not."""
        if refused.status in _NOT_NOW:
            return Away(str(refused))
        if refused.status == 401:
            return Refused(not_let_in(self._token, refused.message))
        return Refused(str(refused), about_events=refused.status in _ABOUT_EVENTS)
