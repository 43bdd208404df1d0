"""The shared arguments end a wrong command line with status 2."""

import pytest

from tidegate.cli.console import CommandFailed
from tidegate.cli.options import base_url, session_id


def test_what_is_right_comes_out():
    assert session_id("session/build") == "build"
    assert base_url("http://localhost:8765/") == "http://localhost:8765"


@pytest.mark.parametrize(("check", "text"), [(session_id, "room:1"), (base_url, "localhost")])
def test_what_is_wrong_ends_the_command(check, text):
    with pytest.raises(CommandFailed) as failure:
        check(text)
    assert failure.value.exit_code == 2
