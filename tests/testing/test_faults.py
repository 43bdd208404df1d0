"""What a store can be hurt with is what its class defines."""

import pytest

from tidegate.testing import BrokerFaults


class Some(BrokerFaults):
    async def kill(self):
        """Kill."""

    async def restart(self):
        """Restart."""


def test_it_can_do_what_it_defines():
    assert Some().can("kill")
    assert Some().can("kill", "restart")
    assert not Some().can("kill", "freeze")
    assert not BrokerFaults().can("kill")
    assert not BrokerFaults.offline


@pytest.mark.parametrize("name", ["kill", "restart", "freeze", "thaw", "checkpoint", "lose_tail"])
async def test_what_is_not_defined_is_not_done(name):
    with pytest.raises(NotImplementedError):
        await getattr(BrokerFaults(), name)()


async def test_channels_are_not_touched_either():
    with pytest.raises(NotImplementedError):
        await BrokerFaults().trim("a", 1)
    with pytest.raises(NotImplementedError):
        await BrokerFaults().forget("a")
