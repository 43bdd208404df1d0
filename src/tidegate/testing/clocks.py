"""A clock that a test sets."""

from __future__ import annotations

__all__ = ["ManualClock"]


class ManualClock:
    """Shows what it is told to: an argument for whatever takes a ``clock``.

    Args:
        now: seconds since 1970.

    Attributes:
        now: what it shows; to be changed at will.
    """

    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        """Return seconds since 1970."""
        return self.now

    def advance(self, seconds: float) -> None:
        """Go on, or with a negative number go back."""
        self.now += seconds
