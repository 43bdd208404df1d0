import dataclasses
import datetime as dt
import gc
import json
import pathlib
import weakref

import msgspec
import pydantic
import pytest

from tidegate.channel import Channel
from tidegate.channel.event import ChannelEvent, encode_json, stamped_meta


def event(data=None, *, event_id=1, kind="t", meta=None, who=None, sound=True):
    return ChannelEvent(event_id, kind, data, meta or {"serverTimestamp": 7}, who, sound=sound)


def test_the_envelope_has_its_fields_in_order():
    made = event({"a": 1}, who="me")
    assert made.to_json() == (
        b'{"id":1,"v":1,"type":"t","data":{"a":1},"_meta":{"serverTimestamp":7},"originatorClientId":"me"}'
    )
    assert made.wire_type == "t"
    assert made.v == 1


def test_without_an_originator_the_envelope_does_not_name_one():
    assert event("x").to_json() == (
        b'{"id":1,"v":1,"type":"t","data":"x","_meta":{"serverTimestamp":7}}'
    )


def test_a_control_frame_has_no_id():
    assert event(None, event_id=None, kind="replay_complete").to_json() == (
        b'{"v":1,"type":"replay_complete","data":null,"_meta":{"serverTimestamp":7}}'
    )


def test_the_size_is_the_utf8_length_of_the_compact_envelope():
    made = event("é€😀")
    assert made.known_size == 0
    assert made.size == len(made.to_json()) == len(made.to_json().decode()) + 1 + 2 + 3
    assert made.known_size == made.size


def test_an_event_is_encoded_at_most_once():
    made = event(["a"])
    first = made.to_json()
    made.data.append("b")
    assert made.to_json() is first


def test_what_json_cannot_say_becomes_null():
    assert (
        json.loads(event([float("nan"), float("inf"), -float("inf")]).to_json())["data"]
        == [None] * 3
    )


class Struct(msgspec.Struct):
    a: int


@dataclasses.dataclass
class Data:
    a: int


class Model(pydantic.BaseModel):
    a: int
    when: dt.datetime


@pytest.mark.parametrize("value", [Struct(1), Data(1)])
def test_structs_and_dataclasses_are_data(value):
    assert json.loads(event(value).to_json())["data"] == {"a": 1}


def test_pydantic_models_are_data():
    model = Model(a=1, when=dt.datetime(2026, 1, 1, tzinfo=dt.UTC))
    assert json.loads(event({"in": model}).to_json())["data"]["in"] == {
        "a": 1,
        "when": "2026-01-01T00:00:00Z",
    }


class Place(pydantic.BaseModel):
    folder: pathlib.PurePosixPath


def test_a_pydantic_model_says_itself_how_it_is_written_as_json():
    # A path means nothing to the encoder of the envelope.
    place = Place(folder=pathlib.PurePosixPath("/tmp"))
    assert json.loads(event(place).to_json())["data"] == {"folder": "/tmp"}


def test_a_models_own_serializer_is_asked_for_json():
    class Asked:
        def model_dump(self, *, mode):
            return mode

    assert json.loads(event(Asked()).to_json())["data"] == "json"


class Text(str):
    __slots__ = ()


class Number(int):
    pass


class Real(float):
    pass


def test_subclasses_of_plain_values_are_data_by_their_value():
    assert json.loads(event([Text("a"), Number(2), Real(1.5)]).to_json())["data"] == ["a", 2, 1.5]


class Dumper:
    model_dump = "not a method"


def cycle():
    made = []
    made.append(made)
    return made


def deep():
    made = []
    for _ in range(100_000):
        made = [made]
    return made


BAD = [
    cycle,
    deep,
    object,
    lambda: {(1, 2): 3},
    lambda: "\ud800",
    lambda: Model,
    Dumper,
    lambda: 1j,
]


@pytest.mark.parametrize("make", BAD)
def test_what_cannot_be_encoded_is_replaced_under_the_same_id(make):
    made = event(make(), event_id=5, who="me", meta={"serverTimestamp": 9, "own": 1})
    assert json.loads(made.to_json()) == {
        "id": 5,
        "v": 1,
        "type": "event_unserializable",
        "data": {"type": "t"},
        "_meta": {"serverTimestamp": 9},
    }
    assert made.wire_type == "event_unserializable"
    assert not made.serializable
    assert made.size == 0
    assert made.type == "t"


