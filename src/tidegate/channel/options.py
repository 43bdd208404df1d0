"""Checks of what a channel is made with. Pure."""

from __future__ import annotations

import warnings

__all__ = ["MAX_RING_SIZE", "checked_integer", "checked_ring_size"]

MAX_RING_SIZE = 1_000_000
"""The most events that a ring may hold; a guard against slips of the keyboard."""


def checked_integer(name: str, value: object, low: int) -> int:
    """Return ``value`` if it is an integer of at least ``low``.

    Raises:
        TypeError: it is no integer; a bool is none.
        ValueError: it is below ``low``.
    """
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} must be an integer, not {type(value).__name__}")
    if value < low:
        raise ValueError(f"{name} must be at least {low}, not {value}")
    return value


def checked_ring_size(value: object, *, stacklevel: int) -> int:
    """Return the ring size to use: what was given, or the maximum with a warning.

    Raises:
        TypeError: it is no integer; a bool is none.
        ValueError: it is negative.
    """
    size = checked_integer("ring_size", value, 0)
    if size > MAX_RING_SIZE:
        warnings.warn(
            f"ring_size {size} is more than the maximum; {MAX_RING_SIZE} is used",
            stacklevel=stacklevel + 1,
        )
        return MAX_RING_SIZE
    return size
