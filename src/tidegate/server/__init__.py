"""What ``tidegate serve`` puts together: settings, the application, the process."""

from __future__ import annotations

from tidegate.errors import MissingExtra

try:
    import starlette as _starlette
    import uvicorn as _uvicorn
except ImportError as error:
    raise MissingExtra(error.name or "uvicorn", "server") from error

from tidegate.server.app import create_app
from tidegate.server.run import serve
from tidegate.server.settings import ServerSettings

__all__ = ["ServerSettings", "create_app", "serve"]

del _starlette, _uvicorn
