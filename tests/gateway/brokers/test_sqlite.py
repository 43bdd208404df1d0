import asyncio
import contextlib
import os
import random
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
from contextlib import asynccontextmanager

import pytest

from tests.gateway.brokers.model import Collector, request
from tests.servers import SOURCE, eventually
from tidegate.errors import BrokerUnavailable, ConfigError
from tidegate.gateway.brokers.base import PublishError, PublishResult
from tidegate.gateway.brokers.memory import KEEP_SECONDS
from tidegate.gateway.brokers.sqlite import SqliteBroker
from tidegate.gateway.brokers.sqlite_thread import Job
from tidegate.gateway.position import number_of

NOW = 1_790_000_000.0


@asynccontextmanager
async def opened(path, sink=None, **options):
    broker = SqliteBroker(path, **options)
    await broker.start(sink or Collector())
    try:
        yield broker
    finally:
        await broker.stop()


async def in_writer(broker, statement):
    """Execute a statement in the writing thread, among the publishes."""

    def work(store, _):
        return store._connection.execute(statement).fetchall()

    return await broker._writer.do(Job(work))


class Gate:
    """Holds the writing thread up."""

    def __init__(self, broker):
        self.entered = threading.Event()
        self.open = threading.Event()
        assert broker._writer.submit(Job(self.wait))

    def wait(self, _store, _now):
        self.entered.set()
        assert self.open.wait(30)

    async def __aenter__(self):
        await eventually(self.entered.is_set)
        return self

    async def __aexit__(self, *_):
        self.open.set()


async def positions(broker, channel="a"):
    found = []
    while True:
        page = await broker.history(channel, after=found[-1] if found else None)
        found += [p.position for p in page.publications]
        if page.complete:
            return found


@pytest.fixture
def path(tmp_path):
    return tmp_path / "history.db"


# What a restart keeps.


async def test_after_a_restart_all_goes_on_where_it_was(path):
    async with opened(path) as broker:
        first, second = await broker.publish(
            [request(idempotency_key="k", version=5), request(tags={"k": "v"})]
        )
        snapshot = await broker.put_snapshot("a", b"1", first.position)
        page = await broker.history("a")
        empty = await broker.heads(["empty"])
    async with opened(path) as broker:
        assert await broker.history("a") == page
        assert await broker.get_snapshot("a") == snapshot
        assert await broker.heads(["empty"]) == empty
        duplicate, old, new = await broker.publish(
            [request(idempotency_key="k"), request(version=5), request(version=6)]
        )
        assert (duplicate.duplicate, duplicate.position) == (True, first.position)
        assert old.suppressed
        assert (new.prev, new.epoch) == (second.position, second.epoch)


async def test_after_a_restart_with_a_clock_that_is_behind_numbers_go_on(path):
    async with opened(path, clock=lambda: NOW) as broker:
        (old,) = await broker.publish([request()])
    async with opened(path, clock=lambda: NOW - 1e6) as broker:
        (new,) = await broker.publish([request()])
    assert number_of(new.position) == number_of(old.position) + 1
    assert new.epoch == old.epoch


async def test_a_restored_copy_goes_on_in_its_epoch_with_other_positions(path, tmp_path):
    copy = tmp_path / "copy.db"
    async with opened(path, clock=lambda: NOW) as broker:
        (common,) = await broker.publish([request()])
        with (
            contextlib.closing(sqlite3.connect(path)) as source,
            contextlib.closing(sqlite3.connect(copy)) as target,
        ):
            source.backup(target)
        lost = await broker.publish([request(), request()])
    for file in path.parent.glob("history.db*"):
        file.unlink()
    shutil.copy(copy, path)
    async with opened(path, clock=lambda: NOW) as broker:
        assert await positions(broker) == [common.position]
        renewed = await broker.publish([request(), request()])
        assert {r.epoch for r in renewed} == {common.epoch}
        assert renewed[0].prev == common.position
        # The same numbers, and yet nobody can take one for the other.
        assert [number_of(r.position) for r in renewed] == [number_of(r.position) for r in lost]
        assert not {r.position for r in renewed} & {r.position for r in lost}


