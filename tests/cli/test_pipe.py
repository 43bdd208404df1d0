"""``tidegate pipe``: real commands, a real server, and what happens when either is difficult."""

import asyncio
import contextlib
import os
import signal
import socket
import sys
import threading
from functools import partial

import httpx
import pytest

from tests.cli.commands import end_of, eventually, gone, process, redirected, wait_until
from tests.cli.test_session import nowhere
from tests.servers import serve_app, serve_process
from tidegate.cli.names import SessionTarget
from tidegate.cli.pipe import PipeSettings, exit_data, exit_status, run_pipe
from tidegate.client import SessionPublisher, connect
from tidegate.server import ServerSettings, create_app

pytestmark = [pytest.mark.server, pytest.mark.timeout(180)]


def out(text, **more):
    return ("output", {"stream": "stdout", "line": text, **more})


def err(text):
    return ("output", {"stream": "stderr", "line": text})


def python(source):
    return [sys.executable, "-u", "-c", source]


def shell(script, *arguments):
    return ["/bin/sh", "-c", script, *arguments]


def lines_of(events, stream="stdout"):
    return [data["line"] for kind, data in events if kind == "output" and data["stream"] == stream]


@contextlib.asynccontextmanager
async def piping(url, session_id, command, **options):
    """Run a pipe in a task of this process until the block ends."""
    settings = PipeSettings(str(url), SessionTarget(session_id), command, **options)
    running = asyncio.create_task(run_pipe(settings))
    try:
        yield running
    finally:
        running.cancel()
        await asyncio.wait([running])


async def ended(running):
    async with asyncio.timeout(50):
        return await running


class Captured:
    """Tells whether a text has been written to stdout, in pieces or not."""

    def __init__(self, capfd, text):
        self.capfd = capfd
        self.text = text
        self.seen = ""

    def __call__(self):
        self.seen += self.capfd.readouterr().out
        return self.text in self.seen


@pytest.fixture
def fifo(tmp_path):
    """A command that prints what is written here, until it is closed."""
    path = tmp_path / "fifo"
    os.mkfifo(path)
    descriptor = os.open(path, os.O_RDWR)
    closed = []

    class Fifo:
        command = shell(
            'trap "echo bye; exit 5" TERM; while read line; do echo "$line"; done < "$0"', path
        )

        def write(self, text):
            os.write(descriptor, text.encode())

        def close(self):
            if not closed:
                closed.append(True)
                os.close(descriptor)

    fifo = Fifo()
    yield fifo
    fifo.close()


# -- what is published ------------------------------------------------------------------


def test_lines_of_both_streams_and_the_exit_status_last(served, session_id, cli):
    command = shell("echo one; echo two; echo oops >&2; exit 3")
    done = cli("pipe", f"session/{session_id}", "--", *command, url=served.url)
    assert (done.returncode, done.stdout, done.stderr) == (3, "one\ntwo\n", "oops\n")
    events = served.pairs(session_id)
    assert lines_of(events) == ["one", "two"]
    assert lines_of(events, "stderr") == ["oops"]
    assert events[-1] == ("exit", {"code": 3})
    assert len(events) == 4


def test_lines_are_numbered_and_bear_the_name_of_their_run(served, session_id, cli):
    for _ in range(2):
        cli("pipe", f"session/{session_id}", "--", "printf", "a\nb\n", url=served.url)
    events = [event for event in served.events(session_id) if event.type == "output"]
    assert [event.meta["seq"] for event in events] == [1, 2, 1, 2]
    runs = [event.originator_client_id for event in events]
    assert runs[0] == runs[1] != runs[2] == runs[3]


def test_the_options_after_the_dashes_are_the_commands(served, session_id, cli):
    command = shell('printf "%s\\n" "$@"', "sh", "--quiet", "--", "-n", "--url=x")
    done = cli("pipe", f"session/{session_id}", "--", *command, url=served.url)
    assert done.returncode == 0
    assert lines_of(served.pairs(session_id)) == ["--quiet", "--", "-n", "--url=x"]


