"""One ordered, resumable stream of events in one process."""

from tidegate.channel.channel import Channel
from tidegate.channel.diagnostics import DiagnosticCallback, DiagnosticKind
from tidegate.channel.event import ChannelEvent
from tidegate.channel.names import RESERVED_TYPES, is_event_type
from tidegate.channel.statistics import ChannelStatistics, SubscriptionStatistics
from tidegate.channel.subscription import ChannelSubscription

__all__ = [
    "RESERVED_TYPES",
    "Channel",
    "ChannelEvent",
    "ChannelStatistics",
    "ChannelSubscription",
    "DiagnosticCallback",
    "DiagnosticKind",
    "SubscriptionStatistics",
    "is_event_type",
]
