"""Styles only where they are wanted, and a stdout that nobody reads is no error."""

import asyncio
import io
import os
import pty
import subprocess
import sys

import pytest

from tests.cli.commands import environment, redirected
from tidegate.cli.console import (
    CommandFailed,
    bold,
    complain,
    dim,
    say,
    styled,
    when_stdout_is_gone,
)


@pytest.fixture
def terminal():
    ours, theirs = pty.openpty()
    with open(theirs, "w") as stream:  # noqa: PTH123 - a descriptor, not a path
        yield stream
    os.close(ours)


def test_a_pipe_is_not_styled():
    assert not styled(io.StringIO())


def test_a_terminal_is(terminal, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    assert styled(terminal)


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_unless_its_user_does_not_want_it(terminal, monkeypatch, name, value):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv(name, value)
    assert not styled(terminal)


def test_styles_go_around_the_text_or_not_at_all():
    assert dim("a", True) == "\x1b[2ma\x1b[0m"
    assert bold("a", True) == "\x1b[1ma\x1b[0m"
    assert dim("a", False) == bold("a", False) == "a"


def test_complaints_go_to_stderr(capsys):
    complain("it is broken")
    assert capsys.readouterr() == ("", "tidegate: it is broken\n")


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("\x1b]0;title\x07\x1b[2J", "\\u001b]0;title\\u0007\\u001b[2J"),
        ("\x9b31m\x7f", "\\u009b31m\\u007f"),
        ("one\r\ntwo\u2028three", "one  two\\u2028three"),
        ("txt.\u202eexe", "txt.\\u202eexe"),
        ("\udc1b", "\\udc1b"),
    ],
)
def test_nothing_in_a_message_commands_the_terminal(capsys, raw, shown):
    complain(raw)
    say(raw)
    say(raw, dimmed=True)
    assert capsys.readouterr().err == f"tidegate: {shown}\n{shown}\n\x1b[2m{shown}\x1b[0m\n"


@pytest.mark.parametrize(
    ("redirections", "status", "stderr"),
    [
        (">/dev/full", 1, "tidegate: No space left on device\n"),
        (">/dev/full 2>/dev/full", 1, ""),
        (">&-", 0, ""),
        ("<&- >&- 2>&-", 0, ""),
    ],
)
@pytest.mark.parametrize("option", ["--version", "--help"])
def test_help_that_cannot_be_written(option, redirections, status, stderr):
    done = redirected(redirections, option)
    assert (done.returncode, done.stdout, done.stderr) == (status, "", stderr)


@pytest.mark.parametrize("redirections", ["2>/dev/full", "2>&-"])
def test_a_complaint_that_cannot_be_written_changes_no_status(redirections):
    done = redirected(redirections, "tail")
    assert (done.returncode, done.stdout, done.stderr) == (2, "", "")


def test_a_failure_has_a_status():
    assert CommandFailed("x").exit_code == 1
    assert CommandFailed("x", 2).exit_code == 2


def test_a_stderr_that_nobody_reads_is_no_error():
    process = subprocess.Popen(
        [sys.executable, "-c", "from tidegate.cli.console import complain; complain('x')"],
        stderr=subprocess.PIPE,
        env=environment(),
    )
    process.stderr.close()
    assert process.wait(30) == 0


class Stdout(io.TextIOWrapper):
    """The writing end of a pipe in place of stdout."""

    def __init__(self):
        self.reader, writer = os.pipe()
        super().__init__(os.fdopen(writer, "wb"))


@pytest.fixture
def stdout():
    stream = Stdout()
    yield stream
    stream.close()


async def test_a_reader_that_goes_away_cancels_the_task_that_writes_to_it(stdout, monkeypatch):
    monkeypatch.setattr(sys, "stdout", stdout)
    asyncio.get_running_loop().call_soon(os.close, stdout.reader)
    with when_stdout_is_gone() as gone:
        with pytest.raises(asyncio.CancelledError):
            async with asyncio.timeout(20):
                await asyncio.Event().wait()
        assert gone.is_set()
    asyncio.current_task().uncancel()


async def test_a_reader_that_stays_changes_nothing(stdout, monkeypatch):
    monkeypatch.setattr(sys, "stdout", stdout)
    with when_stdout_is_gone() as gone:
        stdout.write("a line\n")
        stdout.flush()
        await asyncio.sleep(0)
    assert not gone.is_set()
    assert os.read(stdout.reader, 100) == b"a line\n"
    os.close(stdout.reader)


async def test_a_stdout_that_is_no_pipe_is_not_watched(monkeypatch):
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    with when_stdout_is_gone() as gone:
        await asyncio.sleep(0)
    assert not gone.is_set()
