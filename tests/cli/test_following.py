"""``tidegate tail`` of channels: what it prints, where it begins, how it goes on after a cut."""

import contextlib
import json
import re
import signal
import socket
import sqlite3
from functools import partial

import httpx
import pytest

from tests.cli.commands import end_of, process, wait_until
from tests.servers import serve_app, serve_process
from tidegate.gateway import Namespace
from tidegate.server import ServerSettings, create_app

pytestmark = [pytest.mark.server, pytest.mark.timeout(180)]


def cursor_in(stderr):
    """The cursor that a tail has named at its end."""
    return re.search(r"--last-event-id (\S+)\n$", stderr)[1]


def data_of(stdout):
    return [json.loads(line)["data"] for line in stdout.splitlines()]


# -- what it prints, and where it begins ---------------------------------------------------


def test_events_of_several_channels_with_position_time_channel_type_and_data(cli, served, channel):
    first = served.publish_to(f"{channel}a", ("note", {"a": 1}))
    served.publish_to(f"{channel}b", ("text", "x\x1b[2J\ny"))
    names = [f"{channel}a", f"{channel}b"]
    done = cli("tail", *names, "--from-beginning", "-n", "2", url=served.url)
    assert done.returncode == 0
    lines = {line.split()[2]: line for line in done.stdout.splitlines()}
    position, clock, name, kind, data = lines[names[0]].split(None, 4)
    assert (position, name, kind, data) == (first.id, names[0], "note", '{"a":1}')
    assert clock.endswith("Z")
    assert lines[names[1]].endswith(f' {names[1]} text "x\\u001b[2J\\ny"')
    assert f"     · open: {names[0]}, {names[1]}\n" in done.stderr


def test_json_is_the_envelope_in_one_line(cli, served, channel):
    served.publish_to(channel, ("note", "é\u2028"), tags={"k": "v"}, version=4)
    done = cli("tail", channel, "--from-start", "-n1", "--json", url=served.url)
    assert done.stdout.count("\n") == 1
    envelope = json.loads(done.stdout)
    assert (envelope["channel"], envelope["prev"], envelope["data"]) == (channel, "", "é\u2028")
    assert (envelope["tags"], envelope["version"]) == ({"k": "v"}, 4)


def test_the_newest_events_and_only_those_with_a_tag(cli, served, channel):
    for number in range(6):
        served.publish_to(channel, ("n", number), tags={"odd": str(number % 2)})
    arguments = ["tail", channel, "--json", "-n", "2"]
    done = cli(*arguments, "--tail", "2", url=served.url)
    assert data_of(done.stdout) == [4, 5]
    done = cli(*arguments, "--from-beginning", "--tags", "odd:1", url=served.url)
    assert data_of(done.stdout) == [1, 3]


def test_it_names_the_cursor_with_which_another_one_goes_on(cli, served, channel):
    names = [f"{channel}a", f"{channel}b"]
    for name in names:
        served.publish_to(name, ("n", 1), ("n", 2))
    arguments = ["tail", *names, "--json", "-n"]
    done = cli(*arguments, "3", "--from-beginning", url=served.url)
    for name in names:
        served.publish_to(name, ("n", 3))
    rest = cli(*arguments, "3", "--last-event-id", cursor_in(done.stderr), url=served.url)
    seen = [json.loads(line) for line in (done.stdout + rest.stdout).splitlines()]
    for name in names:
        assert [one["data"] for one in seen if one["channel"] == name] == [1, 2, 3]


def test_a_cursor_that_is_none_is_told_on_stderr_and_what_is_left_follows(cli, served, channel):
    served.publish_to(channel, ("n", 1))
    done = cli("tail", channel, "--last-event-id", "nonsense", "-n1", "--json", url=served.url)
    assert data_of(done.stdout) == [1]
    assert '"reason":"cursor_invalid"' in done.stderr


def test_without_a_place_it_begins_now_and_ctrl_c_names_the_cursor(served, channel):
    served.publish_to(channel, ("n", "old"))
    with process("tail", channel, "--json", url=served.url) as run:
        wait_until(lambda: served.followers(channel) == 1)
        served.publish_to(channel, ("n", "new"))
        assert data_of(run.stdout.readline()) == ["new"]
        run.send_signal(signal.SIGINT)
        status, stderr = end_of(run)
    assert status == 130
    assert cursor_in(stderr)


