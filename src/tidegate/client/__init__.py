"""Follow, view and feed sessions and channels. Needs httpx: ``pip install 'tidegate[client]'``."""

from tidegate.client.channel_publisher import Publisher
from tidegate.client.channel_view import ChannelView
from tidegate.client.control import (
    ChannelSnapshot,
    ChannelStart,
    ClientEvicted,
    EventUnserializable,
    ReplayComplete,
    SlowClientWarning,
    StateResyncRequired,
    StreamCursor,
    StreamError,
    StreamOpen,
)
from tidegate.client.events import StreamEvent
from tidegate.client.follow import Following, SyncFollowing
from tidegate.client.items import Published, PublishItem
from tidegate.client.load import Loaded, load_session, load_session_sync
from tidegate.client.load_channel import LoadedChannel, load_channel, load_channel_sync
from tidegate.client.publisher import SessionInfo, SessionPublisher
from tidegate.client.schema import BadPayload, EventSchema, TypedEvent
from tidegate.client.state import Applied, StreamState, StreamStatistics
from tidegate.client.stream import ClientStream, connect
from tidegate.client.stream_sync import SyncClientStream, connect_sync
from tidegate.client.views import SessionView

__all__ = [
    "Applied",
    "BadPayload",
    "ChannelSnapshot",
    "ChannelStart",
    "ChannelView",
    "ClientEvicted",
    "ClientStream",
    "EventSchema",
    "EventUnserializable",
    "Following",
    "Loaded",
    "LoadedChannel",
    "PublishItem",
    "Published",
    "Publisher",
    "ReplayComplete",
    "SessionInfo",
    "SessionPublisher",
    "SessionView",
    "SlowClientWarning",
    "StateResyncRequired",
    "StreamCursor",
    "StreamError",
    "StreamEvent",
    "StreamOpen",
    "StreamState",
    "StreamStatistics",
    "SyncClientStream",
    "SyncFollowing",
    "TypedEvent",
    "connect",
    "connect_sync",
    "load_channel",
    "load_channel_sync",
    "load_session",
    "load_session_sync",
]
