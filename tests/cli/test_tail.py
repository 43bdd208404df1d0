"""``tidegate tail``: what it prints, how it ends, and that it goes on after a cut."""

import asyncio
import contextlib
import json
import signal
import socket
import threading
from contextlib import contextmanager

import pytest

from tests.cli.commands import end_of, process, redirected, wait_until
from tests.cli.conftest import Served
from tests.servers import serve_app
from tidegate.server import ServerSettings, create_app

pytestmark = [pytest.mark.server, pytest.mark.timeout(180)]


def subscribers(served, session_id):
    def count(sessions):
        if session_id not in sessions:
            return 0
        return sessions.get(session_id).channel.statistics().subscribers

    return served.call(count)


def following(served, session_id):
    wait_until(lambda: subscribers(served, session_id) == 1)


def test_events_from_the_start_with_id_time_type_and_data(cli, served, session_id):
    served.publish(session_id, ("note", {"a": 1}), ("text", "x\x1b[2J\ny"))
    done = cli("tail", f"session/{session_id}", "--from-start", "-n", "2", url=served.url)
    assert (done.returncode, done.stderr) == (0, "")
    first, second = done.stdout.splitlines()
    number, clock, kind, data = first.split(None, 3)
    assert (number, kind, data) == ("1", "note", '{"a":1}')
    assert clock.endswith("Z")
    assert second.endswith(' text "x\\u001b[2J\\ny"')


def test_json_is_the_envelope_in_one_line(cli, served, session_id):
    served.publish(session_id, ("note", "é\u2028"))
    done = cli("tail", f"session/{session_id}", "--from-start", "-n1", "--json", url=served.url)
    assert done.stdout.count("\n") == 1
    envelope = json.loads(done.stdout)
    assert (envelope["id"], envelope["v"], envelope["data"]) == (1, 1, "é\u2028")


def test_after_an_event_with_or_without_its_epoch(cli, served, session_id):
    served.publish(session_id, ("n", 1), ("n", 2), ("n", 3))
    epoch = served.call(lambda sessions: sessions.get(session_id).channel.epoch)
    for cursor in ("2", f"{epoch}-2"):
        done = cli(
            "tail", f"session/{session_id}", "--last-event-id", cursor, "-n1", url=served.url
        )
        assert done.stdout.split()[0] == "3"
        assert done.stderr == ""


def test_an_old_epoch_is_told_on_stderr(cli, served, session_id):
    served.publish(session_id, ("n", 1))
    done = cli(
        "tail",
        f"session/{session_id}",
        "--last-event-id",
        "0123456789abcdef-1",
        "-n1",
        url=served.url,
    )
    assert done.stdout.split()[0] == "1"
    assert 'state_resync_required {"reason":"epoch_reset"' in done.stderr


@pytest.mark.parametrize(
    "options",
    [
        ["--from-start", "--last-event-id", "1"],
        ["--last-event-id", "a b"],
        ["--last-event-id", ""],
        ["--last-event-id", "zz"],
    ],
)
def test_a_wrong_place_to_begin_is_a_wrong_command_line(cli, options):
    assert cli("tail", "session/a", *options, url="http://127.0.0.1:1").returncode == 2


def test_without_a_place_it_begins_now_and_ends_with_the_session(served, session_id):
    served.publish(session_id, ("old", 1))
    with process("tail", f"session/{session_id}", url=served.url) as run:
        following(served, session_id)
        served.publish(session_id, ("new", 2))
        assert run.stdout.readline().split()[2] == b"new"
        served.call(lambda sessions: sessions.delete(session_id))
        assert end_of(run) == (0, "")
        assert run.stdout.read().split()[2] == b"session_closed"


def test_a_session_that_is_not_there_is_one_sentence_unless_it_is_to_be_made(
    cli, served, session_id
):
    done = cli("tail", f"session/{session_id}", url=served.url)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "session_not_found" in done.stderr
    with process("tail", f"session/{session_id}", "--create", "-n1", url=served.url) as run:
        following(served, session_id)
        served.publish(session_id, ("first", None))
        assert end_of(run)[0] == 0


