"""What `tidegate serve` is told, and which of it is refused."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from tidegate.channel.options import MAX_RING_SIZE
from tidegate.config import GatewayConfig
from tidegate.errors import ServeError
from tidegate.server.hosts import is_loopback, is_origin

if TYPE_CHECKING:
    from tidegate.config import Config
    from tidegate.gateway.namespaces import Namespace
    from tidegate.stream.refusal import RefusalForm

__all__ = ["ServerSettings"]

_log = logging.getLogger("tidegate.server")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """The settings of a server; a wrong one is refused when it is made.

    Raises:
        ServeError: a setting makes no sense, or would open the server to strangers; the
            message says what to change.
    """

    host: str = "127.0.0.1"
    """The address to bind."""
    port: int = 8765
    """The port to bind; 0 takes a free one."""
    event_ring_size: int = 8000
    """Events that each session keeps for replay; more than 1,000,000 becomes that."""
    token: str | None = field(default=None, repr=False)
    """What every client must present; needed to bind anything but loopback."""
    dev: bool = False
    """For development: pages of any origin on this machine may call the server."""
    allow_origins: tuple[str, ...] = ()
    """Origins of other servers whose pages may call this one; ``*`` for any."""
    max_sessions: int = 1000
    """Sessions at one time."""
    idle_seconds: float = 1800.0
    """After how long without use a session is ended."""
    drain_seconds: float = 0.0
    """Over which to spread the ends of streams when the server stops."""
    refusal: RefusalForm = "auto"
    """``status`` refuses streams with a plain status also where browsers would not come back."""
    gateway: GatewayConfig = field(default_factory=GatewayConfig)
    """What channels are served with, and where their histories live."""
    namespaces: tuple[Namespace, ...] = ()
    """The options of channels, by namespace; none at all: every channel has the defaults."""

    def __post_init__(self) -> None:
        """Refuse what makes no sense together."""
        if not self.host:
            raise ServeError("--host is empty; give an address, such as 127.0.0.1")
        if not 0 <= self.port <= 65535:
            raise ServeError(f"--port is 0 to 65535, not {self.port}")
        if self.event_ring_size < 0:
            raise ServeError(f"--event-ring-size is 0 or more, not {self.event_ring_size}")
        if self.event_ring_size > MAX_RING_SIZE:
            _log.warning(
                "--event-ring-size %d is more than the maximum; %d is used",
                self.event_ring_size,
                MAX_RING_SIZE,
            )
            object.__setattr__(self, "event_ring_size", MAX_RING_SIZE)
        if self.max_sessions < 1 or self.idle_seconds <= 0 or self.drain_seconds < 0:
            raise ServeError(
                "max_sessions and idle_seconds must be positive, drain_seconds not negative"
            )
        if self.refusal not in {"auto", "status"}:
            raise ServeError(f"refusal is auto or status, not {str(self.refusal)[:80]!a}")
        self._check_token()
        self._check_origins()

    @classmethod
    def from_config(cls, config: Config, **flags: Any) -> Self:
        """Make the settings of a configuration.

        Args:
            config: what `tidegate.config.load_config` returned.
            flags: settings by name that go before those of ``[server]``.

        Raises:
            ServeError: as the class does.
        """
        server = {name: getattr(config.server, name) for name in config.server.__struct_fields__}
        return cls(gateway=config.gateway, namespaces=config.namespaces, **server | flags)

    @property
    def on_loopback(self) -> bool:
        """Whether only this machine can reach the server."""
        return is_loopback(self.host)

    def _check_token(self) -> None:
        if self.token is not None and not (
            self.token
            and self.token.isascii()
            and self.token.isprintable()
            and " " not in self.token
        ):
            raise ServeError("--token must be visible ASCII without spaces, and not empty")
        if self.on_loopback:
            return
        if self.dev:
            raise ServeError(
                f"--dev serves this machine only, and {self.host} is reached from others; "
                "bind --host 127.0.0.1, or leave --dev away and give a --token"
            )
        if self.token is None:
            raise ServeError(
                f"{self.host} is reached from other machines, and nothing guards the server; "
                "give a --token (or TIDEGATE_TOKEN), or bind --host 127.0.0.1"
            )

    def _check_origins(self) -> None:
        for origin in self.allow_origins:
            if origin == "*":
                if self.token is None:
                    raise ServeError(
                        "--allow-origin '*' lets every web page that you visit call the server; "
                        "give a --token, or name the origins"
                    )
            elif not is_origin(origin):
                raise ServeError(
                    f"--allow-origin {origin!a} is no origin; "
                    "write it as browsers do, such as https://app.example or http://localhost:3000"
                )