BURST = """
import asyncio, sys
from tests.gateway.brokers.model import Collector, request
from tidegate.gateway.brokers.base import PublishResult
from tidegate.gateway.brokers.sqlite import SqliteBroker

async def main(path):
    broker = SqliteBroker(path)
    await broker.start(Collector())

    async def publisher(name):
        number = 0
        while True:
            batch = [
                request("ab"[i % 2], b'{"data":"%s-%d"}' % (name.encode(), number + i), size=10**6)
                for i in range(3)
            ]
            for asked, result in zip(batch, await broker.publish(batch), strict=True):
                assert isinstance(result, PublishResult), result
                payload = asked.payload.decode()
                print(result.channel, result.epoch, result.position, payload, flush=True)
            number += 3

    await asyncio.gather(*(publisher(str(n)) for n in range(8)))

asyncio.run(main(sys.argv[1]))
"""


def spawn(code, *args):
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, args)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=SOURCE.parent,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(SOURCE), str(SOURCE.parent)])},
    )


@pytest.mark.parametrize("seed", range(3))
async def test_a_kill_in_a_burst_loses_nothing_that_was_acknowledged(path, seed):
    enough = random.Random(seed).randint(50, 1500)
    acknowledged = []
    for _ in range(2):
        with spawn(BURST, path) as process:
            for count, line in enumerate(process.stdout):
                acknowledged.append(line)
                if count == enough:
                    process.send_signal(signal.SIGKILL)
        assert process.returncode == -signal.SIGKILL
    assert len(acknowledged) > 2 * enough
    # The kill may have cut the last line of each.
    told = [line.split(" ", 3) for line in acknowledged if line.endswith("}\n")]
    async with opened(path) as broker:
        for channel in "ab":
            stored = {}
            prev = ""
            after = None
            while True:
                page = await broker.history(channel, after=after)
                for event in page.publications:
                    assert event.prev == prev
                    prev = after = event.position
                    stored[event.position] = event.payload.decode() + "\n"
                if page.complete:
                    break
            assert page.head.position == prev
            mine = [line for line in told if line[0] == channel]
            assert {epoch for _, epoch, _, _ in mine} == {page.epoch}
            assert [p for _, _, p, payload in mine if stored.get(p) != payload] == []
            (next_one,) = await broker.publish([request(channel)])
            assert (next_one.prev, next_one.epoch) == (prev, page.epoch)


HOLD = """
import asyncio, sys
from tests.gateway.brokers.model import Collector
from tidegate.gateway.brokers.sqlite import SqliteBroker

async def main(path):
    await SqliteBroker(path).start(Collector())
    print("open", flush=True)
    await asyncio.sleep(60)

asyncio.run(main(sys.argv[1]))
"""


async def test_one_process_has_the_file_until_it_is_killed(path):
    with spawn(HOLD, path) as process:
        assert process.stdout.readline() == "open\n"
        broker = SqliteBroker(path)
        with pytest.raises(BrokerUnavailable) as refused:
            await broker.start(Collector())
        assert str(path) in str(refused.value)
        assert f"process {process.pid}" in str(refused.value)
        await broker.stop()
        process.kill()
    async with opened(path) as broker:
        await broker.heads(["a"])


async def test_one_broker_has_the_file_also_by_another_name(path, tmp_path):
    link = tmp_path / "link.db"
    link.symlink_to(path)
    async with opened(path):
        for name in (path, link):
            with pytest.raises(BrokerUnavailable, match="in use"):
                await SqliteBroker(name).start(Collector())
    async with opened(link):
        pass


# The file.


async def test_file_and_folder_are_made_for_their_owner_alone(tmp_path):
    path = tmp_path / "new" / "folder" / "history.db"
    async with opened(path) as broker:
        await broker.publish([request()])
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        files = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
        names = ["history.db", "history.db-shm", "history.db-wal", "history.db.lock"]
        assert files == dict.fromkeys(names, 0o600)
    assert {file.name for file in path.parent.iterdir()} == {"history.db", "history.db.lock"}


