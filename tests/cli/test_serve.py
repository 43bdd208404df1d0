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
        (["--event-ring-size", "-1"], 2, "'--event-ring-size'"),
    ],
)
def test_settings_that_make_no_sense_are_one_sentence(cli, options, status, words):
    done = cli("serve", *options)
    assert (done.returncode, done.stdout) == (status, "")
    assert words in done.stderr
    assert done.stderr.count("\n") == 1


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
