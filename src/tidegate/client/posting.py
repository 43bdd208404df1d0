"""One POST with a JSON answer, repeated where that may help and does no harm."""

from __future__ import annotations

import asyncio
import math
import random as random_module
import time
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from tidegate.client.reconnect import backoff, retry_after
from tidegate.client.refusal import refusal, shown
from tidegate.client.target import bearer, over, shown_url
from tidegate.client.transport import (
    MAX_BODY,
    httpx,
    never_sent,
    problem_of,
    read_body,
    timeouts,
    unasked_encoding,
    unusable,
)
from tidegate.errors import ClientError, PublishRefused

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["DEADLINE", "MAX_ANSWER", "Poster"]

T = TypeVar("T")

DEADLINE: Final = 30.0
"""Seconds in which a call has come to its end."""

KEEPALIVE: Final = 2.0
"""Seconds that an idle connection is kept: less than servers do, which close theirs after 5 s. A
request that meets such a close fails, and nobody knows whether it was read."""

MAX_ANSWER: Final = 1024 * 1024
"""The longest answer that is read, in bytes."""

ATTEMPT: Final = 10.0
"""Seconds in which something of an answer has to arrive, where the request can be repeated."""


class Poster:
    """Makes requests with the connections of one publisher. Tasks may share it.

    Args:
        token: sent as ``Authorization: Bearer``.
        headers: more headers.
        own: those of the publisher; they stand above ``headers``.
        client: whose connections to use; it is not closed.
        retries: whether requests are repeated at all; without, every failure raises at once.
        random: gives a number from 0 up to 1.
        now: the time in seconds since 1970, for a ``Retry-After`` that is a date.

    Raises:
        TypeError: the token is no ``str``.
        ValueError: no header can carry it.
    """

    def __init__(
        self,
        *,
        token: str | None = None,
        headers: Mapping[str, str] | None = None,
        own: Mapping[str, str] | None = None,
        client: httpx.AsyncClient | None = None,
        retries: bool = True,
        random: Callable[[], float] = random_module.random,
        now: Callable[[], float] = time.time,
    ) -> None:
        ours = {
            "Accept": "application/json",
            "Accept-Encoding": "identity",
            "Content-Type": "application/json",
            **bearer(token),
            **(own or {}),
        }
        self._headers = over(headers or {}, ours)
        if client is None:
            self._client = httpx.AsyncClient(limits=httpx.Limits(keepalive_expiry=KEEPALIVE))
        else:
            self._client = client
        self._owns_client = client is None
        self._retries = retries
        self._random = random
        self._now = now

    async def aclose(self) -> None:
        """Close the connections, if they are its own. Idempotent."""
        if self._owns_client:
            await self._client.aclose()

    async def post(
        self, url: str, body: object, expected: type[T], deadline: float, *, harmless: bool = False
    ) -> T:
        """Post a body and read the answer.

        Args:
            url: where.
            body: what; encoded before anything is sent.
            expected: what the answer is decoded as.
            deadline: seconds in which the call has come to its end.
            harmless: the server does once what it is asked twice. Else a request is repeated only
                where it was not read or not taken.

        Raises:
            TypeError: the body cannot be written as JSON.
            ValueError: likewise, a text with a lone surrogate.
            PublishRefused: the server said no.
            ClientError: no answer came, or not in time, or 5xx, or it is none.
        """
        content = msgspec.json.encode(body)
        clock = asyncio.get_running_loop().time
        end = clock() + deadline
        attempt = 0
        while True:
            cause: Exception | None = None
            try:
                async with (
                    asyncio.timeout_at(end),
                    self._client.stream(
                        "POST",
                        url,
                        content=content,
                        headers=self._headers,
                        timeout=timeouts(min(deadline, ATTEMPT) if harmless else deadline),
                        follow_redirects=False,  # that would make a GET of it
                    ) as response,
                ):
                    # One byte more than it may have, so that it is seen when there are more.
                    limit = MAX_ANSWER + 1 if response.is_success else MAX_BODY
                    answer = await read_body(response, limit)
            except TimeoutError:
                raise ClientError(f"{shown_url(url)} did not answer within {deadline} s") from None
            except httpx.RequestError as error:
                final = unusable(error)
                failure: ClientError | PublishRefused = final or ClientError(
                    f"{shown_url(url)} did not answer: {problem_of(error)}"
                )
                again = never_sent(error) or (harmless and final is None)
                cause, after = error, 0.0 if again else None
            else:
                if response.is_success:
                    return _read(url, response, answer, expected)
                failure, after = self._refused(url, response, answer, harmless=harmless)
            wait = (
                math.inf
                if after is None or not self._retries
                else after + backoff(attempt, self._random)
            )
            if clock() + wait >= end:
                raise failure from cause
            await asyncio.sleep(wait)
            attempt += 1

    def _refused(
        self, url: str, response: httpx.Response, body: bytes, *, harmless: bool
    ) -> tuple[ClientError | PublishRefused, float | None]:
        """Return what an answer other than 2xx means, and when to ask again, if at all."""
        status = response.status_code
        refused = PublishRefused(status, *refusal(response.reason_phrase, body))
        otherwise = 0.0 if harmless else None
        if status in {429, 503}:
            after = retry_after(response.headers.get("retry-after"), self._now())
            return refused, otherwise if after is None else after
        if status >= 500:  # an error, perhaps a proxy's: nothing says how far the request came
            problem = f"{shown_url(url)} answered {status}: {refused.message}"
            return ClientError(problem), otherwise
        return refused, otherwise if status == 408 else None


def _read(url: str, response: httpx.Response, body: bytes, expected: type[T]) -> T:
    encoding = unasked_encoding(response)
    if len(body) > MAX_ANSWER:
        problem = f"its answer has more than the {MAX_ANSWER} bytes that are read"
    elif encoding is not None:
        problem = f"its answer is in the encoding {encoding}, unasked"
    else:
        try:
            return msgspec.json.decode(body, type=expected)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            problem = shown(str(error))
    raise ClientError(f"{shown_url(url)} did not answer as a server does: {problem}")