async def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").touch()
    broker = SqliteBroker(tmp_path / "file" / "history.db")
    with pytest.raises(ConfigError, match=r"the folder .*file of the history file"):
        await broker.start(Collector())
    await broker.stop()


async def test_a_file_that_is_no_history_is_named_and_left_alone(path):
    path.write_bytes(b"some text, and more of it " * 100)
    before = path.read_bytes()
    with pytest.raises(ConfigError, match=r"history\.db is no SQLite file"):
        await SqliteBroker(path).start(Collector())
    assert path.read_bytes() == before


def damage(path):
    """Write over every page but the first."""
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xa5" * (len(content) - 4096)
    path.write_bytes(content)


async def test_a_damaged_file_fails_publishes_and_reads_with_its_name(path):
    async with opened(path) as broker:
        await broker.publish([request(payload=b"x" * 5000) for _ in range(50)])
    damage(path)
    async with opened(path) as broker:
        (result,) = await broker.publish([request()])
        assert isinstance(result, PublishError)
        assert (result.code, result.certain) == ("broker_unavailable", True)
        assert str(path) in result.error
        for read in (broker.history("a"), broker.heads(["a"]), broker.subscribe(["a"])):
            with pytest.raises(BrokerUnavailable, match=r"history\.db"):
                await read


async def test_a_file_whose_tables_are_damaged_is_not_opened(path):
    async with opened(path):
        pass
    content = bytearray(path.read_bytes())
    content[100:4096] = b"\xa5" * 3996
    path.write_bytes(content)
    with pytest.raises(BrokerUnavailable, match=r"history\.db cannot be opened"):
        await SqliteBroker(path).start(Collector())


# What goes wrong while it runs.


async def test_a_full_disk_fails_publishes_and_passes(path):
    sink = Collector()
    async with opened(path, sink) as broker:
        await broker.subscribe(["a"])
        (first,) = await broker.publish([request()])
        ((pages,),) = await in_writer(broker, "PRAGMA page_count")
        await in_writer(broker, f"PRAGMA max_page_count = {pages + 3}")
        big = request(payload=b"x" * 100_000)
        results = [*(await broker.publish([request(), big])), *(await broker.publish([big]))]
        for result in results:
            assert isinstance(result, PublishError)
            assert result.code == "broker_unavailable"
            assert "full" in result.error
        assert [p.position for p in (await broker.history("a")).publications] == [first.position]
        (small,) = await broker.publish([request()])
        assert small.prev == first.position
        await in_writer(broker, "PRAGMA max_page_count = 1000000")
        (after,) = await broker.publish([big])
        assert after.prev == small.position
        told = [r.position for r in (first, small, after)]
        assert sink.positions("a") == told == await positions(broker)
        assert "disconnected" not in sink.told


LIMITED = """
import asyncio, resource, sys
from pathlib import Path
from tests.gateway.brokers.model import Collector, request
from tests.servers import eventually
from tidegate.gateway.brokers.base import PublishError, PublishResult
from tidegate.gateway.brokers.sqlite import SqliteBroker

def limit(size):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

async def main(path):
    broker, sink = SqliteBroker(path), Collector()
    await broker.start(sink)
    await broker.subscribe(["a"])
    kept = [(await broker.publish([request()]))[0]]
    limit(Path(path + "-wal").stat().st_size)
    (failed,) = await broker.publish([request()])
    assert isinstance(failed, PublishError), failed
    assert not failed.certain, failed
    await eventually(lambda: "disconnected" in sink.told)
    (failed,) = await broker.publish([request()])
    assert isinstance(failed, PublishError), failed
    assert failed.code == "broker_unavailable" and failed.certain, failed
    limit(resource.RLIM_INFINITY)
    await eventually(lambda: "reconnected" in sink.told)
    kept += await broker.publish([request()])
    assert kept[1].epoch == kept[0].epoch
    page = await broker.history("a")
    prevs = [p.prev for p in page.publications]
    assert prevs == ["", *(p.position for p in page.publications)][:-1], page
    assert {r.position for r in kept} <= {p.position for p in page.publications}
    await broker.stop()
    print("good", flush=True)

asyncio.run(main(sys.argv[1]))
"""


