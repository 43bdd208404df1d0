import json
import re

import pytest

from tidegate.channel.names import is_event_type
from tidegate.errors import InvalidEvent
from tidegate.gateway.names import is_channel_name
from tidegate.gateway.openapi import document
from tidegate.gateway.position import is_position
from tidegate.gateway.publishing import checked_tags


def references(value):
    if isinstance(value, dict):
        for key, inner in value.items():
            if key == "$ref":
                yield inner
            else:
                yield from references(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from references(inner)


def operations():
    for path, item in document()["paths"].items():
        for method, operation in item.items():
            if method != "parameters":
                yield path, method, operation, item.get("parameters", [])


def test_it_is_json_and_new_each_time():
    one, two = document(server="/live"), document()
    assert json.loads(json.dumps(one)) == one
    assert one["openapi"].startswith("3.1.")
    assert one["servers"] == [{"url": "/live"}]
    one["paths"].clear()
    assert two["paths"]
    assert document()["paths"]


def test_whatever_is_referred_to_is_there_and_the_rest_is_not():
    whole = document()
    schemas = whole["components"]["schemas"]
    named = {reference.removeprefix("#/components/schemas/") for reference in references(whole)}
    assert named == set(schemas)


def test_every_operation_has_a_name_of_its_own_and_answers():
    names = [operation["operationId"] for _, _, operation, _ in operations()]
    assert len(names) == len(set(names))
    for _, _, operation, _ in operations():
        assert operation["summary"].endswith(".")
        assert "200" in operation["responses"]
        for answer in operation["responses"].values():
            assert answer["description"]
            assert answer["content"]


def test_what_stands_in_a_path_is_a_parameter_of_it():
    for path, _, operation, shared in operations():
        parameters = [*shared, *operation.get("parameters", [])]
        in_path = {one["name"] for one in parameters if one["in"] == "path"}
        assert in_path == set(re.findall(r"{(\w+)}", path))
        assert all(one["required"] for one in parameters if one["in"] == "path")


def test_patterns_are_those_of_the_code():
    (channel,) = document()["paths"]["/v1/channels/{channel}"]["parameters"]
    pattern = channel["schema"]["pattern"]
    for name in ["a", "room:1", "x" * 200, "", "a b", "x" * 201, "é"]:
        assert bool(re.search(pattern, name)) is is_channel_name(name)
    get = document()["paths"]["/v1/channels/{channel}/history"]["get"]
    after = next(one for one in get["parameters"] if one["name"] == "after")
    for position in ["", "0" * 15 + "1", "x" * 15, "-" * 16]:
        assert bool(re.search(after["schema"]["pattern"], position)) is is_position(position)


def test_what_a_body_may_hold_is_what_the_routes_take():
    schemas = document()["components"]["schemas"]
    publish = schemas["PublishBody"]["properties"]
    assert schemas["PublishBody"]["additionalProperties"] is False
    for name in ["a", "a.b", "open", "error", "stream_open", "", "a b", "x" * 129]:
        allowed = bool(re.search(publish["type"]["pattern"], name))
        assert (allowed and name not in publish["type"]["not"]["enum"]) is is_event_type(name)
    tags_schema = publish["tags"]["anyOf"][0]
    key = tags_schema["propertyNames"]["pattern"]
    value = tags_schema["additionalProperties"]["pattern"]
    for text in ["a", "a:b", "a,b", "a b", "", "x" * 128, "x" * 129, "\x85", "\x00", "é", "\u2028"]:
        for tags in ({text: "v"}, {"k": text}):
            ((k, v),) = tags.items()
            try:
                checked_tags(tags)
            except InvalidEvent:
                sound = False
            else:
                sound = True
            assert bool(re.search(key, k) and re.search(value, v)) is sound


@pytest.mark.parametrize(
    ("name", "required"),
    [
        ("PublishBody", ["type"]),
        ("StreamBody", ["channels"]),
        ("PublishOutcome", ["channel"]),
        ("WireEvent", ["id", "v", "type", "channel", "epoch", "prev", "data", "_meta"]),
    ],
)
def test_shapes_say_what_must_be_there(name, required):
    assert document()["components"]["schemas"][name]["required"] == required