def test_our_options_may_stand_before_and_after_the_session(served, session_id, cli):
    target = f"session/{session_id}"
    assert cli("pipe", "-q", target, "--url", served.url, "--", "echo", "a").stdout == ""
    assert lines_of(served.pairs(session_id)) == ["a"]


def test_text_of_every_kind_arrives(served, session_id, cli):
    source = (
        "import os\n"
        "os.write(1, b'crlf\\r\\n\\n\\xff\\xfe\\n' + '€'.encode()[:1])\n"
        "os.write(1, '€'.encode()[1:] + b'\\n' + b'x' * 65536 + b'y\\n' + b'no end')\n"
    )
    done = cli("pipe", f"session/{session_id}", "-q", "--", *python(source), url=served.url)
    assert done.returncode == 0
    assert served.pairs(session_id) == [
        out("crlf"),
        out(""),
        out("\ufffd\ufffd"),
        out("€"),
        out("x" * 65536, partial=True),
        out("y"),
        out("no end"),
        ("exit", {"code": 0}),
    ]


def test_a_death_by_a_signal_is_named(served, session_id, cli):
    done = cli("pipe", f"session/{session_id}", "--", *shell("kill -KILL $$"), url=served.url)
    assert done.returncode == 128 + 9
    assert served.pairs(session_id) == [("exit", {"signal": "SIGKILL"})]


@pytest.mark.parametrize(
    ("command", "status", "words"),
    [("no-such-command", 127, "there is no command"), ("/etc/passwd", 126, "cannot be executed")],
)
def test_a_command_that_cannot_be_started(served, session_id, cli, command, status, words):
    done = cli("pipe", f"session/{session_id}", "--", command, url=served.url)
    assert (done.returncode, done.stdout) == (status, "")
    assert words in done.stderr
    assert done.stderr.count("\n") == 1
    [(kind, data)] = served.pairs(session_id)
    assert (kind, data["code"]) == ("exit", status)
    assert words in data["error"]


def test_the_command_reads_our_standard_input(served, session_id, cli):
    done = cli("pipe", f"session/{session_id}", "-q", "--", "cat", stdin=b"a\nb\n", url=served.url)
    assert done.returncode == 0
    assert lines_of(served.pairs(session_id)) == ["a", "b"]


def test_without_a_standard_input_the_command_has_an_empty_one(served, session_id, monkeypatch):
    monkeypatch.setattr(sys, "stdin", None)
    settings = PipeSettings(served.url, SessionTarget(session_id), ["cat"])
    assert asyncio.run(run_pipe(settings)) == 0


def test_much_output_keeps_its_order_and_is_whole(served, session_id, cli):
    count = 7000  # less than the ring keeps
    source = f"for n in range({count}): print(n)"
    done = cli("pipe", f"session/{session_id}", "--", *python(source), url=served.url)
    assert done.returncode == 0
    numbers = [str(number) for number in range(count)]
    assert done.stdout.split() == numbers
    assert lines_of(served.pairs(session_id)) == numbers


async def test_lines_come_while_the_command_runs(served, session_id, fifo, capfd):
    async with piping(served.url, session_id, fifo.command) as running:
        for number in (1, 2):
            fifo.write(f"{number}\n")
            await eventually(lambda n=number: len(served.pairs(session_id)) == n)
        await eventually(Captured(capfd, "1\n2\n"))
        assert not running.done()
        os.kill(os.getpid(), signal.SIGTERM)
        assert await ended(running) == 5


# -- signals ----------------------------------------------------------------------------


def catching(number):
    """A shell and its child; both are of the group, and only the child reacts to the signal."""
    source = (
        "import os, signal, sys, time\n"
        "def bye(number, frame):\n"
        "    print('bye from', os.getppid() != 1, flush=True)\n"
        "    sys.exit(5)\n"
        f"signal.signal({int(number)}, bye)\n"
        "print('ready', flush=True)\n"
        "time.sleep(1000)\n"
    )
    return shell(f'trap "" {int(number)}; "$0" -c "$1"; exit $?', sys.executable, source)