async def test_a_disk_that_fails_is_told_and_tried_again(path):
    """Real errors of the system's calls: files may not grow in that process."""
    with spawn(LIMITED, path) as process:
        assert process.stdout.read() == "good\n"
    assert process.returncode == 0


async def test_a_foreign_lock_on_the_file_fails_publishes_and_passes(path, monkeypatch):
    monkeypatch.setattr("tidegate.gateway.brokers.sqlite_schema._BUSY_SECONDS", 0.05)
    async with opened(path) as broker:
        (first,) = await broker.publish([request()])
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            (failed,) = await broker.publish([request()])
            assert (failed.code, failed.certain) == ("broker_unavailable", True)
            assert "locked" in failed.error
            assert len((await broker.history("a")).publications) == 1
        (second,) = await broker.publish([request()])
        assert second.prev == first.position


async def test_tidying_up_that_is_locked_out_is_logged_once_and_comes_again(
    path, monkeypatch, caplog
):
    monkeypatch.setattr("tidegate.gateway.brokers.sqlite_schema._BUSY_SECONDS", 0.01)
    monkeypatch.setattr("tidegate.gateway.brokers.sqlite_workshop._LOG_SECONDS", 1000.0)
    monkeypatch.setattr("tidegate.gateway.brokers.sqlite_workshop._SWEEP_SECONDS", 0.001)
    monkeypatch.setattr("tidegate.gateway.brokers.sqlite_workshop._SWEEP_STEP_SECONDS", 0.001)
    now = NOW
    async with opened(path, clock=lambda: now) as broker:
        await broker.publish([request(ttl=1.0)])
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            await eventually(lambda: "database is locked" in caplog.text)
            for _ in range(5):
                await broker.publish([request(ttl=1.0)])
            assert len(caplog.records) == 1
        now += 10.0
        for _ in range(2000):
            ((left,),) = await in_writer(broker, "SELECT count(*) FROM events")
            if not left:
                break
            await asyncio.sleep(0.005)
        assert not left


async def test_a_bad_item_does_not_touch_others_of_its_transaction(path):
    sink = Collector()
    async with opened(path, sink) as broker:
        await broker.subscribe(["a"])
        async with Gate(broker):
            calls = [
                asyncio.ensure_future(broker.publish(batch))
                for batch in (
                    [request(), request(version=2**64, idempotency_key="k")],
                    [request("\ud800")],
                    [request()],
                )
            ]
            bad_name = asyncio.ensure_future(broker.subscribe(["\ud800"]))
            snapshot = asyncio.ensure_future(broker.put_snapshot("a", b"1", "nonsense"))
            await asyncio.sleep(0)
        (good, bad), (worse,), (also_good,) = await asyncio.gather(*calls)
        assert (bad.code, bad.certain) == (worse.code, worse.certain) == ("broker_error", True)
        assert also_good.prev == good.position
        assert sink.positions("a") == [good.position, also_good.position]
        with pytest.raises(UnicodeEncodeError):
            await bad_name
        with pytest.raises(ValueError, match="does not fit"):
            await snapshot
        with pytest.raises(UnicodeEncodeError):
            await broker.history("\ud800")
        (again,) = await broker.publish([request(idempotency_key="k")])
        assert not again.duplicate


# Waiting.


async def test_all_that_waits_is_one_transaction(path, monkeypatch):
    monkeypatch.setattr("tidegate.gateway.brokers.sqlite_workshop._SWEEP_STEP_SECONDS", 1000.0)
    async with opened(path) as broker:
        commits = []
        await broker._writer.do(
            Job(lambda store, _: store._connection.set_trace_callback(commits.append))
        )
        async with Gate(broker):
            calls = [asyncio.ensure_future(broker.publish([request()])) for _ in range(50)]
            await asyncio.sleep(0)
            commits.clear()
        await asyncio.gather(*calls)
        assert commits.count("BEGIN IMMEDIATE") == 1


