"""Where a channel says what its publisher cannot be told: a callback, or one log line."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Literal

__all__ = ["DiagnosticCallback", "DiagnosticKind", "Diagnostics"]

DiagnosticKind = Literal[
    "slow_client_warning", "client_evicted", "event_unserializable", "threadsafe_dropped"
]
DiagnosticCallback = Callable[[str, dict[str, Any]], None]

_log = logging.getLogger("tidegate.channel")

_GENERATIONS: Final = 8


class Diagnostics:
    """Collects reports while a channel is busy and gives them out when it is consistent.

    They are given out in the order in which they arose. A callback may publish,
    subscribe, abort or close: what that causes is reported after it has returned. A
    callback whose every publish causes another report would go on for ever: from the
    eighth generation on the reports go to the log.
    """

    __slots__ = ("_callback", "_generation", "_name", "_pending")

    def __init__(self, name: str, callback: DiagnosticCallback | None) -> None:
        self._name = name
        self._callback = callback
        self._pending: deque[tuple[int, DiagnosticKind, dict[str, Any]]] = deque()
        # That of the report whose callback runs; 0 when none does.
        self._generation = 0

    def add(self, kind: DiagnosticKind, data: dict[str, Any]) -> None:
        """Remember a report; ``data`` is copied, so that no callback can change a frame."""
        self._pending.append((self._generation + 1, kind, dict(data)))

    def flush(self) -> None:
        """Give out what was remembered, unless a flush is under way that will. Never raises."""
        if self._generation:
            return
        try:
            while self._pending:
                self._generation, kind, data = self._pending.popleft()
                self._give(kind, data, self._generation > _GENERATIONS)
        finally:
            self._generation = 0

    def emit_from_thread(self, kind: DiagnosticKind, data: dict[str, Any]) -> None:
        """Give out one report in the calling thread. Never raises."""
        self._give(kind, data, False)

    def _give(self, kind: DiagnosticKind, data: dict[str, Any], log_only: bool) -> None:
        if self._callback is None or log_only:
            _log.warning("channel %r: %s %r", self._name, kind, data)
            return
        try:
            self._callback(kind, data)
        except Exception:  # noqa: BLE001 - the user's callback may raise anything
            _log.exception("channel %r: on_diagnostic(%r) failed", self._name, kind)
