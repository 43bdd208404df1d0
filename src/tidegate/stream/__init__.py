"""One SSE response to one client: `EventStream`, and what ends it in good order.

Needs the extra ``server`` (Starlette); `DetachProtocol` needs uvicorn as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidegate.errors import MissingExtra

try:
    import starlette as _starlette
except ImportError as error:
    raise MissingExtra("starlette", "server") from error

from tidegate.stream.drain import STATE_KEY, Drain
from tidegate.stream.event_stream import EXPOSED_HEADERS, EventStream
from tidegate.stream.opening import StreamSource, WireSource
from tidegate.stream.refusal import refuse

if TYPE_CHECKING:
    from tidegate.stream.protocol import DetachProtocol

__all__ = [
    "EXPOSED_HEADERS",
    "STATE_KEY",
    "DetachProtocol",
    "Drain",
    "EventStream",
    "StreamSource",
    "WireSource",
    "refuse",
]

del _starlette


def __getattr__(name: str) -> Any:
    # Not above: streams run under any ASGI server, also where uvicorn is not installed.
    if name == "DetachProtocol":
        try:
            from tidegate.stream.protocol import DetachProtocol  # noqa: PLC0415
        except ImportError as error:
            raise MissingExtra("uvicorn with httptools", "server") from error
        return DetachProtocol
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
