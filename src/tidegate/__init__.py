"""Carries an event to every browser that should see it: in order, resumable, no silent gap."""

from tidegate.channel import (
    Channel,
    ChannelEvent,
    ChannelStatistics,
    ChannelSubscription,
    SubscriptionStatistics,
)
from tidegate.errors import TidegateError

__all__ = [
    "Channel",
    "ChannelEvent",
    "ChannelStatistics",
    "ChannelSubscription",
    "SubscriptionStatistics",
    "TidegateError",
]
