from dataclasses import MISSING, fields
from inspect import signature

import msgspec
import pytest

from tidegate.config import Config, GatewayConfig, ServerConfig
from tidegate.config.sections import NamespaceOptions, kinds_of
from tidegate.gateway.brokers.urls import broker_from_url
from tidegate.gateway.namespaces import Namespace
from tidegate.server.settings import ServerSettings
from tidegate.sessions import Sessions

SECTIONS = [ServerConfig, GatewayConfig, NamespaceOptions]


@pytest.mark.parametrize("section", SECTIONS)
def test_every_default_is_allowed_and_stays_as_it_is(section):
    made = section()
    for name, kind in kinds_of(section).items():
        value = getattr(made, name)
        assert value is None or kind.check(value) == value


@pytest.mark.parametrize("section", [*SECTIONS, Config])
def test_settings_cannot_be_changed(section):
    with pytest.raises(AttributeError):
        setattr(section(), section.__struct_fields__[0], 1)


@pytest.mark.parametrize("section", SECTIONS)
def test_unknown_keys_are_refused(section):
    with pytest.raises(msgspec.ValidationError, match="unknown field"):
        msgspec.convert({"colour": "red"}, section)


def test_namespace_options_have_the_names_and_defaults_of_a_namespace():
    defaults = {one.name: one.default for one in fields(Namespace) if one.default is not MISSING}
    del defaults["name"]
    assert msgspec.structs.asdict(NamespaceOptions()) == defaults


def test_the_server_s_defaults_are_those_of_its_settings_and_of_sessions():
    given = msgspec.structs.asdict(ServerConfig())
    refusal = given.pop("refusal")
    settings = ServerSettings(**given)
    assert settings == ServerSettings()
    assert refusal == signature(Sessions).parameters["refusal"].default


def test_secrets_are_not_shown():
    config = Config(
        server=ServerConfig(token="s3cret"),
        gateway=GatewayConfig(broker="redis://:s3cret@host"),
        namespaces=(Namespace(name="room", snapshot="https://u:s3cret@host/"),),
    )
    for shown in (repr(config), str(config), repr(config.server), repr(config.gateway)):
        assert "s3cret" not in shown
    assert "token='...'" in repr(config)
    assert "room" in repr(config)
    assert "token=None" in repr(Config())
    assert dict(config.server.__rich_repr__())["port"] == 8765


@pytest.mark.parametrize(
    ("gateway", "url"),
    [
        (GatewayConfig(), "memory:"),
        (GatewayConfig(broker="nats://host"), "nats://host"),
        (GatewayConfig(data="/var/lib/live"), "sqlite:////var/lib/live/tidegate.sqlite"),
        (GatewayConfig(data="live/"), "sqlite:///live/tidegate.sqlite"),
        (GatewayConfig(data="a b?#%20"), "sqlite:///a%20b%3F%23%2520/tidegate.sqlite"),
    ],
)
def test_the_url_of_the_broker(gateway, url):
    assert gateway.broker_url == url


@pytest.mark.parametrize("folder", ["plain", "with ? and # and %20", "ä"])
async def test_the_broker_of_a_data_folder_lies_in_that_folder(folder, tmp_path):
    config = GatewayConfig(data=str(tmp_path / folder))
    broker = broker_from_url(config.broker_url)

    class Sink:
        def on_publication(self, channel, publication):
            pass

        def on_reset(self, channel, head):
            pass

        def on_disconnected(self):
            pass

        def on_reconnected(self):
            pass

    await broker.start(Sink())
    await broker.stop()
    assert (tmp_path / folder / "tidegate.sqlite").is_file()
