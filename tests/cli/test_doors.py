"""Each target has its door."""

import pytest

from tidegate.cli.channel import ChannelDoor
from tidegate.cli.doors import door_to
from tidegate.cli.names import ChannelTarget, SessionTarget
from tidegate.cli.session import SessionDoor


@pytest.mark.parametrize(
    ("target", "kind"), [(ChannelTarget("room:1"), ChannelDoor), (SessionTarget("a"), SessionDoor)]
)
def test_a_target_has_its_door(target, kind):
    assert isinstance(door_to(target, "http://localhost", token="t", client_id="me"), kind)
