import asyncio
import gc
import inspect
import json
import weakref

import pytest

from tidegate.channel import Channel, ChannelSubscription
from tidegate.errors import ConcurrentConsumers


def types(frames):
    return [frame.id if frame.id is not None else frame.type for frame in frames]


async def waiting(subscription):
    task = asyncio.create_task(subscription.__anext__())
    await asyncio.sleep(0)
    assert subscription._subscriber.backlog.waiting
    return task


async def test_events_come_in_order():
    channel = Channel()
    subscription = channel.subscribe()
    for i in range(3):
        channel.publish("t", i)
    assert [(await anext(subscription)).data for _ in range(3)] == [0, 1, 2]
    subscription.abort()


async def test_a_waiting_consumer_is_woken():
    channel = Channel()
    subscription = channel.subscribe()
    task = await waiting(subscription)
    channel.publish("t", 1)
    assert (await task).data == 1
    assert subscription.statistics().delivered == 1
    subscription.abort()


async def test_a_second_consumer_is_refused_also_when_the_first_was_just_handed_an_event():
    channel = Channel()
    subscription = channel.subscribe()
    task = await waiting(subscription)
    with pytest.raises(ConcurrentConsumers, match="another task already waits"):
        await anext(subscription)
    channel.publish("t", 1)
    with pytest.raises(RuntimeError):
        await anext(subscription)
    assert (await task).data == 1
    channel.publish("t", 2)
    assert (await anext(subscription)).data == 2
    subscription.abort()


async def test_a_consumer_that_is_cancelled_while_it_waits_loses_nothing():
    channel = Channel()
    subscription = channel.subscribe()
    task = await waiting(subscription)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not subscription._subscriber.backlog.waiting
    channel.publish("t", 1)
    assert subscription.statistics().queued_frames == 1
    assert (await anext(subscription)).data == 1
    subscription.abort()


async def test_an_event_between_a_cancellation_and_its_end_is_kept():
    channel = Channel()
    subscription = channel.subscribe()
    task = await waiting(subscription)
    task.cancel()
    channel.publish("t", 1)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await anext(subscription)).data == 1
    subscription.abort()


async def test_an_event_at_the_very_moment_of_going_to_wait_is_not_slept_through(monkeypatch):
    # As a signal handler or a finalizer may publish it.
    channel = Channel()
    subscription = channel.subscribe()
    loop = asyncio.get_running_loop()
    create_future = loop.create_future

    def interrupted():
        monkeypatch.undo()
        channel.publish("t", 1)
        return create_future()

    monkeypatch.setattr(loop, "create_future", interrupted)
    async with asyncio.timeout(5):
        assert (await anext(subscription)).data == 1
    subscription.abort()


