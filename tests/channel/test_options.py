import enum

import pytest

from tidegate.channel.options import checked_integer, checked_ring_size


class Number(enum.IntEnum):
    THREE = 3


@pytest.mark.parametrize("value", [2, 3, 10**30, Number.THREE])
def test_an_integer_from_the_lowest_on_is_taken(value):
    assert checked_integer("n", value, 2) == value


@pytest.mark.parametrize("value", [True, False, 1.0, "1", None, [1]])
def test_anything_but_an_integer_is_a_type_error(value):
    with pytest.raises(TypeError, match=rf"^n must be an integer, not {type(value).__name__}$"):
        checked_integer("n", value, 0)


def test_a_number_below_the_lowest_is_a_value_error():
    with pytest.raises(ValueError, match=r"^n must be at least 2, not 1$"):
        checked_integer("n", 1, 2)


@pytest.mark.parametrize("size", [0, 1, 1_000_000])
def test_a_ring_size_up_to_the_maximum_is_taken(size):
    assert checked_ring_size(size, stacklevel=1) == size


def test_a_larger_ring_size_is_clamped_with_a_warning_at_the_caller():
    with pytest.warns(
        UserWarning, match=r"^ring_size 1000001 is more .*; 1000000 is used$"
    ) as caught:
        assert checked_ring_size(1_000_001, stacklevel=1) == 1_000_000
    assert caught[0].filename == __file__


def test_a_negative_ring_size_is_refused():
    with pytest.raises(ValueError, match=r"^ring_size must be at least 0, not -1$"):
        checked_ring_size(-1, stacklevel=1)
    with pytest.raises(TypeError, match=r"^ring_size must be an integer, not bool$"):
        checked_ring_size(True, stacklevel=1)
