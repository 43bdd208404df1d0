"""The kinds of settings: what each may be, in words, and how it is read from a text. Pure.

A file has numbers, truths and lists; the environment has texts only. Here both end as the same
value, or as ``None``, which is no setting's value: then it is not allowed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["MAX_SECONDS", "Kind", "boolean", "choice", "duration", "string", "strings", "whole"]

MAX_SECONDS: Final = 3650 * 86400
"""The longest duration: ten years."""

_MAX_WHOLE: Final = 2**53 - 1
_UNITS: Final = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "": 1}
# [0-9], never \d: other scripts have digits too, and int() would take them.
_DURATION = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,9})?)(ms|s|m|h|d|)", re.ASCII)
_WHOLE = re.compile(r"[0-9]{1,18}", re.ASCII)
_TRUTHS: Final = {"true": True, "1": True, "false": False, "0": False}


@dataclass(frozen=True, slots=True)
class Kind:
    """What a setting may be.

    Attributes:
        allowed: that in words, to follow "must be".
        check: returns the value as it is used, or ``None`` if it is not allowed.
        from_text: makes of an environment variable's text what ``check`` takes.
        secret: the value is never shown.
    """

    allowed: str
    check: Callable[[Any], Any]
    from_text: Callable[[str], Any] = str
    secret: bool = False


def boolean() -> Kind:
    """True or false; as a text also 1 or 0."""
    return Kind(
        "true or false",
        lambda value: value if isinstance(value, bool) else None,
        lambda text: _TRUTHS.get(text.lower()),
    )


def whole(low: int, high: int | None = None) -> Kind:
    """A whole number from ``low`` to ``high``."""
    top = _MAX_WHOLE if high is None else high

    def check(value: Any) -> int | None:
        if not isinstance(value, int) or isinstance(value, bool):
            return None
        return value if low <= value <= top else None

    bounds = f"of at least {low}" if high is None else f"from {low} to {high}"
    return Kind(
        f"a whole number {bounds}",
        check,
        lambda text: int(text) if _WHOLE.fullmatch(text) else None,
    )


def duration(*, zero: bool = False) -> Kind:
    """A time, of more than 0 or, with ``zero``, 0 or more; it ends as seconds."""

    def check(value: Any) -> float | None:
        seconds = _seconds(value) if isinstance(value, str) else value
        if not isinstance(seconds, int | float) or isinstance(seconds, bool):
            return None
        # Compared before it becomes a float, which not every whole number can.
        if not 0 <= seconds <= MAX_SECONDS or (seconds == 0 and not zero):
            return None
        return float(seconds)

    least = "0 or more" if zero else "more than 0"
    return Kind(f'seconds, or a text such as "15s", "10m", "1h" or "2d", {least}', check)


def choice(*names: str) -> Kind:
    """One of several words."""
    return Kind(
        " or ".join(f'"{name}"' for name in names),
        lambda value: value if isinstance(value, str) and value in names else None,
    )


def string(allowed: str, pattern: str, *, secret: bool = False) -> Kind:
    """A text that matches ``pattern`` from end to end."""
    form = re.compile(pattern, re.ASCII)

    def check(value: Any) -> str | None:
        return value if isinstance(value, str) and form.fullmatch(value) else None

    return Kind(allowed, check, secret=secret)


def strings(allowed: str, pattern: str) -> Kind:
    """A list of texts that match ``pattern``; as one text, with commas between them."""
    one = string(allowed, pattern)

    def check(value: Any) -> tuple[str, ...] | None:
        if not isinstance(value, list | tuple) or any(one.check(part) is None for part in value):
            return None
        return tuple(value)

    return Kind(allowed, check, _parts)


def _seconds(text: str) -> float | None:
    found = _DURATION.fullmatch(text)
    return float(found[1]) * _UNITS[found[2]] if found else None


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",")] if text.strip() else []
