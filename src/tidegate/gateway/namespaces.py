"""Namespaces: the options that all channels with one prefix share. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from tidegate.channel.options import checked_integer
from tidegate.errors import UnknownNamespace
from tidegate.gateway.brokers.base import HistoryPolicy
from tidegate.gateway.names import DEFAULT_NAMESPACE, namespace_of

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Namespace", "Namespaces", "Recovery", "SlowPolicy", "SnapshotProvider"]

Recovery = Literal["all", "latest"]
"""What a returning client gets: all that it missed, or the newest event only."""

SlowPolicy = Literal["evict", "conflate", "drop_oldest"]
"""What is done for a subscriber that does not keep up."""

SnapshotProvider = Callable[[str], Awaitable[Any] | Any]
"""Computes a channel's full state. It gets the channel's name and returns ``None`` for none, or
``(state, position)``, or, wrapped in a tuple of one, ``(state,)``: then the state takes account of
all events that were published before the call."""

_NAME = re.compile(r"[A-Za-z0-9._~@-]{1,200}", re.ASCII)
_MAX_HISTORY: Final = 10_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Namespace:
    """The options of the channels whose name begins with ``<name>:``.

    Attributes:
        name: the prefix; ``default`` is that of names without ``:``.
        history_size: events kept; 0 for none, live only. With ``recovery="latest"`` it is 1.
        history_ttl: seconds after the last publish when they are dropped.
        idempotency_ttl: seconds that an idempotency key is remembered; ``None``: as long as
            ``history_ttl``.
        recovery: what a returning client gets.
        slow: what is done for a slow subscriber.
        max_subscribers: per channel and node; ``None`` for no limit.
        snapshot: ``None``, ``"stored"``, the URL of a webhook, or a `SnapshotProvider`.

    Raises:
        TypeError: an option has the wrong type.
        ValueError: an option is out of its range.
    """

    name: str = DEFAULT_NAMESPACE
    history_size: int = 1000
    history_ttl: float = 3600.0
    idempotency_ttl: float | None = None
    recovery: Recovery = "all"
    slow: SlowPolicy = "evict"
    max_subscribers: int | None = None
    snapshot: str | SnapshotProvider | None = None

    def __post_init__(self) -> None:
        """Refuse what makes no sense."""
        if not isinstance(self.name, str):
            raise TypeError(f"a namespace's name is a string, not {type(self.name).__name__}")
        if _NAME.fullmatch(self.name) is None:
            raise ValueError(
                f"a namespace's name is 1 to 200 of A-Z a-z 0-9 . _ ~ @ -, not {self.name[:80]!a}"
            )
        checked_integer("history_size", self.history_size, 0)
        if self.history_size > _MAX_HISTORY:
            raise ValueError(f"history_size is at most {_MAX_HISTORY}, not {self.history_size}")
        _check_seconds("history_ttl", self.history_ttl)
        if self.idempotency_ttl is not None:
            _check_seconds("idempotency_ttl", self.idempotency_ttl)
        _check_choice("recovery", self.recovery, ("all", "latest"))
        _check_choice("slow", self.slow, ("evict", "conflate", "drop_oldest"))
        if self.max_subscribers is not None:
            checked_integer("max_subscribers", self.max_subscribers, 1)
        self._check_snapshot()

    @property
    def policy(self) -> HistoryPolicy:
        """What a broker is told of it."""
        return HistoryPolicy(
            size=min(self.history_size, 1) if self.recovery == "latest" else self.history_size,
            ttl=self.history_ttl,
            idempotency_ttl=(
                self.history_ttl if self.idempotency_ttl is None else self.idempotency_ttl
            ),
        )

    @property
    def linked(self) -> bool:
        """Whether its streams never skip an event on purpose."""
        return self.recovery == "all" and self.slow != "conflate"

    def _check_snapshot(self) -> None:
        if self.snapshot is None or callable(self.snapshot):
            return
        if not isinstance(self.snapshot, str):
            raise TypeError("snapshot is 'stored', a URL, a callable or None")
        if self.snapshot != "stored" and not self.snapshot.startswith(("http://", "https://")):
            raise ValueError(f"snapshot is 'stored' or an http URL, not {self.snapshot[:80]!a}")


class Namespaces:
    """All namespaces of a gateway.

    When none is configured, every name is served with the defaults; else an unknown namespace
    is refused.

    Args:
        namespaces: the configured ones.
        open_to_all: serve unknown ones with the defaults all the same, as ``--dev`` does.

    Raises:
        ValueError: two have the same name.
    """

    def __init__(self, namespaces: Iterable[Namespace] = (), *, open_to_all: bool = False) -> None:
        self._configured: dict[str, Namespace] = {}
        for namespace in namespaces:
            if namespace.name in self._configured:
                raise ValueError(f"the namespace {namespace.name} is configured twice")
            self._configured[namespace.name] = namespace
        self._fallback = Namespace() if open_to_all or not self._configured else None
        self._policies = {name: one.policy for name, one in self._configured.items()}
        self._fallback_policy = HistoryPolicy() if self._fallback is None else self._fallback.policy

    def of(self, channel: str) -> Namespace:
        """Return the options of a channel.

        Raises:
            UnknownNamespace: its namespace is not configured, but others are.
        """
        name = namespace_of(channel)
        found = self._configured.get(name, self._fallback)
        if found is None:
            raise UnknownNamespace(name)
        return found

    def policy_of(self, channel: str) -> HistoryPolicy:
        """Return what a broker is told of a channel, made once.

        Raises:
            UnknownNamespace: as `of` does.
        """
        name = namespace_of(channel)
        policy = self._policies.get(name)
        if policy is not None:
            return policy
        if self._fallback is None:
            raise UnknownNamespace(name)
        return self._fallback_policy


def _check_seconds(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} is a number of seconds, not {type(value).__name__}")
    if not 0 < value < math.inf:
        raise ValueError(f"{name} must be positive, not {value}")


def _check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{name} is one of {', '.join(choices)}, not {str(value)[:80]!a}")
