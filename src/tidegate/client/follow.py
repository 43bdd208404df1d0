"""Drive a view by a stream: connect, reduce, and on a resync load and reopen."""

from __future__ import annotations

import asyncio
import inspect
import random as random_module
import threading
from typing import TYPE_CHECKING, Final, Generic, Self, TypeVar

from tidegate.client.reconnect import backoff
from tidegate.client.state import Applied
from tidegate.client.stream import connect
from tidegate.client.stream_sync import connect_sync
from tidegate.client.transport import problem_of
from tidegate.errors import ConcurrentConsumers, LoadFailed

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from tidegate.client.cursor import Cursor
    from tidegate.client.events import StreamEvent
    from tidegate.client.stream import ClientStream
    from tidegate.client.stream_sync import SyncClientStream
    from tidegate.client.stream_view import StreamView

__all__ = ["Following", "LoadPatience", "SyncFollowing"]

S = TypeVar("S")

LOAD_ATTEMPTS: Final = 5
"""How often in a row loading may fail, or bring a state that the stream does not link to."""

LOAD_TIMEOUT: Final = 60.0
"""Seconds that one load may take."""


class LoadPatience:
    """How often a view goes on loading. Pure.

    Args:
        attempts: failures in a row that are one too many.
        random: gives a number from 0 up to 1.
    """

    def __init__(
        self, attempts: int = LOAD_ATTEMPTS, random: Callable[[], float] = random_module.random
    ) -> None:
        self._attempts = attempts
        self._random = random
        self._failures = 0
        self._fruitless = 0

    def before(self) -> float:
        """Return how long to wait before a load, in seconds.

        Raises:
            LoadFailed: the states that were loaded last all did not link to the stream.
        """
        if self._fruitless >= self._attempts:
            raise LoadFailed(
                f"{self._fruitless} states were loaded in a row, and the stream links to none; "
                "is what load gives too old?"
            )
        return backoff(self._fruitless - 1, self._random) if self._fruitless else 0.0

    def failed(self, error: Exception) -> float:
        """Return how long to wait after a load failed, in seconds.

        Raises:
            LoadFailed: this was the last attempt, or ``error`` is one that says so itself.
        """
        if isinstance(error, LoadFailed):
            raise error
        self._failures += 1
        if self._failures >= self._attempts:
            raise LoadFailed(
                f"the state could not be loaded in {self._failures} attempts: {problem_of(error)}"
            ) from error
        return backoff(self._failures - 1, self._random)

    def succeeded(self, *, more: bool = False) -> None:
        """A state was loaded; whether the stream links to it will be seen.

        Args:
            more: another one is to be loaded before that.
        """
        self._failures = 0
        self._fruitless += not more

    def linked(self) -> None:
        """The stream goes on from the state."""
        self._fruitless = 0


