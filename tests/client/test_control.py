"""The client's list of reserved names and control payloads is the server's."""

import msgspec
import pytest

from tidegate.channel import frames, names
from tidegate.client.control import (
    CONTROL_PAYLOADS,
    RESERVED_TYPES,
    SESSION_TERMINAL,
    STREAM_TERMINAL,
    ChannelSnapshot,
    is_event_type,
)
from tidegate.gateway import frames as gateway_frames


def test_the_reserved_types_are_the_channels():
    assert RESERVED_TYPES == names.RESERVED_TYPES
    assert SESSION_TERMINAL | STREAM_TERMINAL <= RESERVED_TYPES


@pytest.mark.parametrize(
    "value",
    ["tick", "a.b:c-d_9", "x" * 128, "", "x" * 129, "a b", "é", "open", "error", "a\n", None, 5],
)
def test_what_is_an_event_type_is_what_the_channel_says(value):
    assert is_event_type(value) is names.is_event_type(value)


@pytest.mark.parametrize(
    "value",
    sorted(names.RESERVED_TYPES),
)
def test_a_reserved_type_is_none(value):
    assert not is_event_type(value)
    assert not names.is_event_type(value)


@pytest.mark.parametrize(
    "frame",
    [
        frames.replay_complete(0, replayed=0, last_replayed_id=None),
        frames.replay_complete(0, replayed=2, last_replayed_id=9),
        frames.state_resync_required(
            0, reason="ring_evicted", last_delivered_id=1, earliest_available_id=5
        ),
        frames.state_resync_required(
            0,
            reason="epoch_reset",
            last_delivered_id=1,
            earliest_available_id=5,
            detail="epoch_mismatch",
        ),
        frames.slow_client_warning(
            0,
            queue_size=12,
            queued_bytes=100,
            max_queued=16,
            max_queued_bytes=1000,
            last_event_id=3,
            threshold="frames",
        ),
        frames.client_evicted(
            0,
            reason="queue_bytes_overflow",
            queue_size=1,
            queued_bytes=2,
            max_queued=16,
            max_queued_bytes=1000,
            first_dropped_id=7,
            event_bytes=5000,
        ),
        frames.stream_error(0, kind="draining", error="bye"),
    ],
    ids=lambda frame: frame.type,
)
def test_each_frame_of_the_channel_has_its_struct_with_every_field(frame):
    payload = msgspec.convert(frame.data, CONTROL_PAYLOADS[frame.type])
    there = {key: value for key, value in msgspec.to_builtins(payload).items() if value is not None}
    assert there == frame.data


def test_an_unserializable_event_tells_its_type():
    payload = msgspec.convert({"type": "odd"}, CONTROL_PAYLOADS["event_unserializable"])
    assert payload.type == "odd"


PLACE = gateway_frames.Place("NNNNEEEE", "e1", "p" * 16)


@pytest.mark.parametrize(
    "frame",
    [
        gateway_frames.stream_open(
            0,
            stream_id="s",
            node="n",
            channels={"a": {"epoch": "e", "position": "p", "recovered": True, "linked": True}},
            denied={"b": "access_denied"},
        ),
        gateway_frames.state_resync_required(
            0, channel="a", reason="history_rewound", last="o", earliest="q", start=PLACE
        ),
        gateway_frames.replay_complete(0, channel="a", replayed=2, last="p"),
        gateway_frames.stream_cursor(0),
        gateway_frames.slow_client_warning(
            0,
            channel="a",
            queueSize=1,
            queuedBytes=2,
            maxQueued=3,
            maxQueuedBytes=4,
            lastEventId="p",
            threshold="frames",
        ),
        gateway_frames.client_evicted(
            0,
            channel="a",
            reason="queue_overflow",
            queueSize=1,
            queuedBytes=2,
            maxQueued=3,
            maxQueuedBytes=4,
            firstDroppedId="p",
        ),
        gateway_frames.stream_error(0, kind="draining", error="bye"),
    ],
    ids=lambda frame: frame.type,
)
def test_each_frame_of_the_gateway_has_its_struct_with_every_field(frame):
    payload = msgspec.convert(frame.data, CONTROL_PAYLOADS[frame.type])
    there = {key: value for key, value in msgspec.to_builtins(payload).items() if value is not None}
    assert there == frame.data


def test_a_snapshot_brings_a_state_of_any_kind():
    data = {"channel": "a", "state": [{"n": 1}], "position": "p", "epoch": "e"}
    payload = msgspec.convert(data, CONTROL_PAYLOADS["channel_snapshot"])
    assert payload == ChannelSnapshot(channel="a", state=[{"n": 1}], position="p", epoch="e")
