"""Bytes to Server-Sent Events and back, as WHATWG HTML 9.2 has them. No I/O, no clock."""

from tidegate.sse.decoder import Decoder, ServerSentEvent
from tidegate.sse.encoder import encode

__all__ = ["Decoder", "ServerSentEvent", "encode"]
