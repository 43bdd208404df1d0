import json

from tidegate.channel import frames


def fields(frame):
    assert frame.id is None
    assert frame.meta == {"serverTimestamp": 5}
    envelope = json.loads(frame.to_json())
    assert envelope == {
        "v": 1,
        "type": frame.type,
        "data": frame.data,
        "_meta": {"serverTimestamp": 5},
    }
    assert frame.wire_type == frame.type
    return frame.type, frame.data


def test_a_control_frame_is_an_envelope_without_an_id():
    assert fields(frames.control_frame("stream_open", {"a": 1}, 5)) == ("stream_open", {"a": 1})


def test_slow_client_warning_has_exactly_its_fields():
    frame = frames.slow_client_warning(
        5,
        queue_size=1,
        queued_bytes=2,
        max_queued=3,
        max_queued_bytes=4,
        last_event_id=6,
        threshold="bytes",
    )
    assert fields(frame) == (
        "slow_client_warning",
        {
            "queueSize": 1,
            "queuedBytes": 2,
            "maxQueued": 3,
            "maxQueuedBytes": 4,
            "lastEventId": 6,
            "threshold": "bytes",
        },
    )


def test_client_evicted_has_event_bytes_only_when_given():
    common = {
        "queue_size": 1,
        "queued_bytes": 2,
        "max_queued": 3,
        "max_queued_bytes": 4,
        "first_dropped_id": 6,
    }
    expected = {
        "reason": "queue_overflow",
        "queueSize": 1,
        "queuedBytes": 2,
        "maxQueued": 3,
        "maxQueuedBytes": 4,
        "firstDroppedId": 6,
    }
    frame = frames.client_evicted(5, reason="queue_overflow", **common)
    assert fields(frame) == ("client_evicted", expected)
    frame = frames.client_evicted(5, reason="queue_bytes_overflow", event_bytes=0, **common)
    assert fields(frame) == (
        "client_evicted",
        expected | {"reason": "queue_bytes_overflow", "eventBytes": 0},
    )


def test_state_resync_required_has_a_detail_only_when_given():
    frame = frames.state_resync_required(
        5, reason="epoch_reset", last_delivered_id=1, earliest_available_id=2
    )
    expected = {"reason": "epoch_reset", "lastDeliveredId": 1, "earliestAvailableId": 2}
    assert fields(frame) == ("state_resync_required", expected)
    frame = frames.state_resync_required(
        5,
        reason="epoch_reset",
        last_delivered_id=1,
        earliest_available_id=2,
        detail="epoch_mismatch",
    )
    assert fields(frame) == ("state_resync_required", expected | {"detail": "epoch_mismatch"})


def test_replay_complete_names_the_last_id_only_when_something_was_replayed():
    assert fields(frames.replay_complete(5, replayed=0, last_replayed_id=None)) == (
        "replay_complete",
        {"replayedCount": 0},
    )
    assert fields(frames.replay_complete(5, replayed=2, last_replayed_id=9)) == (
        "replay_complete",
        {"replayedCount": 2, "lastReplayedEventId": 9},
    )


def test_stream_error_says_what_and_of_which_kind():
    assert fields(frames.stream_error(5, kind="draining", error="the node goes down")) == (
        "stream_error",
        {"error": "the node goes down", "errorKind": "draining"},
    )
