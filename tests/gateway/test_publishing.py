import asyncio
import dataclasses
import enum
import json

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.gateway.support import HeldBroker, hub
from tidegate.channel import RESERVED_TYPES
from tidegate.errors import BrokerUnavailable, InvalidChannelName, InvalidEvent, UnknownNamespace
from tidegate.gateway.brokers.base import PublishError, PublishResult
from tidegate.gateway.namespaces import Namespace, Namespaces
from tidegate.gateway.publishing import (
    Publishable,
    Published,
    checked_tags,
    encode_event,
    publish_all,
    published,
)

NOW = 1_700_000_000_000


def encoded(channels=None, *, namespaces=(), limit=10_000, **fields):
    return encode_event(
        Publishable(**{"channel": "c", "type": "m", **fields}),
        Namespaces(namespaces),
        now_ms=NOW,
        max_event_bytes=limit,
        channels=channels,
    )


def payload(**fields):
    (request,) = encoded(**fields)
    return json.loads(request.payload)


def code(**fields):
    with pytest.raises(InvalidEvent) as caught:
        encoded(**fields)
    assert caught.value.problem
    return caught.value.code


# -- the payload ---------------------------------------------------------------------------


def test_the_payload_is_what_does_not_depend_on_the_place():
    (request,) = encoded(
        data={"x": [1]}, meta={"k": 2}, tags={"a": "b"}, version=3, idempotency_key="once"
    )
    assert request.payload == (
        b'{"data":{"x":[1]},"_meta":{"k":2,"serverTimestamp":1700000000000},'
        b'"tags":{"a":"b"},"version":3}'
    )
    assert (request.channel, request.type) == ("c", "m")
    assert (request.tags, request.version, request.idempotency_key) == ({"a": "b"}, 3, "once")


def test_what_is_not_given_is_not_there_but_data():
    assert payload() == {"data": None, "_meta": {"serverTimestamp": NOW}}


def test_an_events_own_time_is_kept():
    assert payload(meta={"serverTimestamp": 5})["_meta"] == {"serverTimestamp": 5}
    assert payload(meta={"serverTimestamp": True})["_meta"] == {"serverTimestamp": NOW}


@dataclasses.dataclass
class Data:
    a: int


class Shape(msgspec.Struct):
    b: int


class Model(pydantic.BaseModel):
    c: int


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (float("nan"), None),
        ([float("inf"), 1.5], [None, 1.5]),
        (Data(1), {"a": 1}),
        (Shape(2), {"b": 2}),
        (Model(c=3), {"c": 3}),
        ({"é\u2028": "\n"}, {"é\u2028": "\n"}),
    ],
)
def test_data_is_written_by_what_it_holds(data, expected):
    assert payload(data=data)["data"] == expected


TEXT = st.text(st.characters(codec="utf-8"))


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**53), 2**53) | TEXT,
        lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner),
    )
)
def test_any_json_comes_back_and_is_one_line(data):
    (request,) = encoded(data=data, limit=10**9)
    assert json.loads(request.payload)["data"] == data
    assert b"\n" not in request.payload
    assert b"\r" not in request.payload


def nested(levels):
    value = None
    for _ in range(levels):
        value = [value]
    return value


def cycle():
    value = []
    value.append(value)
    return value


@pytest.mark.parametrize(
    "data",
    [
        object(),
        {object(): 1},
        "\ud800",
        {"\ud800": 1},
        cycle(),
        nested(100_000),
        nested(960),
        msgspec.Raw(b"[1,\n2]"),
        msgspec.Raw(b"[1,\r2]"),
        10**5000,
    ],
    ids=[
        "object",
        "key",
        "surrogate",
        "surrogate key",
        "cycle",
        "deep",
        "nearly",
        "lf",
        "cr",
        "big",
    ],
)
def test_what_is_no_json_is_refused(data):
    assert code(data=data) == "invalid_data"


def test_metadata_that_is_no_json_is_refused():
    assert code(meta={"a": object()}) == "invalid_data"
    assert code(meta=[1]) == "invalid_meta"


def test_what_is_large_is_refused_by_what_it_takes_as_json():
    size = len(encoded(data="x" * 100)[0].payload)
    assert encoded(data="x" * 100, limit=size)
    assert code(data="x" * 100, limit=size - 1) == "event_too_large"
    assert code(meta={"a": "x" * 100}, limit=100) == "event_too_large"


# -- what else is checked ------------------------------------------------------------------


@pytest.mark.parametrize("reserved", sorted(RESERVED_TYPES))
def test_the_servers_own_types_are_refused(reserved):
    assert code(type=reserved) == "reserved_event_type"


@pytest.mark.parametrize("bad", ["", "open", "error", "a b", "a" * 129, "é", "a\n", 1, None])
def test_a_type_that_may_not_travel_is_refused(bad):
    assert code(type=bad) == "invalid_event_type"


