"""Publish to sessions over HTTP: `SessionPublisher`."""

from __future__ import annotations

import asyncio
import math
import random as random_module
import re
import time
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar
from urllib.parse import quote

import msgspec

from tidegate.client.reconnect import backoff, retry_after
from tidegate.client.refusal import refusal, shown
from tidegate.client.target import Target, bearer, over, shown_url
from tidegate.client.transport import (
    MAX_BODY,
    checked_url,
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
    from collections.abc import Callable, Iterable, Mapping
    from types import TracebackType

__all__ = ["SessionInfo", "SessionPublisher"]

T = TypeVar("T")

DEADLINE: Final = 30.0
"""Seconds in which a call has come to its end."""

KEEPALIVE: Final = 2.0
"""Seconds that an idle connection is kept: less than servers do, which close theirs after 5 s. A
request that meets such a close fails, and nobody knows whether it was read."""

MAX_ANSWER: Final = 1024 * 1024
"""The longest answer that is read, in bytes."""

_CLIENT_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}", re.ASCII)


class SessionInfo(msgspec.Struct, frozen=True, rename="camel"):
    """What the server says of a session.

    Attributes:
        session_id: its name.
        epoch: the life of its history.
        last_event_id: its last event, 0 for none.
        attached: it was there already.
    """

    session_id: str
    epoch: str
    last_event_id: int
    attached: bool = False


class _Published(msgspec.Struct, rename="camel"):
    last_event_id: int


class SessionPublisher:
    """Creates sessions and publishes to them. An async context manager.

    A call is repeated only where that cannot publish twice: the connection was never made, or the
    server said 503 or 429 with a ``Retry-After``. Any other failure raises. After a `ClientError`
    it is not known whether the events were published, and a cancelled call may have published them
    as well. Tasks may share a publisher; only what one task awaits in turn keeps its order.

    Args:
        base_url: the server, ``http://HOST:PORT``, with the path that sessions are mounted below.
        token: sent as ``Authorization: Bearer``.
        client_id: who publishes, for ``originator_client_id``: 1 to 128 of ``A-Z a-z 0-9 . _ : -``.
        headers: more headers.
        client: whose connections to use; it is not closed.
        retries: whether calls are repeated at all; without, every failure raises at once.
        random: gives a number from 0 up to 1.
        now: the time in seconds since 1970, for a ``Retry-After`` that is a date.

    Raises:
        ValueError: ``base_url`` is no URL, or the token or the client id is none.
    """

    def __init__(
        self,
        base_url: str,
        *,
        token: str | None = None,
        client_id: str | None = None,
        headers: Mapping[str, str] | None = None,
        client: httpx.AsyncClient | None = None,
        retries: bool = True,
        random: Callable[[], float] = random_module.random,
        now: Callable[[], float] = time.time,
    ) -> None:
        Target.read(checked_url(base_url))
        self._base = base_url.rstrip("/")
        own = {
            "Accept": "application/json",
            "Accept-Encoding": "identity",
            "Content-Type": "application/json",
            **bearer(token),
        }
        if client_id is not None:
            if _CLIENT_ID.fullmatch(client_id) is None:
                raise ValueError("a client id is 1 to 128 of A-Z a-z 0-9 . _ : -")
            own["Tidegate-Client-Id"] = client_id
        self._headers = over(headers or {}, own)
        if client is None:
            self._client = httpx.AsyncClient(limits=httpx.Limits(keepalive_expiry=KEEPALIVE))
        else:
            self._client = client
        self._owns_client = client is None
        self._retries = retries
        self._random = random
        self._now = now

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections, if they are its own. Idempotent."""
        if self._owns_client:
            await self._client.aclose()

    async def create(
        self, session_id: str | None = None, *, deadline: float = DEADLINE
    ) -> SessionInfo:
        """Create a session, or find that it is there.

        Args:
            session_id: its name; ``None`` lets the server choose one.
            deadline: seconds in which the call has come to its end.

        Raises:
            PublishRefused: the server said no.
            ClientError: no answer came, or not in time, or it is none.
        """
        body = {} if session_id is None else {"sessionId": session_id}
        return await self._post("/session", body, SessionInfo, deadline)

    async def publish(
        self,
        session_id: str,
        events: Iterable[Mapping[str, Any]],
        *,
        deadline: float = DEADLINE,
    ) -> int | None:
        """Publish events, all or none, in their order.

        Args:
            session_id: where.
            events: each ``{"type": …, "data"?: …, "meta"?: …}``. None at all is no request.
            deadline: seconds in which the call has come to its end.

        Returns:
            The id of the last one; ``None`` if there was none.

        Raises:
            TypeError: an event cannot be written as JSON.
            ValueError: likewise, a text with a lone surrogate.
            PublishRefused: the server said no; nothing was published.
            ClientError: no answer came, or not in time, or 5xx: they may have been published.
        """
        batch = [dict(event) for event in events]
        if not batch:
            return None
        path = f"/session/{quote(session_id, safe='')}/events"
        return (await self._post(path, batch, _Published, deadline)).last_event_id

    async def _post(self, path: str, body: object, expected: type[T], deadline: float) -> T:
        url, content = f"{self._base}{path}", msgspec.json.encode(body)
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
                        timeout=timeouts(deadline),
                        follow_redirects=False,  # that would make a GET of it
                    ) as response,
                ):
                    # One byte more than it may have, so that it is seen when there are more.
                    limit = MAX_ANSWER + 1 if response.is_success else MAX_BODY
                    answer = await read_body(response, limit)
            except TimeoutError:
                raise ClientError(f"{shown_url(url)} did not answer within {deadline} s") from None
            except httpx.RequestError as error:
                failure: ClientError | PublishRefused = unusable(error) or ClientError(
                    f"{shown_url(url)} did not answer: {problem_of(error)}"
                )
                cause, after = error, 0.0 if never_sent(error) else None
            else:
                if response.is_success:
                    return _read(url, response, answer, expected)
                failure, after = self._refused(url, response, answer)
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
        self, url: str, response: httpx.Response, body: bytes
    ) -> tuple[ClientError | PublishRefused, float | None]:
        """Return what an answer other than 2xx means, and when to ask again, if at all."""
        status = response.status_code
        refused = PublishRefused(status, *refusal(response.reason_phrase, body))
        if status in {429, 503}:
            return refused, retry_after(response.headers.get("retry-after"), self._now())
        if status >= 500:  # an error, perhaps a proxy's: nothing says how far the request came
            return ClientError(f"{shown_url(url)} answered {status}: {refused.message}"), None
        return refused, None


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
