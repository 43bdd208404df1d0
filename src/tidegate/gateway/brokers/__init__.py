"""Brokers: where a channel's history and the delivery between nodes live."""

from tidegate.gateway.brokers.base import (
    Broker,
    BrokerCapabilities,
    BrokerSink,
    Head,
    HistoryPage,
    HistoryPolicy,
    Publication,
    PublishError,
    PublishRequest,
    PublishResult,
    Snapshot,
)

__all__ = [
    "Broker",
    "BrokerCapabilities",
    "BrokerSink",
    "Head",
    "HistoryPage",
    "HistoryPolicy",
    "Publication",
    "PublishError",
    "PublishRequest",
    "PublishResult",
    "Snapshot",
]
