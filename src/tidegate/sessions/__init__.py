"""Named channels over HTTP, and runs that outlive the request that started them."""

from __future__ import annotations

from tidegate.errors import MissingExtra

try:
    import starlette as _starlette
except ImportError as error:
    raise MissingExtra("starlette", "server") from error

from tidegate.sessions.registry import Sessions, SnapshotProvider
from tidegate.sessions.run import Run
from tidegate.sessions.session import Session
from tidegate.sessions.snapshot import Loaded, Snapshot

__all__ = ["Loaded", "Run", "Session", "Sessions", "Snapshot", "SnapshotProvider"]

del _starlette
