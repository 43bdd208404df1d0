import asyncio
import json
import socket
import subprocess
import sys
from contextlib import suppress

import httpx
import pytest
from starlette.applications import Starlette
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

import tidegate.stream
from tests.servers import open_stream, read_to_end, read_until, serve_app, wait_until
from tidegate.stream import DetachProtocol
from tidegate.stream.protocol import _check_version
from tidegate.stream.transport import transport_of

LOOPS = pytest.mark.parametrize("loop", ["uvloop", "asyncio"])


class App:
    """Keeps the last request's extension, and answers as a test wants."""

    def __init__(self):
        self.transport = None
        self.proceed = None

    async def __call__(self, scope, receive, send):
        if scope["type"] != "http":
            return
        self.transport = transport_of(scope)
        self.proceed = asyncio.Event()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"begin", "more_body": True})
        await self.proceed.wait()
        await send({"type": "http.response.body", "body": b"x" * 2_000_000, "more_body": False})


@LOOPS
def test_every_request_is_offered_the_transport(loop):
    seen = []

    async def endpoint(request):
        seen.append(transport_of(request.scope))
        return JSONResponse({})

    app = Starlette(routes=[Route("/", endpoint)])
    with serve_app(app, loop=loop) as url, httpx.Client(trust_env=False) as client:
        for _ in range(2):
            assert client.get(url).status_code == 200
    assert [sorted(offered) for offered in seen] == [["buffered", "flush", "hold", "reset"]] * 2


@LOOPS
def test_a_reset_reaches_a_client_that_never_reads(loop):
    app = App()
    with serve_app(app, loop=loop) as url:
        with open_stream(url.address, "/", receive_buffer=4096) as client:
            read_until(client, b"begin")
            url.call(app.proceed.set)
            wait_until(lambda: url.call(app.transport["buffered"]))
            url.call(app.transport["reset"])
            with pytest.raises(ConnectionResetError):
                read_to_end(client)
        wait_until(lambda: not url.server.server_state.connections)
        url.call(app.transport["reset"])


@LOOPS
def test_a_flush_ends_when_the_client_has_read_on(loop):
    app = App()
    with (
        serve_app(app, loop=loop) as url,
        open_stream(url.address, "/", receive_buffer=4096) as client,
    ):
        read_until(client, b"begin")
        assert url.call(app.transport["buffered"]) == 0
        url.call(app.transport["flush"])
        url.call(app.proceed.set)
        wait_until(lambda: url.call(app.transport["buffered"]))
        flushing = asyncio.run_coroutine_threadsafe(app.transport["flush"](), url.loop)
        assert not flushing.done()
        read_until(client, b"0\r\n\r\n")
        flushing.result(20)
        assert url.call(app.transport["buffered"]) == 0


@LOOPS
def test_a_flush_ends_when_the_connection_is_gone(loop):
    app = App()
    with serve_app(app, loop=loop) as url:
        with open_stream(url.address, "/", receive_buffer=4096) as client:
            read_until(client, b"begin")
            url.call(app.proceed.set)
            wait_until(lambda: url.call(app.transport["buffered"]))
            flushing = asyncio.run_coroutine_threadsafe(app.transport["flush"](), url.loop)
            url.call(app.transport["reset"])
            flushing.result(20)
        wait_until(lambda: not url.server.server_state.connections)
        asyncio.run_coroutine_threadsafe(app.transport["flush"](), url.loop).result(20)
        assert url.call(app.transport["buffered"]) == 0


@LOOPS
def test_after_a_flush_the_connection_serves_further_requests(loop):
    async def endpoint(request):
        await transport_of(request.scope)["flush"]()
        return Response(b"y" * 1_000_000)

    app = Starlette(routes=[Route("/", endpoint)])
    with serve_app(app, loop=loop) as url, httpx.Client(trust_env=False) as client:
        for _ in range(3):
            assert len(client.get(url).content) == 1_000_000
        assert len(client._transport._pool.connections) == 1


@LOOPS
def test_a_unix_socket_is_reset_too(loop, tmp_path):
    app = App()
    path = str(tmp_path / "s")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    with serve_app(app, loop=loop, listener=listener) as url:
        client = socket.socket(socket.AF_UNIX)
        client.settimeout(20)
        client.connect(path)
        client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        read_until(client, b"begin")
        url.call(app.transport["reset"])
        with suppress(ConnectionResetError):
            read_to_end(client)
        client.close()


def test_nothing_of_uvicorns_own_protocol_is_changed():
    for name in ("on_headers_complete", "data_received", "on_response_complete"):
        assert getattr(HttpToolsProtocol, name) is not getattr(DetachProtocol, name)
        assert getattr(HttpToolsProtocol, name).__module__ == HttpToolsProtocol.__module__
    assert "_reset" not in vars(HttpToolsProtocol)


@pytest.mark.parametrize("version", ["0.39.9", "0.55.0", "1.0", "odd"])
def test_an_untested_version_is_told_once(version, caplog):
    _check_version.cache_clear()
    _check_version(version)
    _check_version(version)
    assert len(caplog.records) == 1
    assert version in caplog.text
    _check_version.cache_clear()


@pytest.mark.parametrize("version", ["0.40.0", "0.54.0"])
def test_a_tested_version_is_silent(version, caplog):
    _check_version(version)
    assert caplog.records == []


def test_a_scope_that_is_made_elsewhere_goes_without(monkeypatch):
    monkeypatch.setattr(HttpToolsProtocol, "on_message_begin", lambda self: None)
    protocol = DetachProtocol.__new__(DetachProtocol)
    protocol.scope = None
    protocol.on_message_begin()
    assert protocol.scope is None


def test_a_transport_without_a_socket_is_aborted_all_the_same():
    class Transport:
        aborted = False

        def get_extra_info(self, name):
            return None

        def abort(self):
            self.aborted = True

    protocol = DetachProtocol.__new__(DetachProtocol)
    protocol.transport = Transport()
    protocol._reset()
    assert protocol.transport.aborted


@pytest.mark.parametrize("missing", ["uvicorn", "httptools"])
def test_without_its_packages_it_says_what_to_install_and_streams_work(missing):
    code = f"""
import sys
sys.modules[{missing!r}] = None
import tidegate.stream
tidegate.stream.EventStream
try:
    tidegate.stream.DetachProtocol
except ImportError as error:
    assert "pip install 'tidegate[server]'" in str(error), error
else:
    raise SystemExit("it was imported")
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_the_package_has_no_other_names():
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        tidegate.stream.nothing  # noqa: B018


@pytest.mark.parametrize(
    "garbage", [b"GARBAGE\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"\x16\x03\x01\r\n\r\n"]
)
def test_what_is_no_http_is_answered_in_the_form_of_all_errors(garbage):
    with serve_app(App()) as url, socket.create_connection(url.address, 20) as client:
        client.sendall(garbage)
        head, _, body = read_to_end(client).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert b"content-type: application/json" in head
    answer = json.loads(body)
    assert answer["code"] == "bad_request"
    assert answer["error"]
