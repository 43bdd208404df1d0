"""Snapshots of a channel's and a subscription's counters. Pure."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ChannelStatistics", "SubscriptionStatistics"]


@dataclass(frozen=True, slots=True)
class ChannelStatistics:
    """A channel at one moment."""

    subscribers: int
    """Subscribers attached now."""
    ring_events: int
    """Events held for replay."""
    ring_bytes: int
    """Their bytes, where ``max_ring_bytes`` is set; else 0, since sizes are not known then."""
    last_event_id: int
    """The id of the newest event; 0 before the first."""
    published: int
    """Events published since the channel was made."""
    evicted: int
    """Subscribers that were cut because they were too slow."""
    warned: int
    """Warnings given to slow subscribers."""


@dataclass(frozen=True, slots=True)
class SubscriptionStatistics:
    """One subscription at one moment."""

    queued_frames: int
    """Live frames that wait: what counts against ``max_queued``."""
    queued_bytes: int
    """Their bytes: what counts against ``max_queued_bytes``."""
    delivered: int
    """Events taken by the consumer; control frames are not counted."""
    warned: int
    """Warnings given: one for each time the backlog grew to 75 % of a cap."""
    evicted: bool
    """The subscriber was cut because it was too slow."""
