"""``tidegate serve``: it serves, and says what is wrong in one sentence."""

import subprocess
import sys

import httpx
import pytest

from tests.cli.commands import environment, redirected
from tests.servers import serve_process

pytestmark = [pytest.mark.server, pytest.mark.timeout(180)]


def test_it_serves_what_its_options_say_and_ends_with_status_0():
    with serve_process("--event-ring-size", "7", env={"TIDEGATE_TOKEN": "secret"}) as url:
        assert httpx.get(f"{url}/capabilities", trust_env=False).status_code == 401
        headers = {"Authorization": "Bearer secret"}
        answer = httpx.get(f"{url}/capabilities", headers=headers, trust_env=False)
        assert answer.json()["limits"]["ringSize"] == 7
        assert url.terminate() == 0
        assert url.output.startswith(f"Tidegate serves {url}\n")
        assert "Traceback" not in url.output


def test_a_ring_that_is_too_large_is_made_smaller_and_that_is_said():
    with serve_process("--event-ring-size", "2000000") as url:
        answer = httpx.get(f"{url}/capabilities", trust_env=False)
        assert answer.json()["limits"]["ringSize"] == 1_000_000
        url.terminate()
        [warning] = [line for line in url.lines if "--event-ring-size" in line]
        assert warning.startswith("WARNING ")
        assert "2000000 is more than the maximum; 1000000 is used" in warning


def test_an_address_that_cannot_be_told_is_one_sentence():
    done = redirected(">/dev/full", "serve", "--port", "0")
    assert (done.returncode, done.stderr) == (
        1,
        "tidegate: stdout cannot be written: No space left on device\n",
    )


def test_origins_may_be_several():
    origins = ["https://a.example", "https://b.example"]
    with serve_process("--allow-origin", origins[0], "--allow-origin", origins[1]) as url:
        for origin in origins:
            answer = httpx.get(f"{url}/healthz", headers={"Origin": origin}, trust_env=False)
            assert answer.headers["access-control-allow-origin"] == origin


def test_a_port_that_is_taken_is_one_sentence(cli):
    with serve_process() as url:
        done = cli("serve", "--port", url.address[1])
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"tidegate: port {url.address[1]} of 127.0.0.1 is in use")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("options", "status", "words"),
    [
        (["--host", "0.0.0.0"], 2, "give a --token"),
        (["--host", "0.0.0.0", "--token", "x", "--dev"], 2, "--dev serves this machine only"),
        (["--allow-origin", "nonsense"], 2, "is no origin"),
        (["--allow-origin", "*"], 2, "give a --token"),
        (["--token", "a b"], 2, "--token must be"),
        (["--host", ""], 2, "--host is empty"),
        (["--host", "192.0.2.1", "--token", "x"], 1, "cannot be bound"),
        (["--host", "no.such.host.invalid", "--token", "x"], 1, "is no address of this machine"),
        (["--port", "70000"], 2, "'--port'"),
        (["--broker", "memory:", "--data", "d"], 2, "--broker and --data exclude each other"),
        (["--broker", "redis://h"], 2, "no broker for redis URLs"),
        (["--broker", "http://h"], 2, "a broker's URL is memory: or sqlite:///PATH"),
        (["--broker", "nonsense"], 2, "gateway.broker must be the URL of a broker"),
        (["--data", ""], 2, "gateway.data must be a folder"),
        (["--data", "/proc/x"], 2, "cannot be made"),
        (["--event-ring-size", "-1"], 2, "'--event-ring-size'"),
    ],
)
def test_settings_that_make_no_sense_are_one_sentence(cli, options, status, words):
    done = cli("serve", *options)
    assert (done.returncode, done.stdout) == (status, "")
    assert words in done.stderr
    assert done.stderr.count("\n") == 1


# -- channels and the configuration --------------------------------------------------------


