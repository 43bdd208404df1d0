"""Brokers with one fault each, and what the suite says of them."""

from __future__ import annotations

from tidegate.gateway.brokers.memory import MemoryBroker
from tidegate.testing import CheckFailed, check_broker

__all__ = ["MemoryBroker", "failures"]


async def failures(make_broker, *names, patience=0.3, **options):
    """Run these checks, and return the names of those that fail."""
    try:
        await check_broker(make_broker, only=names or None, patience=patience, **options)
    except CheckFailed as failed:
        return set(failed.names)
    return set()
