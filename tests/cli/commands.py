"""The command line as a user runs it: in a process of its own."""

import os
import subprocess
import sys
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from tests import servers

COMMAND = [sys.executable, "-m", "tidegate"]

SECONDS = 50
"""A program takes long to start on a machine that has much to do."""

wait_until = partial(servers.wait_until, seconds=SECONDS)
eventually = partial(servers.eventually, seconds=SECONDS)


def environment(url=None, **more):
    names = {
        **os.environ,
        "PYTHONPATH": str(servers.SOURCE),
        "PYTHONWARNINGS": "error",
        # What another test run's coverage measures is none of the command's business.
        "COVERAGE_PROCESS_START": "",
    }
    if url is not None:
        names["TIDEGATE_URL"] = str(url)
    return {**names, **more}


def tidegate(*arguments, url=None, stdin=b"", **env):
    """Run the command line to its end and return what it did, in text."""
    done = subprocess.run(
        [*COMMAND, *map(str, arguments)],
        input=stdin,
        capture_output=True,
        timeout=SECONDS,
        check=False,
        env=environment(url, **env),
    )
    done.stdout, done.stderr = done.stdout.decode(), done.stderr.decode()
    assert "Traceback" not in done.stderr, done.stderr
    return done


def redirected(redirections, *arguments, url=None, stdin=b""):
    """Run the command line to its end from a shell, with redirections as the shell writes them."""
    done = subprocess.run(
        ["/bin/sh", "-c", f'exec "$@" {redirections}', "sh", *COMMAND, *map(str, arguments)],
        input=stdin,
        capture_output=True,
        timeout=SECONDS,
        check=False,
        env=environment(url),
    )
    done.stdout, done.stderr = done.stdout.decode(), done.stderr.decode()
    assert "Traceback" not in done.stderr, done.stderr
    return done


@contextmanager
def process(*arguments, url=None, **env):
    """Run the command line until the block ends; its pipes are the test's."""
    popen = subprocess.Popen(
        [*COMMAND, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(url, **env),
    )
    try:
        yield popen
    finally:
        if popen.poll() is None:
            popen.kill()
            popen.wait(SECONDS)
        for pipe in (popen.stdin, popen.stdout, popen.stderr):
            pipe.close()


def end_of(popen):
    """Wait for the end of a process; return its status and what it wrote to stderr."""
    popen.stdin.close()
    status = popen.wait(SECONDS)
    stderr = popen.stderr.read().decode()
    assert "Traceback" not in stderr, stderr
    return status, stderr


def gone(pid):
    """Tell whether a process has ended, waited for or not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