def test_flags_go_before_the_environment_and_that_before_the_file(tmp_path):
    file = tmp_path / "tidegate.toml"
    file.write_text(
        "[server]\nevent_ring_size = 1\nmax_sessions = 1\ndev = true\n"
        '[gateway]\nnode = "of-the-file"\ndata = "history"\n[namespaces.room]\n'
    )
    environ = {
        "TIDEGATE__SERVER__EVENT_RING_SIZE": "2",
        "TIDEGATE__GATEWAY__NODE": "of-the-environment",
    }
    with serve_process("--config", file, "--event-ring-size", "3", env=environ) as url:
        answer = httpx.get(f"{url}/capabilities", trust_env=False)
        assert answer.json()["limits"]["ringSize"] == 3
        with httpx.stream("GET", f"{url}/v1/stream?channel=room:1", trust_env=False) as stream:
            opened = next(line for line in stream.iter_lines() if line.startswith("data: "))
        assert '"node":"of-the-environment"' in opened
        assert httpx.post(f"{url}/session", trust_env=False).status_code == 201
        assert httpx.post(f"{url}/session", trust_env=False).status_code == 429
    # Beside the file, wherever the process was started.
    assert (tmp_path / "history" / "tidegate.sqlite").is_file()


def test_a_broker_of_the_flags_goes_before_a_folder_of_the_file(tmp_path):
    file = tmp_path / "tidegate.toml"
    file.write_text('[server]\ndev = true\n[gateway]\ndata = "history"\n')
    with serve_process("--config", file, "--broker", f"sqlite:///{tmp_path}/other.sqlite"):
        pass
    assert not (tmp_path / "history").exists()
    assert (tmp_path / "other.sqlite").is_file()


def test_namespaces_that_are_configured_are_all_there_are_but_for_development(tmp_path):
    file = tmp_path / "tidegate.toml"
    file.write_text("[namespaces.room]\n")
    event = {"channel": "other:1", "type": "n"}
    for flags, status in ((["--token", "t"], 400), (["--token", "t", "--dev"], 200)):
        with serve_process("--config", file, *flags) as url:
            headers = {"Authorization": "Bearer t"}
            answer = httpx.post(f"{url}/v1/publish", json=event, headers=headers, trust_env=False)
            assert answer.status_code == status


def test_without_token_and_dev_sessions_are_open_and_channels_closed():
    with serve_process() as url:
        assert httpx.post(f"{url}/session", trust_env=False).status_code == 201
        answer = httpx.get(f"{url}/v1/channels", trust_env=False)
        assert (answer.status_code, answer.json()["code"]) == (401, "unauthorized")


def test_a_folder_that_another_process_has_is_one_sentence_and_status_3(cli, tmp_path):
    with serve_process("--data", tmp_path) as url:
        done = cli("serve", "--port", "0", "--data", tmp_path)
    assert (done.returncode, done.stdout) == (3, "")
    assert "is in use by another broker" in done.stderr
    assert f"(process {url.process.pid})" in done.stderr
    assert done.stderr.startswith("tidegate: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("path", "words"), [("data", "cannot be made"), ("data/tidegate.sqlite", "is no SQLite file")]
)
def test_a_folder_that_cannot_be_used_is_one_sentence(cli, tmp_path, path, words):
    file = tmp_path / path
    file.parent.mkdir(exist_ok=True)
    file.write_text("something else")
    done = cli("serve", "--port", "0", "--data", tmp_path / "data")
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr
    assert done.stderr.startswith("tidegate: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("[server]\nprot = 1\n", "there is no key prot; did you mean port?"),
        ('[server]\nport = "x"\n', "server.port must be a whole number from 0 to 65535"),
        ('[server]\nhost = "0.0.0.0"\n', "give a --token"),
        ('[gateway]\nbroker = "nats://h"\n', "no broker for nats URLs"),
        ("[server", "it is no TOML"),
        (None, "there is no such file"),
    ],
)
def test_a_file_that_makes_no_sense_is_one_sentence(cli, tmp_path, content, words):
    file = tmp_path / "tidegate.toml"
    if content is not None:
        file.write_text(content)
    done = cli("serve", "--port", "0", "--config", file)
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_variable_that_is_no_setting_is_one_sentence(cli):
    done = cli("serve", "--port", "0", TIDEGATE__SERVER__PROT="1")
    assert (done.returncode, done.stdout) == (2, "")
    assert "TIDEGATE__SERVER__PROT: there is no key prot" in done.stderr


@pytest.mark.parametrize("package", ["uvicorn", "uvloop", "starlette"])
def test_a_missing_package_of_the_server_is_named_with_its_pip_line(package):
    source = f"import sys; sys.modules[{package!r}] = None; from tidegate.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", source, "serve", "--port", "0"],
        capture_output=True,
        check=False,
        env=environment(),
    )
    assert done.returncode == 1
    assert done.stderr.decode() == (
        f"tidegate: {package} is not installed; run: pip install 'tidegate[server]'\n"
    )
