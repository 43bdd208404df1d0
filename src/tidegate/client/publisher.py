"""Publish to sessions over HTTP: `SessionPublisher`."""

from __future__ import annotations

import random as random_module
import re
import time
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote

import msgspec

from tidegate.client.posting import DEADLINE, Poster
from tidegate.client.target import Target
from tidegate.client.transport import checked_url

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from types import TracebackType

    import httpx

__all__ = ["SessionInfo", "SessionPublisher"]

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
        own = {}
        if client_id is not None:
            if _CLIENT_ID.fullmatch(client_id) is None:
                raise ValueError("a client id is 1 to 128 of A-Z a-z 0-9 . _ : -")
            own["Tidegate-Client-Id"] = client_id
        self._poster = Poster(
            token=token,
            headers=headers,
            own=own,
            client=client,
            retries=retries,
            random=random,
            now=now,
        )

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
        await self._poster.aclose()

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
        return await self._poster.post(f"{self._base}/session", body, SessionInfo, deadline)

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
        url = f"{self._base}/session/{quote(session_id, safe='')}/events"
        return (await self._poster.post(url, batch, _Published, deadline)).last_event_id
