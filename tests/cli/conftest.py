"""A server to talk to, and the command line as a user runs it."""

import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
from tests.servers import SOURCE, serve_app, wait_until

from tidegate.cli.app import run
from tidegate.server import ServerSettings, create_app

COMMAND = [sys.executable, "-m", "tidegate"]


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


@pytest.fixture(scope="module")
def served():
    app = create_app(ServerSettings(port=0))
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


def environment(url=None, **more):
    names = {
        **os.environ,
        "PYTHONPATH": str(SOURCE),
        "PYTHONWARNINGS": "error",
        # What another test run's coverage measures is none of the command's business.
        "COVERAGE_PROCESS_START": "",
    }
    if url is not None:
        names["TIDEGATE_URL"] = str(url)
    return {**names, **more}


def tidegate(*arguments, url=None, stdin=b"", timeout=50, **env):
    """Run the command line to its end and return what it did, in text."""
    done = subprocess.run(
        [*COMMAND, *map(str, arguments)],
        input=stdin,
        capture_output=True,
        timeout=timeout,
        check=False,
        env=environment(url, **env),
    )
    done.stdout, done.stderr = done.stdout.decode(), done.stderr.decode()
    assert "Traceback" not in done.stderr, done.stderr
    return done


@contextmanager
def running(*arguments, url=None, **env):
    """Run the command line until the block ends; its pipes are the test's."""
    process = subprocess.Popen(
        [*COMMAND, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(url, **env),
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            process.wait(20)
        for pipe in (process.stdin, process.stdout, process.stderr):
            pipe.close()


def ended(process, seconds=40):
    """Wait for the end of a process; return its status and what it wrote to stderr."""
    process.stdin.close()
    status = process.wait(seconds)
    stderr = process.stderr.read().decode()
    assert "Traceback" not in stderr, stderr
    return status, stderr


__all__ = ["Served", "ended", "environment", "running", "tidegate", "wait_until"]
