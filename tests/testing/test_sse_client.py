"""The client of event streams for users' tests, in process and over HTTP."""

import asyncio

import pytest
from starlette.applications import Starlette
from starlette.responses import JSONResponse, PlainTextResponse, StreamingResponse
from starlette.routing import Route

from tests.servers import eventually, serve_app
from tidegate.errors import NotAnEventStream, StreamRefused
from tidegate.sse import encode
from tidegate.testing import SseClient, SseEvent

gone = []


async def numbers(request):
    first = int(request.headers.get("last-event-id", "0")) + 1

    async def body():
        try:
            yield encode(retry=1234)
            for number in range(first, first + int(request.query_params.get("n", "3"))):
                yield encode(event="n", data=str(number), id=str(number))
            yield encode(data="plain text")
            if "stay" in request.query_params:
                await asyncio.get_running_loop().create_future()
        finally:
            gone.append(request.url.path)

    return StreamingResponse(body(), media_type="text/event-stream")


async def refused(request):
    return JSONResponse({"error": "no such channel", "code": "unknown"}, 404)


async def text(request):
    return PlainTextResponse("hello")


async def broken(request):
    raise ZeroDivisionError


APP = Starlette(
    routes=[
        Route("/numbers", numbers),
        Route("/refused", refused),
        Route("/text", text),
        Route("/broken", broken),
    ]
)


@pytest.fixture(params=["app", "url"])
def client(request):
    if request.param == "app":
        yield SseClient(APP)
        return
    with serve_app(APP) as url:
        yield SseClient(str(url))


async def test_events_are_decoded(client):
    assert await client.collect("/numbers?n=2", 3) == [
        SseEvent("n", 1, "1"),
        SseEvent("n", 2, "2"),
        SseEvent("message", "plain text", "2"),
    ]


async def test_a_cursor_resumes(client):
    assert await client.collect("/numbers", 1, cursor="41") == [SseEvent("n", 42, "42")]


async def test_a_stream_ends_and_has_its_head(client):
    async with client.stream("/numbers") as stream:
        assert stream.status == 200
        assert stream.headers["content-type"].startswith("text/event-stream")
        assert [event.data async for event in stream] == [1, 2, 3, "plain text"]
        assert stream.retry == 1234
        assert stream.last_event_id == "3"


async def test_events_can_be_iterated(client):
    events = client.events("/numbers?n=1")
    assert [event.type async for event in events] == ["n", "message"]


async def test_leaving_a_stream_lets_the_server_know(client):
    gone.clear()
    async with client.stream("/numbers?stay=1") as stream:
        await stream.take(4)
        assert gone == []
    await eventually(lambda: gone)


async def test_too_few_events_are_shown(client):
    with pytest.raises(AssertionError, match="2 of 3 events came before the stream ended"):
        await client.collect("/numbers?n=1", 3)
    with pytest.raises(AssertionError, match="2 of 3 events came in time\n  n 1\n  message"):
        await client.collect("/numbers?n=1&stay=1", 3, timeout=0.2)


async def test_a_refusal_is_an_error_with_its_code(client):
    with pytest.raises(StreamRefused) as caught:
        await client.collect("/refused", 1)
    assert (caught.value.status, caught.value.code) == (404, "unknown")


async def test_another_content_type_is_an_error(client):
    with pytest.raises(NotAnEventStream):
        await client.collect("/text", 1)


async def test_what_an_app_raises_is_raised():
    with pytest.raises(ZeroDivisionError):
        await SseClient(APP).collect("/broken", 1)


async def test_a_slow_reader_holds_the_app_back():
    sent = []

    async def app(scope, receive, send):
        await receive()
        head = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": head})
        for number in range(1000):
            body = encode(data=str(number))
            await send({"type": "http.response.body", "body": body, "more_body": True})
            sent.append(number)
        await send({"type": "http.response.body"})

    async with SseClient(app).stream("/") as stream:
        await stream.take(5)
        await asyncio.sleep(0)
        assert len(sent) < 200
        assert len(await stream.take(995)) == 995


async def test_an_app_that_does_not_answer_is_an_error():
    async def app(scope, receive, send):
        return

    with pytest.raises(AssertionError, match="without a response"):
        await SseClient(app).collect("/", 1)
