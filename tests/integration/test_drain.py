"""SIGTERM ends every stream with a farewell and then the process, whoever makes the server."""

import socket
import sys

import httpx
import pytest

from tests.servers import open_stream, read_to_end, read_until, serve_command, wait_until

pytestmark = pytest.mark.server

APP = "tests.integration.drained_app:app"
WRAPPED = "tests.integration.drained_app:wrapped"
DETACH = ["--http", "tidegate.stream:DetachProtocol"]

SERVERS = {
    "uvicorn": ["uvicorn", APP, "--port", "{port}", *DETACH],
    "uvicorn, under a BaseHTTPMiddleware": ["uvicorn", WRAPPED, "--port", "{port}", *DETACH],
    "uvicorn's own protocol": ["uvicorn", APP, "--port", "{port}"],
    "uvicorn on h11 and asyncio": [
        "uvicorn",
        APP,
        "--port",
        "{port}",
        "--http",
        "h11",
        "--loop",
        "asyncio",
    ],
    "uvicorn, two workers": ["uvicorn", APP, "--port", "{port}", "--workers", "2", *DETACH],
    "granian": ["granian", "--interface", "asgi", APP, "--port", "{port}"],
    "hypercorn in one process": ["hypercorn", APP, "-w", "0", "-b", "127.0.0.1:{port}"],
}


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def serve(arguments):
    port = free_port()
    command = [argument.format(port=port) for argument in arguments]
    return serve_command(sys.executable, "-m", *command, port=port)


BOTH = ("/bare", "/live/session/a/events")


def open_streams(url, paths=BOTH):
    streams = [open_stream(url.address, path) for path in paths for _ in range(3)]
    for stream in streams:
        read_until(stream, b"retry: ")
    return streams


@pytest.mark.parametrize("arguments", SERVERS.values(), ids=SERVERS)
def test_streams_get_their_farewell_and_the_process_ends(arguments):
    with serve(arguments) as url:
        streams = open_streams(url)
        url.process.terminate()
        for stream in streams:
            rest = read_to_end(stream)
            assert b'"errorKind":"draining"' in rest
            assert rest.endswith(b"0\r\n\r\n")
            stream.close()
        # uvicorn ends by the signal that it obeyed, the others with 0.
        assert url.process.wait(20) in {0, -15}
        assert "Traceback" not in url.output


# With several workers the one that answers need not be the one that streamed.
ONE_PROCESS = {
    name: arguments for name, arguments in SERVERS.items() if "--workers" not in arguments
}


@pytest.mark.parametrize("arguments", ONE_PROCESS.values(), ids=ONE_PROCESS)
def test_a_client_that_leaves_an_idle_stream_is_released(arguments):
    with serve(arguments) as url:
        streams = open_streams(url)
        for stream in streams:
            stream.close()
        wait_until(
            lambda: httpx.get(f"{url}/healthz", trust_env=False).json() == {"bare": 0, "session": 0}
        )


@pytest.mark.parametrize("app", [APP, WRAPPED])
def test_a_client_that_does_not_read_holds_nothing_up(app):
    with serve(["uvicorn", app, "--port", "{port}", *DETACH]) as url:
        streams = open_streams(url, BOTH[1:])
        stalled = open_stream(url.address, "/bare", receive_buffer=4096)
        read_until(stalled, b"retry: ")
        with httpx.Client(base_url=str(url), trust_env=False, timeout=20) as client:
            for _ in range(100):
                client.post("/publish?size=100000")
        url.process.terminate()
        for stream in streams:
            assert b'"errorKind":"draining"' in read_to_end(stream)
            stream.close()
        assert url.process.wait(20) == -15
        with pytest.raises(ConnectionResetError):
            read_to_end(stalled)
        stalled.close()


def test_hypercorns_workers_which_no_signal_reaches_end_in_their_own_time():
    arguments = ["hypercorn", APP, "-b", "127.0.0.1:{port}"]
    with serve(arguments) as url:
        streams = open_streams(url)
        url.process.terminate()
        for stream in streams:
            stream.close()
        assert url.process.wait(20) == 0
