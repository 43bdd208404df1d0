"""What a returning subscriber is owed: the decision table of resume. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidegate.channel.frames import replay_complete, state_resync_required

if TYPE_CHECKING:
    from tidegate.channel.event import ChannelEvent
    from tidegate.channel.frames import ResyncReason
    from tidegate.channel.ring import Ring

__all__ = ["Replay", "plan_replay"]


@dataclass(frozen=True, slots=True)
class Replay:
    """The frames that a returning subscriber gets before anything live.

    Attributes:
        frames: in order; the last is ``replay_complete``.
        budget_exceeded: the replay stopped at its byte budget.
    """

    frames: list[ChannelEvent]
    budget_exceeded: bool


def plan_replay(
    ring: Ring,
    *,
    ours: str,
    theirs: str | None,
    last_event_id: int,
    budget: int,
    now_ms: int,
) -> Replay:
    """Decide what follows a cursor.

    Args:
        ring: the channel's events.
        ours: the channel's epoch.
        theirs: the epoch that came with the cursor, if one did.
        last_event_id: the cursor.
        budget: the bytes that a replay may have; the first event always goes.
        now_ms: the time to stamp on control frames.
    """
    after, reason, detail = _judge(ring, ours, theirs, last_event_id)
    frames: list[ChannelEvent] = []
    if reason is not None:
        frames.append(
            state_resync_required(
                now_ms,
                reason=reason,
                detail=detail,
                last_delivered_id=last_event_id,
                earliest_available_id=ring.first,
            )
        )
    replayed = 0
    last_replayed: int | None = None
    spent = 0
    stopped = False
    for event in ring.after(after):
        # An event that is past the budget anyway is not even encoded.
        if last_replayed is not None and (spent > budget or spent + event.size > budget):
            frames.append(
                state_resync_required(
                    now_ms,
                    reason="replay_budget_exceeded",
                    last_delivered_id=last_replayed,
                    earliest_available_id=last_replayed + 1,
                )
            )
            stopped = True
            break
        frames.append(event)
        spent += event.size
        replayed += 1
        last_replayed = event.id
    frames.append(replay_complete(now_ms, replayed=replayed, last_replayed_id=last_replayed))
    return Replay(frames, stopped)


def _judge(
    ring: Ring, ours: str, theirs: str | None, last_event_id: int
) -> tuple[int, ResyncReason | None, str | None]:
    """Return after which id to replay, and why the client must resync first."""
    if theirs is not None and theirs != ours:
        return 0, "epoch_reset", "epoch_mismatch"
    if last_event_id > ring.last:
        return 0, "epoch_reset", None
    # An empty ring has first = last + 1: this covers it as well.
    if ring.first > last_event_id + 1:
        return last_event_id, "ring_evicted", None
    return last_event_id, None, None
