"""The Gateway: many channels, many streams, resume on any node."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tidegate.gateway.events import GatewayEvent
    from tidegate.gateway.gateway import Gateway
    from tidegate.gateway.iteration import GatewaySubscription
    from tidegate.gateway.namespaces import Namespace
    from tidegate.gateway.publishing import Publishable, Published

__all__ = [
    "Gateway",
    "GatewayEvent",
    "GatewaySubscription",
    "Namespace",
    "Publishable",
    "Published",
]

_HOMES: Final = {
    "Gateway": "tidegate.gateway.gateway",
    "GatewayEvent": "tidegate.gateway.events",
    "GatewaySubscription": "tidegate.gateway.iteration",
    "Namespace": "tidegate.gateway.namespaces",
    "Publishable": "tidegate.gateway.publishing",
    "Published": "tidegate.gateway.publishing",
}


def __getattr__(name: str) -> Any:
    # Not above: brokers are of use where the packages of a server are not installed.
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home), name)
