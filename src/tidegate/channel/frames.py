"""The control frames: what Tidegate itself says to one subscriber. Pure."""

from __future__ import annotations

from typing import Any, Literal

from tidegate.channel.event import ChannelEvent
from tidegate.channel.names import (
    CLIENT_EVICTED,
    CONTROL_TYPES,
    REPLAY_COMPLETE,
    RESERVED_TYPES,
    SLOW_CLIENT_WARNING,
    STATE_RESYNC_REQUIRED,
    STREAM_ERROR,
    is_event_type,
)

__all__ = [
    "CONTROL_TYPES",
    "RESERVED_TYPES",
    "EvictionReason",
    "ResyncReason",
    "StreamErrorKind",
    "Threshold",
    "client_evicted",
    "control_frame",
    "is_event_type",
    "replay_complete",
    "slow_client_warning",
    "state_resync_required",
    "stream_error",
]

ResyncReason = Literal[
    "ring_evicted",
    "epoch_reset",
    "replay_budget_exceeded",
    "history_rewound",
    "cursor_invalid",
    "frames_dropped",
]
EvictionReason = Literal[
    "queue_overflow", "queue_bytes_overflow", "write_timeout", "node_bytes_overflow"
]
StreamErrorKind = Literal[
    "subscriber_limit",
    "stream_limit",
    "rate_limited",
    "draining",
    "token_expired",
    "revoked",
    "access_denied",
    "broker_unavailable",
    "internal",
]
Threshold = Literal["frames", "bytes", "frames_and_bytes"]


def control_frame(type: str, data: dict[str, Any], now_ms: int) -> ChannelEvent:  # noqa: A002
    """Make a control frame: an envelope without an id, stamped with ``now_ms``."""
    return ChannelEvent(None, type, data, {"serverTimestamp": now_ms})


def slow_client_warning(
    now_ms: int,
    *,
    queue_size: int,
    queued_bytes: int,
    max_queued: int,
    max_queued_bytes: int,
    last_event_id: int,
    threshold: Threshold,
) -> ChannelEvent:
    """Warn a subscriber whose backlog is three quarters full, once per episode.

    Args:
        now_ms: the time to stamp.
        queue_size: live frames that wait, the one that triggered the warning included.
        queued_bytes: their bytes.
        max_queued: the cap in frames.
        max_queued_bytes: the cap in bytes.
        last_event_id: the id of the event that triggered it.
        threshold: which measure passed its threshold.
    """
    data = {
        "queueSize": queue_size,
        "queuedBytes": queued_bytes,
        "maxQueued": max_queued,
        "maxQueuedBytes": max_queued_bytes,
        "lastEventId": last_event_id,
        "threshold": threshold,
    }
    return control_frame(SLOW_CLIENT_WARNING, data, now_ms)


def client_evicted(
    now_ms: int,
    *,
    reason: EvictionReason,
    queue_size: int,
    queued_bytes: int,
    max_queued: int,
    max_queued_bytes: int,
    first_dropped_id: int,
    event_bytes: int | None = None,
) -> ChannelEvent:
    """Tell a subscriber that it was cut, as the last frame of its stream.

    Args:
        now_ms: the time to stamp.
        reason: which bound was passed.
        queue_size: live frames that waited, without the rejected event.
        queued_bytes: their bytes.
        max_queued: the cap in frames.
        max_queued_bytes: the cap in bytes.
        first_dropped_id: the first event that this subscriber did not get.
        event_bytes: the rejected event's size, for a byte overflow only.
    """
    data: dict[str, Any] = {
        "reason": reason,
        "queueSize": queue_size,
        "queuedBytes": queued_bytes,
        "maxQueued": max_queued,
        "maxQueuedBytes": max_queued_bytes,
    }
    if event_bytes is not None:
        data["eventBytes"] = event_bytes
    data["firstDroppedId"] = first_dropped_id
    return control_frame(CLIENT_EVICTED, data, now_ms)


def state_resync_required(
    now_ms: int,
    *,
    reason: ResyncReason,
    last_delivered_id: int,
    earliest_available_id: int,
    detail: str | None = None,
) -> ChannelEvent:
    """Say that events between two ids are gone for this subscriber.

    Args:
        now_ms: the time to stamp.
        reason: why.
        last_delivered_id: the cursor as given; for the budget the last replayed id.
        earliest_available_id: the first id that can still be had.
        detail: a refinement of the reason.
    """
    data: dict[str, Any] = {"reason": reason}
    if detail is not None:
        data["detail"] = detail
    data["lastDeliveredId"] = last_delivered_id
    data["earliestAvailableId"] = earliest_available_id
    return control_frame(STATE_RESYNC_REQUIRED, data, now_ms)


def replay_complete(now_ms: int, *, replayed: int, last_replayed_id: int | None) -> ChannelEvent:
    """Mark the end of a replay of ``replayed`` events."""
    data: dict[str, Any] = {"replayedCount": replayed}
    if last_replayed_id is not None:
        data["lastReplayedEventId"] = last_replayed_id
    return control_frame(REPLAY_COMPLETE, data, now_ms)


def stream_error(now_ms: int, *, kind: StreamErrorKind, error: str) -> ChannelEvent:
    """Say why a stream ends, or never began: a sentence and its kind."""
    return control_frame(STREAM_ERROR, {"error": error, "errorKind": kind}, now_ms)
