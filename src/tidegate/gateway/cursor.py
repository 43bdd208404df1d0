"""The cursor of a stream: one text that finds its place in every channel, on any node. Pure.

::

    1 ABCDE . NNNNEEEEPPPPPPPPPPPPPPPP NNNNEEEEPPPPPPPPPPPPPPPP ...     (without the spaces)
    | check   name 4, epoch 4, position 16: a slot of 24 characters for each channel
    version

A slot says in which life (epoch) of which channel a position was reached. Names and epochs stand
as hashes of 3 bytes, so a wrong match is possible; it does no harm, since the position, with its
4 random bytes, links in no other channel. The order of the slots means nothing.

The check is a sum over the slots, so that one slot is replaced without a look at the others. What
a slot adds is the square of its CRC in a prime field. The CRC itself would not do: it is linear,
and where two slots exchange a character at the same place, the two changes often cancel out.
"""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import TYPE_CHECKING, Final
from zlib import crc32

from tidegate.gateway.position import ALPHABET, NONE, ZERO, pack

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "MAX_SLOTS",
    "SLOT_LENGTH",
    "CursorWriter",
    "ParsedCursor",
    "Slot",
    "epoch_hash",
    "make_slot",
    "name_hash",
    "parse_cursor",
]

MAX_SLOTS: Final = 200
"""Channels that a cursor has room for."""

SLOT_LENGTH: Final = 24
"""Characters of a slot."""

_VERSION: Final = "1"
_HASH_BYTES: Final = 3
_HASH_LENGTH: Final = 4
_PRIME: Final = 2**30 - 35
"""The largest prime that 5 characters hold."""
_HEAD_LENGTH: Final = 7
_MAX_LENGTH: Final = _HEAD_LENGTH + MAX_SLOTS * SLOT_LENGTH
_FORM = re.compile(
    rf"{_VERSION}[{ALPHABET}]{{5}}\.(?:[{ALPHABET}]{{{SLOT_LENGTH}}}){{1,{MAX_SLOTS}}}", re.ASCII
)
_PAIRS: Final = tuple(a + b for a in ALPHABET for b in ALPHABET)


class Slot:
    """A channel's place, ready to stand in any number of cursors. Never changed once made.

    Attributes:
        text: 24 characters.
        check: what it adds to a cursor's check.
    """

    __slots__ = ("check", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.check = _check_of(text)

    def __repr__(self) -> str:
        return f"Slot({self.text!r})"


def name_hash(name: str) -> str:
    """Return the 4 characters that stand for a channel's name."""
    raw = name.encode("utf-8", "surrogatepass")
    return pack(blake2b(raw, digest_size=_HASH_BYTES).digest())


def epoch_hash(epoch: str) -> str:
    """Return the 4 characters that stand for an epoch."""
    raw = epoch.encode("utf-8", "surrogatepass")
    return pack(blake2b(raw, digest_size=_HASH_BYTES, person=b"tidegate epoch").digest())


def make_slot(prefix: str, epoch_text: str, position: str) -> Slot:
    """Make a channel's slot; once for each event, whatever the number of streams.

    Args:
        prefix: the channel's `name_hash`.
        epoch_text: the epoch's `epoch_hash`.
        position: of the last event that the stream has had; "" before the first.
    """
    return Slot(prefix + epoch_text + (position or ZERO))


class CursorWriter:
    """Writes the cursors of one stream, one after the other.

    Args:
        slots: where the stream stands in each of its channels, 1 to `MAX_SLOTS` of them.

    Raises:
        ValueError: no slot, or too many.
    """

    __slots__ = ("_checks", "_sum", "_texts")

    def __init__(self, slots: Sequence[Slot]) -> None:
        if not 1 <= len(slots) <= MAX_SLOTS:
            raise ValueError(f"a cursor has 1 to {MAX_SLOTS} slots, not {len(slots)}")
        self._texts = [slot.text for slot in slots]
        self._checks = [slot.check for slot in slots]
        self._sum = sum(self._checks) % _PRIME

    def replace(self, index: int, slot: Slot) -> None:
        """Move on in one channel.

        Args:
            index: where the channel's slot stood when the writer was made.
            slot: its new one.
        """
        checks = self._checks
        self._sum = (self._sum + slot.check - checks[index]) % _PRIME
        checks[index] = slot.check
        self._texts[index] = slot.text

    def text(self) -> str:
        """Return the cursor: 7 characters and 24 for each channel."""
        return _head(self._sum) + "".join(self._texts)


class ParsedCursor:
    """A cursor that a client brought back, and that has passed its check.

    Attributes:
        count: the number of its slots.
    """

    __slots__ = ("_places", "count")

    def __init__(self, slots: Sequence[str]) -> None:
        self.count = len(slots)
        self._places: dict[str, list[tuple[str, str]]] = {}
        for slot in slots:
            position = slot[2 * _HASH_LENGTH :]
            place = (
                slot[_HASH_LENGTH : 2 * _HASH_LENGTH],
                NONE if position == ZERO else position,
            )
            self._places.setdefault(slot[:_HASH_LENGTH], []).append(place)

    def find(self, name: str) -> list[tuple[str, str]]:
        """Return the places that may be those of a channel.

        Mostly none or one; more if names of several channels of the stream have the same hash, and
        then only one of them, if any, is the channel's.

        Args:
            name: the channel's name.

        Returns:
            Pairs of an `epoch_hash` and a position, "" before the first event.
        """
        return list(self._places.get(name_hash(name), ()))


def parse_cursor(text: object) -> ParsedCursor | None:
    """Read what a client gives as its cursor; never fails.

    Returns:
        The cursor; ``None`` for a text that `CursorWriter.text` cannot have written.
    """
    if not isinstance(text, str) or len(text) > _MAX_LENGTH or _FORM.fullmatch(text) is None:
        return None
    slots = [text[at : at + SLOT_LENGTH] for at in range(_HEAD_LENGTH, len(text), SLOT_LENGTH)]
    if len(set(slots)) < len(slots):
        return None
    if _head(sum(map(_check_of, slots)) % _PRIME) != text[:_HEAD_LENGTH]:
        return None
    return ParsedCursor(slots)


def _check_of(text: str) -> int:
    crc = crc32(text.encode("ascii"))
    return crc * crc % _PRIME


def _head(check: int) -> str:
    return f"{_VERSION}{_PAIRS[check >> 18]}{_PAIRS[check >> 6 & 4095]}{ALPHABET[check & 63]}."
