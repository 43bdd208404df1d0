"""The sections of a configuration: their keys, defaults, and what each key may be. Pure."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, get_type_hints
from urllib.parse import quote

from msgspec import Struct

from tidegate.config.kinds import Kind, boolean, choice, duration, string, strings, whole
from tidegate.gateway.namespaces import (  # noqa: TC001 - hints are read when it runs
    Namespace,
    Recovery,
    SlowPolicy,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Config", "GatewayConfig", "NamespaceOptions", "ServerConfig", "kinds_of"]

_MIB: Final = 1024 * 1024
_MAX_BYTES: Final = 1024 * _MIB


class _Section(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Shows all but its secrets."""

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """What `repr` and rich show."""
        shown = [(name, kind, getattr(self, name)) for name, kind in kinds_of(type(self)).items()]
        return [
            (name, "..." if kind.secret and value is not None else value)
            for name, kind, value in shown
        ]

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self.__rich_repr__())
        return f"{type(self).__name__}({shown})"


class ServerConfig(_Section, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The section ``[server]``: what ``tidegate serve`` is told. Durations are in seconds."""

    host: Annotated[str, string("an address or a host name", r"[^\s/]{1,255}")] = "127.0.0.1"
    """The address to bind."""
    port: Annotated[int, whole(0, 65535)] = 8765
    """The port to bind; 0 takes a free one."""
    token: Annotated[
        str | None,
        string('visible ASCII without spaces, or "env:NAME"', r"[!-~]{1,4096}", secret=True),
    ] = None
    """What every client must present."""
    dev: Annotated[bool, boolean()] = False
    """For development, on loopback only."""
    allow_origins: Annotated[
        tuple[str, ...], strings('a list of origins such as "https://app.example"', r"[!-~]{1,512}")
    ] = ()
    """Origins of other servers whose pages may call this one."""
    event_ring_size: Annotated[int, whole(0)] = 8000
    """Events that each session keeps for replay."""
    max_sessions: Annotated[int, whole(1)] = 1000
    """Sessions at one time."""
    idle_seconds: Annotated[float, duration()] = 1800.0
    """After how long without use a session is ended."""
    drain_seconds: Annotated[float, duration(zero=True)] = 0.0
    """Over which to spread the ends of streams when the server stops."""
    refusal: Annotated[Literal["auto", "status"], choice("auto", "status")] = "auto"
    """How a stream is refused: as its client takes it best, or always by the plain status."""


class GatewayConfig(_Section, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The section ``[gateway]``: one node. Durations are in seconds."""

    broker: Annotated[
        str | None,
        string(
            'the URL of a broker, such as "memory:" or "sqlite:///PATH"',
            r"[a-z][a-z0-9+.-]*:.{0,4096}",
            secret=True,
        ),
    ] = None
    """The broker's URL; it may hold a password."""
    data: Annotated[str | None, string("a folder", r"[^\0]{1,4096}")] = None
    """The folder of a durable history: short for SQLite in it."""
    node: Annotated[
        str | None, string("1 to 128 of A-Z a-z 0-9 . _ ~ -", r"[A-Za-z0-9._~-]{1,128}")
    ] = None
    """The node's name; ``None``: one is made up."""
    heartbeat: Annotated[float, duration()] = 15.0
    """After so much silence a stream gets a comment."""
    retry_ms: Annotated[int, whole(1, 3_600_000)] = 3000
    """Milliseconds that a client is told to wait before it comes back."""
    write_timeout: Annotated[float, duration()] = 30.0
    """A write blocked for so long evicts the client."""
    max_channels: Annotated[int, whole(1, 200)] = 100
    """Channels of one stream."""
    max_body_bytes: Annotated[int, whole(1024, _MAX_BYTES)] = _MIB
    """Bytes of a request's body."""
    max_event_bytes: Annotated[int, whole(1024, _MAX_BYTES)] = _MIB
    """Bytes of an event."""
    unsubscribe_delay: Annotated[float, duration(zero=True)] = 1.0
    """How long a channel is followed after its last subscriber left."""

    @property
    def broker_url(self) -> str:
        """The broker to use: ``broker``, or SQLite in ``data``, or ``memory:``."""
        if self.broker is not None:
            return self.broker
        if self.data is None:
            return "memory:"
        return f"sqlite:///{quote(str(Path(self.data, 'tidegate.sqlite')))}"


class NamespaceOptions(_Section, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A section ``[namespaces.NAME]``: what of a `Namespace` a file can express.

    Its defaults are those of `Namespace`, which is what a configuration holds in the end.
    """

    history_size: Annotated[int, whole(0, 10_000_000)] = 1000
    """Events kept."""
    history_ttl: Annotated[float, duration()] = 3600.0
    """How long after the last publish they are dropped."""
    idempotency_ttl: Annotated[float | None, duration()] = None
    """How long an idempotency key is remembered; ``None``: as long as ``history_ttl``."""
    recovery: Annotated[Recovery, choice("all", "latest")] = "all"
    """What a returning client gets."""
    slow: Annotated[SlowPolicy, choice("evict", "conflate", "drop_oldest")] = "evict"
    """What is done for a subscriber that does not keep up."""
    max_subscribers: Annotated[int | None, whole(1)] = None
    """Per channel and node; ``None`` for no limit."""
    snapshot: Annotated[
        str | None,
        string(
            '"stored" or the http URL of a webhook', r"stored|https?://[!-~]{1,2048}", secret=True
        ),
    ] = None
    """Where a channel's state comes from."""


class Config(Struct, frozen=True, kw_only=True):
    """All settings.

    Attributes:
        server: the section ``[server]``.
        gateway: the section ``[gateway]``.
        namespaces: one for each section ``[namespaces.NAME]``.
    """

    server: ServerConfig = ServerConfig()
    gateway: GatewayConfig = GatewayConfig()
    namespaces: tuple[Namespace, ...] = ()

    def __repr__(self) -> str:
        # The URL of a snapshot's webhook may hold a password.
        names = ", ".join(namespace.name for namespace in self.namespaces)
        return f"Config(server={self.server!r}, gateway={self.gateway!r}, namespaces=<{names}>)"


_KINDS: Final[dict[type[Struct], Mapping[str, Kind]]] = {}


def kinds_of(section: type[Struct]) -> Mapping[str, Kind]:
    """Return what each key of a section may be, in the order of its keys."""
    kinds = _KINDS.get(section)
    if kinds is None:
        hints = get_type_hints(section, include_extras=True)
        kinds = _KINDS[section] = {
            name: next(one for one in hints[name].__metadata__ if isinstance(one, Kind))
            for name in section.__struct_fields__
        }
    return kinds
