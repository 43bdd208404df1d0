"""A server to talk to, and the command line in the process of the tests."""

import hashlib
import sys
from dataclasses import dataclass

import msgspec
import pytest

from tests.servers import serve_app
from tidegate.cli.app import run
from tidegate.server import ServerSettings, create_app


class Served:
    """A server in a thread, and a look into its sessions."""

    def __init__(self, url, app):
        self.url = str(url)
        self._served = url
        self._app = app

    def call(self, function):
        """Call ``function(sessions)`` in the server's loop."""
        return self._served.call(lambda: function(self._app.state.sessions))

    def events(self, session_id):
        """Return all events of a session, in order; none if there is no such session."""

        def read(sessions):
            if session_id not in sessions:
                return []
            subscription = sessions.get(session_id).channel.subscribe(last_event_id=0)
            frames = subscription.take(10**6, 10**9)
            subscription.abort()
            return [frame for frame in frames if frame.id is not None]

        return self.call(read)

    def pairs(self, session_id):
        """Return type and data of all events of a session."""
        return [(event.type, event.data) for event in self.events(session_id)]

    def publish(self, session_id, *pairs):
        """Publish all at once; the session is made if there is none."""

        def write(sessions):
            for kind, data in pairs:
                sessions.create(session_id).publish(kind, data)

        self.call(write)

    def call_gateway(self, function):
        """Call ``function(gateway)`` in the server's loop, and await what it returns."""
        return self._served.call(lambda: function(self._app.state.gateway))

    def history(self, channel):
        """Return all events of a channel, in order: type, and what their payload says."""
        page = self.call_gateway(lambda gateway: gateway.history(channel, limit=1000))
        return [(one.type, msgspec.json.decode(one.payload)) for one in page.publications]

    def channel_pairs(self, channel):
        """Return type and data of all events of a channel."""
        return [(kind, payload.get("data")) for kind, payload in self.history(channel)]

    def publish_to(self, channel, *pairs, **options):
        """Publish to a channel, one after the other; return what the gateway says of the last."""
        for kind, data in pairs:
            published = self.call_gateway(
                lambda gateway, kind=kind, data=data: gateway.publish(
                    channel, kind, data, **options
                )
            )
        return published

    def followers(self, channel):
        """Return how many streams follow a channel."""
        return self.call_gateway(
            lambda gateway: next(
                (one.subscribers for one in gateway.channels() if one.channel == channel), 0
            )
        )


@pytest.fixture(scope="module")
def served():
    app = create_app(ServerSettings(port=0, dev=True))
    with serve_app(app) as url:
        yield Served(url, app)


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch):
    for name in ("TIDEGATE_URL", "TIDEGATE_TOKEN", "FORCE_COLOR", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def session_id(request):
    """A session that no other test uses."""
    return "".join(c if c.isalnum() else "-" for c in request.node.name)[:128]


@pytest.fixture
def channel(request):
    """A channel that no other test uses."""
    return f"room:{hashlib.sha256(request.node.nodeid.encode()).hexdigest()[:16]}"


@dataclass(frozen=True)
class Done:
    """What a command did."""

    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def cli(capfd, monkeypatch, tmp_path):
    """Run a command line in this process: what a process of its own does, but at once."""

    def tidegate(*arguments, url=None, stdin=b"", **env):
        with monkeypatch.context() as patch:
            for name, value in {**env, **({} if url is None else {"TIDEGATE_URL": url})}.items():
                patch.setenv(name, value)
            input_path = tmp_path / "stdin"
            input_path.write_bytes(stdin)
            with input_path.open("rb") as file:
                patch.setattr(sys, "stdin", file)
                capfd.readouterr()
                status = run([str(argument) for argument in arguments])
        return Done(status, *capfd.readouterr())

    return tidegate