def test_an_unsound_type_is_replaced_and_shown_escaped():
    made = event({"fine": 1}, kind="a\nb", sound=False)
    assert json.loads(made.to_json())["data"] == {"type": "a\\nb"}
    assert made.wire_type == "event_unserializable"


def test_every_timestamp_that_is_kept_can_be_written():
    for stamp in (10**20, 1e300, 10**299, -1.5):
        meta = stamped_meta({"serverTimestamp": stamp}, 5)
        assert json.loads(event(object(), meta=meta).to_json())["_meta"] == {
            "serverTimestamp": stamp
        }


def test_bad_meta_and_a_bad_originator_are_unserializable_too():
    assert not event(meta={"serverTimestamp": 1, "x": object()}).serializable
    assert not event(who=object()).serializable


def test_an_unserializable_event_is_reported_once_it_is_known_and_once_only():
    made = event(object())
    assert not made.claim_report()
    made.to_json()
    assert made.claim_report()
    assert not made.claim_report()


def test_an_unsound_event_is_known_at_once():
    made = event(1, kind="a b", sound=False)
    assert made.claim_report()
    assert not made.claim_report()


def test_a_sound_event_is_never_reported():
    made = event(1)
    made.to_json()
    assert made.serializable
    assert not made.claim_report()


def test_an_event_neither_keeps_its_channel_alive_nor_needs_it():
    channel = Channel()
    made = channel.publish("t", object())
    gone = weakref.ref(channel)
    del channel
    gc.collect()
    assert gone() is None
    assert not made.serializable


def test_the_repr_names_id_type_and_data():
    assert repr(event(1)) == "ChannelEvent(id=1, type='t', data=1)"


def test_meta_is_copied_and_stamped():
    given = {"a": 1}
    assert stamped_meta(given, 5) == {"a": 1, "serverTimestamp": 5}
    assert given == {"a": 1}


@pytest.mark.parametrize("stamp", [0, 3, -2, 1.5, 10**20, 1e300])
def test_a_finite_timestamp_is_kept(stamp):
    assert stamped_meta({"serverTimestamp": stamp}, 5) == {"serverTimestamp": stamp}


@pytest.mark.parametrize(
    "stamp", [True, False, 10**400, -(10**4000), float("nan"), float("inf"), "3", None, [1]]
)
def test_any_other_timestamp_is_replaced(stamp):
    assert stamped_meta({"serverTimestamp": stamp, "b": 2}, 5) == {"serverTimestamp": 5, "b": 2}


@pytest.mark.parametrize("meta", [None, [], [("a", 1)], "x", 3, {}])
def test_meta_that_is_no_dict_is_ignored(meta):
    assert stamped_meta(meta, 5) == {"serverTimestamp": 5}


def test_a_publishers_value_is_written_as_compact_json():
    assert encode_json({"a": [1, float("nan")]}) == b'{"a":[1,null]}'


def test_what_cannot_be_written_is_one_kind_of_error_with_a_reason():
    cycle = []
    cycle.append(cycle)
    with pytest.raises(ValueError, match="nested too deeply, or holds itself"):
        encode_json(cycle)
    with pytest.raises(ValueError, match="type object cannot be encoded") as caught:
        encode_json(object())
    assert isinstance(caught.value.__cause__, TypeError)
    with pytest.raises(ValueError, match="surrogates"):
        encode_json("\ud800")


@pytest.mark.parametrize("raised", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_while_it_is_written_passes_through(raised):
    class Model:
        def model_dump(self, mode):
            raise raised

    with pytest.raises(raised):
        encode_json(Model())


def test_an_error_without_a_word_is_named():
    class Silent(BaseException):
        pass

    class Model:
        def model_dump(self, mode):
            raise Silent

    with pytest.raises(ValueError, match=r"^Silent$"):
        encode_json(Model())
