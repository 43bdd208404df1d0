"""Reading a configuration: flags go before the environment, that before the file, then defaults."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tidegate.config.sections import Config, GatewayConfig, ServerConfig, kinds_of
from tidegate.config.sources import Setting, from_environ, from_mapping, read_file
from tidegate.errors import ConfigError
from tidegate.gateway.namespaces import Namespace

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["load_config"]

_TOKEN: Final = ("server", "token")
_BROKER: Final = ("gateway", "broker")
_DATA: Final = ("gateway", "data")
_FROM_ENVIRON: Final = "env:"
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


def load_config(
    path: Path | str | None = None,
    *,
    environ: Mapping[str, str] = os.environ,
    overrides: Mapping[str, Any] | None = None,
) -> Config:
    """Read the settings.

    Args:
        path: a ``tidegate.toml``; ``None`` for no file. A relative ``data`` in it is meant from
            its folder, so that the history is the same one wherever the process is started.
        environ: the environment; a setting is ``TIDEGATE__SECTION__KEY``.
        overrides: settings that go before all others, such as those of flags: by section and key,
            as in the file. ``None`` as a value is as good as no such key.

    Returns:
        The settings, each of them checked by itself. What makes no sense together, as a server
        that strangers can reach without a token, is for those to say who use them.

    Raises:
        ConfigError: the file is missing or cannot be read; there is no such section or key; a
            value is not allowed. The message says where, and what is allowed; it never shows a
            secret.
    """
    settings: dict[tuple[str, ...], Setting] = {}
    if path is not None:
        file = Path(path)
        _add(settings, from_mapping(read_file(file), str(file)))
        _take_from(file.parent, settings)
    names = [path[1] for path in settings if path[0] == "namespaces" and len(path) == 2]
    _add(settings, from_environ(environ, names))
    _add(settings, from_mapping(overrides or {}))
    _resolve_token(settings, environ)
    return Config(
        server=ServerConfig(**_section(settings, "server")),
        gateway=GatewayConfig(**_section(settings, "gateway")),
        namespaces=tuple(_namespaces(settings)),
    )


def _add(settings: dict[tuple[str, ...], Setting], more: Iterable[Setting]) -> None:
    """Put the settings of one source over those of the sources before."""
    layer = {setting.path: setting for setting in more}
    if _BROKER in layer and _DATA in layer:
        raise ConfigError(f"{layer[_DATA].where}: give broker or data, not both")
    # The two are one setting: each takes the place of the other.
    if _BROKER in layer:
        settings.pop(_DATA, None)
    if _DATA in layer:
        settings.pop(_BROKER, None)
    settings.update(layer)


def _take_from(folder: Path, settings: dict[tuple[str, ...], Setting]) -> None:
    given = settings.get(_DATA)
    if given is not None:
        settings[_DATA] = Setting(_DATA, str(folder / given.value), given.where)


def _resolve_token(settings: dict[tuple[str, ...], Setting], environ: Mapping[str, str]) -> None:
    given = settings.get(_TOKEN)
    if given is None or not given.value.startswith(_FROM_ENVIRON):
        return
    name = given.value.removeprefix(_FROM_ENVIRON)
    if _VARIABLE.fullmatch(name) is None:
        # Not shown: it may be a token that only looks like it.
        raise ConfigError(f"{given.where}: what follows {_FROM_ENVIRON} is no variable's name")
    text = environ.get(name)
    token = kinds_of(ServerConfig)["token"].check(text)
    if token is None:
        problem = "is not visible ASCII without spaces" if text else "is not set"
        raise ConfigError(f"{given.where}: the environment variable {name} {problem}")
    settings[_TOKEN] = Setting(_TOKEN, token, given.where)


def _section(settings: Mapping[tuple[str, ...], Setting], *path: str) -> dict[str, Any]:
    depth = len(path)
    return {
        key[depth]: setting.value
        for key, setting in settings.items()
        if key[:depth] == path and len(key) > depth
    }


def _namespaces(settings: Mapping[tuple[str, ...], Setting]) -> Iterable[Namespace]:
    for path, setting in settings.items():
        if path[0] == "namespaces" and len(path) == 2:
            try:
                yield Namespace(name=path[1], **_section(settings, *path))
            except ValueError as error:
                raise ConfigError(f"{setting.where}: {error}") from None