@contextmanager
def server_on(port):
    app = create_app(ServerSettings(port=port))
    with serve_app(app, listener=socket.create_server(("127.0.0.1", port))) as url:
        yield Served(url, app)


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def test_a_session_that_a_restart_took_is_waited_for(session_id):
    port = free_port()
    arguments = ["tail", f"session/{session_id}", "--from-start", "-n", "2", "--json"]
    with process(*arguments, url=f"http://127.0.0.1:{port}") as run:
        said = run.stderr.readline().decode()
        assert "no server at http://127.0.0.1:" in said
        # It is refused as long as the session was never there, so the first is there at once.
        with first_server(port, session_id):
            assert json.loads(run.stdout.readline())["data"] == "before"
        with server_on(port) as second:
            while "session is gone; waiting for it" not in said:
                said += (line := run.stderr.readline().decode())
                assert line, said
            second.publish(session_id, ("n", "after"))
            assert json.loads(run.stdout.readline())["data"] == "after"
            status, rest = end_of(run)
    assert status == 0
    assert "session is gone" not in rest
    assert '"reason":"epoch_reset"' in rest
    assert "ConnectError" not in said + rest
    assert all(line.startswith("     · ") for line in (said + rest).splitlines())


@contextmanager
def first_server(port, session_id):
    app = create_app(ServerSettings(port=port))
    ready = threading.Event()

    async def once_ready(scope, receive, send):
        # Nobody gets an answer before the session is there.
        if scope["type"] == "http":
            await asyncio.to_thread(ready.wait, 50)
        await app(scope, receive, send)

    with serve_app(once_ready, listener=socket.create_server(("127.0.0.1", port))) as url:
        served = Served(url, app)
        served.publish(session_id, ("n", "before"))
        ready.set()
        yield served


def test_it_is_made_again_on_demand(session_id):
    port = free_port()
    arguments = ["tail", f"session/{session_id}", "--create", "-n", "1"]
    with contextlib.ExitStack() as stack:
        with server_on(port) as first:
            run = stack.enter_context(process(*arguments, url=first.url))
            following(first, session_id)
        with server_on(port) as second:
            following(second, session_id)
            second.publish(session_id, ("n", "after"))
            status, stderr = end_of(run)
    assert status == 0
    assert "session is gone; making it again" in stderr


def test_the_patience_for_a_session_that_is_gone_has_an_end(session_id):
    port = free_port()
    arguments = ["tail", f"session/{session_id}", "--patience", "0.1"]
    with contextlib.ExitStack() as stack:
        with server_on(port) as first:
            first.publish(session_id, ("n", 1))
            run = stack.enter_context(process(*arguments, url=first.url))
            following(first, session_id)
        with server_on(port):
            status, stderr = end_of(run)
    assert status == 1
    assert stderr.count("session is gone; waiting for it") == 1
    assert "session_not_found" in stderr.splitlines()[-1]


def test_after_an_eviction_it_comes_back_and_prints_each_event_once(served, session_id):
    served.publish(session_id, ("n", 0))
    arguments = ["tail", f"session/{session_id}", "--json", "--from-start", "-n", "1001"]
    with process(*arguments, url=served.url) as run:
        assert json.loads(run.stdout.readline())["data"] == 0
        # More at once than a backlog takes: the client is evicted, whoever it is.
        served.publish(session_id, *[("n", number) for number in range(1, 1001)])
        lines = run.stdout.read().splitlines()
        status, stderr = end_of(run)
    assert status == 0
    assert [json.loads(line)["data"] for line in lines] == list(range(1, 1001))
    assert "client_evicted" in stderr
    assert "back in " in stderr


def test_ctrl_c_ends_it_with_130_and_without_a_word(served, session_id):
    served.publish(session_id, ("n", 0))
    with process("tail", f"session/{session_id}", url=served.url) as run:
        following(served, session_id)
        run.send_signal(signal.SIGINT)
        assert end_of(run) == (130, "")


