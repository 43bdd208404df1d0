"""Standard streams that the caller has closed, as ``<&-`` and ``>&-`` do. Imports no extra."""

from __future__ import annotations

import os
import sys

__all__ = ["mend_streams"]


def mend_streams() -> None:
    """Put the null device in the place of each of the descriptors 0, 1 and 2 that is closed.

    Otherwise the next socket would get its number, and output would be written into that.
    ``sys.stdout`` and ``sys.stderr`` are never ``None`` after it; ``sys.stdin`` still is where it
    was closed, so that a command can tell that from an empty one. To be called before anything
    else is opened.
    """
    # The lowest free number is what one gets.
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
