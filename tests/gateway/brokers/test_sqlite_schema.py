import contextlib
import os
import sqlite3
import stat
import subprocess
import sys

import pytest

from tidegate.errors import BrokerUnavailable, ConfigError
from tidegate.gateway.brokers.sqlite_schema import (
    APPLICATION_ID,
    SCHEMA_VERSION,
    FileLock,
    checked_synchronous,
    connect,
    open_reader,
    open_writer,
    prepare,
)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "history.db"


def opened(path):
    prepare(path)
    return contextlib.closing(open_writer(path, "full"))


def pragma(connection, name):
    return connection.execute(f"PRAGMA {name}").fetchone()[0]


def test_a_new_file_says_what_it_is(path):
    with opened(path) as connection:
        assert pragma(connection, "application_id") == APPLICATION_ID
        assert pragma(connection, "user_version") == SCHEMA_VERSION
        assert pragma(connection, "journal_mode") == "wal"
        assert pragma(connection, "auto_vacuum") == 2
        assert pragma(connection, "synchronous") == 2


def test_opening_again_keeps_what_is_there(path):
    with opened(path) as connection:
        connection.execute("INSERT INTO snapshots VALUES (1, 'e', 'p', x'00')")
    with opened(path) as connection:
        assert connection.execute("SELECT count(*) FROM snapshots").fetchone() == (1,)


def test_events_and_keys_are_found_by_their_place_alone(path):
    with opened(path) as connection:
        plan = connection.execute(
            "EXPLAIN QUERY PLAN SELECT * FROM events WHERE channel = 1 AND position > 'x'"
            " ORDER BY position"
        ).fetchall()
        assert [step[3] for step in plan] == [
            "SEARCH events USING PRIMARY KEY (channel=? AND position>?)"
        ]
        plan = connection.execute(
            "EXPLAIN QUERY PLAN SELECT channel, key FROM keys WHERE expires <= 1 LIMIT 2"
        ).fetchall()
        assert "COVERING INDEX keys_expires" in plan[0][3]


def test_a_file_of_a_later_version_is_refused(path):
    with opened(path) as connection:
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    with pytest.raises(ConfigError, match=r"history\.db was written by a later version"):
        open_writer(path, "full")


@pytest.mark.parametrize(
    "statement",
    ["CREATE TABLE t (c)", "PRAGMA application_id = 7", "PRAGMA user_version = 3"],
)
def test_a_file_of_another_program_is_refused_and_left_alone(path, statement):
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute(statement)
        connection.commit()
    before = path.read_bytes()
    with pytest.raises(ConfigError, match=r"history\.db belongs to another program"):
        open_writer(path, "full")
    assert path.read_bytes() == before


def test_a_file_that_is_no_database_is_refused(path):
    path.write_bytes(b"no database at all, " * 500)
    with pytest.raises(ConfigError, match=r"history\.db is no SQLite file"):
        open_writer(path, "full")


def test_a_reader_cannot_write(path):
    with (
        opened(path),
        contextlib.closing(open_reader(path)) as reader,
        pytest.raises(sqlite3.OperationalError, match="readonly"),
    ):
        reader.execute("DELETE FROM events")


def test_connecting_makes_no_file(path):
    with pytest.raises(sqlite3.OperationalError):
        connect(path)
    assert not path.exists()


@pytest.mark.parametrize("name", ["with space.db", "50%.db", "a?b#c.db", "ä.db"])
def test_any_name_of_a_file_will_do(tmp_path, name):
    path = tmp_path / name
    with opened(path):
        assert path.exists()
    assert {file.name for file in tmp_path.iterdir()} == {name}


def test_prepare_makes_folder_and_file_for_the_owner_alone(tmp_path):
    path = tmp_path / "a" / "b" / "history.db"
    prepare(path)
    prepare(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_prepare_names_what_it_cannot_make(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="the folder"):
        prepare(tmp_path / "file" / "history.db")
    with pytest.raises(ConfigError, match="cannot be opened: Is a directory"):
        prepare(tmp_path)


def test_a_lock_is_held_by_one_until_it_is_released(path):
    with FileLock(path) as lock:
        with pytest.raises(BrokerUnavailable, match=f"in use .*process {os.getpid()}"):
            FileLock(path)
        lock.release()
        with FileLock(path):
            pass
        lock.release()
    assert stat.S_IMODE(path.with_name("history.db.lock").stat().st_mode) == 0o600


def test_a_lock_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "history.db.lock").mkdir()
    with pytest.raises(ConfigError, match=r"history\.db\.lock cannot be opened"):
        FileLock(tmp_path / "history.db")


def test_a_child_process_does_not_keep_the_lock(path):
    with FileLock(path):
        child = subprocess.Popen(
            [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, close_fds=False
        )
    with child:
        with FileLock(path):
            pass
        child.stdin.close()


def test_synchronous_is_full_or_normal():
    assert [checked_synchronous(value) for value in ("full", "normal")] == ["full", "normal"]
    for value in ("", "FULL", "off"):
        with pytest.raises(ConfigError, match="full or normal"):
            checked_synchronous(value)
