import re
import traceback
from pathlib import Path

import msgspec
import pytest

from tidegate.config import Config, GatewayConfig, ServerConfig, load_config
from tidegate.config.sections import NamespaceOptions, kinds_of
from tidegate.errors import ConfigError
from tidegate.gateway.namespaces import Namespace

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "config.md").read_text(encoding="utf-8")


def file_of(folder, text):
    path = folder / "tidegate.toml"
    path.write_text(text, encoding="utf-8")
    return path


def load(folder, text, **more):
    return load_config(file_of(folder, text), **{"environ": {}, **more})


def refusal(folder, text, **more):
    with pytest.raises(ConfigError) as caught:
        load(folder, text, **more)
    return str(caught.value)


def test_without_anything_there_are_the_defaults():
    assert load_config(environ={}) == Config()
    assert load_config(environ={}).namespaces == ()


def test_an_empty_file_changes_nothing(tmp_path):
    assert load(tmp_path, "") == load(tmp_path, "[server]\n[gateway]\n[namespaces]\n") == Config()


def test_a_file_that_is_named_must_be_there(tmp_path):
    with pytest.raises(ConfigError, match=r"none\.toml: there is no such file"):
        load_config(str(tmp_path / "none.toml"), environ={})


def test_the_process_s_environment_is_read_by_default(monkeypatch):
    monkeypatch.setenv("TIDEGATE__SERVER__PORT", "4711")
    assert load_config().server.port == 4711


# -- what goes before what ---------------------------------------------------------------


def test_flags_go_before_the_environment_that_before_the_file_that_before_defaults(tmp_path):
    config = load(
        tmp_path,
        """
        [server]
        port = 1
        host = "file"
        max_sessions = 11
        [namespaces.room]
        history_size = 1
        history_ttl = 10
        max_subscribers = 100
        """,
        environ={
            "TIDEGATE__SERVER__PORT": "2",
            "TIDEGATE__SERVER__HOST": "environment",
            "TIDEGATE__NAMESPACES__ROOM__HISTORY_SIZE": "2",
            "TIDEGATE__NAMESPACES__ROOM__HISTORY_TTL": "20s",
        },
        overrides={
            "server": {"port": 3, "max_sessions": None},
            "namespaces": {"room": {"history_size": 3}},
        },
    )
    assert config == Config(
        server=ServerConfig(port=3, host="environment", max_sessions=11),
        namespaces=(Namespace(name="room", history_size=3, history_ttl=20.0, max_subscribers=100),),
    )


def test_a_wrong_value_is_refused_also_where_another_goes_before_it(tmp_path):
    told = refusal(tmp_path, "[server]\nport = -1", overrides={"server": {"port": 1}})
    assert "tidegate.toml: server.port must be" in told


@pytest.mark.parametrize(
    ("file", "environ", "overrides", "url"),
    [
        ({"data": "/d"}, {}, {"broker": "memory:"}, "memory:"),
        ({"data": "/d"}, {"BROKER": "memory:"}, {}, "memory:"),
        ({"broker": "memory:"}, {"DATA": "/e"}, {}, "sqlite:////e/tidegate.sqlite"),
        ({"broker": "memory:"}, {"DATA": "/e"}, {"data": "/f"}, "sqlite:////f/tidegate.sqlite"),
        ({"broker": "memory:"}, {"DATA": "/e"}, {"broker": "nats://n"}, "nats://n"),
        ({"broker": "nats://n"}, {}, {"data": None}, "nats://n"),
    ],
)
def test_broker_and_data_take_each_other_s_place(tmp_path, file, environ, overrides, url):
    text = "[gateway]\n" + "".join(f'{key} = "{value}"\n' for key, value in file.items())
    config = load(
        tmp_path,
        text,
        environ={f"TIDEGATE__GATEWAY__{key}": value for key, value in environ.items()},
        overrides={"gateway": overrides},
    )
    assert config.gateway.broker_url == url


def test_broker_and_data_of_one_source_are_refused(tmp_path):
    told = refusal(tmp_path, '[gateway]\nbroker = "memory:"\ndata = "d"')
    assert told.endswith("tidegate.toml: gateway.data: give broker or data, not both")


def test_a_data_folder_in_a_file_is_meant_from_there(tmp_path, monkeypatch):
    monkeypatch.chdir("/")
    assert load(tmp_path, '[gateway]\ndata = "d"').gateway.data == str(tmp_path / "d")
    assert load(tmp_path, '[gateway]\ndata = "/d"').gateway.data == "/d"
    given = {"TIDEGATE__GATEWAY__DATA": "d"}
    assert load(tmp_path, "", environ=given).gateway.data == "d"
    assert load(tmp_path, "", overrides={"gateway": {"data": "d"}}).gateway.data == "d"


# -- the token ---------------------------------------------------------------------------


@pytest.mark.parametrize("source", ["file", "environ", "overrides"])
def test_a_token_is_read_from_the_variable_that_it_names(tmp_path, source):
    text = '[server]\ntoken = "env:APP_TOKEN"' if source == "file" else ""
    environ = {"APP_TOKEN": "s3cret"}
    if source == "environ":
        environ["TIDEGATE__SERVER__TOKEN"] = "env:APP_TOKEN"
    overrides = {"server": {"token": "env:APP_TOKEN"}} if source == "overrides" else None
    config = load(tmp_path, text, environ=environ, overrides=overrides)
    assert config.server.token == "s3cret"