CAUGHT = [out("ready"), out("bye from True"), ("exit", {"code": 5})]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT])
async def test_a_signal_goes_to_the_commands_group(served, session_id, number):
    async with piping(served.url, session_id, catching(number)) as running:
        await eventually(lambda: served.pairs(session_id) == [out("ready")])
        os.kill(os.getpid(), number)
        assert await ended(running) == 5
    assert served.pairs(session_id) == CAUGHT


def test_a_process_that_gets_a_signal_still_publishes_the_rest(served, session_id):
    command = catching(signal.SIGTERM)
    with process("pipe", f"session/{session_id}", "--", *command, url=served.url) as pipe:
        wait_until(lambda: served.pairs(session_id) == [out("ready")])
        pipe.send_signal(signal.SIGTERM)
        assert end_of(pipe) == (5, "")
    assert served.pairs(session_id) == CAUGHT


async def test_a_command_that_dies_by_the_forwarded_signal(served, session_id):
    async with piping(served.url, session_id, shell("echo ready; sleep 1000")) as running:
        await eventually(lambda: served.pairs(session_id) == [out("ready")])
        os.kill(os.getpid(), signal.SIGINT)
        assert await ended(running) == 130
    assert served.pairs(session_id)[-1] == ("exit", {"signal": "SIGINT"})


TALKER = (
    "import os, subprocess, sys\n"
    "talk = 'import time\\nwhile True: print(\"y\", flush=True); time.sleep(0.1)'\n"
    "talker = subprocess.Popen([sys.executable, '-c', talk], start_new_session=True)\n"
    "print('bye', flush=True)\n"
)
"""Leaves a process behind that no signal to the group reaches, and that is never silent."""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_signal_ends_the_wait_for_what_a_process_left_behind_says(
    served, session_id, number, monkeypatch
):
    monkeypatch.setattr("tidegate.cli.pipe._GRACE_SECONDS", 1000.0)
    async with piping(served.url, session_id, python(TALKER)) as running:
        await eventually(lambda: lines_of(served.pairs(session_id))[-2:] == ["y", "y"])
        assert not running.done()
        os.kill(os.getpid(), number)
        assert await ended(running) == 0
    events = served.pairs(session_id)
    assert out("bye") in events
    assert events[-1] == ("exit", {"code": 0})


async def test_what_a_process_left_behind_says_is_published_for_some_seconds(served, session_id):
    async with piping(served.url, session_id, python(TALKER)) as running:
        assert await ended(running) == 0
    events = served.pairs(session_id)
    assert out("y") in events
    assert events[-1] == ("exit", {"code": 0})


# -- a difficult reader of the echo --------------------------------------------------------


def test_an_echo_that_nobody_reads_does_not_stop_the_publishing(served, session_id):
    source = "for n in range(5000): print(n)"
    arguments = ["pipe", f"session/{session_id}", "--", *python(source)]
    with process(*arguments, url=served.url) as pipe:
        pipe.stdout.close()
        assert end_of(pipe) == (0, "")
    assert len(served.pairs(session_id)) == 5001


def test_a_signal_ends_the_wait_for_an_echo_that_is_not_read(served, session_id):
    # More than the pipe of our output takes, and less than our own queue.
    source = "print('x' * 100_000)"
    arguments = ["pipe", f"session/{session_id}", "--", *python(source)]
    with process(*arguments, url=served.url) as pipe:
        wait_until(lambda: ("exit", {"code": 0}) in served.pairs(session_id))
        assert pipe.poll() is None
        pipe.send_signal(signal.SIGTERM)
        assert pipe.wait(50) == 0


# -- a difficult server --------------------------------------------------------------------


