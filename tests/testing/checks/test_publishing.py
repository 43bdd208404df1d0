"""Each check of publishing catches brokers that are wrong, and lets a right one pass."""

import asyncio

import msgspec
import pytest

from tests.testing.planted import MemoryBroker, failures
from tidegate.gateway.brokers.base import PublishError
from tidegate.testing.checks import publishing

replace = msgspec.structs.replace


class ForgetsPrev(MemoryBroker):
    async def publish(self, batch):
        return [replace(result, prev="") for result in await super().publish(batch)]


class ReversesBatches(MemoryBroker):
    async def publish(self, batch):
        return (await super().publish(batch[::-1]))[::-1]


class LosesResults(MemoryBroker):
    async def publish(self, batch):
        return (await super().publish(batch))[:1]


class HasOneChain(MemoryBroker):
    async def publish(self, batch):
        results = await super().publish([replace(item, channel="one") for item in batch])
        return [
            replace(result, channel=item.channel)
            for item, result in zip(batch, results, strict=True)
        ]

    async def history(self, channel, **options):
        return await super().history("one", **options)


class RepeatsRandomParts(MemoryBroker):
    def __init__(self):
        super().__init__(random_bytes=bytes)


class LosesTags(MemoryBroker):
    async def publish(self, batch):
        return await super().publish([replace(item, tags=None) for item in batch])


class RewritesPayloads(MemoryBroker):
    async def publish(self, batch):
        return await super().publish(
            [replace(item, payload=item.payload.replace(b"\\u0000", b"\0")) for item in batch]
        )


class LetsOneBadItemFailAll(MemoryBroker):
    async def publish(self, batch):
        try:
            for item in batch:
                msgspec.json.encode(item)
        except UnicodeEncodeError as error:
            return [
                PublishError(channel=item.channel, code="broker_error", error=str(error))
                for item in batch
            ]
        return await super().publish(batch)


class RaisesForABadItem(MemoryBroker):
    async def publish(self, batch):
        for item in batch:
            item.type.encode()
        return await super().publish(batch)


class Overtakes(MemoryBroker):
    async def publish(self, batch):
        await asyncio.sleep(0.001 * (len(batch) % 2))
        return await super().publish(batch)


class LosesCancelledOnes(MemoryBroker):
    """Moves the head first, and stores the event a moment later."""

    async def publish(self, batch):
        none = [replace(item, policy=replace(item.policy, size=0)) for item in batch]
        await super().publish(none)
        await asyncio.sleep(0)
        return await super().publish(batch)


class ForgetsKeys(MemoryBroker):
    async def publish(self, batch):
        return await super().publish([replace(item, idempotency_key=None) for item in batch])


class SharesKeys(MemoryBroker):
    def __init__(self):
        super().__init__()
        self.known = {}

    async def publish(self, batch):
        results = []
        for item in batch:
            key = item.idempotency_key
            if key in self.known:
                results.append(replace(self.known[key], channel=item.channel, duplicate=True))
                continue
            results += await super().publish([item])
            if key is not None:
                self.known[key] = results[-1]
        return results


class ForgetsVersions(MemoryBroker):
    async def publish(self, batch):
        return await super().publish([replace(item, version=None) for item in batch])


@pytest.mark.parametrize(
    ("broker", "check"),
    [
        (LosesResults, "each_request_has_its_result"),
        (ForgetsPrev, "prev_names_the_event_before"),
        (ReversesBatches, "prev_names_the_event_before"),
        (HasOneChain, "each_channel_has_a_chain_of_its_own"),
        (RepeatsRandomParts, "positions_have_a_random_part"),
        (LosesTags, "what_was_published_is_stored_as_it_was"),
        (RewritesPayloads, "what_was_published_is_stored_as_it_was"),
        (LetsOneBadItemFailAll, "one_bad_item_does_not_touch_the_others"),
        (RaisesForABadItem, "one_bad_item_does_not_touch_the_others"),
        (Overtakes, "concurrent_publishes_keep_the_order_of_the_calls"),
        (LosesCancelledOnes, "cancelled_publishes_leave_a_chain"),
        (ForgetsKeys, "the_same_key_gives_the_first_result"),
        (SharesKeys, "the_same_key_gives_the_first_result"),
        (ForgetsVersions, "versions_only_go_up"),
    ],
)
async def test_a_wrong_broker_is_caught(broker, check):
    assert await failures(broker, check) == {check}


@pytest.mark.parametrize("check", [check.__name__ for check in publishing.CHECKS])
async def test_a_right_broker_passes(check):
    assert await failures(MemoryBroker, check, patience=10.0) == set()
