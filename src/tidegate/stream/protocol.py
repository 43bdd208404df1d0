"""The uvicorn protocol that lets a stream reach its socket."""

from __future__ import annotations

import logging
import re
import socket
import struct
from contextlib import suppress
from functools import cache, partial
from typing import TYPE_CHECKING, Final

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from tidegate.stream.answers import json_answer
from tidegate.stream.transport import EXTENSION, TransportExtension

if TYPE_CHECKING:
    from typing import Any

__all__ = ["DetachProtocol"]

_log = logging.getLogger("tidegate.stream")

_TESTED: Final = ((0, 40), (0, 54))
_MAX_DISCARDED: Final = 64 * 1024
_LINGER_ZERO: Final = struct.pack("ii", 1, 0)


class DetachProtocol(HttpToolsProtocol):
    """uvicorn's own HTTP/1.1 protocol, with the extension ``tidegate.transport`` added.

    Use it as ``uvicorn app:app --http tidegate.stream:DetachProtocol``. Every request's
    scope gets the extension (see `tidegate.stream.transport`); all else is uvicorn's.
    With a version of uvicorn that it was not tested with it says so once and goes on.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._held: RequestResponseCycle | None = None
        self._discarded = 0
        _check_version(uvicorn.__version__)

    def on_headers_complete(self) -> None:
        """Begin the next request, and add the extension to its scope."""
        super().on_headers_complete()
        # One that a later uvicorn makes elsewhere goes without: streams do too.
        scope: Any = getattr(self, "scope", None)
        if isinstance(scope, dict):
            extension: TransportExtension = {
                "reset": self._reset,
                "buffered": self._buffered,
                "flush": self._flush,
                "hold": partial(self._hold, self.cycle),
            }
            scope.setdefault("extensions", {})[EXTENSION] = extension

    def data_received(self, data: bytes) -> None:
        """Take what the client sends; behind the request of a stream it is of no use."""
        if self._held is None:
            super().data_received(data)
            return
        # The connection cannot serve another request: part of it has been thrown away.
        self._held.keep_alive = False
        self._discarded += len(data)
        if self._discarded > _MAX_DISCARDED:
            self._reset()

    def on_response_complete(self) -> None:
        """Go on to the next request."""
        self._held = None
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP request, in the form of all our errors."""
        body = json_answer({"error": msg, "code": "bad_request"}).body
        head = (
            "HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode("ascii") + bytes(body))
        self.transport.close()

    def _hold(self, cycle: RequestResponseCycle) -> None:
        # A request that was pipelined behind the stream's has made uvicorn stop reading
        # and look at that one: it would not notice any more that the client goes.
        if self.pipeline:
            self.pipeline.clear()
            self.cycle = cycle
            cycle.keep_alive = False
        self._held = cycle
        self.flow.resume_reading()

    def _reset(self) -> None:
        transport = self.transport
        sock = transport.get_extra_info("socket")
        try:
            # With a zero linger time closing discards what is unsent and resets, so
            # that a peer that never reads notices too.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_ZERO)
        except (OSError, ValueError, AttributeError):
            # Closed already (uvloop and asyncio say so differently), or no socket at all.
            _log.debug("no SO_LINGER on %r", transport)
        transport.abort()

    def _buffered(self) -> int:
        return self.transport.get_write_buffer_size()

    async def _flush(self) -> None:
        # uvloop raises on a transport that has been closed: then all is flushed.
        with suppress(RuntimeError):
            # With a high-water mark of zero "paused" means "not all written".
            self.transport.set_write_buffer_limits(high=0)
            try:
                await self.flow.drain()
            finally:
                self.transport.set_write_buffer_limits()


@cache
def _check_version(version: str) -> None:
    """Warn about a version of uvicorn that nobody tried; the cache makes it once."""
    oldest, newest = _TESTED
    numbers = re.match(r"(\d+)\.(\d+)", version)
    if numbers is None or not oldest <= (int(numbers[1]), int(numbers[2])) <= newest:
        _log.warning(
            "DetachProtocol was tested with uvicorn %s.%s to %s.%s, not with %s; "
            "if streams misbehave, use --http httptools",
            *oldest,
            *newest,
            ascii(version),
        )
