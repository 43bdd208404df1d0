import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.gateway.position import (
    ALPHABET,
    LENGTH,
    NONE,
    ZERO,
    is_position,
    make_position,
    next_number,
    number_of,
    pack,
    unpack,
)

numbers = st.integers(1, 2**64 - 1)
random_parts = st.binary(min_size=4, max_size=4)
raws = st.integers(0, 8).flatmap(lambda n: st.binary(min_size=3 * n, max_size=3 * n))
positions = st.builds(make_position, numbers, random_parts)


def test_the_alphabet_is_sorted_and_needs_no_escape():
    assert len(ALPHABET) == 64
    assert list(ALPHABET) == sorted(set(ALPHABET))
    assert ALPHABET.isascii()
    assert not set(ALPHABET) & set("-.%/+= \"'\\")


@given(raws)
def test_what_is_packed_is_unpacked(raw):
    text = pack(raw)
    assert len(text) == len(raw) // 3 * 4
    assert set(text) <= set(ALPHABET)
    assert unpack(text) == raw


@given(st.lists(st.binary(min_size=12, max_size=12), min_size=2, max_size=5))
def test_texts_sort_as_what_they_stand_for(many):
    assert sorted(map(pack, many)) == list(map(pack, sorted(many)))


@given(numbers, random_parts)
def test_a_position_tells_its_number_and_is_one(number, part):
    position = make_position(number, part)
    assert len(position) == LENGTH
    assert number_of(position) == number
    assert is_position(position)
    assert NONE < ZERO < position
    assert unpack(position)[8:] == part


@given(numbers, random_parts, numbers, random_parts)
def test_a_higher_number_sorts_after_a_lower_one_whatever_is_random(one, a, other, b):
    if one != other:
        assert (make_position(one, a) < make_position(other, b)) == (one < other)


@given(numbers, random_parts, random_parts)
def test_another_random_part_is_another_position(number, a, b):
    assert (make_position(number, a) == make_position(number, b)) == (a == b)


@pytest.mark.parametrize("number", [0, -1, 2**64])
def test_a_number_out_of_range_makes_none(number):
    with pytest.raises(ValueError, match="a position takes"):
        make_position(number, b"abcd")


@pytest.mark.parametrize("part", [b"", b"abc", b"abcde"])
def test_a_random_part_of_another_length_makes_none(part):
    with pytest.raises(ValueError, match="a position takes"):
        make_position(1, part)


def test_none_has_number_nought():
    assert number_of(NONE) == number_of(ZERO) == 0


@given(st.integers(0, 2**63), st.integers(-(2**40), 2**63))
def test_the_next_number_is_the_time_or_the_next_one(last, now_ms):
    number = next_number(last, now_ms)
    assert number > last
    assert number >= now_ms
    assert number in (last + 1, now_ms)


def test_numbers_grow_by_any_clock():
    clock = random.Random(1)
    last = 0
    for _ in range(1000):
        number = next_number(last, clock.randint(-10, 2000))
        assert number > last
        last = number


@given(st.text(max_size=20) | st.text(ALPHABET, min_size=15, max_size=17))
def test_of_texts_only_those_of_the_right_form_are_positions(text):
    right = text == NONE or (len(text) == LENGTH and set(text) <= set(ALPHABET) and text != ZERO)
    assert is_position(text) == right


@pytest.mark.parametrize(
    "other", [None, 1, b"", ZERO, "A" * 16 + "\n", "A" * 15 + "-", "A" * 15 + "ä", "A" * 15 + "٣"]
)
def test_what_is_no_position(other):
    assert not is_position(other)


@given(positions)
def test_a_position_with_a_character_more_or_less_is_none(position):
    assert not is_position(position[1:])
    assert not is_position(position + "0")
