import msgspec

from tidegate.gateway.brokers.base import Publication
from tidegate.gateway.events import GatewayEvent
from tidegate.gateway.frames import ControlFrame, EventFrame
from tidegate.gateway.position import make_position

POSITION = make_position(1, b"abcd")


def test_an_event_is_what_was_published_and_its_place():
    publication = Publication(
        position=POSITION,
        prev="",
        epoch="e",
        type="message",
        payload=b'{"data":{"n":1},"_meta":{"serverTimestamp":5},"tags":{"k":"v"},"version":2}',
        tags={"k": "v"},
        version=2,
    )
    made = GatewayEvent.of_event(EventFrame("a", "0" * 8, publication), "cursor")
    assert made == GatewayEvent(
        id=POSITION,
        channel="a",
        type="message",
        data={"n": 1},
        cursor="cursor",
        epoch="e",
        prev="",
        meta={"serverTimestamp": 5},
        tags={"k": "v"},
        version=2,
    )


def test_a_control_frame_has_no_id_and_its_state_is_decoded():
    data = {"channel": "a", "state": msgspec.Raw(b'{"n":[1]}')}
    made = GatewayEvent.of_control(ControlFrame("channel_snapshot", data, 7), "cursor")
    assert (made.id, made.channel, made.type) == (None, "a", "channel_snapshot")
    assert made.data == {"channel": "a", "state": {"n": [1]}}
    assert made.meta == {"serverTimestamp": 7}


def test_a_control_frame_that_speaks_of_the_stream_names_no_channel():
    made = GatewayEvent.of_control(ControlFrame("stream_error", {"error": "x"}, 7), "")
    assert made.channel is None
