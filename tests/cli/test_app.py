"""The program as a whole: its help, its errors, its exit statuses."""

import subprocess
import sys

import pytest

from tests.cli.commands import environment, tidegate
from tidegate.cli.app import run


def one_sentence(stderr):
    assert stderr.startswith("tidegate: ")
    assert stderr.count("\n") == 1
    return stderr.removeprefix("tidegate: ").strip()


def test_without_a_command_it_shows_its_help_and_fails():
    done = tidegate()
    assert done.returncode == 2
    for command in ("serve", "pipe", "publish", "tail"):
        assert command in done.stdout


@pytest.mark.parametrize("command", ["serve", "pipe", "publish", "tail"])
def test_every_command_has_help(command, capfd):
    assert run([command, "--help"]) == 0
    shown = capfd.readouterr().out
    assert f"tidegate {command}" in shown
    assert "Raises:" not in shown


def test_the_version(capfd):
    assert run(["--version"]) == 0
    assert capfd.readouterr().out.startswith("tidegate 0.")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["tial"], "No such command 'tial'. Did you mean 'tail'? (see: tidegate --help)"),
        (["tail"], "Missing argument 'TARGET...'. (see: tidegate tail --help)"),
        (["tail", "session/a", "--frob"], "No such option: --frob (see: tidegate tail --help)"),
        (["pipe", "session/a"], "Missing argument 'COMMAND'. (see: tidegate pipe --help)"),
        (["tail", "session/a", "--url", "nowhere"], "'nowhere' is not the URL of a server"),
        (["tail", "room/1"], "'room/1' is no name"),
        (["tail", "room:1", "session/a"], "follow one session, or one or several channels"),
        (["tail", "session/a", "session/b"], "follow one session, or one or several channels"),
        (["tail", *(f"r:{n}" for n in range(101))], "at most 100 channels"),
        (["tail", "room:1", "--create"], "--create is for a session"),
        (["tail", "room:1", "--tail", "0"], "'--tail'"),
        (["tail", "room:1", "--tail", "1", "--from-beginning"], "exclude each other"),
        (["tail", "room:1", "--tail", "1", "--last-event-id", "x"], "exclude each other"),
        (["tail", "room:1", "--last-event-id", "a b"], "a cursor is 1 to "),
        (["tail", "room:1", "--tags", "a"], "--tags 'a' is no KEY:VALUE"),
        (["tail", "session/a", "--tail", "1"], "--tail and --tags are for channels"),
        (["tail", "session/a", "--tags", "a:b"], "--tail and --tags are for channels"),
        (["publish", "session/a", "t", "--version", "1"], "are for channels"),
        (["publish", "session/a", "t", "--tags", "a:b"], "are for channels"),
        (["publish", "session/a", "t", "--idempotency-key", "k"], "are for channels"),
        (["publish", "room:1", "--stdin", "--version", "1"], "stand in the lines"),
        (["publish", "room:1", "t", "--no-create"], "--no-create is for sessions"),
        (["publish", "room:1"], "name the event's TYPE"),
        (["publish", "session/a b", "x"], "'session/a b' names no session"),
        (
            ["tail", "session/a", "--token", "a b"],
            "a token is one or more visible ASCII characters",
        ),
        (["pipe", "session/a", "--token", "", "--", "true"], "a token is"),
        (["pipe", "session/a", "--frob", "--", "true"], "No such option: --frob"),
        (["tail", "http://h:1/session/a"], "write: --url http://h:1 session/a"),
        (["tail", "session/a", "--last-event-id", "zz"], "NUMBER or EPOCH-NUMBER, not 'zz'"),
    ],
)
def test_a_wrong_command_line_is_one_sentence_and_status_2(arguments, sentence, capfd):
    assert run(arguments) == 2
    captured = capfd.readouterr()
    assert captured.out == ""
    assert sentence in one_sentence(captured.err)


@pytest.mark.parametrize("package", ["typer", "rich", "httpx"])
def test_a_missing_package_of_the_extra_is_named_with_its_pip_line(package):
    source = f"import sys; sys.modules[{package!r}] = None; from tidegate.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", source, "serve"], capture_output=True, check=False, env=environment()
    )
    assert done.returncode == 1
    assert done.stderr.decode() == (
        f"tidegate: {package} is not installed; run: pip install 'tidegate[cli]'\n"
    )


def test_a_package_that_is_missing_for_another_reason_is_no_missing_extra():
    source = "import sys; sys.modules['msgspec'] = None; from tidegate.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, check=False, env=environment()
    )
    assert b"ModuleNotFoundError" in done.stderr


INTERRUPTED = """
import runpy, signal, sys
class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == sys.argv[1]:
            signal.raise_signal(signal.SIGINT)
sys.meta_path.insert(0, Interrupting())
runpy.run_module("tidegate", run_name="__main__")
"""


@pytest.mark.parametrize("module", ["tidegate.cli", "typer", "rich.console", "httpx"])
def test_ctrl_c_while_a_module_is_imported_ends_it_with_130_and_without_a_word(module):
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, module],
        capture_output=True,
        check=False,
        env=environment(),
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


def test_the_installed_script_is_the_same_program():
    done = subprocess.run(
        [sys.executable, "-m", "tidegate", "--version"],
        capture_output=True,
        check=False,
        env=environment(),
    )
    assert done.stdout.startswith(b"tidegate 0.")


def test_help_that_nobody_reads_ends_quietly():
    process = subprocess.Popen(
        [sys.executable, "-m", "tidegate", "--help"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    )
    process.stdout.close()
    stderr = process.stderr.read()
    process.stderr.close()
    assert process.wait(30) != 0
    assert stderr == b""
