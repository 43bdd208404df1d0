"""Clients on two nodes over one store on a bad day, and what they must never see.

The store knows what truly happened: which event was appended behind which. Each client's streams
are held against that, so a position that was handed out twice deceives a client but not this.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import itertools
import logging
import random
from dataclasses import dataclass, field

from tidegate.errors import BrokerUnavailable, SnapshotAhead
from tidegate.gateway.brokers.base import PublishRequest, PublishResult
from tidegate.gateway.namespaces import Namespace, Namespaces
from tidegate.gateway.node import Node
from tidegate.gateway.subscription import StreamRequest
from tidegate.testing import (
    FaultyStore,
    MessageFaults,
    SimulatedClock,
    StoreFaults,
    StreamWatch,
    run_simulated,
)

NAMES = ("big:1", "big:2", "small:1", "drop:1", "snap:1", "none:1")
KEPT = ("big:1", "big:2", "big:3", "big:4")
NAMESPACES = Namespaces(
    [
        Namespace(name="big"),
        Namespace(name="small", history_size=30),
        Namespace(name="drop", slow="drop_oldest"),
        Namespace(name="snap", history_size=30, snapshot="stored"),
        Namespace(name="none", history_size=0),
    ]
)


def bad_day():
    """Everything at once."""
    return StoreFaults(
        messages=MessageFaults(lose=0.05, delay=0.1, double=0.05, swap=0.05, max_delay=0.4),
        latency=0.03,
        refuse=0.05,
        lose_answer=0.03,
        trim=0.004,
        new_epoch=0.002,
        clock_back=0.004,
        lose_tail=0.004,
        copy=0.03,
        disconnect=0.004,
        short_page=0.3,
    )


def bad_relay():
    """Messages between the nodes travel badly; the history is whole, and calls work."""
    return StoreFaults(
        messages=MessageFaults(lose=0.1, delay=0.2, double=0.1, swap=0.1, max_delay=0.5),
        latency=0.02,
    )


@dataclass
class Outcome:
    """What a run came to."""

    seed: int
    problems: list[str]
    publishes: int
    events: int
    resyncs: dict[str, int]
    streams: int
    faults: dict[str, int]
    healed: int
    digest: str

    def __str__(self):
        return (
            f"seed {self.seed}: {len(self.problems)} problems, {self.publishes} publishes, "
            f"{self.events} deliveries on {self.streams} streams, resyncs {self.resyncs}, "
            f"healed {self.healed}, faults {self.faults}, digest {self.digest}\n  "
            + "\n  ".join(self.problems[:10])
        )


class Truth:
    """Which events were appended at which place."""

    def __init__(self, store):
        self._store = store
        self._read = 0
        self._at = {}

    def at(self, channel, epoch, position):
        for appended in self._store.appended[self._read :]:
            event = appended.publication
            key = (appended.channel, event.epoch, event.position)
            self._at.setdefault(key, []).append(appended)
        self._read = len(self._store.appended)
        return self._at.get((channel, epoch, position), [])


class Client(StreamWatch):
    """A client whose streams are held against the truth."""

    def __init__(self, name, truth, digest):
        super().__init__()
        self.name = name
        self._truth = truth
        self._digest = digest
        self._stands = {}  # on which event it stands in each channel: serials, None for a root
        self.streams = 0

    def saw_anchor(self, channel, at, reason):
        self._digest.update(f"{self.name} {channel} {at} {reason}\n".encode())
        if at.position == "":
            self._stands[channel] = {None}
            return
        there = self._truth.at(channel, at.epoch, at.position)
        if not there:
            self.problem(f"{channel}: {reason} names a place that never was: {at}")
        self._stands[channel] = {appended.serial for appended in there}

    def saw_event(self, channel, envelope):
        self._digest.update(f"{self.name} {channel} {envelope['id']}\n".encode())
        there = [
            appended
            for appended in self._truth.at(channel, envelope["epoch"], envelope["id"])
            if b'"data":%d,' % envelope["data"] in appended.publication.payload
        ]
        stood = self._stands.get(channel, set())
        followed = {appended.serial for appended in there if appended.parent in stood}
        if not there:
            self.problem(f"{channel}: an event that never was: {envelope}")
        elif not followed:
            self.problem(
                f"{channel}: a silent gap: the client stood at {stood}, event {envelope['data']} "
                f"follows {[appended.parent for appended in there]}"
            )
        self._stands[channel] = followed or {appended.serial for appended in there}

    def problem(self, text):
        now = asyncio.get_running_loop().time()
        super().problem(f"{now:.3f} {self.name}, stream {self.streams}: {text}")


class _Errors(logging.Handler):
    """What a node logs as an error is one."""

    def __init__(self, problems):
        super().__init__(logging.ERROR)
        self._problems = problems

    def emit(self, record):
        self._problems.append(f"logged: {self.format(record)}")


@dataclass
class Chaos:
    """One run.

    Args:
        seed: of everything.
        faults: how bad the day is.
        publishes: how many events.
        clients: how many.
        names: the channels.
        restarts: nodes end, and others take their place.
        random_bytes: see `FaultyStore`.
        settle_seconds: how long clients may take to come to the heads once all is well.

    It is the same again for the same arguments, in one process or another.
    """

    seed: int
    faults: StoreFaults = field(default_factory=bad_day)
    publishes: int = 2000
    clients: int = 8
    names: tuple[str, ...] = NAMES
    restarts: bool = True
    random_bytes: object = None
    settle_seconds: float = 120.0

    def run(self):
        """Run it in simulated time, and return what it came to."""
        logger = logging.getLogger("tidegate.gateway")
        level, propagate = logger.level, logger.propagate
        self.problems = []
        errors = _Errors(self.problems)
        logger.setLevel(logging.ERROR)  # a bad day is full of warnings
        logger.propagate = False
        logger.addHandler(errors)
        try:
            return run_simulated(self._main())
        finally:
            logger.removeHandler(errors)
            logger.setLevel(level)
            logger.propagate = propagate

    def _random(self, what):
        return random.Random(f"{what} {self.seed}")

    async def _main(self):
        self.clock = SimulatedClock()
        self.store = FaultyStore(
            self.seed, faults=self.faults, clock=self.clock, random_bytes=self.random_bytes
        )
        self.truth = Truth(self.store)
        self.digest = hashlib.sha256()
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: self.problems.append(f"in the loop: {context}")
        )
        self.settling = False
        self.over = False
        self.healed = 0
        self.message_counts = {}
        self.nodes = [None, None]
        for index in range(2):
            await self._start_node(index)
        watches = [Client(f"client {n}", self.truth, self.digest) for n in range(self.clients)]
        async with asyncio.TaskGroup() as tasks:
            clients = [tasks.create_task(self._client(watch)) for watch in watches]
            restarter = tasks.create_task(self._restart_nodes())
            numbers = itertools.count()
            await asyncio.gather(*(self._publish(which, numbers) for which in range(3)))
            self.faults.stop()
            self.settling = True
            await restarter
            await self._settle(watches)
            self.over = True
            await asyncio.gather(*clients)
        for index in range(2):
            await self._stop_node(index)
        left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        if left:
            self.problems.append(f"{len(left)} tasks are left: {left[0]}")
        resyncs = {}
        for watch in watches:
            self.problems += watch.problems
            for resync in watch.resyncs:
                resyncs[resync.reason] = resyncs.get(resync.reason, 0) + 1
        return Outcome(
            seed=self.seed,
            problems=self.problems,
            publishes=len(self.store.appended),
            events=sum(sum(watch.events.values()) for watch in watches),
            resyncs=resyncs,
            streams=sum(watch.streams for watch in watches),
            faults=self.store.counts | self.message_counts,
            healed=self.healed,
            digest=self.digest.hexdigest()[:16],
        )

    # -- nodes -----------------------------------------------------------------------------

    async def _start_node(self, index):
        loop = asyncio.get_running_loop()
        broker = self.store.broker(f"node{index}")
        node = Node(
            broker,
            NAMESPACES,
            name=f"node{index}",
            clock=self.clock,
            monotonic=loop.time,
            rng=self._random(f"node{index} {loop.time()}").random,
        )
        await node.start()
        self.nodes[index] = node

    async def _stop_node(self, index):
        node, self.nodes[index] = self.nodes[index], None
        for kind, count in node.broker.message_counts().items():
            self.message_counts[kind] = self.message_counts.get(kind, 0) + count
        self.healed += node.statistics().gaps_healed
        await node.stop()
        await node.broker.stop()

    async def _restart_nodes(self):
        rng = self._random("restarts")
        while self.restarts and not self.settling:
            await asyncio.sleep(rng.uniform(0.5, 5.0))
            index = rng.randrange(2)
            await self._stop_node(index)
            await asyncio.sleep(rng.choice((0.0, rng.uniform(0.0, 1.5))))
            await self._start_node(index)

    # -- publishers ------------------------------------------------------------------------

    async def _publish(self, which, numbers):
        rng = self._random(f"publisher {which}")
        while len(self.store.appended) < self.publishes:
            n = next(numbers)
            channel = rng.choice(self.names)
            key = f"key {n}" if rng.random() < 0.5 else None
            request = PublishRequest(
                channel=channel,
                type="event",
                payload=b'{"data":%d,"_meta":{}}' % n,
                idempotency_key=key,
                policy=NAMESPACES.policy_of(channel),
            )
            for _ in range(3 if key is not None else 1):
                node = rng.choice(self.nodes)
                if node is None:
                    await asyncio.sleep(0.05)
                    continue
                (result,) = await node.broker.publish([request])
                if isinstance(result, PublishResult):
                    self._acknowledged(n, channel, result)
                    if channel.startswith("snap") and rng.random() < 0.2:
                        await self._put_snapshot(node, channel, n, result.position)
                    break
            if rng.random() < 0.7:
                await asyncio.sleep(rng.expovariate(20.0))
            if rng.random() < 0.002:
                await asyncio.sleep(rng.uniform(1.0, 12.0))

    def _acknowledged(self, n, channel, result):
        for appended in self.truth.at(channel, result.epoch, result.position):
            event = appended.publication
            if event.prev == result.prev and b'"data":%d,' % n in event.payload:
                return
        self.problems.append(f"event {n} is acknowledged at a place where it is not: {result}")

    async def _put_snapshot(self, node, channel, n, position):
        # Refused where another one was faster, or the place is gone.
        with contextlib.suppress(BrokerUnavailable, SnapshotAhead):
            await node.broker.put_snapshot(channel, b"%d" % n, position)

    # -- clients ---------------------------------------------------------------------------

    async def _client(self, watch):
        rng = self._random(watch.name)
        mine = rng.sample(self.names, 3)
        patience = rng.choice((0.3, 1.0, 4.0))
        while not self.over:
            node = rng.choice(self.nodes)
            if node is None:
                await asyncio.sleep(rng.uniform(0.0, 0.2))
                continue
            channels = rng.sample(mine, 3 if self.settling or rng.random() < 0.9 else 2)
            cursor = watch.reopen()
            watch.streams += 1
            start = {} if cursor is None else {"cursor": cursor}
            if cursor is None and rng.random() < 0.4:
                start = rng.choice(({"tail": 5}, {"from_beginning": True}))
            stream = node.subscribe(
                StreamRequest(
                    channels=tuple(channels), max_queued=rng.choice((16, 16, 64, 256)), **start
                )
            )
            try:
                await stream.joined()
                await self._read(stream, watch, rng, patience, whole=len(channels) == len(mine))
            except (BrokerUnavailable, TimeoutError):
                pass
            finally:
                stream.abort()
            # A client that comes back at once, and one that was away for a while.
            await asyncio.sleep(rng.choice((0.0, rng.uniform(0.0, 0.3), rng.uniform(0.0, 3.0))))

    async def _read(self, stream, watch, rng, patience, *, whole):
        loop = asyncio.get_running_loop()
        ready = asyncio.Event()
        stream.on_ready = ready.set
        end = loop.time() + rng.expovariate(1.0 / patience)
        while not self.over:
            cut = loop.time() >= end and not (self.settling and whole)
            chunk = stream.take_bytes(rng.choice((1, 1, 300, 65536)))
            if cut:
                watch.feed(chunk[: rng.randint(0, len(chunk))])
                return
            if chunk:
                watch.feed(chunk)
                if rng.random() < 0.3:
                    await asyncio.sleep(rng.uniform(0.0, 0.15))
                else:
                    await asyncio.sleep(0)
                continue
            if stream.ended:
                return
            ready.clear()
            if stream.arm():
                try:
                    async with asyncio.timeout(min(max(end - loop.time(), 0.01), 1.0)):
                        await ready.wait()
                except TimeoutError:
                    stream.disarm()

    # -- the end ---------------------------------------------------------------------------

    async def _settle(self, watches):
        """All is well now: every client has to come to the head of all of its channels."""
        loop = asyncio.get_running_loop()
        end = loop.time() + self.settle_seconds
        while behind := [text for watch in watches for text in self._behind(watch)]:
            if loop.time() > end:
                self.problems += behind
                return
            await asyncio.sleep(0.25)

    def _behind(self, watch):
        if len(watch.held) < 3:
            yield f"{watch.name} is not connected to all of its channels: {watch.held}"
        for channel, at in watch.held.items():
            head = self.store.head(channel)
            if at != (head.epoch, head.position):
                yield f"{watch.name} is at {at} of {channel}, its head is {head}"
