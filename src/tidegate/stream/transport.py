"""What a stream may ask of its socket beyond ASGI: the extension ``tidegate.transport``.

ASGI alone cannot cut a writer that is blocked by a client that does not read. A server
that can offers, in ``scope["extensions"]["tidegate.transport"]``, a dict of

``reset``
    callable without arguments: close the connection at once, so that the peer sees a
    reset, whatever is still unsent. Idempotent; never raises; calls nothing back.
``buffered``
    callable without arguments: how many bytes the operating system has not taken yet.
``flush``
    coroutine function without arguments: returns when it has taken all, or the
    connection is gone.
``hold``
    callable without arguments, for a response that has begun and lasts: from here on
    what the client sends is read, so that its leaving is noticed, and thrown away; past
    64 KiB of it the connection is reset. If anything was, the connection ends with the
    response.

`tidegate.stream.DetachProtocol` offers it under uvicorn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypedDict

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from typing import Any

__all__ = ["EXTENSION", "TransportExtension", "transport_of"]

EXTENSION: Final = "tidegate.transport"


class TransportExtension(TypedDict):
    """The value of ``scope["extensions"]["tidegate.transport"]``."""

    reset: Callable[[], None]
    buffered: Callable[[], int]
    flush: Callable[[], Awaitable[None]]
    hold: Callable[[], None]


def transport_of(scope: Mapping[str, Any]) -> TransportExtension | None:
    """Return what the server offers for this request, or ``None``."""
    extensions = scope.get("extensions") or {}
    offered: TransportExtension | None = extensions.get(EXTENSION)
    return offered