def test_a_token_that_starts_like_a_reference_is_not_followed_twice(tmp_path):
    config = load(tmp_path, '[server]\ntoken = "env:A"', environ={"A": "env:B", "B": "b"})
    assert config.server.token == "env:B"


def test_a_variable_is_asked_for_only_if_its_token_counts(tmp_path):
    config = load(
        tmp_path, '[server]\ntoken = "env:GONE"', overrides={"server": {"token": "t0ken"}}
    )
    assert config.server.token == "t0ken"


@pytest.mark.parametrize(
    ("environ", "problem"),
    [
        ({}, "the environment variable APP_TOKEN is not set"),
        ({"APP_TOKEN": ""}, "the environment variable APP_TOKEN is not set"),
        ({"APP_TOKEN": "s3 cret"}, "the environment variable APP_TOKEN is not visible ASCII"),
    ],
)
def test_a_token_that_its_variable_does_not_give(tmp_path, environ, problem):
    told = refusal(tmp_path, '[server]\ntoken = "env:APP_TOKEN"', environ=environ)
    assert f"tidegate.toml: server.token: {problem}" in told
    assert "cret" not in told


@pytest.mark.parametrize("token", ["env:", "env:s3cret/x", "env:1s3cret"])
def test_what_is_no_variable_is_not_shown(tmp_path, token):
    told = refusal(tmp_path, f'[server]\ntoken = "{token}"')
    assert told.endswith("server.token: what follows env: is no variable's name")


def test_a_traceback_shows_no_secret_of_a_broken_file(tmp_path):
    path = file_of(tmp_path, '[server]\ntoken = "s3cret"\nport = = 1')
    with pytest.raises(ConfigError) as caught:
        load_config(path, environ={})
    assert "s3cret" not in "".join(traceback.format_exception(caught.value))


# -- namespaces --------------------------------------------------------------------------


def test_namespaces_have_their_options_and_else_the_defaults(tmp_path):
    config = load(
        tmp_path,
        """
        [namespaces.default]
        [namespaces.price]
        recovery = "latest"
        slow = "conflate"
        snapshot = "stored"
        idempotency_ttl = "2d"
        """,
        environ={"TIDEGATE__NAMESPACES__JOB__HISTORY_SIZE": "0"},
    )
    assert config.namespaces == (
        Namespace(name="default"),
        Namespace(
            name="price",
            recovery="latest",
            slow="conflate",
            snapshot="stored",
            idempotency_ttl=172_800.0,
        ),
        Namespace(name="job", history_size=0),
    )


@pytest.mark.parametrize("name", ["", "a:b", "ä", "a b", "x" * 201])
def test_a_namespace_that_no_channel_can_be_in_is_refused(tmp_path, name):
    told = refusal(tmp_path, f'[namespaces."{name}"]')
    assert "a namespace's name is 1 to 200 of A-Z a-z 0-9 . _ ~ @ -" in told
    assert "tidegate.toml: namespaces." in told
    assert len(told) < len(str(tmp_path)) + 400


# -- the documentation -------------------------------------------------------------------


def rows(heading):
    """The table below a heading: its keys and defaults."""
    text = PAGE.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    return dict(re.findall(r"^\| `(\w+)` \| ([^|]*?) \| ", text, re.MULTILINE))


@pytest.mark.parametrize(
    ("heading", "section"),
    [
        ("[server]", ServerConfig),
        ("[gateway]", GatewayConfig),
        ("[namespaces.NAME]", NamespaceOptions),
    ],
)
def test_the_page_has_each_key_with_its_default(heading, section):
    documented = rows(heading)
    assert list(documented) == list(kinds_of(section))
    for key, default in msgspec.structs.asdict(section()).items():
        cell = documented[key]
        if default is None:
            continue  # in words
        if isinstance(default, str):
            assert cell == f'`"{default}"`', key
        elif isinstance(default, bool):
            assert cell == f"`{str(default).lower()}`", key
        elif isinstance(default, float):
            (given,) = re.findall(r"`(.*)`", cell)
            assert kinds_of(section)[key].check(given.strip('"')) == default, key
        elif default == ():
            assert cell == "`[]`", key
        else:
            assert cell == f"`{default}`", key


def test_the_example_of_the_page_is_read_and_names_every_key(tmp_path):
    (example,) = re.findall(r"^```toml tidegate\.toml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    config = load(tmp_path, example, environ={"APP_TOKEN": "t0ken"})
    assert config.server.token == "t0ken"
    assert [namespace.name for namespace in config.namespaces] == ["default", "room", "price"]
    assert config.namespaces[0] == Namespace()
    named = set(re.findall(r"^#? ?(\w+) = ", example, re.MULTILINE))
    for section in (ServerConfig, GatewayConfig, NamespaceOptions):
        assert set(kinds_of(section)) - named == set(), section


def test_the_environment_s_examples_of_the_page_are_read(tmp_path):
    (fence,) = re.findall(r"^```sh environment\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    environ = dict(re.findall(r"^export (\w+)=(\S+)$", fence, re.MULTILINE))
    assert len(environ) == len(fence.splitlines())
    assert load_config(environ=environ) != Config()
