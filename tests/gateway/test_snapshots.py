"""Where a channel's state comes from."""

import msgspec
import pytest
from starlette.applications import Starlette
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.gateway.support import Namespace, hub
from tests.servers import serve_app
from tidegate.gateway.snapshots import fetch_snapshot, on_one_line


async def test_without_a_source_there_is_none():
    async with hub() as h:
        assert await fetch_snapshot(h.broker, Namespace(), "a") is None


async def test_a_stored_one_comes_from_the_broker():
    async with hub() as h:
        (position,) = await h.publish("a", 1)
        await h.broker.put_snapshot("a", b"{}", position)
        snapshot = await fetch_snapshot(h.broker, Namespace(snapshot="stored"), "a")
        assert (snapshot.state, snapshot.position) == (b"{}", position)


async def test_a_computed_state_stands_at_the_head_of_the_moment_it_was_asked_for():
    async with hub() as h:
        (before,) = await h.publish("a", 1)

        async def provide(channel):
            await h.publish("a", 2)
            return ({"channel": channel},)

        snapshot = await fetch_snapshot(h.broker, Namespace(snapshot=provide), "a")
        assert snapshot.decoded() == {"channel": "a"}
        assert snapshot.position == before


async def test_a_provider_may_name_the_position_or_have_none():
    async with hub() as h:
        (first,) = await h.publish("a", 1)
        await h.publish("a", 2)
        named = await fetch_snapshot(h.broker, Namespace(snapshot=lambda _: (5, first)), "a")
        assert (named.decoded(), named.position) == (5, first)
        assert await fetch_snapshot(h.broker, Namespace(snapshot=lambda _: None), "a") is None


async def test_raw_json_is_put_on_one_line():
    raw = b'{"a":\r\n [1.10,\n"\\n"]}'
    assert on_one_line(raw) == b'{"a":[1.10,"\\n"]}'
    assert on_one_line(b'{"a": 1}') == b'{"a": 1}'
    async with hub() as h:
        (position,) = await h.publish("a", 1)
        provided = Namespace(snapshot=lambda _: (msgspec.Raw(raw),))
        assert (await fetch_snapshot(h.broker, provided, "a")).state == b'{"a":[1.10,"\\n"]}'
        await h.broker.put_snapshot("a", raw, position)
        stored = await fetch_snapshot(h.broker, Namespace(snapshot="stored"), "a")
        assert (stored.state, stored.position) == (b'{"a":[1.10,"\\n"]}', position)


@pytest.mark.parametrize("state", [b"\n", b'"a\nb"', b"[1,\n", b"1\n2", b"x\r"])
def test_line_breaks_in_what_is_no_json_are_refused(state):
    with pytest.raises(ValueError, match=r"JSON|truncated"):
        on_one_line(state)


async def test_a_provider_that_returns_something_else_is_told_what_is_wanted():
    async with hub() as h:
        with pytest.raises(TypeError, match=r"\(state,\)"):
            await fetch_snapshot(h.broker, Namespace(snapshot=lambda _: {"n": 1}), "a")


async def test_a_webhook_is_asked_with_the_channel_and_its_head():
    asked = []

    async def state(request):
        asked.append(await request.json())
        return JSONResponse({"state": {"text": "a\nb"}})

    async def none(request):
        return Response(status_code=204)

    async def placed(request):
        return JSONResponse({"state": 1, "position": asked[0]["position"]})

    async def broken(request):
        return Response(status_code=500)

    app = Starlette(
        routes=[
            Route(path, endpoint, methods=["POST"])
            for path, endpoint in (
                ("/state", state),
                ("/none", none),
                ("/placed", placed),
                ("/broken", broken),
            )
        ]
    )
    async with hub() as h:
        with serve_app(app) as url:
            (position,) = await h.publish("a", 1)
            found = await fetch_snapshot(h.broker, Namespace(snapshot=f"{url}/state"), "a")
            assert found.state == b'{"text":"a\\nb"}'
            assert found.position == position
            head = (await h.broker.heads(["a"]))["a"]
            assert asked == [{"channel": "a", "epoch": head.epoch, "position": position}]
            assert await fetch_snapshot(h.broker, Namespace(snapshot=f"{url}/none"), "a") is None
            placed_at = await fetch_snapshot(h.broker, Namespace(snapshot=f"{url}/placed"), "a")
            assert placed_at.position == position
            with pytest.raises(Exception, match="500"):
                await fetch_snapshot(h.broker, Namespace(snapshot=f"{url}/broken"), "a")
