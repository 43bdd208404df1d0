"""Payloads become objects; what does not fit is counted, told, and handed on."""

import dataclasses
from typing import NamedTuple, TypedDict

import msgspec
import pydantic
import pytest

from tidegate.client import (
    ClientEvicted,
    EventSchema,
    EventUnserializable,
    ReplayComplete,
    SlowClientWarning,
    StateResyncRequired,
    StreamError,
    StreamEvent,
)


def event(kind, data, number=1):
    return StreamEvent(number, f"e1-{number}", "e1", kind, data)


class Struct(msgspec.Struct):
    text: str


@dataclasses.dataclass
class Data:
    text: str


class Tuple(NamedTuple):
    text: str


class Dict(TypedDict):
    text: str


class Model(pydantic.BaseModel):
    text: str


@pytest.mark.parametrize("payload_class", [Struct, Data, Model])
def test_every_kind_of_class_is_taken(payload_class):
    schema = EventSchema()
    assert schema.register("token", payload_class) is payload_class
    typed = schema.decode(event("token", {"text": "hi"}))
    assert isinstance(typed.payload, payload_class)
    assert (typed.payload.text, typed.known, typed.problem, typed.type) == (
        "hi",
        True,
        None,
        "token",
    )
    assert typed.event.id == 1


def test_named_tuples_and_typed_dicts_are_taken():
    schema = EventSchema()
    schema.register("tuple", Tuple)
    schema.register("dict", Dict)
    assert schema.decode(event("tuple", ["hi"])).payload == Tuple("hi")
    assert schema.decode(event("dict", {"text": "hi", "more": 1})).payload == {"text": "hi"}
    assert schema.decode(event("dict", {})).problem


def test_register_decorates():
    schema = EventSchema()

    @schema.register("token")
    class Token(msgspec.Struct):
        text: str

    assert schema.decode(event("token", {"text": "hi"})).payload == Token("hi")


def test_an_unknown_type_passes_through():
    schema = EventSchema()
    typed = schema.decode(event("whatever", {"a": [1]}))
    assert (typed.payload, typed.known, typed.problem) == ({"a": [1]}, False, None)
    assert schema.bad == 0


@pytest.mark.parametrize("payload_class", [Struct, Data, Model])
@pytest.mark.parametrize("data", [None, {}, {"text": 5}, [], "x"])
def test_a_payload_that_does_not_fit_is_counted_told_and_handed_on(payload_class, data, caplog):
    told = []
    schema = EventSchema(on_bad=told.append)
    schema.register("token", payload_class)
    bad = event("token", data, 7)
    typed = schema.decode(bad)
    assert (typed.event, typed.payload, typed.known) == (bad, data, True)
    assert typed.problem
    assert (schema.bad, told) == (1, [schema.last_bad])
    assert (schema.last_bad.event, schema.last_bad.problem) == (bad, typed.problem)
    assert "the payload of event 7 does not fit its type 'token'" in caplog.text


def test_a_problem_reaches_no_log_unescaped(caplog):
    class Angry(msgspec.Struct):
        text: str

        def __post_init__(self):
            raise RuntimeError("\x1b[31m" + self.text * 1000)

    schema = EventSchema()
    schema.register("token", Angry)
    assert "RuntimeError" in schema.decode(event("token", {"text": "\u202e"})).problem
    (record,) = caplog.records
    assert record.getMessage().isascii()
    assert len(record.getMessage()) < 2000


def test_control_frames_have_their_structs():
    schema = EventSchema()
    sizes = {"queueSize": 1, "queuedBytes": 2, "maxQueued": 3, "maxQueuedBytes": 4}
    for kind, data, payload in [
        ("replay_complete", {"replayedCount": 0}, ReplayComplete(replayed_count=0)),
        (
            "state_resync_required",
            {"reason": "ring_evicted", "lastDeliveredId": 1, "earliestAvailableId": 5},
            StateResyncRequired(
                reason="ring_evicted", last_delivered_id=1, earliest_available_id=5
            ),
        ),
        (
            "slow_client_warning",
            {**sizes, "lastEventId": 9, "threshold": "bytes"},
            SlowClientWarning(
                queue_size=1,
                queued_bytes=2,
                max_queued=3,
                max_queued_bytes=4,
                last_event_id=9,
                threshold="bytes",
            ),
        ),
        (
            "client_evicted",
            {**sizes, "reason": "queue_overflow", "firstDroppedId": 5},
            ClientEvicted(
                reason="queue_overflow",
                queue_size=1,
                queued_bytes=2,
                max_queued=3,
                max_queued_bytes=4,
                first_dropped_id=5,
            ),
        ),
        (
            "stream_error",
            {"error": "bye", "errorKind": "draining"},
            StreamError(error="bye", error_kind="draining"),
        ),
        ("event_unserializable", {"type": "odd"}, EventUnserializable(type="odd")),
    ]:
        assert schema.decode(event(kind, data)).payload == payload
        assert schema.decode(event(kind, {**data, "later": 1})).payload == payload
    schema.decode(event("replay_complete", {}))
    assert schema.bad == 1


@pytest.mark.parametrize("kind", ["", "a b", "x" * 129, "error", "open", "stream_error", 5])
def test_what_is_no_type_or_reserved_is_refused(kind):
    with pytest.raises(ValueError, match="an event type is"):
        EventSchema().register(kind, Struct)


def test_the_end_of_a_session_may_have_a_class():
    schema = EventSchema()
    assert not schema.decode(event("session_closed", {"text": "bye"})).known
    schema.register("session_closed", Struct)
    assert schema.decode(event("session_closed", {"text": "bye"})).payload == Struct("bye")


def test_a_type_has_one_class():
    schema = EventSchema()
    schema.register("token", Struct)
    schema.register("token", Struct)
    with pytest.raises(ValueError, match=r"'token' is already registered, with .*Struct"):
        schema.register("token", Data)


def test_a_class_that_does_not_say_what_its_fields_are_is_refused():
    class Opaque:
        pass

    with pytest.raises(TypeError, match="does not say what its fields are"):
        EventSchema().register("token", Opaque)
    with pytest.raises(TypeError):
        EventSchema().register("token", 5)
