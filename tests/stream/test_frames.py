import json

from hypothesis import given
from hypothesis import strategies as st

from tidegate.channel import Channel
from tidegate.channel.frames import stream_error
from tidegate.sse import Decoder, encode
from tidegate.stream.frames import HEARTBEAT, control_bytes, event_bytes, jittered, retry_bytes


@given(st.text(max_size=50) | st.dictionaries(st.text(max_size=9), st.integers()))
def test_an_event_frame_is_what_the_encoder_would_write(data):
    event = Channel("c", epoch="e").publish("m", data)
    body = event.to_json()
    assert event_bytes(event, body, b"e-") == encode(id="e-1", event="m", data=body.decode())
    (parsed,) = Decoder().feed(event_bytes(event, body, b""))
    assert (parsed.id, parsed.type, json.loads(parsed.data)["data"]) == ("1", "m", data)


def test_an_unserializable_event_keeps_its_id():
    event = Channel("c").publish("m", object())
    (parsed,) = Decoder().feed(event_bytes(event, event.to_json(), b""))
    assert (parsed.id, parsed.type) == ("1", "event_unserializable")


def test_a_control_frame_has_no_id_line():
    frame = control_bytes(stream_error(5, kind="draining", error="bye"))
    assert frame.startswith(b"event: stream_error\ndata: {")
    assert frame.endswith(b"}\n\n")
    assert b"id:" not in frame


def test_the_heartbeat_is_a_comment():
    assert HEARTBEAT == b": hb\n\n"


def test_retry_is_a_whole_number_of_milliseconds():
    assert retry_bytes(2999.6) == b"retry: 3000\n\n"


def test_jitter_stays_between_its_bounds():
    assert jittered(10, 30, lambda: 0.0) == 10
    assert jittered(10, 30, lambda: 0.5) == 20
