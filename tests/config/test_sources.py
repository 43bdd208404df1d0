import os
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.config.sources import (
    MAX_FILE_BYTES,
    PREFIX,
    Setting,
    from_environ,
    from_mapping,
    read_file,
)
from tidegate.errors import ConfigError


def refusal(call, *args):
    with pytest.raises(ConfigError) as caught:
        list(call(*args))
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    return str(caught.value)


# -- the file ----------------------------------------------------------------------------


def test_a_file_is_read(tmp_path):
    path = tmp_path / "tidegate.toml"
    path.write_bytes(b"\xef\xbb\xbf[server]\r\nport = 1 # \xc3\xa4\r\n")
    assert read_file(path) == {"server": {"port": 1}}


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"[server", "it is no TOML: Expected ']' at the end of a table declaration"),
        (b"[server]\nport 1\n", "line 2, column 6"),
        (b"a = 1\na = 2\n", "Cannot overwrite a value"),
        (b"[server]\n\n# \xff\n", "line 3 is not UTF-8"),
        (b"a = 1" + b"0" * 5000, "too large or too deep"),
        (b"a = " + b"[" * 100_000, "too large or too deep"),
        (b"#" * (MAX_FILE_BYTES + 1), "larger than 1048576 bytes"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_what_is_no_file_of_settings(tmp_path, content, problem):
    path = tmp_path / "tidegate.toml"
    path.write_bytes(content)
    message = refusal(read_file, path)
    assert message.startswith(f"{path}: ")
    assert problem in message


def test_a_message_about_a_file_has_none_of_its_content(tmp_path):
    path = tmp_path / "tidegate.toml"
    path.write_text('[server]\ntoken = "s3cret" port = 1\n')
    assert "s3cret" not in refusal(read_file, path)


def test_a_file_that_cannot_be_read(tmp_path):
    assert refusal(read_file, tmp_path / "none").endswith("there is no such file")
    assert "directory" in refusal(read_file, tmp_path)
    assert "that is no path" in refusal(read_file, tmp_path / "a\0b")


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() == 0, reason="root may read all")
def test_a_file_without_the_right_to_read_it(tmp_path):
    path = tmp_path / "tidegate.toml"
    path.touch(mode=0o000)
    assert "Permission denied" in refusal(read_file, path)


# -- tables ------------------------------------------------------------------------------


def test_settings_of_tables():
    values = {
        "server": {"port": 1, "token": None},
        "gateway": None,
        "namespaces": {"room": {"history_ttl": "1h"}, "user": {}, "job": None},
    }
    assert list(from_mapping(values, "a.toml")) == [
        Setting(("server", "port"), 1, "a.toml: server.port"),
        Setting(("namespaces", "room"), None, "a.toml: namespaces.room"),
        Setting(
            ("namespaces", "room", "history_ttl"), 3600.0, "a.toml: namespaces.room.history_ttl"
        ),
        Setting(("namespaces", "user"), None, "a.toml: namespaces.user"),
        Setting(("namespaces", "job"), None, "a.toml: namespaces.job"),
    ]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"servr": {}}, "there is no section servr; did you mean server?"),
        ({"Server": {}}, "there is no section Server; did you mean server?"),
        ({"port": 1}, "there is no section port; the sections are server, gateway, namespaces"),
        ({"server": 5}, "server must be a table"),
        ({"server": "s3cret"}, "server must be a table"),
        ({"server": {"prot": 1}}, "server: there is no key prot; did you mean port?"),
        ({"server": {"PORT": 1}}, "server: there is no key PORT; did you mean port?"),
        (
            {"gateway": {"colour": 1}},
            "gateway: there is no key colour; the keys are broker, data, node, heartbeat, retry_ms",
        ),
        ({"gateway": {"a\nb": 1}}, "gateway: there is no key a\\nb; the keys"),
        (
            {"server": {"port": "1"}},
            'server.port must be a whole number from 0 to 65535, not "1"',
        ),
        ({"server": {"port": True}}, "from 0 to 65535, not true"),
        ({"server": {"port": -1}}, "from 0 to 65535, not -1"),
        ({"server": {"port": 1.5}}, "from 0 to 65535, not 1.5"),
        ({"server": {"port": 16**4000}}, "from 0 to 65535, not a number of that size"),
        ({"server": {"port": [1]}}, "from 0 to 65535, not such a list"),
        ({"server": {"port": {"a": 1}}}, "from 0 to 65535, not a table"),
        (
            {"server": {"max_sessions": 0}},
            "server.max_sessions must be a whole number of at least 1",
        ),
        ({"server": {"host": ""}}, 'server.host must be an address or a host name, not ""'),
        ({"server": {"host": "a b"}}, 'server.host must be an address or a host name, not "a b"'),
        ({"server": {"host": "ab\x1b" * 100}}, "ab\\x1bab"),
        (
            {"server": {"allow_origins": "https://a.example"}},
            'a list of origins such as "https://app.example", not "https://a.example"',
        ),
        ({"server": {"dev": 1}}, "server.dev must be true or false, not 1"),
        (
            {"server": {"idle_seconds": "1 week"}},
            'seconds, or a text such as "15s", "10m", "1h" or "2d", more than 0, not "1 week"',
        ),
        (
            {"server": {"refusal": "never"}},
            'server.refusal must be "auto" or "status", not "never"',
        ),
        ({"gateway": {"max_channels": 201}}, "a whole number from 1 to 200, not 201"),
        ({"gateway": {"node": "a b"}}, "gateway.node must be 1 to 128 of A-Z a-z 0-9 . _ ~ -"),
        ({"namespaces": 5}, "namespaces must be a table"),
        ({"namespaces": {"room": 5}}, "namespaces.room must be a table"),
        (
            {"namespaces": {"room": {"histroy_size": 5}}},
            "namespaces.room: there is no key histroy_size; did you mean history_size?",
        ),
        (
            {"namespaces": {"room": {"presence": True}}},
            "namespaces.room: there is no key presence; the keys are history_size",
        ),
        (
            {"namespaces": {"room": {"recovery": "some"}}},
            'namespaces.room.recovery must be "all" or "latest", not "some"',
        ),
        (
            {"namespaces": {"a.b": {"slow": 1}}},
            'namespaces.a.b.slow must be "evict" or "conflate" or "drop_oldest", not 1',
        ),
        (
            {"namespaces": {"room": {"history_size": 10_000_001}}},
            "namespaces.room.history_size must be a whole number from 0 to 10000000",
        ),
    ],
)
def test_what_is_refused_in_tables(values, message):
    told = refusal(from_mapping, values, "a.toml")
    assert told.startswith("a.toml: ")
    assert message in told
    assert len(told) < 400
    assert told.isprintable()
    assert "s3cret" not in told
    # Without a source the key alone begins it.
    assert refusal(from_mapping, values) == told.removeprefix("a.toml: ")


