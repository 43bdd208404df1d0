"""What must hold when it matters: many joins, a stalled reader, bounded memory."""

import asyncio
import random

import pytest

from tidegate.channel import Channel

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


async def test_a_thousand_joins_at_random_cursors_see_no_gap_and_no_repetition():
    rng = random.Random(20_261)
    channel = Channel(ring_size=2_000, max_subscribers=1_000, max_queued=100_000)
    checks = []

    async def follow(cursor):
        subscription = channel.subscribe(last_event_id=cursor, epoch=channel.epoch)
        joined_at, earliest = channel.last_event_id, channel.first_event_id
        seen, resync, completed = [], None, []
        async with subscription:
            async for frame in subscription:
                if frame.id is not None:
                    seen.append(frame.id)
                elif frame.type == "state_resync_required":
                    assert not seen
                    resync = frame.data
                else:
                    assert frame.type == "replay_complete"
                    completed.append(len(seen))
                if len(seen) >= 300 and completed:
                    break
        first = max(cursor + 1, earliest)
        assert seen == list(range(first, first + len(seen)))
        assert (resync is not None) == (cursor + 1 < earliest)
        assert completed == [joined_at + 1 - first]
        checks.append(len(seen))

    tasks = []
    for i in range(100_000):
        if i % 100 == 50:
            head = channel.last_event_id
            cursors = [rng.randint(max(0, head - 2_500), head) for _ in range(1)]
            tasks += [asyncio.create_task(follow(cursor)) for cursor in cursors]
        channel.publish("t", i)
        if i % 7 == 0:
            await asyncio.sleep(0)
    channel.close()
    async with asyncio.timeout(60):
        await asyncio.gather(*tasks)
    assert len(checks) == 1_000
    assert channel.last_event_id == 100_000
    assert channel.statistics().evicted == 0


async def test_a_stalled_consumer_is_bounded_warned_evicted_and_harms_nobody():
    seen = []
    channel = Channel(on_diagnostic=lambda kind, data: seen.append((kind, data)))
    stalled = channel.subscribe()
    quick = [channel.subscribe() for _ in range(3)]
    got = [0] * len(quick)
    peak = 0
    for i in range(100_000):
        channel.publish("t", {"i": i})
        statistics = stalled.statistics()
        peak = max(peak, statistics.queued_frames)
        assert statistics.queued_bytes <= 2 * 1024 * 1024
        for n, subscription in enumerate(quick):
            frames = subscription.take()
            assert [f.id for f in frames] == [i + 1]
            got[n] += 1
    assert peak == 256
    assert got == [100_000] * 3
    assert [kind for kind, _ in seen] == ["slow_client_warning", "client_evicted"]
    size_192 = sum(len(e.to_json()) for e in channel_events(256)[:192])
    size_256 = sum(len(e.to_json()) for e in channel_events(256))
    caps = {"maxQueued": 256, "maxQueuedBytes": 2 * 1024 * 1024}
    assert seen[0][1] == caps | {
        "queueSize": 192,
        "queuedBytes": size_192,
        "lastEventId": 192,
        "threshold": "frames",
    }
    assert seen[1][1] == caps | {
        "reason": "queue_overflow",
        "queueSize": 256,
        "queuedBytes": size_256,
        "firstDroppedId": 257,
    }
    frames = [frame async for frame in stalled]
    assert [f.id or f.type for f in frames] == [
        *range(1, 193),
        "slow_client_warning",
        *range(193, 257),
        "client_evicted",
    ]
    assert channel.statistics().subscribers == 3
    assert channel.statistics().ring_events == 8_000
    for subscription in quick:
        subscription.abort()


def channel_events(count):
    """The same events again, whose sizes the backlog must have counted."""
    channel = Channel()
    return [channel.publish("t", {"i": i}) for i in range(count)]
