import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.config.kinds import MAX_SECONDS, boolean, choice, duration, string, strings, whole

KINDS = [
    boolean(),
    whole(1, 10),
    whole(0),
    duration(),
    duration(zero=True),
    choice("a", "b"),
    string("letters", "[a-z]+"),
    strings("letters", "[a-z]+"),
]

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.dates(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=2),
    max_leaves=4,
)


@given(anything)
def test_checks_never_raise_and_what_they_return_passes_again(value):
    for kind in KINDS:
        checked = kind.check(value)
        if checked is not None:
            assert kind.check(checked) == checked


@given(st.text())
def test_texts_never_raise(text):
    for kind in KINDS:
        kind.check(kind.from_text(text))


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        (15, 15),
        (0.5, 0.5),
        ("15", 15),
        ("15s", 15),
        ("10m", 600),
        ("1h", 3600),
        ("2d", 172_800),
        ("1.5h", 5400),
        ("500ms", 0.5),
        (MAX_SECONDS, MAX_SECONDS),
        ("3650d", MAX_SECONDS),
    ],
)
def test_durations(given, seconds):
    checked = duration().check(given)
    assert checked == seconds
    assert isinstance(checked, float)


@pytest.mark.parametrize(
    "given",
    [
        0,
        0.0,
        "0s",
        -1,
        "-1",
        "-1s",
        True,
        None,
        "",
        "s",
        "15 s",
        " 15s",
        "15s\n",
        "15S",
        "15w",
        "1h30m",
        "1e3",
        ".5",
        "1.",
        "inf",
        "\u0661s",
        "9" * 100,
        "3651d",
        MAX_SECONDS + 1,
        10**400,
        math.inf,
        math.nan,
        [15],
        {"s": 15},
    ],
)
def test_what_is_no_duration(given):
    assert duration().check(given) is None


def test_zero_where_it_is_allowed():
    assert duration(zero=True).check(0) == 0
    assert duration(zero=True).check("0s") == 0
    assert duration(zero=True).check(-0.001) is None


@pytest.mark.parametrize(("given", "number"), [(1, 1), (10, 10), (0, None), (11, None)])
def test_bounds_of_whole_numbers_belong_to_them(given, number):
    assert whole(1, 10).check(given) == number


@pytest.mark.parametrize("given", [True, False, 1.0, "1", None, [1], 2**53])
def test_what_is_no_whole_number(given):
    assert whole(0).check(given) is None


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("7", 7),
        ("007", 7),
        ("", None),
        ("+7", None),
        ("7.0", None),
        ("1_0", None),
        ("\u0661", None),
    ],
)
def test_whole_numbers_as_text(text, number):
    assert whole(0).from_text(text) == number


@pytest.mark.parametrize(
    ("text", "truth"),
    [
        ("true", True),
        ("True", True),
        ("1", True),
        ("false", False),
        ("FALSE", False),
        ("0", False),
        ("", None),
        ("yes", None),
        ("2", None),
    ],
)
def test_truths_as_text(text, truth):
    assert boolean().check(boolean().from_text(text)) is truth


def test_a_truth_is_no_number_and_a_number_no_truth():
    assert boolean().check(1) is None
    assert boolean().check(False) is False
    assert choice("1").check(1) is None


def test_a_choice_is_one_of_its_words():
    kind = choice("all", "latest")
    assert kind.check("all") == "all"
    assert kind.check("All") is None
    assert kind.allowed == '"all" or "latest"'


@pytest.mark.parametrize("given", ["", "a\n", "A", "a b", None, 1, ["a"], b"a"])
def test_a_string_matches_from_end_to_end(given):
    assert string("letters", "[a-z]+").check(given) is None


def test_a_list_keeps_its_order_and_each_part_is_checked():
    kind = strings("letters", "[a-z]+")
    assert kind.check(["b", "a"]) == ("b", "a")
    assert kind.check(()) == ()
    assert kind.check(["b", "A"]) is None
    assert kind.check(["b", 1]) is None
    assert kind.check("b") is None
    assert kind.check({"b": 1}) is None


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", ()),
        (" ", ()),
        ("a", ("a",)),
        ("a,b", ("a", "b")),
        (" a , b ", ("a", "b")),
        ("a,", None),
    ],
)
def test_a_list_as_text_has_commas(text, parts):
    kind = strings("letters", "[a-z]+")
    assert kind.check(kind.from_text(text)) == parts