def test_a_reader_that_goes_away_ends_it_at_once_and_without_a_word(served, session_id):
    served.publish(session_id, ("n", 0))
    with process("tail", f"session/{session_id}", url=served.url) as run:
        following(served, session_id)
        run.stdout.close()
        assert end_of(run) == (141, "")


def test_an_event_that_cannot_be_written_is_one_sentence(served, session_id):
    served.publish(session_id, ("n", 0))
    arguments = ["tail", f"session/{session_id}", "--from-start", "-n1"]
    done = redirected(">/dev/full", *arguments, url=served.url)
    assert (done.returncode, done.stderr) == (
        1,
        "tidegate: stdout cannot be written: No space left on device\n",
    )
    done = redirected(">&-", *arguments, url=served.url)
    assert (done.returncode, done.stderr) == (0, "")


HOSTILE = "\x1b]0;pwned\x07\x1b[2J\u202e\x9b\nx"


async def hostile_app(scope, receive, send):
    """Says no, or sends frames, with words that would command a terminal."""
    if scope["type"] != "http":
        return
    body = json.dumps({"error": HOSTILE, "code": HOSTILE}).encode()
    status, kind = 403, b"application/json"
    if scope["path"] == "/session/frames/events":
        data = json.dumps({"type": "note", "data": HOSTILE, "id": 1, "v": 1, "meta": {}})
        control = json.dumps({"type": "odd", "data": HOSTILE, "v": 1, "meta": {}})
        body = f"event: odd\ndata: {control}\n\nid: 1\nevent: note\ndata: {data}\n\n".encode()
        status, kind = 200, b"text/event-stream"
    headers = [(b"content-type", kind)]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (["tail", "session/a"], 1),
        (["tail", "session/a", "--create"], 1),
        (["tail", "session/frames", "--from-start", "-n1"], 0),
        (["tail", "session/frames", "--from-start", "-n1", "--json"], 0),
        (["publish", "session/a", "t"], 1),
        (["publish", "session/a", "--stdin"], 1),
        (["pipe", "session/a", "--patience", "0", "--", "true"], 1),
    ],
)
def test_a_server_cannot_command_the_terminal(cli, arguments, status):
    with serve_app(hostile_app) as url:
        done = cli(*arguments, url=url, stdin=b"a\n")
    assert done.returncode == status
    assert "pwned" in done.stdout + done.stderr
    for line in (done.stdout + done.stderr).splitlines():
        assert line.isprintable()


def test_colour_only_where_it_is_wanted(cli, served, session_id):
    served.publish(session_id, ("n", 0))
    arguments = ["tail", f"session/{session_id}", "--from-start", "-n1"]
    forced = cli(*arguments, url=served.url, FORCE_COLOR="1", TERM="xterm")
    assert "\x1b[2m" in forced.stdout
    plain = cli(*arguments, url=served.url, FORCE_COLOR="1", TERM="xterm", NO_COLOR="1")
    assert "\x1b" not in plain.stdout
    assert "\x1b" not in cli(*arguments, url=served.url).stdout


def test_the_token_comes_from_the_environment_or_the_command_line(cli, session_id):
    app = create_app(ServerSettings(port=0, token="secret"))
    arguments = ["tail", f"session/{session_id}", "--from-start", "-n1"]
    with serve_app(app) as url:
        note = ["publish", f"session/{session_id}", "note"]
        assert cli(*note, url=url, TIDEGATE_TOKEN="secret").returncode == 0
        assert cli(*arguments, "--token", "secret", url=url).returncode == 0
        refused = cli(*arguments, "--token", "wrong", url=url)
        assert refused.returncode == 1
        assert refused.stderr == "tidegate: the token is not the server's (401)\n"
        assert "give --token or TIDEGATE_TOKEN" in cli(*arguments, url=url).stderr
        refused = cli(*arguments, "--create", "--token", "wrong", url=url)
        assert (refused.returncode, refused.stderr.count("\n")) == (1, 1)
