import pytest

from tidegate.channel import RESERVED_TYPES
from tidegate.sessions.payloads import (
    parse_client_id,
    parse_create,
    parse_publish,
    parse_snapshot,
)
from tidegate.stream.input import BadInput


def code(parse, *args):
    with pytest.raises(BadInput) as caught:
        parse(*args)
    assert caught.value.error
    assert caught.value.error.isascii()
    return caught.value.code


@pytest.mark.parametrize("body", [b"", b"  \n", b"{}", b'{"sessionId":null}'])
def test_a_create_may_ask_for_nothing(body):
    assert parse_create(body).session_id is None


def test_a_create_may_name_the_session():
    assert parse_create(b'{"sessionId":"a"}').session_id == "a"


@pytest.mark.parametrize("body", [b'{"sessionId":1}', b'{"session_id":"a"}', b"[]", b'"a"'])
def test_a_create_of_another_shape_is_refused(body):
    assert code(parse_create, body) == "invalid_body"


def test_one_event_or_an_array_may_be_published():
    (item,) = parse_publish(b'{"type":"a","data":{"x":[1]},"meta":{"k":2}}')
    assert (item.type, item.data, item.meta) == ("a", {"x": [1]}, {"k": 2})
    assert [item.type for item in parse_publish(b'[{"type":"a"},{"type":"b","data":null}]')] == [
        "a",
        "b",
    ]
    assert parse_publish(b"[]") == []


@pytest.mark.parametrize(
    "body",
    [
        b"{}",
        b"3",
        b'{"type":1}',
        b'{"type":"a","more":1}',
        b'{"type":"a","meta":[]}',
        b'{"type":"a","id":7}',
        b'[{"type":"a"},{"data":1}]',
        b'[{"type":"a"},3]',
        b'{"type":"a","data":1e999}',
    ],
)
def test_a_publish_of_another_shape_is_refused_whole(body):
    assert code(parse_publish, body) == "invalid_body"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"not json",
        b'{"type":"a","data":NaN}',
        b'{"type":"a","data":"\xff"}',
        b'{"type":"a","data":"\\ud800"}',
        b'{"type":"a","data":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    ],
)
def test_what_is_no_json_is_refused(body):
    assert code(parse_publish, body) == "invalid_json"


@pytest.mark.parametrize("reserved", sorted(RESERVED_TYPES))
def test_the_servers_own_names_are_refused(reserved):
    body = b'[{"type":"a"},{"type":"%b"}]' % reserved.encode()
    assert code(parse_publish, body) == "reserved_event_type"


@pytest.mark.parametrize("bad", ["", "open", "error", "a b", "a" * 129, "é", "a\\n"])
def test_a_type_that_may_not_travel_is_refused(bad):
    assert code(parse_publish, f'{{"type":"{bad}"}}'.encode()) == "invalid_event_type"


def test_a_snapshot_is_a_state_at_an_event():
    snapshot = parse_snapshot(b'{"state":null,"lastEventId":0}')
    assert (snapshot.state, snapshot.last_event_id) == (None, 0)
    assert parse_snapshot(b'{"state":[1],"lastEventId":%d}' % (2**53 - 1)).state == [1]


@pytest.mark.parametrize(
    "body",
    [
        b'{"state":1}',
        b'{"lastEventId":1}',
        b'{"state":1,"lastEventId":-1}',
        b'{"state":1,"lastEventId":%d}' % 2**53,
        b'{"state":1,"lastEventId":true}',
        b'{"state":1,"lastEventId":1.5}',
        b'{"state":1,"lastEventId":1,"epoch":"e"}',
    ],
)
def test_a_snapshot_of_another_shape_is_refused(body):
    assert code(parse_snapshot, body) == "invalid_body"


@pytest.mark.parametrize(("value", "client"), [(None, None), ("", None), ("A.z_0:-", "A.z_0:-")])
def test_a_client_id_is_read(value, client):
    assert parse_client_id(value) == client


@pytest.mark.parametrize("value", ["a b", "x" * 129, "é", "a/b", "a~"])
def test_a_bad_client_id_is_refused(value):
    assert code(parse_client_id, value) == "invalid_client_id"


def test_what_is_shown_of_bad_input_is_escaped_and_short():
    with pytest.raises(BadInput) as caught:
        parse_client_id("\x1b[31m" * 1000)
    assert "\x1b" not in caught.value.error
    assert len(caught.value.error) < 600
