"""Where a channel says what its publisher cannot be told: a callback, or one log line."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final, Literal

__all__ = ["DiagnosticCallback", "DiagnosticKind", "Diagnostics"]

DiagnosticKind = Literal[
    "slow_client_warning", "client_evicted", "event_unserializable", "threadsafe_dropped"
]
DiagnosticCallback = Callable[[str, dict[str, Any]], None]

_log = logging.getLogger("tidegate.channel")

_MAX_DEPTH: Final = 8


class Diagnostics:
    """Collects reports while a channel is busy and gives them out when it is consistent.

    A callback may publish, subscribe, abort or close. What its own calls cause is
    reported inside them. A callback whose every publish causes another report would go
    on for ever: from the eighth level on the reports go to the log.
    """

    __slots__ = ("_callback", "_depth", "_name", "_pending")

    def __init__(self, name: str, callback: DiagnosticCallback | None) -> None:
        self._name = name
        self._callback = callback
        self._pending: list[tuple[DiagnosticKind, dict[str, Any]]] = []
        self._depth = 0

    def add(self, kind: DiagnosticKind, data: dict[str, Any]) -> None:
        """Remember a report; ``data`` is copied, so that no callback can change a frame."""
        self._pending.append((kind, dict(data)))

    def flush(self) -> None:
        """Give out what was remembered. Never raises."""
        while self._pending:
            pending, self._pending = self._pending, []
            for kind, data in pending:
                self.emit(kind, data)

    def emit(self, kind: DiagnosticKind, data: dict[str, Any]) -> None:
        """Give out one report at once. Never raises."""
        if self._callback is None or self._depth >= _MAX_DEPTH:
            _log.warning("channel %r: %s %r", self._name, kind, data)
            return
        self._depth += 1
        try:
            self._callback(kind, data)
        except Exception:  # noqa: BLE001 - the user's callback may raise anything
            _log.exception("channel %r: on_diagnostic(%r) failed", self._name, kind)
        finally:
            self._depth -= 1
