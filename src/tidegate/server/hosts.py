"""Hosts and origins: which are this machine, which are this server. Pure."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

__all__ = ["host_of", "is_loopback", "is_origin", "same_host"]

_PORTS: Final = {"http": 80, "https": 443}


def is_loopback(host: str) -> bool:
    """Tell whether a host name or address can only mean this machine."""
    name = host.lower().rstrip(".")
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False


def host_of(header: str) -> str | None:
    """Return the host of a ``Host`` header, without port and brackets; ``None`` if broken."""
    try:
        parts = urlsplit(f"//{header}")
        parts.port  # noqa: B018 - raises if it is none
    except ValueError:
        return None
    return parts.hostname if parts.username is None and not parts.path else None


def is_origin(text: str) -> bool:
    """Tell whether ``text`` is an origin as browsers write it, such as ``https://a.example``."""
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        return False
    if parts.scheme not in _PORTS or not parts.hostname:
        return False
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return text == f"{parts.scheme}://{host}" + ("" if port is None else f":{port}")


def same_host(origin: str, host: str) -> bool:
    """Tell whether a page of ``origin`` came from the server that is called ``host``.

    Args:
        origin: the header ``Origin``.
        host: the header ``Host``.
    """
    if not is_origin(origin):
        return False
    theirs = urlsplit(origin)
    default = _PORTS[theirs.scheme]
    try:
        ours = urlsplit(f"//{host}")
        port = ours.port or default
    except ValueError:
        return False
    return (theirs.hostname, theirs.port or default) == (ours.hostname, port)