async def test_a_restart_of_the_server_loses_nothing(session_id, fifo, capfd):
    with socket.create_server(("127.0.0.1", 0)) as place:
        port = place.getsockname()[1]
    async with contextlib.AsyncExitStack() as stack:
        with serve_process(port=port) as url:
            running = await stack.enter_async_context(piping(url, session_id, fifo.command))
            fifo.write("before\n")
            await eventually(Captured(capfd, "before\n"))
            await asyncio.to_thread(url.terminate)
        fifo.write("meanwhile\n")
        await eventually(Captured(capfd, "meanwhile\n"))
        server = await asyncio.to_thread(stack.enter_context, serve_process(port=port))
        async with SessionPublisher(server) as publisher:
            await publisher.create(session_id)
        async with connect(f"{server}/session/{session_id}", last_event_id=0) as stream:
            fifo.write("after\n")
            lines = []
            async for event in stream:
                lines += [event.data["line"]] if event.type == "output" else []
                if "after" in lines:
                    break
        os.kill(os.getpid(), signal.SIGTERM)
        assert await ended(running) == 5
    # Whether "before" comes again depends on the answer that the end of the server may have cut.
    assert [line for line in lines if line != "before"] == ["meanwhile", "after"]


def test_a_server_that_is_not_there_at_the_start_means_no_command(session_id, cli, tmp_path):
    marker = tmp_path / "ran"
    done = cli(
        "pipe", f"session/{session_id}", "--patience", "0.1", "--", "touch", marker, url=nowhere()
    )
    assert done.returncode == 1
    assert done.stderr.endswith("; the command was not run\n")
    assert done.stderr.count("\n") == 1
    assert not marker.exists()


def test_the_command_may_stand_right_after_the_target(session_id, served, cli):
    command = ["printf", "%s\\n", "-q", "--url=x"]
    done = cli("pipe", "--url", served.url, f"session/{session_id}", "-q", *command)
    assert (done.returncode, done.stdout) == (0, "")
    assert lines_of(served.pairs(session_id)) == ["-q", "--url=x"]


def test_a_token_that_is_refused_means_no_command(session_id, cli, tmp_path):
    marker = tmp_path / "ran"
    with serve_app(create_app(ServerSettings(port=0, token="secret"))) as url:
        done = cli("pipe", f"session/{session_id}", "--", "touch", marker, url=url)
        assert done.returncode == 1
        assert "401" in done.stderr
        assert not marker.exists()
        arguments = ["pipe", f"session/{session_id}", "--", "touch", marker]
        assert cli(*arguments, url=url, TIDEGATE_TOKEN="secret").returncode == 0
        assert marker.exists()


class Stubborn:
    """An app that makes sessions, and answers publishes only as it is told."""

    def __init__(self):
        self.status = 503
        self.held = False
        self.open = threading.Event()
        self.open.set()
        self.bodies = 0
        self.asked = threading.Event()

    async def __call__(self, scope, receive, send):
        if scope["type"] != "http":
            return
        status, body = 201, b'{"sessionId":"x","epoch":"e","lastEventId":0}'
        if scope["path"].endswith("/events"):
            self.asked.set()
            while (await receive())["more_body"]:
                pass
            await eventually(self.open.is_set)
            self.bodies += 1
            status = self.status
            body = b'{"lastEventId":1}' if status == 202 else b'{"error":"not now","code":"away"}'
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": body})


def test_after_its_patience_the_command_runs_on_and_the_loss_is_counted(session_id, cli):
    with serve_app(Stubborn()) as url:
        source = "for n in range(20000): print('x' * 100)"
        arguments = ["pipe", f"session/{session_id}", "-q", "--patience", "0.3", "--"]
        done = cli(*arguments, *python(source), url=url)
    assert done.returncode == 1
    first, second, third = done.stderr.splitlines()
    assert first.startswith("tidegate: the output is no longer published: ")
    assert "503" in first
    assert second == "tidegate: 20000 lines of the output could not be published"
    assert third == "tidegate: the command's exit status could not be published"


