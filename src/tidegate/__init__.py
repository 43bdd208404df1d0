"""Carries an event to every browser that should see it: in order, resumable, no silent gap.

The core, `Channel`, needs msgspec only. What needs an extra is imported when it is first
asked for; without the extra that raises `tidegate.errors.MissingExtra`, which names it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from tidegate.channel import (
    Channel,
    ChannelEvent,
    ChannelStatistics,
    ChannelSubscription,
    SubscriptionStatistics,
)
from tidegate.errors import TidegateError

if TYPE_CHECKING:
    from tidegate.client import (
        ChannelView,
        EventSchema,
        Publisher,
        SessionView,
        connect,
        connect_sync,
    )
    from tidegate.gateway import Gateway, GatewayEvent, GatewaySubscription, Namespace
    from tidegate.sessions import Sessions
    from tidegate.stream import Drain, EventStream

__all__ = [
    "Channel",
    "ChannelEvent",
    "ChannelStatistics",
    "ChannelSubscription",
    "ChannelView",
    "Drain",
    "EventSchema",
    "EventStream",
    "Gateway",
    "GatewayEvent",
    "GatewaySubscription",
    "Namespace",
    "Publisher",
    "SessionView",
    "Sessions",
    "SubscriptionStatistics",
    "TidegateError",
    "connect",
    "connect_sync",
]

_HOMES: Final = {
    "ChannelView": "tidegate.client",
    "Drain": "tidegate.stream",
    "EventSchema": "tidegate.client",
    "EventStream": "tidegate.stream",
    "Gateway": "tidegate.gateway",
    "GatewayEvent": "tidegate.gateway",
    "GatewaySubscription": "tidegate.gateway",
    "Namespace": "tidegate.gateway",
    "Publisher": "tidegate.client",
    "SessionView": "tidegate.client",
    "Sessions": "tidegate.sessions",
    "connect": "tidegate.client",
    "connect_sync": "tidegate.client",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home), name)
