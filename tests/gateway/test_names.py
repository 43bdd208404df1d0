import re
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.errors import InvalidChannelName
from tidegate.gateway.names import (
    DEFAULT_NAMESPACE,
    checked_name,
    is_channel_name,
    namespace_of,
)

ALLOWED = string.ascii_letters + string.digits + "._~:@-"
names = st.text(ALLOWED, min_size=1, max_size=200).filter(lambda name: name not in {".", ".."})


@given(names)
def test_a_name_of_the_right_form_is_returned_as_it_is(name):
    assert is_channel_name(name)
    assert checked_name(name) is name


@given(st.text(max_size=10))
def test_of_texts_only_those_of_the_right_form_are_names(text):
    right = bool(text) and set(text) <= set(ALLOWED) and text not in {".", ".."}
    assert is_channel_name(text) == right


@pytest.mark.parametrize("name", ["a", ":", "...", ".a", "room:101", "u:a@b.c~-_", "x" * 200])
def test_names(name):
    assert is_channel_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "x" * 201,
        "a b",
        "a/b",
        "a*",
        "a>b",
        "a%20",
        "a\n",
        "\na",
        "ä",
        "\u0661",
        None,
        1,
        b"a",
        ["a"],
        "\ud800",
    ],
)
def test_what_is_no_name_is_refused_with_words_that_can_be_printed(name):
    assert not is_channel_name(name)
    with pytest.raises(InvalidChannelName) as refused:
        checked_name(name)
    assert refused.value.name is name
    assert str(refused.value).isascii()
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 250


@given(st.text(ALLOWED.replace(":", ""), max_size=20), st.text(ALLOWED, max_size=20))
def test_the_namespace_is_what_stands_before_the_first_colon(namespace, rest):
    assert namespace_of(f"{namespace}:{rest}") == namespace
    assert re.match(r"[^:]*", f"{namespace}:{rest}")[0] == namespace


@given(st.text(ALLOWED.replace(":", ""), max_size=20))
def test_a_name_without_a_colon_is_in_the_default_namespace(name):
    assert namespace_of(name) == DEFAULT_NAMESPACE == "default"
