"""The file of a SQLite history: its tables, its options, and the lock of who has it open."""

from __future__ import annotations

import fcntl
import os
import sqlite3
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Final, Literal, get_args

from tidegate.errors import BrokerUnavailable, ConfigError

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Self

__all__ = [
    "APPLICATION_ID",
    "SCHEMA_VERSION",
    "FileLock",
    "Synchronous",
    "checked_synchronous",
    "connect",
    "open_reader",
    "open_writer",
    "prepare",
]

Synchronous = Literal["full", "normal"]
"""``full``: what is acknowledged survives a power failure. ``normal``: it survives the end of the
process, but a power failure may take the last commits."""

APPLICATION_ID: Final = 0x54494445  # "TIDE"
"""How a file says that it is one of ours."""

SCHEMA_VERSION: Final = 1
"""The version of the tables, in ``PRAGMA user_version``."""

# What a channel's columns mean:
#   last      the position of the newest event of all epochs; positions go on from it
#   prev      the position before it
#   since     the last position of the epochs before; the head is NONE as long as last is that
#   floor     events up to here are gone for everybody; their rows are deleted step by step
#   count     the rows above the floor
#   stale     the rows up to the floor
#   expires   when all events are gone, in seconds
#   used      when the channel was last used; keep: for how many seconds more it is remembered
_SCHEMA: Final = f"""
BEGIN IMMEDIATE;
CREATE TABLE channels (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL UNIQUE,
    epoch TEXT NOT NULL,
    last TEXT NOT NULL,
    prev TEXT NOT NULL,
    since TEXT NOT NULL,
    floor TEXT NOT NULL,
    version INTEGER,
    count INTEGER NOT NULL,
    stale INTEGER NOT NULL,
    expires REAL NOT NULL,
    used REAL NOT NULL,
    keep REAL NOT NULL
);
CREATE TABLE events (
    channel INTEGER NOT NULL,
    position TEXT NOT NULL,
    prev TEXT NOT NULL,
    type TEXT NOT NULL,
    payload BLOB NOT NULL,
    tags TEXT,
    version INTEGER,
    PRIMARY KEY (channel, position)
) WITHOUT ROWID;
CREATE TABLE keys (
    channel INTEGER NOT NULL,
    key TEXT NOT NULL,
    expires REAL NOT NULL,
    epoch TEXT NOT NULL,
    position TEXT NOT NULL,
    prev TEXT NOT NULL,
    suppressed INTEGER NOT NULL,
    PRIMARY KEY (channel, key)
) WITHOUT ROWID;
CREATE INDEX keys_expires ON keys (expires);
CREATE TABLE snapshots (
    channel INTEGER PRIMARY KEY,
    epoch TEXT NOT NULL,
    position TEXT NOT NULL,
    state BLOB NOT NULL
);
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {SCHEMA_VERSION};
COMMIT;
"""

_BUSY_SECONDS: Final = 5.0
_WAL_BYTES: Final = 64 * 1024 * 1024


def checked_synchronous(value: str) -> Synchronous:
    """Return ``value`` if it is one.

    Raises:
        ConfigError: it is none.
    """
    for choice in get_args(Synchronous):
        if value == choice:
            return choice  # type: ignore[no-any-return]
    raise ConfigError(f"synchronous is full or normal, not {value[:80]!a}")


class FileLock:
    """Who holds it has the file alone, until it is released or the process has ended.

    Args:
        path: of the file that it guards; the lock is a file beside it, ``<name>.lock``.

    Raises:
        BrokerUnavailable: another broker, in this process or another one, has it.
        ConfigError: the lock cannot be made.
    """

    def __init__(self, path: Path) -> None:
        lock = path.with_name(path.name + ".lock")
        try:
            descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise ConfigError(f"the file {lock} cannot be opened: {error.strerror}") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(descriptor, 0)
            os.write(descriptor, f"{os.getpid()}\n".encode())
        except BlockingIOError:
            owner = os.read(descriptor, 20).decode("ascii", "replace").strip()
            os.close(descriptor)
            raise BrokerUnavailable(
                f"the history file {path} is in use by another broker"
                + (f" (process {owner})" if owner.isdigit() else "")
                + "; one node at a time has it"
            ) from None
        except OSError as error:
            os.close(descriptor)
            raise ConfigError(f"the file {lock} cannot be locked: {error.strerror}") from error
        self._descriptor = descriptor

    def release(self) -> None:
        """Let others have it. Idempotent."""
        if self._descriptor >= 0:
            # Unlocked and not just closed: a child process may have inherited the descriptor.
            # The file stays: removed, it could be locked twice, by who opened it before.
            with suppress(OSError):
                fcntl.flock(self._descriptor, fcntl.LOCK_UN)
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def prepare(path: Path) -> None:
    """Make the folder and the file, for its owner alone, where there are none.

    Raises:
        ConfigError: they cannot be made.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"the folder {path.parent} of the history file cannot be made: {error.strerror}"
        ) from error
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    except OSError as error:
        raise ConfigError(f"the history file {path} cannot be opened: {error.strerror}") from error


def connect(path: Path) -> sqlite3.Connection:
    """Open a file that exists, for the calling thread, every transaction by hand."""
    return sqlite3.connect(
        f"{path.absolute().as_uri()}?mode=rw",
        uri=True,
        timeout=_BUSY_SECONDS,
        isolation_level=None,
        cached_statements=256,
    )


def open_writer(path: Path, synchronous: Synchronous) -> sqlite3.Connection:
    """Open the file for writing, and make its tables where there are none.

    Raises:
        ConfigError: the file is none of ours, or of a later version.
        sqlite3.Error: it cannot be opened or read.
    """
    connection = connect(path)
    try:
        _identify(connection, path)
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")  # heard on a new file only
        _use_wal(connection, path)
        connection.execute(f"PRAGMA synchronous = {synchronous.upper()}")
        connection.execute(f"PRAGMA journal_size_limit = {_WAL_BYTES}")
        if _number(connection, "user_version") == 0:
            connection.executescript(_SCHEMA)
    except BaseException:
        connection.close()
        raise
    return connection


def open_reader(path: Path) -> sqlite3.Connection:
    """Open the file, whose tables are there, for reading.

    Raises:
        sqlite3.Error: it cannot be opened.
    """
    connection = connect(path)
    connection.execute("PRAGMA query_only = ON")
    return connection


def _identify(connection: sqlite3.Connection, path: Path) -> None:
    try:
        application = _number(connection, "application_id")
        version = _number(connection, "user_version")
        with closing(connection.execute("SELECT count(*) FROM sqlite_master")) as found:
            tables = found.fetchone()[0]
    except sqlite3.DatabaseError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_NOTADB:
            raise
        raise ConfigError(f"the file {path} is no SQLite file; give the broker another") from error
    if application != APPLICATION_ID and (application or version or tables):
        raise ConfigError(f"the file {path} belongs to another program; give the broker another")
    if version > SCHEMA_VERSION:
        raise ConfigError(
            f"the history file {path} was written by a later version (schema {version}; this "
            f"one knows {SCHEMA_VERSION}); upgrade, or give the broker another file"
        )


def _use_wal(connection: sqlite3.Connection, path: Path) -> None:
    with closing(connection.execute("PRAGMA journal_mode = WAL")) as answer:
        mode = answer.fetchone()[0]
    if mode != "wal":
        raise ConfigError(
            f"the file system of {path} is not fit for a history: it has no shared memory"
        )


def _number(connection: sqlite3.Connection, pragma: str) -> int:
    with closing(connection.execute(f"PRAGMA {pragma}")) as found:
        return int(found.fetchone()[0])
