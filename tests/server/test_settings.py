import pytest

from tidegate.config import load_config
from tidegate.errors import ServeError
from tidegate.server import ServerSettings


def test_the_defaults_serve_this_machine_alone():
    settings = ServerSettings()
    assert (settings.host, settings.port, settings.event_ring_size) == ("127.0.0.1", 8765, 8000)
    assert (settings.token, settings.dev, settings.allow_origins) == (None, False, ())
    assert settings.on_loopback


@pytest.mark.parametrize(
    "options",
    [
        {"host": "localhost", "dev": True},
        {"host": "::1"},
        {"host": "0.0.0.0", "token": "t"},
        {"host": "example.com", "token": "t"},
        {"port": 0},
        {"port": 65535},
        {"event_ring_size": 0},
        {"event_ring_size": 1_000_000},
        {"allow_origins": ("https://a.example", "http://localhost:3000")},
        {"allow_origins": ("*",), "token": "t"},
        {"dev": True, "token": "t"},
        {"refusal": "status"},
    ],
)
def test_what_makes_sense_is_taken(options):
    ServerSettings(**options)


@pytest.mark.parametrize(
    ("options", "advice"),
    [
        ({"host": ""}, "give an address"),
        ({"port": -1}, "0 to 65535"),
        ({"port": 65536}, "0 to 65535"),
        ({"event_ring_size": -1}, "0 or more"),
        ({"max_sessions": 0}, "must be positive"),
        ({"idle_seconds": 0}, "must be positive"),
        ({"drain_seconds": -1}, "not negative"),
        ({"refusal": "never"}, "auto or status"),
        ({"token": ""}, "visible ASCII"),
        ({"token": "a b"}, "visible ASCII"),
        ({"token": "é"}, "visible ASCII"),
        ({"token": "a\n"}, "visible ASCII"),
        ({"host": "0.0.0.0"}, "give a --token"),
        ({"host": "192.168.0.1"}, "give a --token"),
        ({"host": "0.0.0.0", "dev": True}, "--dev serves this machine only"),
        ({"host": "0.0.0.0", "dev": True, "token": "t"}, "--dev serves this machine only"),
        ({"allow_origins": ("*",)}, "give a --token"),
        ({"allow_origins": ("a.example",)}, "write it as browsers do"),
        ({"allow_origins": ("https://a.example/",)}, "write it as browsers do"),
    ],
)
def test_what_makes_none_is_refused_with_advice(options, advice):
    with pytest.raises(ServeError, match=advice):
        ServerSettings(**options)


def test_a_configuration_says_it_all_and_flags_go_before_it():
    config = load_config(
        environ={},
        overrides={
            "server": {"port": 1, "token": "secret", "idle_seconds": "1m", "refusal": "status"},
            "gateway": {"data": "d", "node": "n"},
            "namespaces": {"room": {"history_size": 5}},
        },
    )
    settings = ServerSettings.from_config(config, port=2, dev=True)
    assert (settings.port, settings.token, settings.dev) == (2, "secret", True)
    assert (settings.idle_seconds, settings.refusal) == (60.0, "status")
    assert settings.gateway.broker_url == "sqlite:///d/tidegate.sqlite"
    assert settings.gateway.node == "n"
    assert [one.history_size for one in settings.namespaces] == [5]
    assert ServerSettings.from_config(load_config(environ={})) == ServerSettings()


def test_a_configuration_that_makes_no_sense_is_refused_with_advice():
    config = load_config(environ={}, overrides={"server": {"host": "0.0.0.0"}})
    with pytest.raises(ServeError, match="give a --token"):
        ServerSettings.from_config(config)


def test_the_token_is_not_shown():
    assert "secret" not in repr(ServerSettings(token="secret"))


def test_a_ring_that_is_too_large_is_clamped_with_a_warning(caplog):
    assert ServerSettings(event_ring_size=1_000_001).event_ring_size == 1_000_000
    assert "--event-ring-size 1000001 is more than the maximum; 1000000 is used" in caplog.text
