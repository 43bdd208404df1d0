"""Follow, view and feed sessions over HTTP. Needs httpx: ``pip install 'tidegate[client]'``."""

from tidegate.client.control import (
    ClientEvicted,
    EventUnserializable,
    ReplayComplete,
    SlowClientWarning,
    StateResyncRequired,
    StreamError,
)
from tidegate.client.events import StreamEvent
from tidegate.client.follow import Following, SyncFollowing
from tidegate.client.load import Loaded, load_session, load_session_sync
from tidegate.client.publisher import SessionInfo, SessionPublisher
from tidegate.client.schema import BadPayload, EventSchema, TypedEvent
from tidegate.client.state import Applied, StreamState, StreamStatistics
from tidegate.client.stream import ClientStream, connect
from tidegate.client.stream_sync import SyncClientStream, connect_sync
from tidegate.client.views import SessionView

__all__ = [
    "Applied",
    "BadPayload",
    "ClientEvicted",
    "ClientStream",
    "EventSchema",
    "EventUnserializable",
    "Following",
    "Loaded",
    "ReplayComplete",
    "SessionInfo",
    "SessionPublisher",
    "SessionView",
    "SlowClientWarning",
    "StateResyncRequired",
    "StreamError",
    "StreamEvent",
    "StreamState",
    "StreamStatistics",
    "SyncClientStream",
    "SyncFollowing",
    "TypedEvent",
    "connect",
    "connect_sync",
    "load_session",
    "load_session_sync",
]
