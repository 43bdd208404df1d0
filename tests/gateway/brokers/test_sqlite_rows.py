import contextlib

import pytest

from tests.gateway.brokers.model import request
from tidegate.gateway.brokers.base import PAGE_BYTES, Head
from tidegate.gateway.brokers.sqlite_history import SqliteStore
from tidegate.gateway.brokers.sqlite_rows import (
    CHANNEL_COLUMNS,
    SELECT_CHANNEL,
    UPDATE_CHANNEL,
    USED_SECONDS,
    ChannelRow,
    read_heads,
    read_page,
    read_snapshot,
)
from tidegate.gateway.brokers.sqlite_schema import open_writer, prepare


@pytest.fixture
def connection(tmp_path):
    path = tmp_path / "history.db"
    prepare(path)
    with contextlib.closing(open_writer(path, "normal")) as made:
        yield made


@pytest.fixture
def publish(connection):
    store = SqliteStore(connection)

    def call(count=1, now=1000.0, **options):
        store.begin()
        results = [store.append(request(**options), now)[0] for _ in range(count)]
        store.flush()
        store.commit()
        return results

    return call


def page(connection, now=1000.0, after=None, limit=100, newest_first=False):
    return read_page(connection, "a", now, after=after, limit=limit, newest_first=newest_first)


def test_a_row_is_written_as_it_was_read(connection, publish):
    publish(3, size=2, version=None)
    row = connection.execute(SELECT_CHANNEL, ("a",)).fetchone()
    channel = ChannelRow(row)
    assert (channel.values()[-1], *channel.values()[:-1]) == row
    assert len(row) == len(CHANNEL_COLUMNS.split(","))
    connection.execute(UPDATE_CHANNEL, channel.values())
    assert connection.execute(SELECT_CHANNEL, ("a",)).fetchone() == row


def test_the_head_is_none_as_long_as_nothing_came_since_the_epoch_began():
    row = [1, "e", "last", "prev", "last", "floor", None, 0, 0, 0.0, 0.0, 0.0]
    row[2] = row[4] = "000000000000000A"
    assert ChannelRow(tuple(row)).head == Head("e", "")
    row[2] = "000000000000000B"
    assert ChannelRow(tuple(row)).head == Head("e", "000000000000000B")


def test_nothing_is_known_of_an_unknown_channel(connection):
    assert page(connection) is None
    assert read_heads(connection, ["a"], 0.0) is None
    assert read_snapshot(connection, "a") is None


def test_what_has_expired_is_not_read_before_it_is_deleted(connection, publish):
    (result,) = publish(ttl=10.0)
    assert len(page(connection, 1009.0)[0].publications) == 1
    gone, used = page(connection, 1010.0)
    assert (gone.publications, gone.complete, used) == ([], True, 1000.0)
    assert gone.head == Head(result.epoch, result.position)
    assert connection.execute("SELECT count(*) FROM events").fetchone() == (1,)


def test_a_page_ends_where_its_bytes_are_reached(connection, publish):
    publish(3, payload=b"x" * PAGE_BYTES)
    for newest_first in (False, True):
        found, _ = page(connection, newest_first=newest_first)
        assert (len(found.publications), found.complete) == (1, False)


def test_heads_are_not_told_when_their_use_is_to_be_noted(connection, publish):
    (result,) = publish()
    expected = {"a": Head(result.epoch, result.position)}
    assert read_heads(connection, ["a"], 1000.0 + USED_SECONDS) == expected
    assert read_heads(connection, ["a"], 1001.0 + USED_SECONDS) is None
    assert read_heads(connection, ["a", "b"], 1000.0) is None
    assert read_heads(connection, [], 1000.0) == {}
