"""Brokers by URL, as the command line and the configuration name them."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, unquote, urlsplit

from tidegate.errors import ConfigError
from tidegate.gateway.brokers.memory import MemoryBroker

if TYPE_CHECKING:
    from tidegate.gateway.brokers.base import Broker

__all__ = ["broker_from_url"]

_LATER = {"redis", "rediss", "redis+sentinel", "redis+cluster", "nats", "tls"}


def broker_from_url(url: str) -> Broker:
    """Make the broker that a URL names; it is not started.

    ==============================  ========================================================
    ``memory:``                     `tidegate.gateway.brokers.memory.MemoryBroker`
    ``sqlite:///PATH``              `tidegate.gateway.brokers.sqlite.SqliteBroker`; ``PATH`` is
                                    relative, ``sqlite:////PATH`` is absolute. Option:
                                    ``?synchronous=full`` (the default) or ``normal``
    ==============================  ========================================================

    Raises:
        ConfigError: it names none. The message never repeats a URL that may hold a password.
    """
    scheme, colon, rest = url.partition(":")
    scheme = scheme.lower()
    if scheme == "memory" and colon:
        if rest.strip("/"):
            raise ConfigError("the broker's URL memory: takes nothing behind the colon")
        return MemoryBroker()
    if scheme == "sqlite" and colon:
        return _sqlite(url)
    if scheme in _LATER:
        raise ConfigError(
            f"this version of Tidegate has no broker for {scheme} URLs; "
            "use memory: or sqlite:///PATH"
        )
    raise ConfigError("a broker's URL is memory: or sqlite:///PATH")


def _sqlite(url: str) -> Broker:
    try:
        parts = urlsplit(url)
        options = parse_qsl(
            parts.query, keep_blank_values=True, strict_parsing=bool(parts.query), errors="strict"
        )
    except ValueError as error:
        raise ConfigError(f"the broker's URL cannot be read: {error}") from error
    path = unquote(parts.path.removeprefix("/"))
    if parts.netloc or not path or not url[len("sqlite:") :].startswith("///"):
        raise ConfigError(
            "a SQLite broker's URL is sqlite:///PATH, with a fourth / for an absolute one"
        )
    if "\0" in path or path.endswith("/"):
        raise ConfigError(f"{path[:80]!a} is no file's path")
    if parts.fragment:
        raise ConfigError("write a # in a SQLite broker's path as %23")
    synchronous = "full"
    for name, value in options:
        if name != "synchronous":
            raise ConfigError(f"a SQLite broker has no option {name[:80]!a}, only synchronous")
        synchronous = value
    # Not above: where there is no SQLite, there is still memory.
    from tidegate.gateway.brokers.sqlite import SqliteBroker  # noqa: PLC0415
    from tidegate.gateway.brokers.sqlite_schema import checked_synchronous  # noqa: PLC0415

    return SqliteBroker(path, synchronous=checked_synchronous(synchronous))
