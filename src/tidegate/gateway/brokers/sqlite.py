"""The broker of one node that keeps everything in a SQLite file.

One thread writes: all publishes that wait when it is free become one transaction. Another one
reads, so that nobody who reads waits for the disk to take what is written. An event is told to
the sink, and its publish returns, after its transaction has been committed.
"""

from __future__ import annotations

import os
import sqlite3
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tidegate.errors import BrokerUnavailable
from tidegate.gateway.brokers.base import (
    HISTORY_LIMIT,
    BrokerCapabilities,
    Head,
    HistoryPage,
    Publication,
    PublishError,
    PublishRequest,
    PublishResult,
    Snapshot,
)
from tidegate.gateway.brokers.sqlite_rows import (
    USED_SECONDS,
    read_heads,
    read_page,
    read_snapshot,
)
from tidegate.gateway.brokers.sqlite_schema import checked_synchronous
from tidegate.gateway.brokers.sqlite_thread import Job, JobThread
from tidegate.gateway.brokers.sqlite_workshop import Reader, Writer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tidegate.gateway.brokers.base import BrokerSink
    from tidegate.gateway.brokers.sqlite_history import SqliteStore
    from tidegate.gateway.brokers.sqlite_schema import Synchronous

__all__ = ["SqliteBroker"]

_Outcome = tuple[PublishResult | PublishError, Publication | None]


class SqliteBroker:
    """Channels of one node, in a file that outlives it.

    After a kill and a restart every channel goes on in the same epoch, with every event whose
    publish has returned. It belongs to the event loop in which it was started. A cancelled call
    may still take effect; a cancelled publish that was begun is stored and delivered.

    Args:
        path: of the file. It is made, with its folder, for its owner alone, where there is none.
            Beside it lie ``-wal``, ``-shm`` and ``.lock``.
        synchronous: ``full``: what is acknowledged survives a power failure; ``normal``: it
            survives the end of the process only, and a publish does not wait for the disk.
        timeout: seconds that a call waits for the disk at most.
        max_waiting: events that may wait to be written; over it they are refused.
        max_waiting_bytes: and their bytes.
        clock: returns the time in seconds since 1970. Called in the broker's threads.
        random_bytes: returns as many random bytes as it is asked for. Likewise.

    Raises:
        ConfigError: ``synchronous`` is neither.
    """

    capabilities: Final = BrokerCapabilities(durable=True, shared=False)

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        synchronous: Synchronous = "full",
        timeout: float = 10.0,
        max_waiting: int = 10_000,
        max_waiting_bytes: int = 64 * 1024 * 1024,
        clock: Callable[[], float] = time.time,
        random_bytes: Callable[[int], bytes] = os.urandom,
    ) -> None:
        # Of one name, so that a link to the file is not another lock.
        self.path = Path(path).resolve()
        self._subscribed: set[str] = set()
        self._sink: BrokerSink | None = None
        self._writer = JobThread(
            Writer(
                self.path,
                checked_synchronous(synchronous),
                clock=clock,
                random_bytes=random_bytes,
                subscribed=self._subscribed,
                is_up=self._is_up,
            ),
            name="tidegate-sqlite-writer",
            timeout=timeout,
            max_items=max_waiting,
            max_bytes=max_waiting_bytes,
        )
        self._reader = JobThread(
            Reader(self.path, clock), name="tidegate-sqlite-reader", timeout=timeout
        )
        self._state = "has not started"

    async def start(self, sink: BrokerSink) -> None:
        """Open the file, and tell ``sink`` from now on.

        Raises:
            BrokerUnavailable: it cannot be opened or read, or another broker has it.
            ConfigError: it or its folder cannot be made, or it is no history of ours.
            RuntimeError: the broker has been started or stopped before.
        """
        if self._state != "has not started":
            raise RuntimeError("a broker starts once in its life; make a new one")
        self._state = "is starting"
        self._sink = sink
        try:
            await self._writer.start()
            await self._reader.start()
        except BaseException as error:
            await self.stop()
            if isinstance(error, sqlite3.Error):
                raise BrokerUnavailable(
                    f"the history file {self.path} cannot be opened: {error}"
                ) from error
            raise
        self._state = "runs"

    async def stop(self) -> None:
        """Accept no more, write all that was accepted, and close the file. Idempotent."""
        self._state = "has stopped"
        try:
            await self._reader.stop()
        finally:
            await self._writer.stop()

    async def publish(self, batch: Sequence[PublishRequest]) -> list[PublishResult | PublishError]:
        """Append events and deliver them; see `Broker.publish`."""
        batch = tuple(batch)

        def fail(problem: str, certain: bool) -> list[PublishError]:
            return [
                PublishError(
                    channel=request.channel,
                    code="broker_unavailable",
                    error=problem,
                    certain=certain,
                )
                for request in batch
            ]

        if self._state != "runs":
            return [*fail(f"the broker {self._state}", True)]

        def work(store: SqliteStore, now: float) -> list[_Outcome]:
            append = store.append
            return [append(request, now) for request in batch]

        def deliver(outcomes: list[_Outcome], number: int) -> None:
            publication = outcomes[number][1]
            channel = batch[number].channel
            if publication is not None and channel in self._subscribed and self._sink is not None:
                self._sink.on_publication(channel, publication)

        def finish(outcomes: list[_Outcome]) -> list[PublishResult | PublishError]:
            return [result for result, _ in outcomes]

        sizes = [len(request.payload) for request in batch]
        job = Job(
            work,
            finish=finish,
            fail=fail,
            deliver=deliver,
            sizes=sizes,
            items=len(batch),
            size=sum(sizes),
        )
        results: list[PublishResult | PublishError] = await self._writer.do(job)
        return results

    async def subscribe(self, channels: Iterable[str]) -> dict[str, Head]:
        """Be told of the events of ``channels``; see `Broker.subscribe`."""
        names = list(channels)

        # In turn with the results of publishes: what is appended after these heads comes later.
        def finish(heads: dict[str, Head]) -> dict[str, Head]:
            self._subscribed.update(names)
            return heads

        heads: dict[str, Head] = await self._write(_heads_of(names), finish=finish)
        return heads

    async def unsubscribe(self, channels: Iterable[str]) -> None:
        """Not be told any more. It does not wait; a subscribe that is under way comes first."""
        self._running()
        names = list(channels)

        def finish(_: object) -> None:
            self._subscribed.difference_update(names)

        def work(store: SqliteStore, now: float) -> None:
            for name in names:
                store.touch(name, now)

        if not self._writer.submit(Job(work, finish=finish)):
            finish(None)

    async def history(
        self,
        channel: str,
        *,
        after: str | None = None,
        limit: int = HISTORY_LIMIT,
        newest_first: bool = False,
    ) -> HistoryPage:
        """Read a page and the head; see `Broker.history`."""

        def read(connection: sqlite3.Connection, now: float) -> tuple[HistoryPage, bool] | None:
            found = read_page(
                connection, channel, now, after=after, limit=limit, newest_first=newest_first
            )
            return None if found is None else (found[0], now > found[1] + USED_SECONDS)

        found: tuple[HistoryPage, bool] | None = await self._read(read)
        if found is None:
            page: HistoryPage = await self._write(
                lambda store, now: store.history(
                    channel, now, after=after, limit=limit, newest_first=newest_first
                )
            )
            return page
        if found[1]:
            self._writer.submit(Job(_heads_of([channel])))
        return found[0]

    async def heads(self, channels: Iterable[str]) -> dict[str, Head]:
        """Return the heads of channels; see `Broker.heads`."""
        names = list(channels)
        heads: dict[str, Head] | None = await self._read(
            lambda connection, now: read_heads(connection, names, now)
        )
        if heads is None:
            heads = await self._write(_heads_of(names))
        return heads

    async def remove_history(self, channel: str) -> Head:
        """Drop a channel's events and snapshot; see `Broker.remove_history`."""

        def finish(head: Head) -> Head:
            if channel in self._subscribed and self._sink is not None:
                self._sink.on_reset(channel, head)
            return head

        head: Head = await self._write(
            lambda store, now: store.remove_history(channel, now), finish=finish
        )
        return head

    async def put_snapshot(self, channel: str, state: bytes, position: str) -> Snapshot:
        """Store the state at ``position``; see `Broker.put_snapshot`."""
        snapshot: Snapshot = await self._write(
            lambda store, now: store.put_snapshot(channel, state, position, now), size=len(state)
        )
        return snapshot

    async def get_snapshot(self, channel: str) -> Snapshot | None:
        """Return the stored state, if there is one."""
        snapshot: Snapshot | None = await self._read(
            lambda connection, _: read_snapshot(connection, channel)
        )
        return snapshot

    def _running(self) -> None:
        if self._state != "runs":
            raise BrokerUnavailable(f"the broker {self._state}")

    async def _write(
        self,
        work: Callable[[SqliteStore, float], Any],
        *,
        finish: Callable[[Any], Any] | None = None,
        size: int = 0,
    ) -> Any:
        self._running()
        return await self._writer.do(Job(work, finish=finish, size=size))

    async def _read(self, work: Callable[[sqlite3.Connection, float], Any]) -> Any:
        self._running()
        return await self._reader.do(Job(work))

    def _is_up(self, up: bool) -> None:
        """From the writer's thread: the file can be written again, or cannot."""

        def tell() -> None:
            if self._sink is None:
                return
            if up:
                self._sink.on_reconnected()
            else:
                self._sink.on_disconnected()

        self._writer.call(tell)


def _heads_of(names: list[str]) -> Callable[[SqliteStore, float], dict[str, Head]]:
    return lambda store, now: {name: store.head(name, now) for name in names}
