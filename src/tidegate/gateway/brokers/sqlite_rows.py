"""The rows of a SQLite history, and how they are read. Synchronous, for one thread."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tidegate.gateway.brokers.base import (
    PAGE_BYTES,
    Head,
    HistoryPage,
    Publication,
    Snapshot,
)
from tidegate.gateway.position import NONE, number_of

if TYPE_CHECKING:
    import sqlite3

    from tidegate.gateway.brokers.base import HistoryPolicy

__all__ = [
    "CHANNEL_COLUMNS",
    "SELECT_CHANNEL",
    "UPDATE_CHANNEL",
    "USED_SECONDS",
    "ChannelRow",
    "read_heads",
    "read_page",
    "read_snapshot",
]

USED_SECONDS: Final = 3600.0
"""How often at most it is written down that a channel is read, in seconds."""

CHANNEL_COLUMNS: Final = (
    "id, epoch, last, prev, since, floor, version, count, stale, expires, used, keep"
)
"""What a `ChannelRow` is made of."""

SELECT_CHANNEL: Final = f"SELECT {CHANNEL_COLUMNS} FROM channels WHERE name = ?"  # noqa: S608
"""Finds a channel."""

UPDATE_CHANNEL: Final = (
    "UPDATE channels SET epoch = ?, last = ?, prev = ?, since = ?, floor = ?, version = ?,"
    " count = ?, stale = ?, expires = ?, used = ?, keep = ? WHERE id = ?"
)
"""Takes `ChannelRow.values`."""

_EVENT: Final = "SELECT position, prev, type, payload, tags, version FROM events"


class ChannelRow:
    """A row of ``channels``, and what this transaction has done to it."""

    __slots__ = (
        "appended",
        "count",
        "epoch",
        "expires",
        "floor",
        "id",
        "keep",
        "last",
        "number",
        "policy",
        "prev",
        "since",
        "stale",
        "used",
        "version",
    )

    def __init__(self, row: tuple[Any, ...]) -> None:
        self.id: int
        self.epoch: str
        self.last: str
        self.prev: str
        self.since: str
        self.floor: str
        self.version: int | None
        self.count: int
        self.stale: int
        self.expires: float
        self.used: float
        self.keep: float
        (
            self.id,
            self.epoch,
            self.last,
            self.prev,
            self.since,
            self.floor,
            self.version,
            self.count,
            self.stale,
            self.expires,
            self.used,
            self.keep,
        ) = row
        self.number = number_of(self.last)
        self.appended = 0
        self.policy: HistoryPolicy | None = None  # of the last publish since it was read

    @property
    def head(self) -> Head:
        """The epoch and the position of the newest event in it."""
        return Head(self.epoch, self.position)

    @property
    def position(self) -> str:
        """Of the newest event of this epoch."""
        return NONE if self.last == self.since else self.last

    def expire(self, now: float) -> bool:
        """Hide all events if their time is over; return whether that changed something."""
        if now < self.expires or not self.count:
            return False
        self.hide()
        return True

    def hide(self) -> None:
        """Take all events away from everybody, at once; their rows go step by step."""
        self.stale += self.count
        self.count = 0
        self.floor = self.last

    def values(self) -> tuple[Any, ...]:
        """What `UPDATE_CHANNEL` takes."""
        return (
            self.epoch,
            self.last,
            self.prev,
            self.since,
            self.floor,
            self.version,
            self.count,
            self.stale,
            self.expires,
            self.used,
            self.keep,
            self.id,
        )


def read_page(
    connection: sqlite3.Connection,
    channel: str,
    now: float,
    *,
    after: str | None,
    limit: int,
    newest_first: bool,
) -> tuple[HistoryPage, float] | None:
    """Read a page and the head, in the transaction that the connection is in.

    Returns:
        The page, and when the channel was last used according to the file; ``None`` if nothing
        is known of the channel.
    """
    with closing(connection.execute(SELECT_CHANNEL, (channel,))) as rows:
        row = rows.fetchone()
    if row is None:
        return None
    found = ChannelRow(row)
    if found.expire(now) or not found.count:
        return HistoryPage(publications=[], head=found.head, complete=True), found.used
    if newest_first:
        query = f"{_EVENT} WHERE channel = ? AND position > ?"
        values: tuple[Any, ...] = (found.id, found.floor)
        if after is not None:
            query += " AND position < ?"
            values += (after,)
        query += " ORDER BY position DESC"
    else:
        query = f"{_EVENT} WHERE channel = ? AND position > ? ORDER BY position"
        values = (found.id, max(found.floor, after or NONE))
    page: list[Publication] = []
    taken = 0
    complete = True
    # Not LIMIT: the cursor reads a row when it is asked for it.
    with closing(connection.execute(query, values)) as rows:
        for position, prev, type_, payload, tags, version in rows:
            if len(page) >= limit or taken >= PAGE_BYTES:
                complete = False
                break
            page.append(
                Publication(
                    position=position,
                    prev=prev,
                    epoch=found.epoch,
                    type=type_,
                    payload=payload,
                    tags=None if tags is None else msgspec.json.decode(tags),
                    version=version,
                )
            )
            taken += len(payload)
    return HistoryPage(publications=page, head=found.head, complete=complete), found.used


def read_heads(
    connection: sqlite3.Connection, channels: list[str], now: float
) -> dict[str, Head] | None:
    """Read heads, in the transaction that the connection is in.

    Returns:
        ``None`` if something has to be written: one of the channels has no epoch, or it must be
        noted that it is used.
    """
    heads = {}
    for channel in channels:
        with closing(connection.execute(SELECT_CHANNEL, (channel,))) as rows:
            row = rows.fetchone()
        if row is None:
            return None
        found = ChannelRow(row)
        if now > found.used + USED_SECONDS:
            return None
        heads[channel] = found.head
    return heads


def read_snapshot(connection: sqlite3.Connection, channel: str) -> Snapshot | None:
    """Read the stored state of a channel, if there is one."""
    with closing(
        connection.execute(
            "SELECT snapshots.state, snapshots.position, snapshots.epoch FROM snapshots"
            " JOIN channels ON channels.id = snapshots.channel WHERE channels.name = ?",
            (channel,),
        )
    ) as rows:
        row = rows.fetchone()
    return None if row is None else Snapshot(state=row[0], position=row[1], epoch=row[2])
