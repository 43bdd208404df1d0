"""A session as the commands that write to it see it: made when missing, and away or refusing."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from typing import TYPE_CHECKING, Any, Final, Self, cast

from tidegate.cli.causes import not_let_in, why_away
from tidegate.cli.console import CommandFailed
from tidegate.cli.delivery import Away, Refused, retry_delay
from tidegate.client import SessionPublisher
from tidegate.client.transport import problem_of
from tidegate.errors import ClientError, PublishRefused

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

__all__ = ["SessionDoor"]

_NOT_FOUND: Final = "session_not_found"
_NOT_NOW: Final = {408, 429, 503}
_ABOUT_EVENTS: Final = {400, 413, 422}


class SessionDoor:
    """The way into one session; an async context manager.

    Publishing makes the session if there is none, so that a restart of the server, whose sessions
    live in its memory, does not stop a publisher.

    Args:
        url: the server's base URL.
        session_id: the session.
        token: the server's token, if it wants one.
        client_id: who publishes: ``originatorClientId`` of the events.
        create: make the session if there is none.
        retries: repeat a publish, within ``deadline``, where that cannot publish twice.
        deadline: seconds in which one publish has come to its end.

    Raises:
        CommandFailed: the token is none.
    """

    def __init__(
        self,
        url: str,
        session_id: str,
        *,
        token: str | None = None,
        client_id: str | None = None,
        create: bool = True,
        retries: bool = False,
        deadline: float = 15.0,
    ) -> None:
        try:
            self._publisher = SessionPublisher(
                url, token=token, client_id=client_id, retries=retries
            )
        except ValueError as error:
            raise CommandFailed(str(error), 2) from None
        self._url = url
        self._token = token
        self._session_id = session_id
        self._create = create
        self._deadline = deadline
        self._last = 0

    async def __aenter__(self) -> Self:
        await self._publisher.__aenter__()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._publisher.__aexit__(exc_type, exc, traceback)

    async def attach(
        self,
        patience: float = 0.0,
        *,
        clock: Callable[[], float] = time.monotonic,
        rng: Callable[[], float] = random.random,
    ) -> None:
        """Make the session, or find that it is there.

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
            try:
                await self._publisher.create(self._session_id, deadline=self._deadline)
            except PublishRefused as refusal:
                problem = self._meaning(refusal)
            except ClientError as error:
                problem = self._away(error)
            else:
                return
            left = end - clock()
            if isinstance(problem, Refused) or left <= 0:
                raise problem
            await asyncio.sleep(min(left, retry_delay(attempt, None, rng)))

    async def publish(self, events: list[dict[str, Any]]) -> int:
        """Publish at least one event, all or none; return the last one's id.

        Raises:
            Away: the server cannot do it now, or nobody knows whether it did: trying again may
                publish twice.
            Refused: it will not; nothing was published.
        """
        try:
            return await self._publish(events)
        except PublishRefused as refusal:
            if refusal.code != _NOT_FOUND:
                raise self._meaning(refusal) from None
            if not self._create:
                raise Refused(str(refusal)) from None
        await self.attach()
        try:
            return await self._publish(events)
        except PublishRefused as refusal:
            raise self._meaning(refusal) from None

    def receipt(self) -> dict[str, Any]:
        """Return what the server said of the last publish."""
        return {"lastEventId": self._last}

    async def _publish(self, events: list[dict[str, Any]]) -> int:
        try:
            last = await self._publisher.publish(self._session_id, events, deadline=self._deadline)
        except ClientError as error:
            raise self._away(error) from None
        self._last = cast("int", last)  # None is for no events at all
        return self._last

    def _away(self, error: ClientError) -> Away:
        cause = error.__cause__
        known = why_away(problem_of(cause), self._url) if isinstance(cause, Exception) else None
        return Away(known or str(error))

    def _meaning(self, refusal: PublishRefused) -> Away | Refused:
        """Tell a server that cannot now from one that will not."""
        if refusal.status in _NOT_NOW or refusal.code == _NOT_FOUND:
            return Away(str(refusal))
        if refusal.status == 401:
            return Refused(not_let_in(self._token))
        return Refused(str(refusal), about_events=refusal.status in _ABOUT_EVENTS)
