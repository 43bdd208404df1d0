"""What the two threads of a SQLite broker do with the file."""

from __future__ import annotations

import contextlib
import logging
import sqlite3
import time
from typing import TYPE_CHECKING, Any, Final

from tidegate.errors import GatewayError
from tidegate.gateway.brokers.sqlite_history import ITEM_ERRORS, SqliteStore
from tidegate.gateway.brokers.sqlite_schema import FileLock, open_reader, open_writer, prepare
from tidegate.gateway.brokers.sqlite_thread import Job, JobThread

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Sequence
    from pathlib import Path

    from tidegate.gateway.brokers.sqlite_schema import Synchronous

__all__ = ["Reader", "Writer"]

_logger = logging.getLogger(__name__)

_SWEEP_SECONDS: Final = 10.0
_SWEEP_STEP_SECONDS: Final = 0.1
_REOPEN_SECONDS: Final = 1.0
_LOG_SECONDS: Final = 10.0


class Writer:
    """What the writing thread does: a transaction for all that waits, and tidying up.

    Made anywhere, used by one thread. A file that fails is closed, and opened again until it can be
    written; what comes in between fails at once.

    Args:
        path: of the file.
        synchronous: see `SqliteBroker`.
        clock: returns the time in seconds since 1970.
        random_bytes: returns as many random bytes as it is asked for.
        subscribed: channels of which epoch and head are kept in any case.
        is_up: told ``False`` when the file fails, ``True`` when it can be written again.
    """

    def __init__(
        self,
        path: Path,
        synchronous: Synchronous,
        *,
        clock: Callable[[], float],
        random_bytes: Callable[[int], bytes],
        subscribed: Container[str],
        is_up: Callable[[bool], None],
    ) -> None:
        self._path = path
        self._subscribed = subscribed
        self._is_up = is_up
        self._synchronous = synchronous
        self._clock = clock
        self._random_bytes = random_bytes
        self._lock: FileLock | None = None
        self._store: SqliteStore | None = None
        self._problem = ""
        self._next_sweep = 0.0
        self._next_open = 0.0
        self._next_log = 0.0

    def open(self) -> None:
        """Make the file, take it for this process alone, and open it.

        Raises:
            BrokerUnavailable: another broker has it.
            ConfigError: it cannot be made, or is none of ours.
            sqlite3.Error: it cannot be read.
        """
        prepare(self._path)
        self._lock = FileLock(self._path)
        self._open_store()
        self._next_sweep = time.monotonic() + _SWEEP_STEP_SECONDS

    def close(self) -> None:
        """Close the file and let others have it."""
        if self._store is not None:
            self._store.close()
        if self._lock is not None:
            self._lock.release()

    def do(self, jobs: Sequence[Job]) -> list[Any]:
        """Do all in one transaction; their work takes the store and the time."""
        if self._store is None and not self._reopened():
            return self._failed(jobs, certain=True)
        try:
            return self._transaction(jobs, careful=False)
        except ITEM_ERRORS:
            # Once more, so that the others of the group are not touched by the bad one.
            return self._transaction(jobs, careful=True)

    def idle(self) -> float:
        """Do a step of tidying up, or of getting the file back, if it is due."""
        now = time.monotonic()
        if self._store is None:
            return _REOPEN_SECONDS if self._reopened() else max(self._next_open - now, 0.01)
        if now >= self._next_sweep:
            self._next_sweep = now + self._sweep(self._store)
        return self._next_sweep - now

    def _sweep(self, store: SqliteStore) -> float:
        """Do a step of tidying up; return in how many seconds the next one is due."""
        try:
            swept = store.sweep(self._clock(), keep=self._subscribed)
            done = store.vacuum() and swept
        except sqlite3.Error as error:
            self._note(error)
            return _SWEEP_SECONDS
        return _SWEEP_SECONDS if done else _SWEEP_STEP_SECONDS

    def _transaction(self, jobs: Sequence[Job], *, careful: bool) -> list[Any]:
        store = self._store
        assert store is not None  # noqa: S101 - do() has seen to it
        now = self._clock()
        committing = False
        try:
            store.begin(careful=careful)
            try:
                outcomes = [_outcome_of(job, store, now, careful=careful) for job in jobs]
                store.flush()
                committing = True
                store.commit()
            except BaseException:
                store.rollback()
                raise
        except ITEM_ERRORS:
            raise
        except sqlite3.Error as error:
            # What failed within the commit may be in the file all the same when it is read anew.
            self._note(error)
            return self._failed(jobs, certain=not committing or _code(error) == sqlite3.SQLITE_BUSY)
        return outcomes

    def _failed(self, jobs: Sequence[Job], *, certain: bool) -> list[Any]:
        return [JobThread.failure(self._problem, certain=certain)] * len(jobs)

    def _note(self, error: sqlite3.Error) -> None:
        """Keep what to tell; let go of a file that can no longer be trusted."""
        problem = f"the history file {self._path} cannot be written: {error}"
        now = time.monotonic()
        # Each publish meets it again; the log is told now and then.
        if problem != self._problem or now >= self._next_log:
            self._next_log = now + _LOG_SECONDS
            _logger.error("%s", problem)
        self._problem = problem
        # A full disk and a foreign lock pass, and leave file and connection as they are.
        if _code(error) in {sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}:
            return
        if self._store is not None:
            self._store.close()
            self._store = None
            self._next_open = time.monotonic() + _REOPEN_SECONDS
            self._is_up(False)

    def _reopened(self) -> bool:
        now = time.monotonic()
        if now < self._next_open:
            return False
        try:
            self._open_store().probe()
        except (sqlite3.Error, GatewayError, ValueError) as error:
            self._problem = f"the history file {self._path} cannot be written: {error}"
            if self._store is not None:
                self._store.close()
                self._store = None
            self._next_open = time.monotonic() + _REOPEN_SECONDS
            return False
        _logger.info("the history file %s can be written again", self._path)
        self._is_up(True)
        return True

    def _open_store(self) -> SqliteStore:
        connection = open_writer(self._path, self._synchronous)
        self._store = SqliteStore(connection, random_bytes=self._random_bytes)
        return self._store


