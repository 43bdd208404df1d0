"""What a SQLite history does within its transactions. Synchronous, for one thread.

`SqliteStore` does the same as `tidegate.gateway.brokers.memory.MemoryStore`, on a connection.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tidegate.errors import SnapshotAhead
from tidegate.gateway.brokers.base import (
    HISTORY_LIMIT,
    Head,
    HistoryPage,
    Publication,
    PublishError,
    PublishRequest,
    PublishResult,
    Snapshot,
)
from tidegate.gateway.brokers.memory import KEEP_SECONDS, keep_seconds, make_epoch
from tidegate.gateway.brokers.sqlite_rows import (
    CHANNEL_COLUMNS,
    SELECT_CHANNEL,
    UPDATE_CHANNEL,
    USED_SECONDS,
    ChannelRow,
    read_page,
)
from tidegate.gateway.position import NONE, is_position, make_position, next_number

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator

__all__ = ["ITEM_ERRORS", "SqliteStore"]

ITEM_ERRORS: Final = (
    OverflowError,
    TypeError,
    ValueError,
    sqlite3.DataError,
    sqlite3.IntegrityError,
    sqlite3.InterfaceError,
    sqlite3.ProgrammingError,
)
"""What one item that cannot be stored raises; the others of its transaction are not touched."""

_MAX_CACHED: Final = 50_000
_VACUUM_PAGES: Final = 1000

_INSERT_EVENT: Final = (
    "INSERT INTO events (channel, position, prev, type, payload, tags, version)"
    " VALUES (?, ?, ?, ?, ?, ?, ?)"
)
_INSERT_KEY: Final = (
    "INSERT OR REPLACE INTO keys (channel, key, expires, epoch, position, prev, suppressed)"
    " VALUES (?, ?, ?, ?, ?, ?, ?)"
)


class SqliteStore:
    """The histories of all channels, on the one connection that writes.

    All calls but `sweep` and `vacuum` stand between `begin` and `commit` or `rollback`; what they
    return is true when `commit` has returned. They raise `sqlite3.Error` where the file fails.

    Args:
        connection: made by `tidegate.gateway.brokers.sqlite_schema.open_writer`.
        random_bytes: returns as many random bytes as it is asked for.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        *,
        random_bytes: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self._connection = connection
        self._random_bytes = random_bytes
        self._channels: dict[str, ChannelRow] = {}
        self._changed: dict[ChannelRow, None] = {}
        self._events: list[tuple[Any, ...]] = []
        self._keys: dict[tuple[int, str], tuple[Any, ...]] = {}
        self._swept = 0
        self._careful = False

    def begin(self, *, careful: bool = False) -> None:
        """Begin a transaction.

        Args:
            careful: write each item by itself, so that one that cannot be stored does not
                touch the others. Otherwise it fails the whole transaction.
        """
        if len(self._channels) > _MAX_CACHED:
            self._channels.clear()
        self._careful = careful
        self._connection.execute("BEGIN IMMEDIATE")

    def commit(self) -> None:
        """End it; everything has been written by `flush`."""
        self._connection.execute("COMMIT")

    def rollback(self) -> None:
        """Undo the transaction."""
        self._forget()
        self._channels.clear()
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    def flush(self) -> None:
        """Write down what the calls have gathered."""
        connection = self._connection
        if self._events:
            connection.executemany(_INSERT_EVENT, self._events)
        if self._keys:
            connection.executemany(_INSERT_KEY, self._keys.values())
        for channel in self._changed:
            self._trim(channel)
        if self._changed:
            connection.executemany(UPDATE_CHANNEL, [channel.values() for channel in self._changed])
        self._forget()

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """Undo what the block did if it raises an error of its own."""
        self._connection.execute("SAVEPOINT item")
        try:
            yield
            self.flush()
        except BaseException:
            self._forget()
            self._channels.clear()
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK TO item")
                self._connection.execute("RELEASE item")
            raise
        self._connection.execute("RELEASE item")

    def append(
        self, request: PublishRequest, now: float
    ) -> tuple[PublishResult | PublishError, Publication | None]:
        """Append an event; see `MemoryStore.append`."""
        if not self._careful:
            return self._append(request, now)
        try:
            with self.guarded():
                return self._append(request, now)
        except ITEM_ERRORS as error:
            return PublishError(
                channel=request.channel,
                code="broker_error",
                error=f"the event cannot be stored: {error}",
                certain=True,
            ), None

    def head(self, channel: str, now: float) -> Head:
        """Return a channel's head; one without an epoch gets one."""
        return self._used(channel, now).head

    def touch(self, channel: str, now: float) -> None:
        """Note that a channel is used, if anything is known of it."""
        found = self._channels.get(channel) or self._find(channel)
        if found is not None:
            self._note_use(found, now)

    def history(
        self,
        channel: str,
        now: float,
        *,
        after: str | None = None,
        limit: int = HISTORY_LIMIT,
        newest_first: bool = False,
    ) -> HistoryPage:
        """Read a page, as `Broker.history` says."""
        self._used(channel, now)
        self.flush()
        page = read_page(
            self._connection, channel, now, after=after, limit=limit, newest_first=newest_first
        )
        assert page is not None  # noqa: S101 - the row was made above
        return page[0]

    def remove_history(self, channel: str, now: float) -> Head:
        """Drop a channel's events and snapshot; return the empty head of its new epoch."""
        found = self._used(channel, now)
        found.hide()
        found.epoch = make_epoch(self._random_bytes)
        found.since = found.last
        found.prev = NONE
        found.version = None
        self._connection.execute("DELETE FROM snapshots WHERE channel = ?", (found.id,))
        self._changed[found] = None
        return found.head

    def put_snapshot(self, channel: str, state: bytes, position: str, now: float) -> Snapshot:
        """Store the state at a position.

        Raises:
            SnapshotAhead: as `Broker.put_snapshot` says.
        """
        found = self._used(channel, now)
        reached = position == NONE or found.since < position <= found.position
        if not is_position(position) or not reached:
            raise SnapshotAhead(position, found.position)
        stored = self._row("SELECT epoch, position FROM snapshots WHERE channel = ?", (found.id,))
        if stored is not None and stored[0] == found.epoch and position < stored[1]:
            raise SnapshotAhead(position, found.position)
        self._connection.execute(
            "INSERT OR REPLACE INTO snapshots (channel, epoch, position, state)"
            " VALUES (?, ?, ?, ?)",
            (found.id, found.epoch, position, state),
        )
        return Snapshot(state=state, position=position, epoch=found.epoch)

    def sweep(
        self,
        now: float,
        *,
        keep: Container[str] = (),
        limit: int = 500,
        rows: int = 200,
    ) -> bool:
        """Do a step of letting go of what has expired, in a transaction of its own.

        Args:
            now: the time.
            keep: channels of which epoch and head are kept in any case.
            limit: how many channels are looked at.
            rows: how many rows of keys and of events are deleted.

        Returns:
            Whether all channels have been looked at; the next call begins anew then.
        """
        self.begin()
        try:
            done = self._sweep(now, keep, limit, rows)
            self.flush()
            self.commit()
        except BaseException:
            self.rollback()
            raise
        return done

    def vacuum(self) -> bool:
        """Give a step's worth of pages back to the file system if many are free.

        Returns:
            Whether no more than a quarter of the file is free.
        """
        free = self._pragma("freelist_count")
        if free <= _VACUUM_PAGES or 4 * free <= self._pragma("page_count"):
            return True
        with closing(
            self._connection.execute(f"PRAGMA incremental_vacuum({_VACUUM_PAGES})")
        ) as pages:
            pages.fetchall()
        return False

    def probe(self) -> None:
        """Write something, to see whether it can be done."""
        self._connection.execute(f"PRAGMA user_version = {self._pragma('user_version')}")

    def close(self) -> None:
        """Close the connection, whatever state it is in."""
        with contextlib.suppress(sqlite3.Error):
            self._connection.close()

    def _append(
        self, request: PublishRequest, now: float
    ) -> tuple[PublishResult, Publication | None]:
        name = request.channel
        channel = self._channels.get(name)
        if channel is None:
            channel = self._load(name, now)
        key = request.idempotency_key
        if key is not None:
            known = self._known(name, channel.id, key, now)
            if known is not None:
                return known, None
        policy = request.policy
        version = request.version
        publication = None
        if version is not None and channel.version is not None and version <= channel.version:
            result = PublishResult(
                channel=name,
                position=channel.position,
                epoch=channel.epoch,
                prev=channel.prev,
                suppressed=True,
            )
        else:
            number = next_number(channel.number, int(now * 1000))
            position = make_position(number, self._random_bytes(4))
            prev = channel.position
            channel.expire(now)
            tags = request.tags
            if policy.size > 0:
                self._events.append(
                    (
                        channel.id,
                        position,
                        prev,
                        request.type,
                        request.payload,
                        None if tags is None else msgspec.json.encode(tags).decode(),
                        version,
                    )
                )
                channel.count += 1
                channel.appended += 1
            publication = Publication(
                position=position,
                prev=prev,
                epoch=channel.epoch,
                type=request.type,
                payload=request.payload,
                tags=tags,
                version=version,
            )
            channel.expires = now + policy.ttl
            channel.number = number
            channel.prev = prev
            channel.last = position
            if version is not None:
                channel.version = version
            if policy is not channel.policy:
                channel.policy = policy
                channel.keep = keep_seconds(policy)
            result = PublishResult(channel=name, position=position, epoch=channel.epoch, prev=prev)
        channel.used = now
        self._changed[channel] = None
        if key is not None:
            self._keys[channel.id, key] = (
                channel.id,
                key,
                now + policy.idempotency_ttl,
                result.epoch,
                result.position,
                result.prev,
                result.suppressed,
            )
        return result, publication

    def _known(self, name: str, channel: int, key: str, now: float) -> PublishResult | None:
        row = self._keys.get((channel, key))
        if row is None:
            row = self._row("SELECT * FROM keys WHERE channel = ? AND key = ?", (channel, key))
        if row is None or now >= row[2]:
            return None
        return PublishResult(
            channel=name,
            epoch=row[3],
            position=row[4],
            prev=row[5],
            duplicate=True,
            suppressed=bool(row[6]),
        )

    def _used(self, name: str, now: float) -> ChannelRow:
        channel = self._channels.get(name)
        if channel is None:
            channel = self._load(name, now)
        self._note_use(channel, now)
        return channel

    def _note_use(self, channel: ChannelRow, now: float) -> None:
        if now > channel.used + USED_SECONDS:
            channel.used = now
            self._changed[channel] = None

    def _find(self, name: str) -> ChannelRow | None:
        row = self._row(SELECT_CHANNEL, (name,))
        if row is None:
            return None
        channel = self._channels[name] = ChannelRow(row)
        return channel

    def _load(self, name: str, now: float) -> ChannelRow:
        channel = self._find(name)
        if channel is None:
            epoch = make_epoch(self._random_bytes)
            made = self._connection.execute(
                "INSERT INTO channels (name, epoch, last, prev, since, floor, version, count,"
                " stale, expires, used, keep) VALUES (?, ?, '', '', '', '', NULL, 0, 0, 0, ?, ?)",
                (name, epoch, now, KEEP_SECONDS),
            )
            row = (made.lastrowid, epoch, "", "", "", "", None, 0, 0, 0.0, now, KEEP_SECONDS)
            channel = self._channels[name] = ChannelRow(row)
        return channel

    def _trim(self, channel: ChannelRow) -> None:
        """Hide the events over the policy's number, and delete a bounded number of hidden ones."""
        excess = 0 if channel.policy is None else channel.count - channel.policy.size
        if excess > 0:
            row = self._row(
                "SELECT position FROM events WHERE channel = ? AND position > ?"
                " ORDER BY position LIMIT 1 OFFSET ?",
                (channel.id, channel.floor, excess - 1),
            )
            assert row is not None  # noqa: S101 - as many rows there are
            channel.floor = row[0]
            channel.count -= excess
            channel.stale += excess
        if channel.stale:
            # Twice as many as were added, so that a backlog of them shrinks.
            self._delete_stale(channel, max(64, 2 * channel.appended))

    def _delete_stale(self, channel: ChannelRow, limit: int) -> int:
        """Delete up to ``limit`` hidden events; return how many."""
        upto = channel.floor
        deleted = channel.stale
        if deleted > limit:
            row = self._row(
                "SELECT position FROM events WHERE channel = ? ORDER BY position LIMIT 1 OFFSET ?",
                (channel.id, limit - 1),
            )
            assert row is not None  # noqa: S101 - as many rows there are
            upto = row[0]
            deleted = limit
        self._connection.execute(
            "DELETE FROM events WHERE channel = ? AND position <= ?", (channel.id, upto)
        )
        channel.stale -= deleted
        self._changed[channel] = None
        return deleted

    def _sweep(self, now: float, keep: Container[str], limit: int, rows: int) -> bool:
        forgotten = self._connection.execute(
            "DELETE FROM keys WHERE (channel, key) IN"
            " (SELECT channel, key FROM keys WHERE expires <= ? LIMIT ?)",
            (now, rows),
        ).rowcount
        found = self._connection.execute(
            f"SELECT name, {CHANNEL_COLUMNS} FROM channels WHERE id > ? ORDER BY id LIMIT ?",  # noqa: S608
            (self._swept, limit),
        ).fetchall()
        budget = rows
        for name, *row in found:
            # The cached one is the same, and goes on to be used.
            channel = self._channels.get(name) or ChannelRow(tuple(row))
            if channel.expire(now):
                self._changed[channel] = None
            if channel.stale:
                if budget <= 0:
                    return False
                budget -= self._delete_stale(channel, budget)
                if channel.stale:
                    return False
            # Up to USED_SECONDS of use may not have been written down.
            unused = now - channel.used - USED_SECONDS
            if unused >= channel.keep and not channel.count and name not in keep:
                self._drop(name, channel)
            self._swept = channel.id
        if len(found) == limit:
            return False
        self._swept = 0
        return forgotten < rows

    def _drop(self, name: str, channel: ChannelRow) -> None:
        if self._row("SELECT 1 FROM keys WHERE channel = ? LIMIT 1", (channel.id,)) is not None:
            return
        self._connection.execute("DELETE FROM snapshots WHERE channel = ?", (channel.id,))
        self._connection.execute("DELETE FROM channels WHERE id = ?", (channel.id,))
        self._channels.pop(name, None)
        self._changed.pop(channel, None)

    def _forget(self) -> None:
        for channel in self._changed:
            channel.appended = 0
        self._changed.clear()
        self._events.clear()
        self._keys.clear()

    def _row(self, statement: str, values: tuple[Any, ...]) -> tuple[Any, ...] | None:
        with closing(self._connection.execute(statement, values)) as found:
            row: tuple[Any, ...] | None = found.fetchone()
        return row

    def _pragma(self, name: str) -> int:
        with closing(self._connection.execute(f"PRAGMA {name}")) as found:
            return int(found.fetchone()[0])
