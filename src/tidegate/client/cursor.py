"""What a client holds to come back to its place in a stream. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Self

__all__ = ["MAX_NUMBER", "Cursor", "epoch_of"]

MAX_NUMBER: Final = 2**53 - 1
"""The highest event id: what a JavaScript number holds exactly."""

# Every id that Tidegate writes keeps to these, so that no header has to be escaped.
_TEXT = re.compile(r"[A-Za-z0-9._~-]{1,4096}", re.ASCII)
# 24 characters for each of up to 200 channels.
_OPAQUE = re.compile(r"[A-Za-z0-9._~-]{1,8192}", re.ASCII)
_EPOCH = re.compile(r"[A-Za-z0-9._~-]{1,128}", re.ASCII)
_PLAIN = re.compile(r"[0-9]{1,16}", re.ASCII)
_WITH_EPOCH = re.compile(r"([A-Za-z0-9._~-]+)-([0-9]{1,16})", re.ASCII)


def epoch_of(header: str | None) -> str | None:
    """Read the ``Tidegate-Epoch`` of a response.

    Returns:
        The epoch; ``None`` for what is none, since it has to go into the next request's header.
    """
    return header if header is not None and _EPOCH.fullmatch(header) else None


@dataclass(frozen=True, slots=True)
class Cursor:
    """A place in a stream, as the server wrote it.

    Attributes:
        text: what goes into ``Last-Event-ID``, character by character.
        epoch: the life of the history it belongs to, if that is known.
        number: the event id in it; ``None`` where the text is opaque.
        plain: the text carries no epoch, which then travels beside it, in ``Tidegate-Epoch``.
    """

    text: str
    epoch: str | None = None
    number: int | None = None
    plain: bool = False

    @classmethod
    def read(cls, text: str, epoch: str | None = None) -> Self | None:
        """Read the id of a frame.

        Args:
            text: the id: decimal digits, ``<epoch>-<digits>``, or something opaque.
            epoch: that of the response the frame came with, for an id without its own.

        Returns:
            The cursor; ``None`` for what no header could carry back, ``""`` included.
        """
        if _TEXT.fullmatch(text) is None:
            return None
        if _PLAIN.fullmatch(text):
            number = int(text)
            if number <= MAX_NUMBER:
                return cls(text, epoch, number, plain=True)
        elif found := _WITH_EPOCH.fullmatch(text):
            number = int(found[2])
            if number <= MAX_NUMBER:
                return cls(text, found[1], number)
        return cls(text)

    @classmethod
    def opaque(cls, text: str, epoch: str | None = None) -> Self | None:  # noqa: ARG003
        """Read the id of a frame of a stream of channels: the server's word, never parsed.

        Returns:
            The cursor; ``None`` for what no header could carry back, ``""`` included.
        """
        return None if _OPAQUE.fullmatch(text) is None else cls(text)

    @classmethod
    def given_opaque(cls, last_event_id: int | str | None, epoch: str | None = None) -> Self | None:
        """Check a cursor of a stream of channels that a caller gives.

        Raises:
            TypeError: ``last_event_id`` is no ``str``.
            ValueError: it has characters that no cursor has, or an epoch stands beside it.
        """
        if last_event_id is None:
            return None
        if not isinstance(last_event_id, str):
            raise TypeError(
                "the cursor of a stream of channels is a text, "
                f"not {type(last_event_id).__name__}; keep stream.cursor"
            )
        if epoch is not None:
            raise ValueError("the cursor of a stream of channels carries its epochs itself")
        cursor = cls.opaque(last_event_id)
        if cursor is None:
            raise ValueError("a cursor is 1 to 8192 of A-Z a-z 0-9 . _ ~ -")
        return cursor

    @classmethod
    def given(cls, last_event_id: int | str | None, epoch: str | None = None) -> Self | None:
        """Check a cursor that a caller gives.

        Args:
            last_event_id: the id of the last event it has, 0 for none; or the text of a cursor.
            epoch: the life that a plain number belongs to; without it a restart of the server is
                noticed only if the number is above its head. Alone it means nothing.

        Returns:
            The cursor; ``None`` for ``None``.

        Raises:
            TypeError: ``last_event_id`` is neither ``int`` nor ``str``, or ``epoch`` is no ``str``.
            ValueError: it is negative, above 2^53-1, or has characters that no cursor has; or an
                epoch is given with a cursor that carries its own.
        """
        if last_event_id is None:
            return None
        if isinstance(last_event_id, bool) or not isinstance(last_event_id, int | str):
            raise TypeError(f"last_event_id is an int or a str, not {type(last_event_id).__name__}")
        if epoch is not None and not isinstance(epoch, str):
            raise TypeError(f"epoch is a str, not {type(epoch).__name__}")
        if epoch is not None and _EPOCH.fullmatch(epoch) is None:
            raise ValueError("an epoch is 1 to 128 of A-Z a-z 0-9 . _ ~ -")
        if isinstance(last_event_id, int) and not 0 <= last_event_id <= MAX_NUMBER:
            raise ValueError(f"last_event_id is 0 to 2^53-1, not {last_event_id}")
        cursor = cls.read(str(last_event_id), epoch)
        if cursor is None:
            raise ValueError("a cursor is 1 to 4096 of A-Z a-z 0-9 . _ ~ -")
        if epoch is not None and not cursor.plain and cursor.epoch != epoch:
            raise ValueError("an epoch goes with a plain number; this cursor carries its own")
        return cursor

    def after(self, held: Cursor | None) -> Cursor:
        """Return the further one of this cursor, just read, and the one held so far.

        Within an epoch a cursor never moves back. A new epoch replaces the old one, and what cannot
        be compared is the server's word.
        """
        if (
            held is None
            or self.number is None
            or held.number is None
            or self.epoch != held.epoch
            or self.number > held.number
        ):
            return self
        return held