async def test_readers_do_not_wait_for_the_writer(path):
    async with opened(path) as broker:
        results = await broker.publish([request()])
        await broker.put_snapshot("a", b"1", "")
        async with Gate(broker):
            assert len((await broker.history("a")).publications) == 1
            assert (await broker.heads(["a"]))["a"].position == results[0].position
            assert (await broker.get_snapshot("a")).state == b"1"


async def test_over_the_bound_publishes_are_refused_at_once(path):
    async with opened(path, max_waiting=5, max_waiting_bytes=1000) as broker:
        async with Gate(broker):
            waiting = [asyncio.ensure_future(broker.publish([request()])) for _ in range(4)]
            await asyncio.sleep(0)
            for refused in await broker.publish([request(), request()]):
                assert (refused.code, refused.certain) == ("broker_unavailable", True)
            await broker.unsubscribe(["a"])
            (too_big,) = await broker.publish([request(payload=b"x" * 1001)])
            assert (too_big.code, too_big.certain) == ("broker_unavailable", True)
        results = [result for (result,) in await asyncio.gather(*waiting)]
        assert [type(r) for r in results] == [PublishResult] * 4
        # More than the bound at once, when nothing else waits.
        await eventually(lambda: not broker._writer._items)
        results = await broker.publish([request() for _ in range(20)])
        assert [type(r) for r in results] == [PublishResult] * 20


async def test_a_disk_that_does_not_answer_is_told_in_time_and_nothing_is_lost(path):
    sink = Collector()
    async with opened(path, sink, timeout=0.1) as broker:
        await broker.subscribe(["a"])
        async with Gate(broker):
            (result,) = await broker.publish([request()])
            assert (result.code, result.certain) == ("broker_unavailable", False)
            with pytest.raises(BrokerUnavailable, match="not answered in time"):
                await broker.subscribe(["b"])
        await eventually(lambda: sink.positions("a"))
        assert await positions(broker) == sink.positions("a")


async def test_stop_waits_for_what_was_accepted(path):
    sink = Collector()
    broker = SqliteBroker(path)
    await broker.start(sink)
    await broker.subscribe(["a"])
    async with Gate(broker):
        calls = [asyncio.ensure_future(broker.publish([request()])) for _ in range(600)]
        await asyncio.sleep(0)
        stopping = asyncio.ensure_future(broker.stop())
        await asyncio.sleep(0)
        (refused,) = await broker.publish([request()])
        assert refused.certain
    await stopping
    results = [call.result()[0] for call in calls]
    assert sink.positions("a") == [r.position for r in results]
    async with opened(path) as again:
        assert await positions(again) == [r.position for r in results]


async def test_a_cancelled_start_leaves_nothing_behind(path):
    for turns in range(6):
        broker = SqliteBroker(path)
        task = asyncio.ensure_future(broker.start(Collector()))
        for _ in range(turns):
            await asyncio.sleep(0.001)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await broker.stop()
    async with opened(path) as broker:
        assert isinstance((await broker.publish([request()]))[0], PublishResult)


async def test_it_starts_once(path):
    async with opened(path) as broker:
        with pytest.raises(RuntimeError):
            await broker.start(Collector())
    with pytest.raises(RuntimeError):
        await broker.start(Collector())


async def test_its_threads_end_with_it(path):
    before = set(threading.enumerate())
    async with opened(path):
        assert len(set(threading.enumerate()) - before) == 2
    await eventually(lambda: set(threading.enumerate()) <= before)


async def test_a_sink_that_raises_fails_its_own_publish_only(path, caplog):
    class Broken(Collector):
        def on_publication(self, channel, publication):
            raise LookupError(channel)

    async with opened(path, Broken()) as broker:
        await broker.subscribe(["a"])
        with pytest.raises(LookupError):
            await broker.publish([request()])
        await broker.publish([request("b")])
        assert len(await positions(broker)) == 1
    assert "delivering an event failed" in caplog.text


