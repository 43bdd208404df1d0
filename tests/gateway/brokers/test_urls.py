import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.gateway.brokers.model import Collector
from tidegate.errors import ConfigError
from tidegate.gateway.brokers.memory import MemoryBroker
from tidegate.gateway.brokers.sqlite import SqliteBroker
from tidegate.gateway.brokers.urls import broker_from_url


@pytest.mark.parametrize("url", ["memory:", "memory://", "MEMORY:"])
def test_memory(url):
    assert isinstance(broker_from_url(url), MemoryBroker)


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("sqlite:////var/lib/history.db", Path("/var/lib/history.db")),
        ("sqlite:///history.db", Path.cwd() / "history.db"),
        ("sqlite:///data/history.db", Path.cwd() / "data/history.db"),
        ("SQLite:////tmp/a%20b%23c%3f.db", Path("/tmp/a b#c?.db")),
        ("sqlite:////tmp/h.db?synchronous=normal", Path("/tmp/h.db")),
    ],
)
def test_sqlite(url, path):
    broker = broker_from_url(url)
    assert isinstance(broker, SqliteBroker)
    assert broker.path == path.resolve()


async def test_the_option_reaches_the_file(tmp_path):
    for option in ("", "?synchronous=normal"):
        broker = broker_from_url(f"sqlite:///{tmp_path}/history.db{option}")
        await broker.start(Collector())
        assert await broker.heads([]) == {}
        await broker.stop()


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("", "memory: or sqlite:///PATH"),
        ("memory", "memory: or sqlite:///PATH"),
        ("kafka://x", "memory: or sqlite:///PATH"),
        ("memory:x", "nothing behind the colon"),
        ("sqlite:", "sqlite:///PATH"),
        ("sqlite:history.db", "sqlite:///PATH"),
        ("sqlite:/history.db", "sqlite:///PATH"),
        ("sqlite://history.db", "sqlite:///PATH"),
        ("sqlite://host/history.db", "sqlite:///PATH"),
        ("sqlite:///", "sqlite:///PATH"),
        ("sqlite:///folder/", "no file's path"),
        ("sqlite:///a%00b", "no file's path"),
        ("sqlite:///a#b", "%23"),
        ("sqlite:///a?synchronous=off", "full or normal"),
        ("sqlite:///a?synchronous=", "full or normal"),
        ("sqlite:///a?timeout=1", "no option 'timeout'"),
        ("sqlite:///a?synchronous", "cannot be read"),
        ("sqlite://[/a", "cannot be read"),
    ],
)
def test_what_names_no_broker_is_refused_with_what_does(url, words):
    with pytest.raises(ConfigError) as refused:
        broker_from_url(url)
    assert words in str(refused.value)


@pytest.mark.parametrize("scheme", ["redis", "rediss", "redis+sentinel", "redis+cluster", "nats"])
def test_brokers_that_are_yet_to_come_are_named_without_their_password(scheme):
    with pytest.raises(ConfigError, match="this version") as refused:
        broker_from_url(f"{scheme}://user:secret@host:1/x")
    assert scheme in str(refused.value)
    assert "secret" not in str(refused.value)


@given(st.text(max_size=30) | st.text(max_size=20).map(lambda rest: f"sqlite:///{rest}"))
def test_any_text_is_a_broker_or_a_configuration_error(url):
    problem = ""
    try:
        broker_from_url(url)
    except ConfigError as error:
        problem = str(error)
    assert problem.isprintable()


def test_memory_needs_no_sqlite():
    code = (
        "import sys; from tidegate.gateway.brokers.urls import broker_from_url\n"
        "broker_from_url('memory:'); assert 'sqlite3' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
