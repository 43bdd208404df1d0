"""What a stream of channels asks for beside its URL and its cursor."""

from urllib.parse import parse_qsl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.client.selection import Selection, checked_channel
from tidegate.errors import InvalidChannelName
from tidegate.gateway.names import is_channel_name

names = st.text("AZaz09._~:@-", min_size=1, max_size=200).filter(is_channel_name)


@given(st.one_of(names, st.text(max_size=5), st.none(), st.integers()))
def test_a_channels_name_is_what_the_gateway_says(name):
    if is_channel_name(name):
        assert checked_channel(name) == name
    else:
        with pytest.raises(InvalidChannelName, match="a channel name is 1 to 200 of"):
            checked_channel(name)


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "a\n", "é", "x" * 201])
def test_what_is_no_name_is_a_value_error(name):
    with pytest.raises(ValueError, match="a channel name is"):
        Selection.given(["ok", name])


def test_a_channel_that_is_named_twice_counts_once_and_the_order_is_kept():
    assert Selection.given(iter(["b", "a", "b"])).channels == ("b", "a")


@pytest.mark.parametrize("channels", ["room:1", 5])
def test_channels_are_a_list(channels):
    with pytest.raises(TypeError, match="channels is a list of names"):
        Selection.given(channels)


def test_no_channel_at_all_is_no_stream():
    with pytest.raises(ValueError, match="at least one channel"):
        Selection.given([])
    assert not Selection.given(None).says_anything


@pytest.mark.parametrize("tail", [True, "5", 1.0])
def test_a_tail_is_a_number(tail):
    with pytest.raises(TypeError, match="tail is an int"):
        Selection.given(["a"], tail=tail)


def test_a_tail_is_not_negative_and_not_beside_the_beginning():
    with pytest.raises(ValueError, match="tail is 0 or more"):
        Selection.given(["a"], tail=-1)
    with pytest.raises(ValueError, match="not both"):
        Selection.given(["a"], tail=1, from_beginning=True)


@pytest.mark.parametrize("tags", ["k:v", [("k", "v")], {"k": 1}, {1: "v"}])
def test_tags_are_a_mapping_of_texts(tags):
    with pytest.raises(TypeError, match="tags is a mapping"):
        Selection.given(["a"], tags)


@pytest.mark.parametrize("key", ["", "a:b"])
def test_a_tags_name_can_be_told_from_its_value(key):
    with pytest.raises(ValueError, match="a tag's name"):
        Selection.given(["a"], {key: "v"})


def test_query_and_body_say_the_same():
    asked = Selection.given(["room:1", "b"], {"k": "v w"}, tail=5)
    query = "&".join(f"{name}={value}" for name, value in asked.query())
    assert query == "channel=room:1&channel=b&tail=5&tags=k:v%20w"
    assert asked.body() == {"channels": ["room:1", "b"], "tail": 5, "tags": {"k": "v w"}}
    asked = Selection.given(["a"], from_beginning=True)
    assert asked.query() == [("channel", "a"), ("from", "beginning")]
    assert asked.body() == {"channels": ["a"], "from": "beginning"}


def test_beside_a_cursor_nothing_is_said_of_the_beginning():
    for asked in (Selection.given(["a"], {"k": "v"}, 5), Selection.given(["a"], {"k": "v"}, 0)):
        assert asked.resumed().query() == [("channel", "a"), ("tags", "k:v")]
    assert Selection.given(["a"], from_beginning=True).resumed() == Selection.given(["a"])


@given(
    st.lists(names, min_size=1, max_size=5),
    st.dictionaries(st.text("ab& =%+#é", min_size=1), st.text("ab:& =%+#é", min_size=1)),
)
def test_whatever_is_asked_arrives(channels, tags):
    asked = Selection.given(channels, tags)
    query = "&".join(f"{name}={value}" for name, value in asked.query())
    pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=True)
    assert [value for name, value in pairs if name == "channel"] == list(asked.channels)
    told = [value.partition(":") for name, value in pairs if name == "tags"]
    assert {key: value for key, _, value in told} == tags