# Tidying up.


async def test_what_has_expired_is_deleted_while_it_runs(path, monkeypatch):
    monkeypatch.setattr("tidegate.gateway.brokers.sqlite_workshop._SWEEP_SECONDS", 0.01)
    monkeypatch.setattr("tidegate.gateway.brokers.sqlite_workshop._SWEEP_STEP_SECONDS", 0.001)
    now = NOW
    async with opened(path, clock=lambda: now) as broker:
        await broker.subscribe(["held"])
        for channel in ("held", "idle"):
            for number in range(50):
                asked = request(channel, idempotency_key=str(number), ttl=5.0, idempotency_ttl=5.0)
                await broker.publish([asked])
        with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as other:

            def count(table):
                return other.execute(f"SELECT count(*) FROM {table}").fetchone()[0]

            assert (count("events"), count("keys")) == (100, 100)
            now += 10.0
            await eventually(lambda: (count("events"), count("keys")) == (0, 0))
            assert count("channels") == 2
            now += 2 * KEEP_SECONDS
            await eventually(lambda: count("channels") == 1)
            assert other.execute("SELECT name FROM channels").fetchall() == [("held",)]


async def test_a_channel_that_is_only_read_is_kept(path, monkeypatch):
    now = NOW
    async with opened(path, clock=lambda: now) as broker:
        (published,) = await broker.publish([request()])
        await broker.publish([request("b")])
        for _ in range(40):
            now += 3601.0
            await broker.heads(["a"])
            await broker.history("b")
        monkeypatch.setattr("tidegate.gateway.brokers.sqlite_workshop._SWEEP_SECONDS", 0.01)
        await broker._writer.do(Job(lambda store, now: store._sweep(now, (), 10, 10)))
        assert (await broker.heads(["a"]))["a"].epoch == published.epoch
        ((count,),) = await in_writer(broker, "SELECT count(*) FROM channels")
        assert count == 2


async def test_the_file_stops_growing(path):
    async with opened(path, synchronous="normal") as broker:
        sizes = []
        batch = [request(payload=b"x" * 500, size=100) for _ in range(50)]
        for number in range(60):
            await broker.publish(batch)
            if number % 10 == 9:
                ((pages,),) = await in_writer(broker, "PRAGMA page_count")
                sizes.append(pages)
        # A trim beside each append: what was freed is used again.
        assert sizes[-1] <= sizes[1] + 10
        wal = path.with_name("history.db-wal").stat().st_size
        assert wal < 16 * 1024 * 1024


async def test_the_file_stops_growing_where_channels_come_and_go(path, monkeypatch):
    monkeypatch.setattr("tidegate.gateway.brokers.sqlite_workshop._SWEEP_SECONDS", 0.001)
    monkeypatch.setattr("tidegate.gateway.brokers.sqlite_workshop._SWEEP_STEP_SECONDS", 0.001)
    now = NOW
    async with opened(path, synchronous="normal", clock=lambda: now) as broker:
        sizes = []
        for generation in range(8):
            names = [f"{generation}-{number}" for number in range(50)]
            for name in names:
                await broker.publish(
                    [request(name, payload=b"x" * 500, idempotency_key=name) for _ in range(10)]
                )
            now += 3 * KEEP_SECONDS
            for _ in range(2000):
                ((left,),) = await in_writer(broker, "SELECT count(*) FROM channels")
                if not left:
                    break
                await asyncio.sleep(0.005)
            assert not left
            ((pages,),) = await in_writer(broker, "PRAGMA page_count")
            sizes.append(pages)
        assert sizes[-1] <= sizes[1] + 10


async def test_the_option_for_the_disk_is_passed_on(path):
    for option, level in (("full", 2), ("normal", 1)):
        async with opened(path, synchronous=option) as broker:
            assert await in_writer(broker, "PRAGMA synchronous") == [(level,)]
            assert await in_writer(broker, "PRAGMA journal_mode") == [("wal",)]
    with pytest.raises(ConfigError, match="full or normal"):
        SqliteBroker(path, synchronous="off")
