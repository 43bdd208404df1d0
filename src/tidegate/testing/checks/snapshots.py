"""Checks of a broker: stored snapshots."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidegate.errors import SnapshotAhead
from tidegate.gateway.position import make_position, number_of
from tidegate.testing.bench import requests_for, stored

if TYPE_CHECKING:
    from tidegate.gateway.brokers.base import Broker
    from tidegate.testing.bench import Bench

__all__ = ["CHECKS", "a_snapshot_comes_back_as_it_was", "a_snapshot_only_moves_forward"]


async def a_snapshot_comes_back_as_it_was(bench: Bench) -> None:
    """get_snapshot returns the state, position and epoch that put_snapshot stored."""
    async with bench.broker() as (broker, _):
        channel, other = bench.channels(2)
        assert await broker.get_snapshot(channel) is None, "there is a snapshot already"
        (result,) = stored(await broker.publish(requests_for(channel, ["x"])), 1)
        for state in (
            b"null",
            '{"t":"ä\U0001f30a\\u0000"}'.encode(),
            b'"' + b"x" * 300_000 + b'"',
        ):
            put = await broker.put_snapshot(channel, state, result.position)
            got = await broker.get_snapshot(channel)
            assert got == put, "get_snapshot returns another one than put_snapshot did"
            assert got is not None
            assert got.state == state, "the state is another one"
            assert (got.position, got.epoch) == (result.position, result.epoch), "another place"
        assert await broker.get_snapshot(other) is None, "another channel has it, too"


async def a_snapshot_only_moves_forward(bench: Bench) -> None:
    """put_snapshot raises SnapshotAhead for a position ahead of the head or behind the stored."""
    async with bench.broker() as (broker, _):
        channel = bench.channel()
        results = stored(await broker.publish(requests_for(channel, range(6), size=2)), 6)
        places = [result.position for result in results]
        ahead = make_position(number_of(places[-1]) + 1, b"\0\0\0\0")
        await _refused(broker, channel, ahead, "ahead of the head")
        await _refused(broker, channel, "no position", "no position at all")
        assert await broker.get_snapshot(channel) is None, "a refused snapshot was stored"
        # Also where the event is not in the history any more.
        await broker.put_snapshot(channel, b"1", places[1])
        await broker.put_snapshot(channel, b"2", places[1])
        await broker.put_snapshot(channel, b"3", places[4])
        await _refused(broker, channel, places[1], "behind the stored one")
        await _refused(broker, channel, ahead, "ahead of the head")
        kept = await broker.get_snapshot(channel)
        assert kept is not None, "the snapshot is gone"
        assert (kept.state, kept.position) == (b"3", places[4]), "a refused one has replaced it"
        await broker.put_snapshot(channel, b"4", places[5])
        # A new life: what was reached in the old one is not reached in this one.
        await broker.remove_history(channel)
        await _refused(broker, channel, places[5], "of a life that has ended")
        (result,) = stored(await broker.publish(requests_for(channel, ["new"])), 1)
        put = await broker.put_snapshot(channel, b"5", result.position)
        assert put.epoch == result.epoch, "the snapshot is of another epoch"


async def _refused(broker: Broker, channel: str, position: str, what: str) -> None:
    try:
        await broker.put_snapshot(channel, b"{}", position)
    except SnapshotAhead:
        return
    raise AssertionError(f"a snapshot at a position {what} was taken")


CHECKS: Final = (a_snapshot_comes_back_as_it_was, a_snapshot_only_moves_forward)
