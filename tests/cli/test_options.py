"""The shared arguments end a wrong command line with status 2."""

import pytest

from tidegate.cli.console import CommandFailed
from tidegate.cli.names import ChannelTarget, SessionTarget
from tidegate.cli.options import base_url, tags_of, target_of


def test_what_is_right_comes_out():
    assert target_of("session/build") == SessionTarget("build")
    assert target_of("room:1") == ChannelTarget("room:1")
    assert tags_of(["a:b", "c:", "d:e:f"]) == {"a": "b", "c": "", "d": "e:f"}
    assert base_url("http://localhost:8765/") == "http://localhost:8765"


@pytest.mark.parametrize(
    ("check", "text"),
    [
        (target_of, "room/1"),
        (base_url, "localhost"),
        (tags_of, ["a"]),
        (tags_of, [":b"]),
        (tags_of, ["a:1", "a:2"]),
    ],
)
def test_what_is_wrong_ends_the_command(check, text):
    with pytest.raises(CommandFailed) as failure:
        check(text)
    assert failure.value.exit_code == 2
