"""What a server says it can do, before something is asked of it. Pure."""

from __future__ import annotations

import logging
from typing import Any

import msgspec

__all__ = ["FEATURE", "negotiated_max_queued"]

FEATURE = "slow_client_warning"
"""The feature of servers that know ``?maxQueued``; others ignore it without a word."""

_log = logging.getLogger("tidegate.client")


def negotiated_max_queued(max_queued: int, status: int, body: bytes) -> int | None:
    """Decide from the answer to ``GET /capabilities`` whether ``?maxQueued`` is sent.

    Args:
        max_queued: what the caller wants.
        status: of the answer.
        body: of the answer, which should be ``{"features": […], "limits": {"maxQueued": [low,
            high]}}``.

    Returns:
        ``max_queued``, or ``None`` with a line in the log where the server does not know it.

    Raises:
        ValueError: the server knows it, and allows another range.
    """
    answer = _json(body) if status == 200 else None
    features, limits = _get(answer, "features"), _get(answer, "limits")
    if not isinstance(features, list) or FEATURE not in features:
        why = f"the server does not name {FEATURE} among its capabilities (status {status})"
    else:
        match _get(limits, "maxQueued"):
            case [int(low), int(high)]:
                if not low <= max_queued <= high:
                    raise ValueError(f"max_queued is {low} to {high} here, not {max_queued}")
                return max_queued
            case _:
                why = "the server names no limits for it"
    _log.warning("max_queued=%d is not sent: %s", max_queued, why)
    return None


def _json(body: bytes) -> object:
    try:
        return msgspec.json.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


def _get(value: object, key: str) -> Any:
    return value.get(key) if isinstance(value, dict) else None
