"""What the threads do, without threads: time and failures come when a test wants them."""

import os
import sqlite3
import time

import pytest

from tests.gateway.brokers.model import request
from tidegate.errors import BrokerUnavailable, SnapshotAhead
from tidegate.gateway.brokers.base import PublishError, PublishResult
from tidegate.gateway.brokers.sqlite_rows import read_page
from tidegate.gateway.brokers.sqlite_thread import Job, JobThread
from tidegate.gateway.brokers.sqlite_workshop import Reader, Writer

NOW = 1_790_000_000.0
FAILURE = type(JobThread.failure("", certain=True))


class Told:
    def __init__(self):
        self.states = []
        self.now = NOW

    def clock(self):
        return self.now


@pytest.fixture
def told():
    return Told()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "history.db"


@pytest.fixture
def writer(path, told):
    made = Writer(
        path,
        "normal",
        clock=told.clock,
        random_bytes=os.urandom,
        subscribed=set(),
        is_up=told.states.append,
    )
    made.open()
    yield made
    made.close()


@pytest.fixture
def reader(path, writer):
    made = Reader(path, lambda: NOW)
    made.open()
    yield made
    made.close()


def publishing(*requests):
    return Job(lambda store, now: [store.append(asked, now)[0] for asked in requests])


def failing(error):
    def work(_store, _now):
        raise error

    return Job(work)


def disk_error():
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = sqlite3.SQLITE_IOERR
    return error


def stored(reader, channel="a"):
    job = Job(
        lambda connection, now: read_page(
            connection, channel, now, after=None, limit=100, newest_first=False
        )
    )
    (outcome,) = reader.do([job])
    return [] if outcome is None else [p.position for p in outcome[0].publications]


def test_jobs_are_one_transaction_and_each_has_its_outcome(writer, reader):
    outcomes = writer.do([publishing(request()), publishing(request(), request())])
    positions = [result.position for results in outcomes for result in results]
    assert stored(reader) == positions
    assert len(positions) == 3


def test_what_a_job_is_refused_does_not_touch_the_others(writer, reader):
    outcomes = writer.do(
        [
            publishing(request()),
            Job(lambda store, now: store.put_snapshot("a", b"1", "nonsense", now)),
            publishing(request(), request(version=2**64)),
            failing(TypeError("an item's")),
        ]
    )
    assert isinstance(outcomes[1], SnapshotAhead)
    assert [type(r) for r in outcomes[2]] == [PublishResult, PublishError]
    assert isinstance(outcomes[3], TypeError)
    assert stored(reader) == [outcomes[0][0].position, outcomes[2][0].position]


def test_a_disk_error_fails_all_of_a_transaction_and_closes_the_file(writer, reader, told):
    outcomes = writer.do([publishing(request()), failing(disk_error())])
    assert all(isinstance(o, FAILURE) and o.certain for o in outcomes)
    assert told.states == [False]
    assert stored(reader) == []


def test_until_it_is_tried_again_all_fails_at_once(writer, told):
    writer.do([failing(disk_error())])
    (outcome,) = writer.do([publishing(request())])
    assert isinstance(outcome, FAILURE)
    assert outcome.certain
    assert "disk I/O error" in outcome.problem
    assert 0 < writer.idle() <= 1.0
    assert told.states == [False]


@pytest.mark.parametrize("by", ["idle", "do"])
def test_a_file_that_is_there_again_is_opened_again(writer, reader, told, path, monkeypatch, by):
    (first,) = writer.do([publishing(request())])
    writer.do([failing(disk_error())])
    offset = 0.0
    real = time.monotonic
    monkeypatch.setattr(time, "monotonic", lambda: real() + offset)
    away = path.with_name("away")
    path.rename(away)
    offset += 10.0
    (outcome,) = writer.do([publishing(request())])
    assert isinstance(outcome, FAILURE)
    assert "cannot be written: unable to open" in outcome.problem
    away.rename(path)
    assert told.states == [False]
    offset += 10.0
    if by == "idle":
        assert writer.idle() > 0
        assert told.states == [False, True]
    (second,) = writer.do([publishing(request())])
    assert told.states == [False, True]
    assert second[0].prev == first[0].position
    assert stored(reader) == [first[0].position, second[0].position]


@pytest.mark.parametrize("code", [sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY])
def test_what_passes_by_itself_leaves_the_file_open(writer, told, code):
    error = sqlite3.OperationalError("for now")
    error.sqlite_errorcode = code
    (outcome,) = writer.do([failing(error)])
    assert (outcome.certain, told.states) == (True, [])
    (results,) = writer.do([publishing(request())])
    assert isinstance(results[0], PublishResult)


def test_what_fails_in_the_commit_is_not_certain(writer, told, monkeypatch):
    store = writer._store

    def commit():
        raise disk_error()

    monkeypatch.setattr(store, "commit", commit)
    (outcome,) = writer.do([publishing(request())])
    assert isinstance(outcome, FAILURE)
    assert not outcome.certain


def test_the_log_is_told_of_the_same_problem_now_and_then(writer, caplog):
    for _ in range(5):
        error = sqlite3.OperationalError("for now")
        error.sqlite_errorcode = sqlite3.SQLITE_FULL
        writer.do([failing(error)])
    assert len(caplog.records) == 1


def test_idle_sweeps_when_it_is_due(writer, reader, told, monkeypatch):
    writer.do([publishing(request(ttl=1.0))])
    assert writer.idle() > 0
    told.now += 100.0
    real = time.monotonic
    monkeypatch.setattr(time, "monotonic", lambda: real() + 20.0)
    assert writer.idle() > 1.0
    (count,) = reader.do([Job(lambda c, _: c.execute("SELECT count(*) FROM events").fetchone())])
    assert count == (0,)


def test_a_closed_writer_lets_another_one_have_the_file(writer, path, told):
    def another():
        return Writer(
            path,
            "full",
            clock=told.clock,
            random_bytes=os.urandom,
            subscribed=(),
            is_up=told.states.append,
        )

    refused = another()
    with pytest.raises(BrokerUnavailable):
        refused.open()
    refused.close()
    writer.close()
    allowed = another()
    allowed.open()
    allowed.close()


def test_each_read_is_by_itself(writer, reader):
    writer.do([publishing(request())])
    outcomes = reader.do([failing(disk_error()), failing(UnicodeError()), Job(lambda *_: 1)])
    assert isinstance(outcomes[0], FAILURE)
    assert isinstance(outcomes[1], UnicodeError)
    assert outcomes[2] == 1
    assert len(stored(reader)) == 1


def test_a_reader_cannot_write(writer, reader):
    (outcome,) = reader.do([Job(lambda c, _: c.execute("DELETE FROM events"))])
    assert isinstance(outcome, FAILURE)
    assert "cannot be read: attempt to write a readonly" in outcome.problem
    assert reader.idle() > 0
