"""Where settings come from: a file, the environment, overrides. Each gives checked settings."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final

from tidegate.config.sections import GatewayConfig, NamespaceOptions, ServerConfig, kinds_of
from tidegate.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from msgspec import Struct

    from tidegate.config.kinds import Kind

__all__ = ["MAX_FILE_BYTES", "PREFIX", "Setting", "from_environ", "from_mapping", "read_file"]

PREFIX: Final = "TIDEGATE__"
"""What the name of each environment variable that is a setting begins with."""

MAX_FILE_BYTES: Final = 1024 * 1024
"""The largest file that is taken for a configuration."""

_NAMESPACES: Final = "namespaces"
_SECTIONS: Final[dict[str, type[Struct]]] = {"server": ServerConfig, "gateway": GatewayConfig}
_SECTION_NAMES: Final = [*_SECTIONS, _NAMESPACES]
_SHOWN: Final = 80


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting that somebody gave.

    Attributes:
        path: ``(section, key)``, or ``("namespaces", name, key)``. Just ``("namespaces", name)``
            is a namespace without an option.
        value: checked, as it is used.
        where: what a message about it begins with.
    """

    path: tuple[str, ...]
    value: Any
    where: str


def read_file(path: Path) -> dict[str, Any]:
    """Read a TOML file.

    Raises:
        ConfigError: there is none, it cannot be read, or it is no TOML. The message has none of
            its content.
    """
    # None of these errors is chained: the one of TOML holds the whole text.
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        raise ConfigError(f"{path}: there is no such file") from None
    except (OSError, ValueError) as error:
        problem = getattr(error, "strerror", None) or "that is no path"
        raise ConfigError(f"{path}: it cannot be read: {problem}") from None
    if len(raw) > MAX_FILE_BYTES:
        raise ConfigError(f"{path}: it is larger than {MAX_FILE_BYTES} bytes")
    try:
        return tomllib.loads(raw.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{path}: line {line} is not UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: it is no TOML: {error}") from None
    except (ValueError, RecursionError):
        raise ConfigError(f"{path}: it is no TOML: a value is too large or too deep") from None


def from_mapping(values: Mapping[str, Any], source: str = "") -> Iterator[Setting]:
    """Check nested settings: sections of keys, as a file has them. A value of ``None`` is not one.

    Args:
        values: by section.
        source: where they are from, to begin a message with.

    Raises:
        ConfigError: a section or a key does not exist, or a value is not allowed.
    """
    start = f"{source}: " if source else ""
    for section, table in values.items():
        if section not in _SECTION_NAMES:
            raise ConfigError(start + _unknown("section", section, _SECTION_NAMES))
        if table is None:
            continue
        where = f"{start}{section}"
        if section != _NAMESPACES:
            kinds = kinds_of(_SECTIONS[section])
            yield from _of_table((section,), _checked_table(table, where), kinds, where)
            continue
        for name, options in _checked_table(table, where).items():
            inner = f"{where}.{_escaped(name)}"
            yield Setting((section, name), None, inner)
            if options is not None:
                kinds = kinds_of(NamespaceOptions)
                yield from _of_table((section, name), _checked_table(options, inner), kinds, inner)


def from_environ(environ: Mapping[str, str], namespaces: Iterable[str] = ()) -> Iterator[Setting]:
    """Check the settings of the environment.

    Sections and keys are read without regard to case; so is a namespace that is known already, and
    a new one is taken in lower case.

    Args:
        environ: variables; those that do not begin with `PREFIX` are passed over.
        namespaces: the names of those that are known.

    Raises:
        ConfigError: a variable names no setting, or its value is not allowed.
    """
    known: dict[str, list[str]] = {}
    seen: dict[tuple[str, ...], str] = {}
    for name in namespaces:
        known.setdefault(name.lower(), []).append(name)
    for variable in sorted(environ):
        if not variable.startswith(PREFIX):
            continue
        where = _escaped(variable)
        section, _, rest = variable[len(PREFIX) :].lower().partition("__")
        # Only the ends are split off: a namespace may have two underscores of its own.
        name, _, key = rest.rpartition("__")
        kinds = _kinds_in(section, name, key, where)
        if key not in kinds:
            raise ConfigError(f"{where}: {_unknown('key', key, kinds)}")
        path: tuple[str, ...] = (section, key)
        if section == _NAMESPACES:
            candidates = known.get(name, [name])
            if len(candidates) > 1:
                raise ConfigError(f"{where}: that may be {' or '.join(candidates)}; use the file")
            path = (section, candidates[0], key)
            yield Setting(path[:2], None, where)
        if path in seen:
            raise ConfigError(f"{where}: {seen[path]} is the same setting; leave one away")
        seen[path] = where
        kind, text = kinds[key], environ[variable]
        yield Setting(path, _checked(kind.from_text(text), text, kind, where), where)


def _kinds_in(section: str, name: str, key: str, where: str) -> Mapping[str, Kind]:
    if section in _SECTIONS and key and not name:
        return kinds_of(_SECTIONS[section])
    if section == _NAMESPACES and key and name:
        return kinds_of(NamespaceOptions)
    if section in _SECTION_NAMES or not section:
        raise ConfigError(
            f"{where}: a setting is written {PREFIX}SECTION__KEY or {PREFIX}NAMESPACES__NAME__KEY"
        )
    raise ConfigError(f"{where}: {_unknown('section', section, _SECTION_NAMES)}")


def _of_table(
    path: tuple[str, ...], table: Mapping[str, Any], kinds: Mapping[str, Kind], where: str
) -> Iterator[Setting]:
    for key, value in table.items():
        if key not in kinds:
            raise ConfigError(f"{where}: {_unknown('key', key, kinds)}")
        if value is not None:
            name = f"{where}.{key}"
            yield Setting((*path, key), _checked(value, value, kinds[key], name), name)


def _checked_table(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ConfigError(f"{where} must be a table")
    return value


def _checked(value: Any, given: Any, kind: Kind, where: str) -> Any:
    checked = kind.check(value)
    if checked is None:
        tail = "" if kind.secret else f", not {_describe(given)}"
        raise ConfigError(f"{where} must be {kind.allowed}{tail}")
    return checked


def _unknown(noun: str, given: object, names: Iterable[str]) -> str:
    """There is none; the one that may be meant, or all that there are."""
    text = str(given)
    near = get_close_matches(text[:_SHOWN].lower(), names, n=1)
    tail = f"did you mean {near[0]}?" if near else f"the {noun}s are {', '.join(names)}"
    return f"there is no {noun} {_escaped(text)}; {tail}"


def _escaped(name: str) -> str:
    """A name for a message: one line, short, escaped."""
    return ascii(name if len(name) <= _SHOWN else name[:_SHOWN] + "...")[1:-1]


def _describe(value: object) -> str:
    """A value for a message."""
    if isinstance(value, str):
        return f'"{_escaped(value)}"'
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) and value.bit_length() > 128:
        return "a number of that size"  # Python refuses to write the longest ones
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, Mapping):
        return "a table"
    return "such a list" if isinstance(value, list | tuple) else f"a {type(value).__name__}"
