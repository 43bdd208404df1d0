"""Streams of channels over HTTP: how a client is let in, and what its socket is fed with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from tidegate.errors import BrokerUnavailable, StreamDenied
from tidegate.gateway.iteration import GatewaySubscription
from tidegate.stream.opening import Opened, OpeningDenied, OpeningRefused

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidegate.channel.frames import EvictionReason
    from tidegate.gateway.node import Node
    from tidegate.gateway.subscription import StreamRequest, Subscription
    from tidegate.stream import Drain

__all__ = ["GatewayFeed", "StreamSubscription", "denial"]

_HEAD_SECONDS: Final = 1.0
_REST_BYTES: Final = 2 * 1024 * 1024


class GatewayFeed:
    """A stream of channels, read as ready SSE frames.

    Args:
        subscription: what to read.
    """

    __slots__ = ("_subscription",)

    def __init__(self, subscription: Subscription) -> None:
        self._subscription = subscription

    @property
    def on_ready(self) -> Callable[[], None] | None:
        """See `Subscription.on_ready`."""
        return self._subscription.on_ready

    @on_ready.setter
    def on_ready(self, callback: Callable[[], None] | None) -> None:
        self._subscription.on_ready = callback

    @property
    def done(self) -> bool:
        """Nothing waits, and nothing more will come."""
        return self._subscription.ended

    @property
    def evicted(self) -> bool:
        """See `Subscription.evicted`."""
        return self._subscription.evicted

    def chunk(self) -> bytes:
        """Return the next batch of whole frames; empty when nothing waits."""
        return self._subscription.take_bytes()

    def rest(self) -> bytes:
        """Return what waits at this moment; of a long replay a part, the cursor tells which."""
        return self._subscription.take_bytes(_REST_BYTES)

    def arm(self) -> bool:
        """See `Subscription.arm`."""
        return self._subscription.arm()

    def disarm(self) -> None:
        """See `Subscription.disarm`."""
        self._subscription.disarm()

    def evict(self, reason: EvictionReason) -> None:
        """See `Subscription.evict`."""
        self._subscription.evict(reason)

    def abort(self) -> None:
        """See `Subscription.abort`."""
        self._subscription.abort()

    def statistics(self) -> object:
        """See `Subscription.statistics`."""
        return self._subscription.statistics()


class StreamSubscription(GatewaySubscription):
    """A subscription that is consumed in this process, or given to an `EventStream`.

    Args:
        node: where.
        request: to what. A cursor that the client of an `EventStream` brings goes before the
            one in it.
        drain: what ends the streams that are made of it.
    """

    def __init__(self, node: Node, request: StreamRequest, *, drain: Drain | None) -> None:
        super().__init__(lambda: node.subscribe(request))
        self._node = node
        self._request = request
        self._drain = drain

    @property
    def drain(self) -> Drain | None:
        """What ends its streams when the process is to stop."""
        return self._drain

    async def open_wire(self, cursor: str | None, *, max_queued: int | None) -> Opened:
        """Make a stream for a client; see `tidegate.stream.WireSource`.

        It returns when every channel has been joined, after 1 s at the latest: the client of a
        broker that is slow has its response, and hears of the rest in the stream.

        Raises:
            OpeningDenied: the client gets none of its channels.
            OpeningRefused: the broker is away, or all channels have enough subscribers.
        """
        request = self._request
        if cursor is not None:
            request = msgspec.structs.replace(request, cursor=cursor)
        if max_queued is not None:
            request = msgspec.structs.replace(request, max_queued=max_queued)
        stream = self._node.subscribe(request)
        headers: dict[str, str] = {}
        try:
            await stream.joined(_HEAD_SECONDS)
            start = request.cursor if stream.honoured else None
            headers["last-event-id"] = start or stream.start_cursor
        except TimeoutError:
            if not self._node.available:
                # Nothing but heartbeats would follow, and a client that waits for its turn.
                stream.abort()
                raise OpeningRefused("broker_unavailable", "the broker is away") from None
            # Its stream_open follows when it has joined, or a stream_error.
        except BrokerUnavailable as error:
            stream.abort()
            raise OpeningRefused("broker_unavailable", str(error)) from error
        except StreamDenied as denied:
            stream.abort()
            raise denial(denied) from None
        except BaseException:
            stream.abort()
            raise
        return Opened(feed=GatewayFeed(stream), stream_id=stream.stream_id, headers=headers)


def denial(denied: StreamDenied) -> OpeningDenied | OpeningRefused:
    """Return how a client is told that it gets none of its channels.

    Where all channels have the same reason, that is what it is told.
    """
    codes = set(denied.denied.values())
    if codes == {"subscriber_limit"}:
        return OpeningRefused(
            "subscriber_limit", "the channels have as many subscribers as they may have"
        )
    if codes == {"unknown_namespace"}:
        return OpeningDenied(
            400,
            "unknown_namespace",
            "the namespaces of these channels are not configured; the part of a channel's name "
            "before its first : is its namespace",
        )
    code = codes.pop() if len(codes) == 1 else "access_denied"
    return OpeningDenied(403, code, str(denied))
