"""What a stream shows of itself, before and while it runs."""

from tests.client.support import frame
from tidegate.client.core import StreamCore
from tidegate.client.face import StreamFace


def test_a_new_stream_has_no_place_and_no_end():
    face = StreamFace(StreamCore("http://h/session/a"))
    assert (face.cursor, face.epoch, face.entered, face.end_reason) == (None, None, False, None)
    assert face.statistics().connects == 0


def test_a_stream_shows_its_place_and_its_end():
    core = StreamCore("http://h/session/a", last_event_id=4, epoch="e0")
    face = StreamFace(core)
    assert (face.cursor, face.epoch) == ("4", "e0")
    core.answered(200, {"content-type": "text/event-stream"})
    core.feed(frame(5))
    core.take()
    core.take()
    assert (face.cursor, face.epoch) == ("e1-5", "e1")
    core.close()
    assert face.end_reason == "closed"
    assert face.statistics().events == 1