class Kind(str, enum.Enum):  # noqa: UP042 - its str() is not its value
    MADE = "order.made"


def test_a_type_of_a_class_of_its_own_is_its_characters():
    (request,) = encoded(type=Kind.MADE, channel=Kind.MADE)
    assert type(request.type) is type(request.channel) is str
    assert (request.type, request.channel) == ("order.made", "order.made")


@pytest.mark.parametrize("version", [0, 1, 2**53 - 1])
def test_a_version_is_a_number(version):
    assert encoded(version=version)[0].version == version


@pytest.mark.parametrize("version", [-1, 2**53, True, 1.0, "1"])
def test_anything_else_is_no_version(version):
    assert code(version=version) == "invalid_version"


@pytest.mark.parametrize("key", ["a", "x" * 256, "!~", "0198-aa:bb/c"])
def test_an_idempotency_key_is_visible_ascii(key):
    assert encoded(idempotency_key=key)[0].idempotency_key == key


@pytest.mark.parametrize("key", ["", "x" * 257, "a b", "é", "a\n", 1, b"a"])
def test_anything_else_is_no_idempotency_key(key):
    assert code(idempotency_key=key) == "invalid_idempotency_key"


def test_tags_are_copied():
    tags = {"user": "a:b", "straße": "é"}
    assert checked_tags(tags) == tags
    assert checked_tags(tags) is not tags
    assert checked_tags({}) == {}
    assert len(checked_tags({str(n): "v" for n in range(16)})) == 16
    assert checked_tags({"k" * 128: "v" * 128})


@pytest.mark.parametrize(
    "tags",
    [
        {"": "v"},
        {"k": ""},
        {"k" * 129: "v"},
        {"k": "v" * 129},
        {"a:b": "v"},
        {"a,b": "v"},
        {"k": "a,b"},
        {"k": "a b"},
        {"k": "a\n"},
        {"k": "\x00"},
        {"k": "\ud800"},
        {"k": "\u2028"},
        {"k": 1},
        {1: "v"},
        {str(n): "v" for n in range(17)},
        "k:v",
        7,
    ],
)
def test_tags_that_no_stream_could_name_are_refused(tags):
    assert code(tags=tags) == "invalid_tags"


@given(st.dictionaries(st.text(), st.text(), max_size=3))
def test_tags_either_pass_unchanged_or_are_refused(tags):
    try:
        checked = checked_tags(tags)
    except InvalidEvent:
        return
    assert checked == tags
    json.dumps(tags, ensure_ascii=False).encode()


@pytest.mark.parametrize("bad", ["", "a b", "..", "x" * 201, 1, None])
def test_a_bad_channel_is_refused(bad):
    with pytest.raises(InvalidChannelName):
        encoded(channel=bad)


def test_each_channel_gets_the_policy_of_its_namespace():
    namespaces = [Namespace(name="a", history_size=1), Namespace(name="b", history_size=2)]
    one, two = encoded(channels=["a:1", "b:1"], namespaces=namespaces)
    assert (one.policy.size, two.policy.size) == (1, 2)
    assert one.payload is two.payload
    with pytest.raises(UnknownNamespace):
        encoded(channels=["a:1", "c:1"], namespaces=namespaces)


# -- handing over --------------------------------------------------------------------------


async def test_a_long_batch_gives_readers_their_turn():
    async with hub() as h:
        stream = await h.joined("c", max_queued=128)
        taken = []
        stream.on_ready = lambda: asyncio.get_running_loop().call_soon(read)

        def read():
            while frames := stream.take():
                taken.extend(frame.data for frame in frames if frame.id is not None)
            stream.arm()

        read()
        requests = [request for number in range(1000) for request in encoded(data=number)]
        results = await publish_all(h.broker, requests)
        read()
        assert taken == list(range(1000))
        assert [r.prev for r in results[1:]] == [r.position for r in results[:-1]]
        assert not stream.evicted


async def test_nothing_to_publish_is_no_call():
    assert await publish_all(HeldBroker(), []) == []


async def test_one_result_each_also_when_the_broker_is_away():
    results = await publish_all(HeldBroker(), encoded() * 100)
    assert [result.code for result in results] == ["broker_unavailable"] * 100


def test_a_result_is_what_the_publisher_is_told():
    result = PublishResult(
        channel="c", position="p", epoch="e", prev="", duplicate=True, suppressed=True
    )
    assert published(result) == Published(
        channel="c", id="p", epoch="e", duplicate=True, suppressed=True
    )


def test_an_error_is_raised():
    with pytest.raises(BrokerUnavailable, match="away"):
        published(PublishError(channel="c", code="broker_unavailable", error="away"))