def test_the_commands_own_failure_goes_before_ours(session_id, cli):
    with serve_app(Stubborn()) as url:
        arguments = ["pipe", f"session/{session_id}", "-q", "--patience", "0", "--"]
        done = cli(*arguments, *shell("echo one; exit 7"), url=url)
    assert done.returncode == 7
    assert "tidegate: 1 line of the output could not be published" in done.stderr


def test_a_refusal_in_the_middle_lets_the_command_run_on(session_id, cli):
    app = Stubborn()
    app.status = 403
    with serve_app(app) as url:
        done = cli("pipe", f"session/{session_id}", "--", *shell("echo one; echo two"), url=url)
    assert (done.returncode, done.stdout) == (1, "one\ntwo\n")
    assert "the server refused the publish with 403 (away): not now" in done.stderr
    assert app.bodies == 1


async def test_a_server_that_does_not_answer_holds_the_command_back(session_id, tmp_path):
    app = Stubborn()
    app.status = 202
    app.open.clear()
    progress = tmp_path / "progress"
    megabytes = 8
    source = (
        "import sys\n"
        f"with open({str(progress)!r}, 'w') as progress:\n"
        f"    for n in range({megabytes * 1024}):\n"
        "        sys.stdout.write('x' * 1023 + '\\n')\n"
        "        print(n, file=progress, flush=True)\n"
    )

    def written():
        return progress.read_text().count("\n") if progress.exists() else 0

    with serve_app(app) as url:
        async with piping(url, session_id, python(source)) as running:
            # Our queue takes about 1 MiB, the pipe some more; the rest has to wait in the command.
            await eventually(lambda: written() > 512)
            with pytest.raises(AssertionError, match="not within"):
                await eventually(lambda: written() > 3 * 1024, seconds=0.5)
            app.open.set()
            assert await ended(running) == 0
    assert written() == megabytes * 1024


async def test_a_signal_after_the_commands_end_gives_up_on_a_server_that_is_away(session_id, capfd):
    app = Stubborn()
    with serve_app(app) as url:
        async with piping(url, session_id, ["echo", "a"], patience=1000.0) as running:
            await eventually(lambda: app.bodies > 2)
            os.kill(os.getpid(), signal.SIGINT)
            assert await ended(running) == 1
    assert "1 line of the output could not be published" in capfd.readouterr().err


def test_an_echo_that_cannot_be_written_is_said_and_does_not_stop_the_publishing(
    served, session_id
):
    arguments = ["pipe", f"session/{session_id}", "--", "echo", "a"]
    done = redirected(">/dev/full", *arguments, url=served.url)
    assert (done.returncode, done.stderr) == (
        1,
        "tidegate: the output could not be echoed: No space left on device\n",
    )
    assert served.pairs(session_id) == [out("a"), ("exit", {"code": 0})]


def test_closed_descriptors_are_not_mistaken_for_others(served, session_id):
    source = "import sys; print('a'); print('b', file=sys.stderr); print(sys.stdin.read(), end='')"
    arguments = ["pipe", f"session/{session_id}", "--", *python(source)]
    done = redirected("<&- >&- 2>&-", *arguments, url=served.url)
    assert done.returncode == 0
    events = served.pairs(session_id)
    assert sorted(map(str, events[:-1])) == sorted(map(str, [out("a"), err("b")]))
    assert events[-1] == ("exit", {"code": 0})


async def test_cancelling_ends_the_commands_group(served, session_id):
    async with piping(served.url, session_id, shell("sleep 1000 & echo $!; wait")) as running:
        await eventually(lambda: served.pairs(session_id))
        pid = int(served.pairs(session_id)[0][1]["line"])
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    await eventually(lambda: gone(pid))


# -- channels ------------------------------------------------------------------------------