def test_channels_that_are_not_served_are_named(cli):
    settings = ServerSettings(port=0, token="t", namespaces=(Namespace(name="room"),))
    with serve_app(create_app(settings)) as url:
        done = cli("tail", "other:1", "--token", "t", url=url)
        assert done.returncode == 1
        assert "unknown_namespace" in done.stderr
        with process("tail", "room:1", "other:1", "--token", "t", url=url) as run:
            said = run.stderr.readline() + run.stderr.readline()
            assert b"not followed: other:1, unknown_namespace" in said
            assert b"open: room:1\n" in said


def test_a_server_that_has_its_channels_closed_names_its_options(cli):
    with serve_app(create_app(ServerSettings(port=0))) as url:
        done = cli("tail", "room:1", "--token", "any", url=url)
    assert done.returncode == 1
    assert "--token TOKEN" in done.stderr
    assert "--dev" in done.stderr
    assert done.stderr.count("\n") == 1


# -- over restarts -------------------------------------------------------------------------


@pytest.fixture
def port():
    with socket.create_server(("127.0.0.1", 0)) as place:
        return place.getsockname()[1]


def publish(url, channel, numbers):
    events = [{"channel": channel, "type": "n", "data": number} for number in numbers]
    answer = httpx.post(f"{url}/v1/publish", json=events, trust_env=False)
    assert answer.status_code == 200
    return answer.json()["results"]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_with_data_nothing_is_lost_or_repeated_over_a_restart(port, tmp_path, number):
    serve = partial(serve_process, "--dev", "--data", tmp_path / "data", port=port)
    url = f"http://127.0.0.1:{port}"
    names = ["room:1", "room:2"]
    with process("tail", *names, "--from-beginning", "-n", "20", "--json", url=url) as run:
        with serve() as server:
            epochs = {one["epoch"] for name in names for one in publish(url, name, range(5))}
            lines = [run.stdout.readline() for _ in range(10)]
            server.process.send_signal(number)
            server.process.wait(20)
        with serve():
            for name in names:
                publish(url, name, range(5, 10))
            lines += run.stdout.readlines()
            status, stderr = end_of(run)
    assert status == 0
    seen = [json.loads(line) for line in lines]
    for name in names:
        assert [one["data"] for one in seen if one["channel"] == name] == list(range(10))
    assert {one["epoch"] for one in seen} == epochs
    assert "state_resync_required" not in stderr


def test_without_data_a_restart_is_a_new_epoch_and_that_is_told(port):
    url = f"http://127.0.0.1:{port}"
    with process("tail", "room:1", "--from-beginning", "-n", "2", "--json", url=url) as run:
        with serve_process("--dev", port=port):
            publish(url, "room:1", [1])
            assert data_of(run.stdout.readline()) == [1]
        with serve_process("--dev", port=port):
            publish(url, "room:1", [2])
            assert data_of(run.stdout.readline()) == [2]
        status, stderr = end_of(run)
    assert status == 0
    assert '"reason":"epoch_reset"' in stderr


def test_a_restored_backup_is_told_to_whoever_knows_more_than_it(cli, port, tmp_path):
    url = f"http://127.0.0.1:{port}"
    data = tmp_path / "data"
    serve = partial(serve_process, "--dev", "--data", data, port=port)
    arguments = ["tail", "room:1", "--json"]
    with process(*arguments, "--from-beginning", "-n", "4", url=url) as run:
        with serve():
            publish(url, "room:1", [1])
            assert data_of(run.stdout.readline()) == [1]
            behind = cli(*arguments, "--tail", "1", "-n", "1", url=url)
            # While the server runs, as the documentation says.
            with (
                contextlib.closing(sqlite3.connect(data / "tidegate.sqlite")) as live,
                contextlib.closing(sqlite3.connect(tmp_path / "copy.sqlite")) as copy,
            ):
                live.backup(copy)
            publish(url, "room:1", ["of which the backup knows nothing"])
            run.stdout.readline()
        for file in data.glob("tidegate.sqlite*"):
            if file.suffix != ".lock":
                file.unlink()
        (tmp_path / "copy.sqlite").rename(data / "tidegate.sqlite")
        with serve():
            publish(url, "room:1", [2])
            assert data_of(run.stdout.read()) == [1, 2]
            cursor = cursor_in(behind.stderr)
            after = cli(*arguments, "--last-event-id", cursor, "-n", "1", url=url)
        status, stderr = end_of(run)
    assert status == 0
    assert '"reason":"history_rewound"' in stderr
    assert data_of(after.stdout) == [2]
    assert "state_resync_required" not in after.stderr
