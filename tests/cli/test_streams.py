"""Closed standard streams: nothing else takes their numbers, and they are as the null device."""

import subprocess
import sys

import pytest

from tests.cli.commands import environment

REPORT = """
import os, sys
from tidegate.cli.streams import mend_streams
mend_streams()
next_one = os.open("/", os.O_RDONLY)
print("lost")
print("lost", file=sys.stderr)
with open(sys.argv[1], "w") as file:
    null = os.stat(os.devnull)
    nulls = [n for n in (0, 1, 2) if os.path.samestat(os.fstat(n), null)]
    print(next_one, nulls, sys.stdin is None, file=file)
"""


@pytest.mark.parametrize(
    ("redirections", "report"),
    [
        ("", "3 [] False"),
        ("<&-", "3 [0] True"),
        (">&-", "3 [1] False"),
        ("2>&-", "3 [2] False"),
        ("<&- 2>&-", "3 [0, 2] True"),
        ("<&- >&- 2>&-", "3 [0, 1, 2] True"),
    ],
)
def test_what_is_closed_becomes_the_null_device(tmp_path, redirections, report):
    path = tmp_path / "report"
    command = ["/bin/sh", "-c", f'exec "$@" {redirections}', "sh"]
    done = subprocess.run(
        [*command, sys.executable, "-c", REPORT, str(path)],
        input=b"",
        capture_output=True,
        check=False,
        env=environment(),
    )
    assert done.returncode == 0, done.stderr
    assert path.read_text().strip() == report
    assert done.stdout == (b"" if ">&-" in redirections.split() else b"lost\n")
    assert done.stderr == (b"" if "2>&-" in redirections else b"lost\n")
