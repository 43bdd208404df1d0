"""What clients send: decoded with errors that say what is wrong. Pure."""

from __future__ import annotations

from typing import Final, TypeVar

import msgspec

__all__ = ["BadInput", "check_depth", "decoded", "shown"]

_SHOWN: Final = 80
_SPARE_LEVELS: Final = 64

T = TypeVar("T")


class BadInput(Exception):
    """What a client sent is not what the route takes.

    Attributes:
        code: for programs, ``snake_case``.
        error: a sentence for people.
    """

    def __init__(self, code: str, error: str) -> None:
        super().__init__(code, error)
        self.code = code
        self.error = error


def decoded(decoder: msgspec.json.Decoder[T], body: bytes) -> T:
    """Decode a body.

    Raises:
        BadInput: ``invalid_json`` or ``invalid_body``.
    """
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise BadInput("invalid_body", f"the body does not fit: {error}") from None
    except msgspec.DecodeError as error:
        raise BadInput("invalid_json", f"the body is not JSON: {error}") from None
    except RecursionError:
        raise BadInput("invalid_json", "the body is nested too deeply") from None


def check_depth(value: object) -> None:
    """See that what could be decoded can also be encoded later, with room to spare.

    Both stop at the interpreter's recursion limit, and between the two lie some levels at
    which a value would be accepted and then be nothing that a wire can carry.

    Raises:
        BadInput: ``invalid_json``.
    """
    trial: object = value
    for _ in range(_SPARE_LEVELS):
        trial = [trial]
    try:
        msgspec.json.encode(trial)
    except RecursionError:
        raise BadInput("invalid_json", "the body is nested too deeply") from None


def shown(text: str) -> str:
    """Make what was sent safe to show: quoted ASCII, clipped."""
    clipped = ascii(text[:_SHOWN])
    return clipped if len(text) <= _SHOWN else clipped + "..."