class Reader:
    """What the reading thread does: each job in a transaction of its own.

    Made anywhere, used by one thread.

    Args:
        path: of the file.
        clock: returns the time in seconds since 1970.
    """

    def __init__(self, path: Path, clock: Callable[[], float]) -> None:
        self._path = path
        self._clock = clock
        self._connection: sqlite3.Connection | None = None

    def open(self) -> None:
        """Open the file, which the writer has made."""
        self._connection = open_reader(self._path)

    def close(self) -> None:
        """Close the file."""
        if self._connection is not None:
            with contextlib.suppress(sqlite3.Error):
                self._connection.close()
            self._connection = None

    def idle(self) -> float:
        """Do nothing."""
        return 3600.0

    def do(self, jobs: Sequence[Job]) -> list[Any]:
        """Do each by itself; its work takes the connection and the time."""
        return [self._read(job) for job in jobs]

    def _read(self, job: Job) -> Any:
        try:
            if self._connection is None:
                self.open()
            connection = self._connection
            assert connection is not None  # noqa: S101 - just opened
            connection.execute("BEGIN")
            try:
                return job.work(connection, self._clock())
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
        except ITEM_ERRORS as error:
            return error
        except sqlite3.Error as error:
            problem = f"the history file {self._path} cannot be read: {error}"
            _logger.error("%s", problem)  # noqa: TRY400 - the traceback says no more
            self.close()
            return JobThread.failure(problem, certain=True)


def _outcome_of(job: Job, store: SqliteStore, now: float, *, careful: bool) -> Any:
    try:
        if not careful:
            return job.work(store, now)
        with store.guarded():
            return job.work(store, now)
    except GatewayError as error:
        return error
    except ITEM_ERRORS as error:
        if not careful:
            raise
        return error


def _code(error: sqlite3.Error) -> int:
    """The primary one; 0 where the error is not SQLite's own."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF
