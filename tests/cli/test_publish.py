"""``tidegate publish``: what was published is known exactly, also when something is wrong."""

import json
import signal
import socket
import threading
from functools import partial

import httpx
import pytest

from tests.cli.commands import SECONDS, end_of, process, redirected, wait_until
from tests.cli.test_session import nowhere
from tests.servers import serve_process

pytestmark = [pytest.mark.server, pytest.mark.timeout(180)]


def test_one_event_and_its_id(cli, served, session_id):
    done = cli("publish", f"session/{session_id}", "note", '{"a":[1,null]}', url=served.url)
    assert (done.returncode, done.stdout, done.stderr) == (0, "1\n", "")
    done = cli("publish", f"session/{session_id}", "bare", "--json", url=served.url)
    assert json.loads(done.stdout) == {"lastEventId": 2}
    assert served.pairs(session_id) == [("note", {"a": [1, None]}), ("bare", None)]


def test_data_that_is_not_json_is_text_only_if_said_so(cli, served, session_id):
    done = cli("publish", f"session/{session_id}", "note", "hello", url=served.url)
    assert done.returncode == 2
    assert "DATA is not JSON" in done.stderr
    done = cli("publish", f"session/{session_id}", "note", "--text", "hello", url=served.url)
    assert done.returncode == 0
    done = cli("publish", f"session/{session_id}", "note", "--text", "--", "-5", url=served.url)
    assert served.pairs(session_id) == [("note", "hello"), ("note", "-5")]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["t", '"\\ud800"'], "half a surrogate pair"),
        (["t", '{"a":["\\udfff"]}'], "half a surrogate pair"),
        (["t", '{"\\ud800":1}'], "half a surrogate pair"),
        (["t", "--text", "\udcff"], "half a surrogate pair"),
        (["t", "\udcff"], "DATA is not JSON"),
        (["\udcff"], "half a surrogate pair"),
        (["t", "NaN"], "NaN is not JSON"),
        (["t", "[-Infinity]"], "-Infinity is not JSON"),
        (["t", "1e400"], "a number is out of range"),
        (["t", '{"a":-1e999}'], "a number is out of range"),
        (["t", "9" * 5000], "a number has too many digits"),
        (["t", "[" * 100_000], "too deep"),
        (["t", "[" * 100_000 + "]" * 100_000], "too deep"),
    ],
)
def test_what_cannot_be_sent_is_a_wrong_command_line(cli, arguments, words):
    done = cli("publish", "session/a", *arguments, url="http://127.0.0.1:1")
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("option", ["--stdin", "--ndjson"])
def test_a_standard_input_that_is_closed_is_one_sentence(option):
    done = redirected("<&-", "publish", "session/a", option, url="http://127.0.0.1:1")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("tidegate: standard input is closed")
    assert done.stderr.count("\n") == 1


def test_a_standard_input_that_cannot_be_read_is_one_sentence(served, session_id):
    arguments = ["publish", f"session/{session_id}", "--stdin"]
    done = redirected("0>/dev/null", *arguments, url=served.url)
    assert done.returncode == 1
    assert done.stderr == (
        "tidegate: standard input cannot be read: Bad file descriptor; nothing was published\n"
    )


def test_an_id_that_cannot_be_written_is_one_sentence(served, session_id):
    arguments = ["publish", f"session/{session_id}", "t"]
    done = redirected(">/dev/full", *arguments, url=served.url)
    assert (done.returncode, done.stderr) == (
        1,
        "tidegate: stdout cannot be written: No space left on device\n",
    )
    assert served.pairs(session_id) == [("t", None)]


def test_a_closed_stdout_or_a_full_stderr_changes_nothing(served, session_id):
    arguments = ["publish", f"session/{session_id}"]
    done = redirected(">&-", *arguments, "t", url=served.url)
    assert (done.returncode, done.stderr) == (0, "")
    # It has something to say there: that the line was plain.
    done = redirected("2>/dev/full", *arguments, "--stdin", url=served.url, stdin=b"a\n")
    assert (done.returncode, done.stdout) == (0, "2\n")


def test_a_type_that_the_server_refuses_comes_back_with_its_sentence(cli, served, session_id):
    done = cli("publish", f"session/{session_id}", "open", url=served.url)
    assert done.returncode == 1
    assert "choose another type" in done.stderr
    assert done.stdout == ""


def test_a_session_is_made_unless_told_not_to(cli, served, session_id):
    done = cli("publish", f"session/{session_id}", "a", "--no-create", url=served.url)
    assert done.returncode == 1
    assert "session_not_found" in done.stderr
    assert cli("publish", f"session/{session_id}", "a", url=served.url).returncode == 0


def test_a_server_that_is_not_there_is_one_sentence(cli):
    done = cli("publish", "session/a", "x", "--patience", "0.1", url=nowhere())
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("tidegate: no server at http://127.0.0.1:")


def test_without_patience_it_is_tried_once(cli, served, session_id):
    arguments = ["publish", f"session/{session_id}", "x", "--patience", "0"]
    assert cli(*arguments, url=served.url).stdout == "1\n"
    done = cli(*arguments, url=nowhere())
    assert done.returncode == 1
    assert done.stderr.startswith("tidegate: no server at http://127.0.0.1:")


@pytest.mark.parametrize(
    "arguments", [["session/a"], ["session/a", "x", "--stdin"], ["session/a", "x", "--ndjson"]]
)
def test_a_type_or_standard_input_and_not_both(cli, arguments):
    assert cli("publish", *arguments).returncode == 2


def test_lines_and_events_of_standard_input(cli, served, session_id):
    lines = b'plain\n{"type":"note","data":1}\n{"no":"type"}\nlast without an end'
    done = cli("publish", f"session/{session_id}", "--stdin", stdin=lines, url=served.url)
    assert (done.returncode, done.stdout) == (0, "4\n")
    assert done.stderr == "4 published, 3 of them plain lines, as type 'message'\n"
    assert served.pairs(session_id) == [
        ("message", "plain"),
        ("note", 1),
        ("message", '{"no":"type"}'),
        ("message", "last without an end"),
    ]


def test_a_line_is_published_when_it_is_typed(served, session_id):
    with process("publish", f"session/{session_id}", "--stdin", url=served.url) as run:
        for number in (1, 2, 3):
            run.stdin.write(b"line %d\n" % number)
            run.stdin.flush()
            wait_until(lambda n=number: len(served.pairs(session_id)) == n)
        assert end_of(run)[0] == 0
        assert run.stdout.read() == b"3\n"


def test_empty_input_publishes_nothing(cli, served, session_id):
    done = cli("publish", f"session/{session_id}", "--stdin", url=served.url)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert served.pairs(session_id) == []


def test_more_than_one_batch_keeps_its_order(cli, served, session_id):
    lines = b"".join(b'{"type":"n","data":%d}\n' % number for number in range(3000))
    done = cli("publish", f"session/{session_id}", "--ndjson", stdin=lines, url=served.url)
    assert (done.returncode, done.stdout) == (0, "3000\n")
    assert [data for _, data in served.pairs(session_id)] == list(range(3000))


def test_large_lines_go_in_requests_that_the_server_takes(cli, served, session_id):
    lines = b"".join(b"x" * 300_000 + b"%d\n" % number for number in range(8))
    done = cli("publish", f"session/{session_id}", "--stdin", stdin=lines, url=served.url)
    assert done.returncode == 0
    assert [data[-1] for _, data in served.pairs(session_id)] == list("01234567")


def test_a_malformed_line_is_named_and_nothing_is_lost_silently(cli, served, session_id):
    lines = b'{"type":"a"}\n\n{"type":"b"}\nnope\n{"type":"c"}\n'
    done = cli("publish", f"session/{session_id}", "--ndjson", stdin=lines, url=served.url)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("tidegate: line 4 is not JSON: ")
    assert done.stderr.endswith(
        "; before it 2 events were published, up to id 2; nothing after it\n"
    )
    assert served.pairs(session_id) == [("a", None), ("b", None)]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b'{"type":"x","data":"\\ud800"}', "line 3 has half a surrogate pair in it"),
        (b'{"type":"x","meta":{"\\udc00":1}}', "line 3 has half a surrogate pair in it"),
        (b'{"type":"\\ud83d"}', "line 3 has half a surrogate pair in it"),
        (b'{"type":"x","data":1e400}', "line 3 is not JSON: a number is out of range"),
    ],
)
def test_a_line_that_cannot_be_sent_is_named_or_is_text(cli, served, session_id, line, words):
    lines = b'{"type":"a"}\n{"type":"b"}\n' + line + b'\n{"type":"c"}\n'
    arguments = ["publish", f"session/{session_id}"]
    done = cli(*arguments, "--ndjson", stdin=lines, url=served.url)
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr
    assert done.stderr.endswith("2 events were published, up to id 2; nothing after it\n")
    done = cli(*arguments, "--stdin", stdin=lines, url=served.url)
    assert (done.returncode, done.stdout) == (0, "6\n")
    assert served.pairs(session_id)[4] == ("message", line.decode())


def test_a_line_that_the_server_refuses_is_found_in_its_batch(cli, served, session_id):
    lines = b'{"type":"a"}\nplain\n{"type":"open"}\n{"type":"c"}\n'
    done = cli("publish", f"session/{session_id}", "--stdin", stdin=lines, url=served.url)
    assert done.returncode == 1
    assert done.stderr.startswith("tidegate: line 3: the server refused the publish with 400")
    assert done.stderr.endswith(
        "; before it 2 events were published, up to id 2; nothing after it\n"
    )
    assert served.pairs(session_id) == [("a", None), ("message", "plain")]


def test_a_first_line_that_is_wrong_says_that_nothing_was_published(cli, served, session_id):
    done = cli("publish", f"session/{session_id}", "--ndjson", stdin=b"[]\n", url=served.url)
    assert done.returncode == 2
    assert done.stderr == "tidegate: line 1 is not a JSON object; nothing was published\n"


def test_a_refusal_that_is_not_about_the_events_names_no_line(cli, served, session_id):
    arguments = ["publish", f"session/{session_id}", "--stdin", "--no-create"]
    done = cli(*arguments, stdin=b"a\nb\n", url=served.url)
    assert done.returncode == 1
    assert done.stderr.startswith("tidegate: the server refused the publish with 404")
    assert done.stderr.endswith("; nothing was published\n")


def test_a_server_that_goes_away_ends_it_with_the_lines_that_are_in_doubt(cli):
    arguments = ["publish", "session/a", "--stdin", "--patience", "0.1"]
    done = cli(*arguments, stdin=b"a\nb\n", url=nowhere())
    assert done.returncode == 1
    assert done.stderr.startswith("tidegate: lines 1 to 2: ")
    done = cli(*arguments, stdin=b"a", url=nowhere())
    assert done.stderr.startswith("tidegate: line 1: ")


# -- channels ------------------------------------------------------------------------------


def test_an_event_of_a_channel_and_its_position(cli, served, channel):
    done = cli("publish", channel, "note", '{"a":[1,null]}', url=served.url)
    assert (done.returncode, done.stderr) == (0, "")
    head = served.call_gateway(lambda gateway: gateway.channel(channel))
    assert done.stdout == f"{head.position}\n"
    done = cli("publish", channel, "bare", "--json", "--tags", "k:v", url=served.url)
    receipt = json.loads(done.stdout)
    assert (receipt["channel"], receipt["duplicate"]) == (channel, False)
    assert receipt["epoch"] == head.epoch
    assert served.channel_pairs(channel) == [("note", {"a": [1, None]}), ("bare", None)]
    assert served.history(channel)[1][1]["tags"] == {"k": "v"}


def test_a_version_that_is_not_newer_and_a_key_that_is_known_publish_nothing(cli, served, channel):
    arguments = ["publish", channel, "n", "--version", "2", "--idempotency-key", "k"]
    first = cli(*arguments, url=served.url)
    assert first.stderr == ""
    again = cli(*arguments, url=served.url)
    assert (again.returncode, again.stdout) == (0, first.stdout)
    assert again.stderr == "not published again: the channel remembers the key\n"
    done = cli("publish", channel, "n", "--version", "2", "--json", url=served.url)
    assert done.stderr == "not published: version 2 is not above the channel's\n"
    assert json.loads(done.stdout)["suppressed"] is True
    assert len(served.history(channel)) == 1


def test_lines_for_a_channel_may_have_tags_versions_and_keys(cli, served, channel):
    lines = (
        b"plain\n"
        b'{"type":"n","tags":{"a":"b"},"version":1}\n'
        b'{"type":"k","idempotencyKey":"k"}\n'
        b'{"type":"k","idempotencyKey":"k"}\n'
        b'{"type":"n","channel":"room:2"}\n'
    )
    done = cli("publish", channel, "--stdin", stdin=lines, url=served.url)
    assert done.returncode == 0
    assert done.stderr == "5 published, 2 of them plain lines, as type 'message'\n"
    assert served.channel_pairs(channel) == [
        ("message", "plain"),
        ("n", None),
        ("k", None),
        ("message", '{"type":"n","channel":"room:2"}'),
    ]


def test_more_than_one_batch_for_a_channel_keeps_its_order(cli, served, channel):
    lines = b"".join(b'{"type":"n","data":%d}\n' % number for number in range(900))
    done = cli("publish", channel, "--ndjson", stdin=lines, url=served.url)
    assert done.returncode == 0
    assert [data for _, data in served.channel_pairs(channel)] == list(range(900))


def test_large_lines_for_a_channel_go_in_requests_that_the_server_takes(cli, served, channel):
    lines = b"".join(b"x" * 300_000 + b"%d\n" % number for number in range(8))
    assert cli("publish", channel, "--stdin", stdin=lines, url=served.url).returncode == 0
    assert [data[-1] for _, data in served.channel_pairs(channel)] == list("01234567")


def test_a_line_that_the_gateway_refuses_is_found_in_its_batch(cli, served, channel):
    lines = b'{"type":"a"}\nplain\n{"type":"open"}\n{"type":"c"}\n'
    done = cli("publish", channel, "--stdin", stdin=lines, url=served.url)
    assert done.returncode == 1
    assert done.stderr.startswith("tidegate: line 3: the server refused the publish with 400")
    assert "before it 2 events were published, up to id 0" in done.stderr
    assert served.channel_pairs(channel) == [("a", None), ("message", "plain")]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_burst_is_published_once_though_the_server_dies_again_and_again(
    channel, tmp_path, number
):
    lines = 900  # less than the history keeps
    with socket.create_server(("127.0.0.1", 0)) as place:
        port = place.getsockname()[1]
    serve = partial(serve_process, "--dev", "--data", tmp_path, port=port)
    url = f"http://127.0.0.1:{port}"
    history = []
    epochs = set()

    def published():
        answer = httpx.get(
            f"{url}/v1/channels/{channel}/history", params={"limit": 1000}, trust_env=False
        ).json()
        history[:] = [event["data"] for event in answer["events"]]
        epochs.add(answer["epoch"])
        return len(history)

    with process("publish", channel, "--stdin", "--patience", "120", url=url) as run:
        for part in range(3):
            with serve() as server:
                feeder = threading.Thread(
                    target=feed, args=(run.stdin, range(part * 300, part * 300 + 300))
                )
                feeder.start()
                wait_until(lambda n=part * 300 + 100: published() >= n)
                server.process.send_signal(number)
                feeder.join(SECONDS)
                assert server.process.wait(20) == (-9 if number == signal.SIGKILL else 0)
        with serve():
            assert end_of(run)[0] == 0
            assert published() == lines
    assert history == [str(number) for number in range(lines)]
    assert len(epochs) == 1


def feed(pipe, numbers):
    """Write lines, some now and then, so that they go in many requests."""
    for number in numbers:
        pipe.write(b"%d\n" % number)
        if number % 3 == 0:
            pipe.flush()
    pipe.flush()
