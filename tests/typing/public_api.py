"""What a user's type checker sees of the public names. Checked by ``make check``, never run."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, assert_type

import msgspec
from starlette.applications import Starlette
from starlette.routing import Mount, Route

from tidegate import Channel, ChannelEvent, ChannelStatistics, ChannelSubscription
from tidegate.client import (
    ChannelSnapshot,
    ChannelView,
    ClientStream,
    EventSchema,
    Following,
    Loaded,
    LoadedChannel,
    Published,
    Publisher,
    SessionView,
    StreamEvent,
    SyncClientStream,
    TypedEvent,
    connect,
    connect_sync,
    load_channel,
    load_channel_sync,
    load_session,
)
from tidegate.errors import (
    ChainBroken,
    ItemRefused,
    SseEncodeError,
    SubscriberLimitExceeded,
    TidegateError,
)
from tidegate.sessions import Run, Session, Sessions
from tidegate.sse import Decoder, ServerSentEvent, encode
from tidegate.stream import Drain, EventStream

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.requests import Request
    from starlette.responses import Response


async def channel() -> None:
    made = Channel("name", ring_size=10, max_ring_bytes=None, on_diagnostic=print)
    assert_type(made.publish("tick", {"n": 1}, meta={"a": 1}), ChannelEvent | None)
    made.publish_threadsafe("tick")
    assert_type(made.statistics(), ChannelStatistics)
    async with made.subscribe(last_event_id=0, epoch=made.epoch, max_queued=5) as events:
        assert_type(events, ChannelSubscription)
        async for event in events:
            assert_type(event, ChannelEvent)
            assert_type(event.id, int | None)
            assert_type(event.type, str)
            assert_type(event.to_json(), bytes)


def sse() -> None:
    assert_type(encode(event="a", data="b", id="1", retry=3000, comment="c"), bytes)
    for event in Decoder(last_event_id="1", max_event_bytes=1024).feed(b""):
        assert_type(event, ServerSentEvent)
        assert_type(event.data, str)


def routes(sessions: Sessions) -> Starlette:
    prices = Channel()

    async def follow(request: Request) -> Response:
        return EventStream(prices, request, heartbeat=5.0, ids="epoch")

    async def follow_session(request: Request) -> EventStream:
        return EventStream(sessions.get("a"), request, drain=Drain(seconds=1.0))

    own = [Route("/prices", follow), Route("/a", follow_session), Mount("/live", sessions)]
    return Starlette(routes=[*own, *sessions.routes])


async def sessions() -> None:
    async def state_of(session_id: str) -> tuple[Any, int] | None:
        return {"id": session_id}, 0

    async def tokens() -> AsyncIterator[tuple[str, str]]:
        yield "token", "a"

    async with Sessions(max_sessions=5, snapshot=state_of) as made:
        assert_type(made.create("a"), Session)
        assert_type(made.get("a").channel, Channel)
        assert_type(made.start("a", tokens()), Run)
        await made.run("a", tokens())
        assert_type(made.list(), list[Session])


def add(total: int, event: StreamEvent) -> int:
    return total + int(event.data)


async def client(url: str) -> None:
    async with connect(url, last_event_id=0, token="secret") as stream:
        assert_type(stream, ClientStream)
        async for event in stream:
            assert_type(event, StreamEvent)

    view = SessionView(lambda: load_session(url), add, initial=0)
    assert_type(view, SessionView[int])
    async with view.follow(url) as totals:
        async for total in totals:
            assert_type(total, int)
    assert_type(await load_session(url), Loaded)


def client_sync(url: str) -> None:
    schema = EventSchema()

    @schema.register("token")
    class Token(msgspec.Struct):
        text: str

    with connect_sync(url) as stream:
        assert_type(stream, SyncClientStream)
        for event in stream:
            assert_type(schema.decode(event), TypedEvent)
    assert_type(Token("a").text, str)


async def client_of_channels(url: str) -> None:
    async with connect(url, channels=["a"], tail=5, tags={"k": "v"}) as stream:
        assert_type(stream.channels, tuple[str, ...])
        try:
            async for event in stream:
                assert_type(event.id, int | str | None)
                assert_type(event.position, str | None)
                assert_type(event.channel, str | None)
        except ChainBroken as broken:
            await stream.reopen(broken.event.cursor)

    view = ChannelView(partial(load_channel, url), add, initial=0)
    assert_type(view, ChannelView[int])
    assert_type(view.follow(url, channels=["a"]), Following[int])
    assert_type(await load_channel(url, "a"), LoadedChannel)

    def merge(total: int, snapshot: ChannelSnapshot) -> int:
        return total + int(snapshot.state or 0)

    several = ChannelView(partial(load_channel_sync, url), add, initial=0, merge=merge)
    for total in several.follow_sync(url, channels=["a", "b"]):
        assert_type(total, int)
    assert_type(ChannelView(None, add, initial=0).complete, bool)

    async with Publisher(url, token="secret") as publisher:
        assert_type(await publisher.publish("a", "x", {"n": 1}, version=1), Published)
        results = await publisher.publish_many([{"channel": "a", "type": "x"}])
        assert_type(results, list[Published | ItemRefused])
    Publisher(broker="sqlite:///history.db")


def errors() -> None:
    try:
        encode(id="\n")
    except SseEncodeError as error:
        assert_type(error.field, str)
        as_value_error: ValueError = error
        as_ours: TidegateError = error
        del as_value_error, as_ours
    except SubscriberLimitExceeded as error:
        assert_type(error.limit, int)
