"""The names of channels, and the namespaces that they belong to. Pure."""

from __future__ import annotations

import re
from typing import Final

from tidegate.errors import InvalidChannelName

__all__ = ["DEFAULT_NAMESPACE", "checked_name", "is_channel_name", "namespace_of"]

DEFAULT_NAMESPACE: Final = "default"
"""The namespace of a name without ``:``."""

_NAME = re.compile(r"[A-Za-z0-9._~:@-]{1,200}", re.ASCII)


def is_channel_name(name: object) -> bool:
    """Tell whether it is 1 to 200 of ``A-Z a-z 0-9 . _ ~ : @ -``, and not ``.`` or ``..``."""
    return isinstance(name, str) and _NAME.fullmatch(name) is not None and name not in {".", ".."}


def checked_name(name: object) -> str:
    """Return ``name`` if it is one.

    Raises:
        InvalidChannelName: it is none.
    """
    if not isinstance(name, str) or not is_channel_name(name):
        raise InvalidChannelName(name)
    return name


def namespace_of(name: str) -> str:
    """Return the part before the first ``:``; `DEFAULT_NAMESPACE` without one."""
    namespace, colon, _ = name.partition(":")
    return namespace if colon else DEFAULT_NAMESPACE