def test_a_channel_has_the_lines_and_the_run_that_they_are_of(served, channel, cli):
    done = cli("pipe", channel, "--", *shell("echo one; echo oops >&2; exit 3"), url=served.url)
    assert (done.returncode, done.stdout, done.stderr) == (3, "one\n", "oops\n")
    history = served.history(channel)
    events = [(kind, payload["data"]) for kind, payload in history]
    assert sorted(map(str, events[:2])) == sorted(map(str, [out("one"), err("oops")]))
    assert events[2:] == [("exit", {"code": 3})]
    [run] = {payload["_meta"]["run"] for _, payload in history}
    assert run.startswith("pipe-")
    assert [payload["_meta"].get("seq") for _, payload in history] == [1, 2, None]


def test_a_channel_that_may_not_be_used_means_no_command(cli, tmp_path):
    marker = tmp_path / "ran"
    with serve_app(create_app(ServerSettings(port=0))) as url:
        done = cli("pipe", "room:1", "--", "touch", marker, url=url)
    assert done.returncode == 1
    assert "--dev" in done.stderr
    assert done.stderr.endswith("; the command was not run\n")
    assert not marker.exists()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_with_data_each_line_is_there_once_though_the_server_dies(tmp_path, number):
    with socket.create_server(("127.0.0.1", 0)) as place:
        port = place.getsockname()[1]
    serve = partial(serve_process, "--dev", "--data", tmp_path / "data", port=port)
    url = f"http://127.0.0.1:{port}"
    # The lines come in many requests, whatever the server does meanwhile.
    source = "import time\nfor n in range(900): print(n); time.sleep(0.002)"
    history = []

    def published():
        answer = httpx.get(
            f"{url}/v1/channels/build/history", params={"limit": 1000}, trust_env=False
        ).json()
        history[:] = [(event["type"], event["data"]) for event in answer["events"]]
        return len(history)

    with contextlib.ExitStack() as stack:
        run = None
        for least in (100, 300, 500):
            with serve() as server:
                run = run or stack.enter_context(
                    process("pipe", "build", "-q", "--", *python(source), url=url)
                )
                wait_until(lambda n=least: published() >= n)
                server.process.send_signal(number)
                server.process.wait(20)
        with serve():
            assert end_of(run) == (0, "")
            published()
    assert lines_of(history) == [str(line) for line in range(900)]
    assert history[-1] == ("exit", {"code": 0})
    assert len(history) == 901


def test_what_is_lost_is_announced_to_a_channel_once(tmp_path, fifo, capfd):
    with socket.create_server(("127.0.0.1", 0)) as place:
        port = place.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    serve = partial(serve_process, "--dev", "--data", tmp_path / "data", port=port)
    with contextlib.ExitStack() as stack:
        with serve():
            arguments = ["pipe", "build", "--patience", "0.2", "--", *map(str, fifo.command)]
            run = stack.enter_context(process(*arguments, url=url))
            fifo.write("before\n")
            assert run.stdout.readline() == b"before\n"
            wait_until(lambda: lines_of(channel_pairs(url)) == ["before"])
        fifo.write("lost\n")
        assert b"no longer published" in run.stderr.readline()
        with serve():
            wait_until(lambda: ("output_lost", {"lines": 1}) in channel_pairs(url))
            fifo.write("after\n")
            wait_until(lambda: "after" in lines_of(channel_pairs(url)))
            run.send_signal(signal.SIGTERM)
            status, stderr = end_of(run)
            events = channel_pairs(url)
    assert status == 5
    assert "1 line of the output could not be published" in stderr
    assert events == [
        out("before"),
        ("output_lost", {"lines": 1}),
        out("after"),
        out("bye"),
        ("exit", {"code": 5}),
    ]


def channel_pairs(url):
    answer = httpx.get(f"{url}/v1/channels/build/history", trust_env=False).json()
    return [(event["type"], event["data"]) for event in answer["events"]]


# -- statuses ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "data", "status"),
    [
        (0, {"code": 0}, 0),
        (255, {"code": 255}, 255),
        (-15, {"signal": "SIGTERM"}, 143),
        (-40, {"signal": "SIG40"}, 168),
    ],
)
def test_an_end_as_an_event_and_as_a_status(code, data, status):
    assert exit_data(code) == data
    assert exit_status(code) == status