@pytest.mark.parametrize(
    "values",
    [
        {"server": {"token": "s3cret with spaces"}},
        {"server": {"token": "s3crét"}},
        {"server": {"token": ["s3cret"]}},
        {"gateway": {"broker": "s3cret@host"}},
        {"gateway": {"broker": "redis://:s3cret\n@host"}},
        {"namespaces": {"room": {"snapshot": "htp://u:s3cret@host"}}},
    ],
)
def test_secrets_are_not_shown(values):
    told = refusal(from_mapping, values)
    assert "s3c" not in told
    assert " must be " in told


# -- the environment ---------------------------------------------------------------------


def test_settings_of_the_environment():
    environ = {
        "PATH": "/bin",
        "TIDEGATE_TOKEN": "x",
        "TIDEGATE__SERVER__PORT": "80",
        "TIDEGATE__SERVER__DEV": "true",
        "TIDEGATE__SERVER__ALLOW_ORIGINS": "https://a.example, https://b.example",
        "TIDEGATE__GATEWAY__HEARTBEAT": "10s",
        "TIDEGATE__NAMESPACES__CHAT__ROOM__HISTORY_TTL": "2d",
    }
    assert {setting.path: setting.value for setting in from_environ(environ)} == {
        ("server", "port"): 80,
        ("server", "dev"): True,
        ("server", "allow_origins"): ("https://a.example", "https://b.example"),
        ("gateway", "heartbeat"): 10.0,
        ("namespaces", "chat__room"): None,
        ("namespaces", "chat__room", "history_ttl"): 172_800.0,
    }


def test_a_known_namespace_keeps_its_case():
    environ = {"TIDEGATE__NAMESPACES__ROOM__RECOVERY": "latest"}
    paths = [setting.path for setting in from_environ(environ, ["Room", "user"])]
    assert paths == [("namespaces", "Room"), ("namespaces", "Room", "recovery")]


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("TIDEGATE__", "1", "a setting is written TIDEGATE__SECTION__KEY"),
        ("TIDEGATE__SERVER", "1", "a setting is written TIDEGATE__SECTION__KEY"),
        ("TIDEGATE__SERVER__", "1", "a setting is written TIDEGATE__SECTION__KEY"),
        ("TIDEGATE__NAMESPACES__ROOM", "1", "or TIDEGATE__NAMESPACES__NAME__KEY"),
        ("TIDEGATE__SERVER__A__PORT", "1", "a setting is written TIDEGATE__SECTION__KEY"),
        ("TIDEGATE__SERVR__PORT", "1", "there is no section servr; did you mean server?"),
        ("TIDEGATE__SERVER__PROT", "1", "there is no key prot; did you mean port?"),
        ("TIDEGATE__SERVER__PORT", "", 'must be a whole number from 0 to 65535, not ""'),
        ("TIDEGATE__SERVER__PORT", "80 ", 'from 0 to 65535, not "80 "'),
        ("TIDEGATE__SERVER__DEV", "on", 'must be true or false, not "on"'),
        ("TIDEGATE__GATEWAY__HEARTBEAT", "soon", 'more than 0, not "soon"'),
        ("TIDEGATE__SERVER__TOKEN", "", "must be visible ASCII"),
        ("TIDEGATE__SERVER__TOKEN", "s3 cret", "must be visible ASCII"),
        ("TIDEGATE__NAMESPACES__ROOM__SLOW", "x", 'must be "evict" or'),
    ],
)
def test_what_is_refused_in_the_environment(variable, value, message):
    told = refusal(from_environ, {variable: value})
    assert told.startswith(variable)
    assert message in told
    assert "cret" not in told


def test_a_variable_that_may_mean_two_namespaces_is_refused():
    environ = {"TIDEGATE__NAMESPACES__ROOM__SLOW": "evict"}
    told = refusal(from_environ, environ, ["room", "Room"])
    assert "that may be room or Room; use the file" in told


def test_two_variables_for_one_setting_are_refused():
    environ = {"TIDEGATE__SERVER__PORT": "1", "TIDEGATE__server__port": "2"}
    told = refusal(from_environ, environ)
    assert told == (
        "TIDEGATE__server__port: TIDEGATE__SERVER__PORT is the same setting; leave one away"
    )


@given(st.dictionaries(st.text().map(PREFIX.__add__), st.text(), max_size=3))
def test_odd_variables_never_raise_anything_else(environ):
    try:
        settings = list(from_environ(environ))
    except ConfigError as error:
        told = str(error)
    else:
        told = ""
        assert len(settings) <= 2 * len(environ)
    assert told.isprintable()
