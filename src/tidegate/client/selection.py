"""Which channels a stream is of, and where a new one begins. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self
from urllib.parse import quote

from tidegate.errors import InvalidChannelName

__all__ = ["Selection", "checked_channel"]

# As the gateway has it; the client stands alone and checks before it asks.
_NAME = re.compile(r"[A-Za-z0-9._~:@-]{1,200}", re.ASCII)


def checked_channel(name: object) -> str:
    """Return ``name`` if it is that of a channel.

    Raises:
        InvalidChannelName: it is not 1 to 200 of ``A-Z a-z 0-9 . _ ~ : @ -``, or ``.`` or ``..``.
    """
    if not isinstance(name, str) or _NAME.fullmatch(name) is None or name in {".", ".."}:
        raise InvalidChannelName(name)
    return name


@dataclass(frozen=True, slots=True)
class Selection:
    """What a request for a stream of channels says beside its URL and its cursor.

    Attributes:
        channels: their names; none if the URL has them already.
        tags: only events that have all of these.
        tail: a new stream begins before the last so many events of each channel.
        from_beginning: a new stream begins with the oldest event there is.
    """

    channels: tuple[str, ...] = ()
    tags: Mapping[str, str] = field(default_factory=dict)
    tail: int | None = None
    from_beginning: bool = False

    @classmethod
    def given(
        cls,
        channels: Iterable[str] | None,
        tags: Mapping[str, str] | None = None,
        tail: int | None = None,
        from_beginning: bool = False,
    ) -> Self:
        """Check what a caller gives; a channel that is named twice counts once.

        Raises:
            InvalidChannelName: a name is none; a ``ValueError``.
            TypeError: an argument is of the wrong type.
            ValueError: no channel is named, one is out of range, or two exclude each other.
        """
        if isinstance(channels, str) or not isinstance(channels, Iterable | None):
            raise TypeError("channels is a list of names")
        names = tuple(dict.fromkeys(checked_channel(name) for name in channels or ()))
        if channels is not None and not names:
            raise ValueError("a stream has at least one channel")
        if tail is not None and (isinstance(tail, bool) or not isinstance(tail, int)):
            raise TypeError(f"tail is an int, not {type(tail).__name__}")
        if tail is not None and tail < 0:
            raise ValueError(f"tail is 0 or more, not {tail}")
        if tail is not None and from_beginning:
            raise ValueError("a stream begins with its tail or from the beginning, not both")
        return cls(names, _checked_tags(tags), tail, bool(from_beginning))

    @property
    def says_anything(self) -> bool:
        """Whether it is more than a URL says alone."""
        return self != Selection()

    def resumed(self) -> Selection:
        """Return what is said beside a cursor, which alone tells where to begin."""
        return replace(self, tail=None, from_beginning=False)

    def query(self) -> list[tuple[str, str]]:
        """Return it as parameters of a URL: names, and values that need no more escapes."""
        items = [("channel", quote(name, safe=":@")) for name in self.channels]
        if self.from_beginning:
            items.append(("from", "beginning"))
        elif self.tail:
            items.append(("tail", str(self.tail)))
        items += [("tags", quote(f"{key}:{value}", safe=":")) for key, value in self.tags.items()]
        return items

    def body(self) -> dict[str, Any]:
        """Return it as the body of a ``POST``."""
        body: dict[str, Any] = {"channels": list(self.channels)}
        if self.from_beginning:
            body["from"] = "beginning"
        elif self.tail:
            body["tail"] = self.tail
        if self.tags:
            body["tags"] = dict(self.tags)
        return body


def _checked_tags(tags: Mapping[str, str] | None) -> dict[str, str]:
    if not isinstance(tags, Mapping | None):
        raise TypeError(f"tags is a mapping of str to str, not {type(tags).__name__}")
    for key, value in (tags or {}).items():
        if not all(isinstance(text, str) for text in (key, value)):
            raise TypeError("tags is a mapping of str to str")
        if not key or ":" in key:
            raise ValueError(f"a tag's name is not empty and has no colon: {ascii(key)[:80]}")
    return dict(tags or {})