async def test_a_consumer_that_is_cancelled_while_an_event_is_handed_over_loses_nothing():
    channel = Channel()
    subscription = channel.subscribe()
    task = await waiting(subscription)
    channel.publish("t", 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    channel.publish("t", 2)
    assert subscription.statistics().queued_frames == 1
    assert subscription.statistics().delivered == 0
    assert [(await anext(subscription)).data for _ in range(2)] == [1, 2]
    assert subscription.statistics().queued_frames == 0
    assert subscription.statistics().queued_bytes == 0
    assert subscription.statistics().delivered == 2
    subscription.abort()


async def test_leaving_a_loop_does_not_end_it():
    channel = Channel()
    subscription = channel.subscribe()
    for i in range(3):
        channel.publish("t", i)
    async for event in subscription:
        if event.data == 1:
            break
    assert [(await anext(subscription)).data] == [2]
    subscription.abort()


async def test_leaving_the_context_aborts():
    channel = Channel()
    async with channel.subscribe() as subscription:
        channel.publish("t")
        assert channel.statistics().subscribers == 1
    assert channel.statistics().subscribers == 0
    assert subscription.ended
    with pytest.raises(StopAsyncIteration):
        await anext(subscription)


async def test_abort_drops_what_waits_ends_a_waiting_consumer_and_is_idempotent():
    channel = Channel()
    subscription = channel.subscribe()
    task = await waiting(subscription)
    subscription.abort()
    subscription.abort()
    with pytest.raises(StopAsyncIteration):
        await task
    assert subscription.aborted
    other = channel.subscribe()
    channel.publish("t")
    other.abort()
    assert other.statistics().queued_frames == 0
    with pytest.raises(StopAsyncIteration):
        await anext(other)


async def test_close_lets_the_consumer_drain_and_ends_one_that_waits():
    channel = Channel()
    drained, idle = channel.subscribe(), channel.subscribe()
    channel.publish("t", 1)
    await anext(idle)
    task = await waiting(idle)
    channel.close()
    with pytest.raises(StopAsyncIteration):
        await task
    assert not drained.ended
    assert not drained.aborted
    assert [e.data async for e in drained] == [1]
    assert drained.ended


def test_a_collected_subscription_is_aborted_with_a_resource_warning():
    channel = Channel("mine")
    subscription = channel.subscribe()
    subscriber = subscription._subscriber
    with pytest.warns(  # noqa: PT031 - the last reference must go inside
        ResourceWarning, match="subscription of channel 'mine' was garbage-collected"
    ):
        del subscription
        gc.collect()
    assert channel.statistics().subscribers == 0
    assert subscriber.aborted


async def test_a_subscription_that_ended_is_collected_silently_with_its_channel():
    channel = Channel()
    aborted, closed = channel.subscribe(), channel.subscribe()
    aborted.abort()
    channel.close()
    gone = weakref.ref(channel)
    del aborted, closed, channel
    gc.collect()
    assert gone() is None


def test_finalizers_stay_quiet_at_the_interpreters_exit():
    channel = Channel()
    subscription = channel.subscribe()
    mine = [info for f, info in weakref.finalize._registry.items() if f.peek()[0] is subscription]
    assert [info.atexit for info in mine] == [False]
    subscription.abort()


async def test_a_consumer_whose_loop_is_gone_neither_breaks_publish_nor_close():
    channel = Channel(max_queued=2)
    loop = asyncio.new_event_loop()
    subscription = channel.subscribe()
    step = subscription.__anext__()

    def begin():
        async def wait():
            await step

        task = loop.create_task(wait())
        loop.call_soon(loop.stop)
        loop.run_forever()
        return task

    task = await asyncio.to_thread(begin)
    loop.close()
    events = [channel.publish("t", i) for i in range(4)]
    assert [e.id for e in events] == [1, 2, 3, 4]
    assert subscription.evicted
    assert channel.statistics().subscribers == 0
    task._log_destroy_pending = False
    step.close()


def test_take_takes_what_waits_up_to_its_bounds():
    channel = Channel()
    subscription = channel.subscribe()
    assert subscription.take() == []
    for i in range(100):
        channel.publish("t", i)
    assert types(subscription.take(3)) == [1, 2, 3]
    assert len(subscription.take()) == 64
    size = channel._ring._slots[67].size
    assert len(subscription.take(64, size)) == 1
    assert len(subscription.take(64, size + 1)) == 2
    assert subscription.statistics().delivered == 3 + 64 + 3
    subscription.abort()


def test_by_default_a_take_is_64_frames_or_64_kib():
    parameters = inspect.signature(ChannelSubscription.take).parameters
    assert {name: p.default for name, p in parameters.items() if name != "self"} == {
        "max_frames": 64,
        "max_bytes": 65536,
    }


def test_an_armed_wire_is_called_once_and_its_event_is_not_counted():
    channel = Channel()
    subscription = channel.subscribe()
    calls = []
    subscription.on_ready = lambda: calls.append(1)
    assert subscription.on_ready is not None
    channel.publish("t", 1)
    assert calls == []
    assert not subscription.arm()
    subscription.take()
    assert subscription.arm()
    channel.publish("t", 2)
    channel.publish("t", 3)
    assert calls == [1]
    assert subscription.statistics().queued_frames == 1
    subscription.take()
    assert subscription.arm()
    subscription.disarm()
    channel.publish("t", 4)
    assert calls == [1]
    assert subscription.statistics().queued_frames == 1
    subscription.abort()
    assert calls == [1, 1]
    assert not subscription.arm()


def test_a_wire_hears_of_its_eviction_though_it_does_not_wait():
    channel = Channel(max_queued=1)
    subscription = channel.subscribe()
    calls = []
    subscription.on_ready = lambda: calls.append(subscription.evicted)
    channel.publish("t")
    channel.publish("t")
    assert calls == [True]
    assert not subscription.ended
    assert types(subscription.take()) == [1, "slow_client_warning", "client_evicted"]
    assert subscription.ended


def test_a_wire_may_evict_for_its_own_reason():
    seen = []
    channel = Channel(on_diagnostic=lambda kind, data: seen.append((kind, data)))
    channel.publish("before")
    subscription = channel.subscribe()
    channel.publish("t", 1)
    channel.publish("t", 2)
    waiting_bytes = subscription.statistics().queued_bytes
    subscription.evict("write_timeout")
    subscription.evict("write_timeout")
    expected = {
        "reason": "write_timeout",
        "queueSize": 2,
        "queuedBytes": waiting_bytes,
        "maxQueued": 256,
        "maxQueuedBytes": 2 * 1024 * 1024,
        "firstDroppedId": 2,
    }
    assert seen == [("client_evicted", expected)]
    frames = subscription.take()
    assert types(frames) == [2, 3, "client_evicted"]
    assert frames[-1].data == expected
    idle = channel.subscribe()
    idle.evict("write_timeout")
    assert idle.take()[-1].data["firstDroppedId"] == 4


def test_what_a_wire_cannot_encode_is_reported_once():
    seen = []
    channel = Channel(on_diagnostic=lambda kind, data: seen.append((kind, data)))
    one, two = channel.subscribe(), channel.subscribe()
    one.arm()
    two.arm()
    made = channel.publish("t", object())
    assert seen == []
    assert json.loads(one.take()[0].to_json())["type"] == "event_unserializable"
    assert two.take()[0].to_json() is made.to_json()
    assert seen == [("event_unserializable", {"id": 1, "type": "t"})]
    one.abort()
    two.abort()


def test_the_budget_flag_tells_a_wire_to_end():
    channel = Channel(replay_budget_bytes=1)
    for _ in range(3):
        channel.publish("t")
    over, under = channel.subscribe(last_event_id=0), channel.subscribe(last_event_id=2)
    live = channel.subscribe()
    assert over.budget_exceeded
    assert not under.budget_exceeded
    assert not live.budget_exceeded
    for subscription in (over, under, live):
        subscription.abort()
