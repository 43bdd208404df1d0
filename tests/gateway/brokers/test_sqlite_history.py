import sqlite3
import tempfile
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import rule

from tests.gateway.brokers.model import DAY, StoreMachine, request
from tidegate.gateway.brokers.base import PublishError, PublishResult
from tidegate.gateway.brokers.sqlite_history import SqliteStore
from tidegate.gateway.brokers.sqlite_rows import read_snapshot
from tidegate.gateway.brokers.sqlite_schema import open_writer, prepare


class Transacted:
    """A store each of whose calls is a transaction, for the model's machine."""

    def __init__(self, path):
        self.path = path
        prepare(path)
        self.careful = False
        self.open()

    def open(self):
        self.connection = open_writer(self.path, "normal")
        self.store = SqliteStore(self.connection)

    def close(self):
        self.store.close()

    def __getattr__(self, name):
        def call(*args, **options):
            self.store.begin(careful=self.careful)
            try:
                result = getattr(self.store, name)(*args, **options)
                self.store.flush()
                self.store.commit()
            except BaseException:
                self.store.rollback()
                raise
            return result

        return call

    def get_snapshot(self, name):
        return read_snapshot(self.connection, name)

    def sweep(self, now, keep):
        return self.store.sweep(now, keep=keep, limit=1, rows=2)


class SqliteMachine(StoreMachine):
    def make(self):
        self.folder = tempfile.TemporaryDirectory()
        return Transacted(Path(self.folder.name) / "history.db")

    @rule()
    def reopen(self):
        self.store.close()
        self.store.open()

    @rule(careful=st.booleans())
    def be_careful(self, careful):
        self.store.careful = careful

    @rule(name=st.sampled_from(["a", "b"]))
    def roll_back(self, name):
        """What was rolled back was never there."""
        self.store.head(name, self.now)
        self.known(name)
        store = self.store.store
        store.begin()
        store.append(request(name, idempotency_key="k", version=100, size=1), self.now)
        store.remove_history(name, self.now)
        store.rollback()

    def teardown(self):
        if hasattr(self, "store"):
            counted = self.store.connection.execute(
                "SELECT name, count, stale, (SELECT count(*) FROM events WHERE"
                " channel = channels.id AND position > floor), (SELECT count(*) FROM events"
                " WHERE channel = channels.id AND position <= floor) FROM channels"
            ).fetchall()
            assert [(c, s) for _, c, s, _, _ in counted] == [(c, s) for _, _, _, c, s in counted]
            self.store.close()
            self.folder.cleanup()


TestSqliteStore = SqliteMachine.TestCase
TestSqliteStore.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


@contextmanager
def opened(path):
    store = Transacted(path / "history.db")
    try:
        yield store
    finally:
        store.close()


def rows(store, table):
    return store.connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]


def test_a_careful_transaction_stores_all_but_the_bad_item(tmp_path):
    with opened(tmp_path) as transacted:
        store = transacted.store
        store.begin(careful=True)
        results = [
            store.append(request(idempotency_key="1"), 1.0)[0],
            store.append(request(idempotency_key="2", version=2**70), 1.0)[0],
            store.append(request("\ud800"), 1.0)[0],
            store.append(request(idempotency_key="3"), 1.0)[0],
            store.append(request(idempotency_key="2"), 1.0)[0],
        ]
        store.flush()
        store.commit()
        assert [type(r) for r in results] == [
            PublishResult,
            PublishError,
            PublishError,
            PublishResult,
            PublishResult,
        ]
        assert all(r.certain for r in results if isinstance(r, PublishError))
        assert [r.prev for r in results[3:]] == [results[0].position, results[3].position]
        assert not results[4].duplicate
        assert len(transacted.history("a", 1.0).publications) == 3


def test_a_bad_item_fails_a_transaction_that_is_not_careful(tmp_path):
    with opened(tmp_path) as store:
        with pytest.raises(OverflowError):
            store.append(request(version=2**70), 1.0)
        assert rows(store, "channels") == 0


def test_a_policy_that_shrinks_hides_at_once_and_deletes_step_by_step(tmp_path):
    with opened(tmp_path) as store:
        for _ in range(5):
            store.store.begin()
            for _ in range(100):
                store.store.append(request(size=1000), 1.0)
            store.store.flush()
            store.store.commit()
        store.append(request(size=3), 1.0)
        assert len(store.history("a", 1.0).publications) == 3
        assert 300 < rows(store, "events") < 500
        for _ in range(10):
            store.append(request(size=3), 1.0)
        assert rows(store, "events") == 3


def test_sweeping_goes_in_bounded_steps(tmp_path):
    with opened(tmp_path) as store:
        for number in range(6):
            for key in range(3):
                store.append(
                    request(f"c{number}", idempotency_key=str(key), ttl=1.0, idempotency_ttl=1.0),
                    1.0,
                )
        left = []
        for _ in range(100):
            done = store.sweep(100.0, keep=())
            left.append((rows(store, "events"), rows(store, "keys")))
            if done:
                break
        assert left[-1] == (0, 0)
        steps = [(a - c, b - d) for (a, b), (c, d) in pairwise(left)]
        assert max(a for a, _ in steps) <= 2 + 64
        assert max(b for _, b in steps) <= 2
        assert rows(store, "channels") == 6
        for _ in range(100):
            if store.sweep(100.0 + 3 * DAY, keep=("c3",)):
                break
        assert store.connection.execute("SELECT name FROM channels").fetchall() == [("c3",)]


def test_a_dropped_channel_takes_its_snapshot_along(tmp_path):
    with opened(tmp_path) as store:
        store.put_snapshot("a", b"1", "", 1.0)
        while not store.sweep(3 * DAY, keep=()):
            pass
        assert rows(store, "snapshots") == 0
        assert store.get_snapshot("a") is None


def test_use_is_noted_once_an_hour(tmp_path):
    with opened(tmp_path) as store:
        used = "SELECT used FROM channels"
        store.head("a", 1000.0)
        store.head("a", 4600.0)
        assert store.connection.execute(used).fetchone() == (1000.0,)
        store.touch("a", 4601.0)
        assert store.connection.execute(used).fetchone() == (4601.0,)
        store.touch("unknown", 4601.0)
        assert rows(store, "channels") == 1


def test_many_channels_do_not_stay_in_memory_for_ever(tmp_path, monkeypatch):
    monkeypatch.setattr("tidegate.gateway.brokers.sqlite_history._MAX_CACHED", 10)
    with opened(tmp_path) as store:
        firsts = [store.append(request(f"c{n}"), 1.0)[0] for n in range(30)]
        assert len(store.store._channels) <= 11
        seconds = [store.append(request(f"c{n}"), 1.0)[0] for n in range(30)]
        assert [r.prev for r in seconds] == [r.position for r in firsts]


def test_free_pages_are_given_back(tmp_path):
    with opened(tmp_path) as store:
        store.store.begin()
        for _ in range(300):
            store.store.append(request(payload=b"x" * 40_000), 1.0)
        store.store.flush()
        store.store.commit()
        store.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        size = store.path.stat().st_size
        assert size > 10_000_000
        while not (store.store.sweep(10_000.0) and store.store.vacuum()):
            pass
        store.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        assert store.path.stat().st_size < size / 2


def test_a_closed_store_says_so(tmp_path):
    with opened(tmp_path) as store:
        store.close()
        with pytest.raises(sqlite3.ProgrammingError):
            store.store.begin()
        store.close()
