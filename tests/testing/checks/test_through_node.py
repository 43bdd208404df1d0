"""Each check through a node catches brokers that are wrong, and lets a right one pass."""

import msgspec
import pytest

from tests.testing.planted import MemoryBroker, failures
from tidegate.gateway.brokers.base import BrokerCapabilities
from tidegate.gateway.brokers.sqlite import SqliteBroker
from tidegate.testing.checks import through_node

replace = msgspec.structs.replace


class HasHoles(MemoryBroker):
    """An event in ten is told to nodes, and is not in the history."""

    async def history(self, channel, **options):
        page = await super().history(channel, **options)
        kept = [event for event in page.publications if sum(event.position.encode()) % 10]
        return replace(page, publications=kept)


class LinksAcrossEpochs(MemoryBroker):
    async def remove_history(self, channel):
        (head,) = (await self.heads([channel])).values()
        await super().remove_history(channel)
        found = self._store._channels[channel]
        found.epoch, found.position = head.epoch, head.position
        return (await self.heads([channel]))[channel]


class LinksBehindATrim(MemoryBroker):
    """The oldest event that is left names what came before all that was dropped."""

    async def history(self, channel, **options):
        page = await super().history(channel, **options)
        after = options.get("after")
        if not page.publications or not after:
            return page
        first = replace(page.publications[0], prev=after)
        return replace(page, publications=[first, *page.publications[1:]])


class ClaimsToBeDurable(MemoryBroker):
    capabilities = BrokerCapabilities(durable=True, shared=False)


@pytest.mark.parametrize(
    ("broker", "check"),
    [
        (HasHoles, "bad_messages_are_healed"),
        (HasHoles, "clients_resume_where_they_stopped"),
        (LinksAcrossEpochs, "streams_are_told_of_a_new_epoch"),
        (LinksBehindATrim, "streams_are_told_of_a_trimmed_history"),
        (ClaimsToBeDurable, "streams_go_on_after_a_restart"),
    ],
)
async def test_a_wrong_broker_is_caught(broker, check):
    assert await failures(broker, check, patience=2.0) == {check}


@pytest.mark.parametrize("check", [check.__name__ for check in through_node.CHECKS])
async def test_a_right_broker_passes(check):
    assert await failures(MemoryBroker, check, patience=15.0) == set()


async def test_a_durable_broker_passes(tmp_path):
    check = "streams_go_on_after_a_restart"
    file = tmp_path / "history.db"
    assert await failures(lambda: SqliteBroker(file), check, patience=15.0) == set()
