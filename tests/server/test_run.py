import signal
import socket
import sys
import threading

import httpx
import pytest
from starlette.applications import Starlette

from tests.servers import open_stream, read_to_end, read_until, serve_process
from tidegate.errors import BrokerUnavailable, MissingExtra, ServeError
from tidegate.server import ServerSettings, serve
from tidegate.server.run import _bind


@pytest.fixture
def taken():
    """A port that something listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


class Visitor:
    """Takes the line that says where the server is, does something there, and stops it."""

    def __init__(self, visit=lambda url: None, number=signal.SIGTERM):
        self.visit = visit
        self.number = number
        self.line = None
        self.failure = None

    def __call__(self, line):
        self.line = line
        self.thread = threading.Thread(target=self._visit, args=(line.rpartition(" ")[2],))
        self.thread.start()

    def _visit(self, url):
        try:
            self.visit(url)
        except Exception as failure:  # noqa: BLE001 - raised again where it is awaited
            self.failure = failure
        finally:
            signal.pthread_kill(threading.main_thread().ident, self.number)

    def serve(self, **settings):
        code = serve(ServerSettings(port=0, **settings), announce=self)
        self.thread.join(20)
        if self.failure is not None:
            raise self.failure
        return code


# -- in this process -----------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_serves_until_a_signal_and_ends_with_0(number):
    answers = []
    before = signal.getsignal(number)
    visitor = Visitor(
        lambda url: answers.append(httpx.get(f"{url}/readyz", trust_env=False)), number
    )
    assert visitor.serve() == 0
    assert visitor.line.startswith("Tidegate serves http://127.0.0.1:")
    assert answers[0].json() == {"status": "ready"}
    assert signal.getsignal(number) is before


@pytest.mark.server
def test_the_line_is_printed_and_what_one_client_does_is_no_news():
    with serve_process() as url:
        httpx.post(f"{url}/session", json={"sessionId": "a"}, trust_env=False)
        with open_stream(url.address, "/session/a/events") as stream:
            read_until(stream, b"retry: ")
        assert url.terminate() == 0
        first, *others = url.lines
        assert first == f"Tidegate serves {url}\n"
        assert [line for line in others if "signal 15" not in line] == []


def test_a_line_that_cannot_be_said_ends_it_in_good_order(caplog):
    class Unsayable(Exception):
        pass

    def announce(line):
        raise Unsayable(line)

    with pytest.raises(Unsayable, match="Tidegate serves"):
        serve(ServerSettings(port=0), announce=announce)
    assert caplog.records == []


def test_streams_get_their_farewell():
    streams = []

    def visit(url):
        host, port = url.removeprefix("http://").split(":")
        httpx.post(f"{url}/session", json={"sessionId": "a"}, trust_env=False)
        streams.append(open_stream((host, int(port)), "/session/a/events"))
        read_until(streams[0], b"retry: ")

    assert Visitor(visit).serve() == 0
    with streams[0] as stream:
        assert b'"errorKind":"draining"' in read_to_end(stream)


@pytest.mark.parametrize("host", ["::1", "localhost"])
def test_other_names_of_loopback_are_served(host):
    visitor = Visitor(lambda url: httpx.get(f"{url}/healthz", trust_env=False).raise_for_status())
    assert visitor.serve(host=host) == 0
    shown = "[::1]" if host == "::1" else host
    assert visitor.line.startswith(f"Tidegate serves http://{shown}:")


def test_the_kernels_buffer_is_bounded():
    listener = _bind(ServerSettings(port=0))
    with (
        listener,
        socket.create_connection(listener.getsockname()),
        _accepted(listener) as accepted,
    ):
        # Linux doubles what was asked for, for its own bookkeeping.
        assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) == 2 * 64 * 1024


def _accepted(listener):
    listener.setblocking(True)
    return listener.accept()[0]


def test_a_port_in_use_is_named_with_advice(taken):
    with pytest.raises(ServeError, match=f"port {taken} of 127.0.0.1 is in use; .* --port"):
        serve(ServerSettings(port=taken))


def test_an_address_of_another_machine_is_refused_with_advice():
    with pytest.raises(ServeError, match=r"192\.0\.2\.1 port 0 cannot be bound: .* --host"):
        serve(ServerSettings(host="192.0.2.1", port=0, token="t"))


def test_a_name_that_means_nothing_is_refused():
    with pytest.raises(ServeError, match=r"--host 'no\.such\.invalid' is no address"):
        serve(ServerSettings(host="no.such.invalid", token="t"))


def test_a_privileged_port_is_refused_with_advice(monkeypatch):
    def bind(self, address):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(socket.socket, "bind", bind)
    with pytest.raises(ServeError, match=r"port 80 needs privileges; .* --port"):
        serve(ServerSettings(port=80))


def test_without_uvloop_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "uvloop", None)
    with pytest.raises(MissingExtra, match=r"pip install 'tidegate\[server\]'"):
        serve(ServerSettings(port=0))


def test_an_application_that_does_not_start_ends_with_its_code(monkeypatch, caplog):
    class Broken:
        async def __aenter__(self):
            raise RuntimeError("of the lifespan")

        async def __aexit__(self, *args):
            pass

    monkeypatch.setattr(
        "tidegate.server.run.create_app", lambda settings: Starlette(lifespan=lambda app: Broken())
    )
    announced = []
    assert serve(ServerSettings(port=0), announce=announced.append) == 3
    assert announced == []
    assert "of the lifespan" in caplog.text


def test_a_start_that_is_the_users_to_mend_is_raised_and_not_logged(monkeypatch, caplog):
    class Locked:
        async def __aenter__(self):
            raise BrokerUnavailable("the file is locked")

        async def __aexit__(self, *args):
            pass

    monkeypatch.setattr(
        "tidegate.server.run.create_app", lambda settings: Starlette(lifespan=lambda app: Locked())
    )
    announced = []
    with pytest.raises(BrokerUnavailable, match="the file is locked"):
        serve(ServerSettings(port=0), announce=announced.append)
    assert announced == []
    assert caplog.records == []


def test_an_end_that_fails_for_such_a_reason_is_logged(monkeypatch, caplog):
    class Unstoppable:
        async def __aenter__(self):
            pass

        async def __aexit__(self, *args):
            raise BrokerUnavailable("the file is gone")

    monkeypatch.setattr(
        "tidegate.server.run.create_app",
        lambda settings: Starlette(lifespan=lambda app: Unstoppable()),
    )
    assert Visitor().serve() == 0
    assert "the file is gone" in caplog.text


def test_an_older_uvicorn_that_just_returns_ends_with_the_same_code(monkeypatch):
    async def startup(server, sockets):
        server.should_exit = True

    monkeypatch.setattr("tidegate.server.run.uvicorn.Server.startup", startup)
    announced = []
    assert serve(ServerSettings(port=0), announce=announced.append) == 3
    assert announced == []


def test_a_signal_that_uvicorn_does_not_listen_to_stops_it_all_the_same(monkeypatch):
    stopped = []

    def run(server, sockets):
        signal.raise_signal(signal.SIGTERM)
        stopped.append(server.should_exit)
        server.started = True

    monkeypatch.setattr("tidegate.server.run.uvicorn.Server.run", run)
    assert serve(ServerSettings(port=0)) == 0
    assert stopped == [True]


def test_in_another_thread_it_touches_no_signals(monkeypatch):
    before = signal.getsignal(signal.SIGTERM)
    seen = []

    def run(server, sockets):
        seen.append(signal.getsignal(signal.SIGTERM))
        server.started = True

    monkeypatch.setattr("tidegate.server.run.uvicorn.Server.run", run)
    thread = threading.Thread(target=lambda: seen.append(serve(ServerSettings(port=0))))
    thread.start()
    thread.join(20)
    assert seen == [before, 0]


# -- in a process of its own ---------------------------------------------------------------


@pytest.mark.server
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_hundred_streams_one_of_them_stalled(number):
    with serve_process() as url, httpx.Client(base_url=url, trust_env=False) as client:
        client.post("/session", json={"sessionId": "busy"})
        client.post("/session", json={"sessionId": "idle"})
        stalled = open_stream(url.address, "/session/busy/events", receive_buffer=4096)
        read_until(stalled, b"retry: ")
        client.post("/session", json={"sessionId": "other"})
        streams = [
            open_stream(url.address, f"/session/{name}/events")
            for name in ("idle", "other")
            for _ in range(50)
        ]
        for stream in streams:
            read_until(stream, b"retry: ")
        for _ in range(10):
            client.post("/session/busy/events", json={"type": "m", "data": "x" * 100_000})
        url.process.send_signal(number)
        for stream in streams:
            assert b'"errorKind":"draining"' in read_to_end(stream)
            stream.close()
        assert url.process.wait(20) == 0
        with pytest.raises(ConnectionResetError):
            read_to_end(stalled)
        stalled.close()
        assert "Traceback" not in url.output


@pytest.mark.server
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_with_data_a_restart_keeps_histories_snapshots_and_epochs(tmp_path, number):
    def look(client):
        return [
            client.get(f"/v1/channels/{name}{what}").json()
            for name in ("room:1", "room:2")
            for what in ("", "/history", "/snapshot")
        ]

    with serve_process("--dev", "--data", tmp_path / "data") as url:
        with httpx.Client(base_url=url, trust_env=False) as client:
            for n in range(5):
                event = {"channels": ["room:1", "room:2"], "type": "n", "data": n}
                client.post("/v1/publish", json=event).raise_for_status()
            client.put("/v1/channels/room:1/snapshot", json={"state": {"n": 4}}).raise_for_status()
            before = look(client)
        url.process.send_signal(number)
        url.process.wait(20)
    with (
        serve_process("--dev", "--data", tmp_path / "data") as url,
        httpx.Client(base_url=url, trust_env=False) as client,
    ):
        assert look(client) == before
        event = {"channel": "room:1", "type": "n"}
        [result] = client.post("/v1/publish", json=event).json()["results"]
        assert result["epoch"] == before[0]["epoch"]
        [last] = client.get(
            "/v1/channels/room:1/history", params={"after": before[0]["position"]}
        ).json()["events"]
        assert (last["id"], last["prev"]) == (result["id"], before[0]["position"])


@pytest.mark.server
def test_streams_of_channels_get_their_farewell():
    with serve_process("--dev") as url:
        with open_stream(url.address, "/v1/stream?channel=room:1") as stream:
            read_until(stream, b"event: stream_open")
            assert url.terminate() == 0
            assert b'"errorKind":"draining"' in read_to_end(stream)
        assert "Traceback" not in url.output