class Following(Generic[S]):
    """The states of a view that follows a stream: an async iterator and context manager.

    Where to begin: at the view's own place, if it has one; else where the stream was made to begin;
    else with a load. Each load, the first one too, gives a state to show.

    A cancelled ``anext`` loses nothing: a load starts again, a stream goes on. The iteration ends
    with the session. It raises what the stream raises, `LoadFailed`, and what ``reduce`` raises.
    Without ``async with``, a loop that is left early leaves the stream open.
    """

    def __init__(
        self,
        view: StreamView[S],
        source: str | ClientStream,
        *,
        patience: LoadPatience | None = None,
        load_timeout: float = LOAD_TIMEOUT,
    ) -> None:
        self._view = view
        self._stream = connect(source) if isinstance(source, str) else source
        self._ours = not self._stream.entered
        self._patience = patience or LoadPatience()
        self._load_timeout = load_timeout
        self._load_first = (
            view.place is None
            and self._stream.cursor is None
            and view.wants_load(self._stream.channels)
        )
        # Where the stream has to be opened before it is read on.
        self._place = view.place
        self._consuming = False

    @property
    def stream(self) -> ClientStream:
        """The stream that is followed, for its statistics."""
        return self._stream

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> S:
        if self._consuming:
            raise ConcurrentConsumers
        self._consuming = True
        try:
            return await self._next()
        except Exception:
            await self.aclose()
            raise
        finally:
            self._consuming = False

    async def aclose(self) -> None:
        """Close the stream, if it was not entered by someone else. Idempotent."""
        if self._ours:
            await self._stream.aclose()

    async def _next(self) -> S:
        view, stream = self._view, self._stream
        while True:
            if self._load_first or view.awaiting_load:
                await self._load()
                return view.state
            if self._place is not None:
                await stream.reopen(*_arguments(self._place))
                self._place = None
            if not stream.entered:
                await stream.__aenter__()  # left by aclose(), also when this is not used as one
            if _took(view, await anext(stream), self._patience):
                return view.state

    async def _load(self) -> None:
        await asyncio.sleep(self._patience.before())
        while True:
            try:
                async with asyncio.timeout(self._load_timeout):
                    answer = self._view.ask()
                    self._view.loaded(await answer if inspect.isawaitable(answer) else answer)
            except Exception as error:  # noqa: BLE001 - the user's load may raise anything
                await asyncio.sleep(self._patience.failed(error))
            else:
                self._patience.succeeded(more=self._view.awaiting_load)
                self._load_first, self._place = False, self._view.reopen_at
                return


class SyncFollowing(Generic[S]):
    """Does what `Following` does, without an event loop. One thread iterates; any may `close`."""

    def __init__(
        self,
        view: StreamView[S],
        source: str | SyncClientStream,
        *,
        patience: LoadPatience | None = None,
    ) -> None:
        self._view = view
        self._stream = connect_sync(source) if isinstance(source, str) else source
        self._ours = not self._stream.entered
        self._patience = patience or LoadPatience()
        self._load_first = (
            view.place is None
            and self._stream.cursor is None
            and view.wants_load(self._stream.channels)
        )
        # Where the stream has to be opened before it is read on.
        self._place = view.place
        self._closing = threading.Event()

    @property
    def stream(self) -> SyncClientStream:
        """The stream that is followed, for its statistics."""
        return self._stream

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> S:
        try:
            return self._next()
        except Exception:
            self.close()
            raise

    def close(self) -> None:
        """Close the stream, if it was not entered by someone else. Idempotent."""
        self._closing.set()
        if self._ours:
            self._stream.close()

    def _next(self) -> S:
        view, stream = self._view, self._stream
        while not self._closing.is_set():
            if self._load_first or view.awaiting_load:
                if self._load():
                    return view.state
                break
            if self._place is not None:
                stream.reopen(*_arguments(self._place))
                self._place = None
            if not stream.entered:
                stream.__enter__()
            if _took(view, next(stream), self._patience):
                return view.state
        raise StopIteration

    def _load(self) -> bool:
        self._closing.wait(self._patience.before())
        while not self._closing.is_set():
            try:
                answer = self._view.ask()
                if not inspect.isawaitable(answer):
                    self._view.loaded(answer)
            except Exception as error:  # noqa: BLE001 - the user's load may raise anything
                self._closing.wait(self._patience.failed(error))
                continue
            if inspect.isawaitable(answer):
                if inspect.iscoroutine(answer):
                    answer.close()
                raise TypeError("follow_sync() takes a view whose load is a plain function")
            self._patience.succeeded(more=self._view.awaiting_load)
            self._load_first, self._place = False, self._view.reopen_at
            return True
        return False


def _arguments(place: Cursor) -> tuple[str, str | None]:
    """Write a place as a stream takes it; an epoch stands beside a plain number only."""
    return place.text, place.epoch if place.plain else None


def _took(view: StreamView[S], event: StreamEvent, patience: LoadPatience) -> bool:
    """Apply an event, and tell whether there is a new state."""
    applied = view.apply(event)
    if applied in {Applied.CHANGED, Applied.CAUGHT_UP}:
        patience.linked()
    return applied is Applied.CHANGED
