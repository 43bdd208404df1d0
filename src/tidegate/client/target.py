"""The URLs and headers of a session's routes. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self
from urllib.parse import quote, urlsplit, urlunsplit

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidegate.client.cursor import Cursor

__all__ = ["Request", "Target", "bearer", "over", "shown_url"]

_MOUNT: Final = "session"
_ROUTES: Final = frozenset({"events", "load", "snapshot"})


@dataclass(frozen=True, slots=True)
class Request:
    """A GET to make."""

    url: str
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Target:
    """Where a stream is, and what belongs to it.

    Attributes:
        events: the stream's URL.
        load: the URL to load a session's state from; ``None`` for a stream that is no session's.
        capabilities: the URL where the server says what it can do; ``None`` likewise.
    """

    events: str
    load: str | None = None
    capabilities: str | None = None

    @classmethod
    def read(cls, url: str) -> Self:
        """Read the URL of a stream.

        ``…/session/ID`` and what stands below it name a session; any other URL is taken as it is.
        A query is kept for the stream and belongs to nothing else.

        Raises:
            TypeError: ``url`` is no ``str``.
            ValueError: it is not ``http://`` or ``https://`` with a host.
        """
        if not isinstance(url, str):
            raise TypeError(f"a URL is a str, not {type(url).__name__}")
        try:
            parts = urlsplit(url.strip())
            usable = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
        except ValueError:
            usable = False
        if not usable:
            raise ValueError("the URL of a stream is http://HOST… or https://HOST…")
        parts = parts._replace(fragment="")
        path = parts.path.rstrip("/").split("/")
        if path[-1] in _ROUTES and path[-3:-2] == [_MOUNT]:
            path.pop()
        if path[-2:-1] != [_MOUNT] or not path[-1]:
            return cls(urlunsplit(parts))
        base, session = "/".join(path[:-2]), "/".join(path)
        bare = parts._replace(query="")
        return cls(
            events=urlunsplit(parts._replace(path=f"{session}/events")),
            load=urlunsplit(bare._replace(path=f"{session}/load")),
            capabilities=urlunsplit(bare._replace(path=f"{base}/capabilities")),
        )

    @classmethod
    def of_session(cls, base_url: str, session_id: str) -> Self:
        """Return the target of a session at a server's base URL."""
        return cls.read(f"{base_url.rstrip('/')}/{_MOUNT}/{quote(session_id, safe='')}")

    def stream(
        self,
        *,
        cursor: Cursor | None,
        token: str | None,
        headers: Mapping[str, str],
        parameters: Mapping[str, str],
    ) -> Request:
        """Return the request that opens the stream.

        Args:
            cursor: where to resume; ``None`` for live only.
            token: goes into a header, never into the URL.
            headers: the caller's own; ours stand above them.
            parameters: added to the query, unless they stand there already.
        """
        parts = urlsplit(self.events)
        query = [parts.query] if parts.query else []
        present = {item.partition("=")[0] for item in parts.query.split("&")}
        query += [f"{name}={value}" for name, value in parameters.items() if name not in present]
        own = {
            "Accept": "text/event-stream",
            "Accept-Encoding": "identity",
            "Cache-Control": "no-store",
            **bearer(token),
        }
        if cursor is not None:
            own["Last-Event-ID"] = cursor.text
            if cursor.plain and cursor.epoch is not None:
                own["Tidegate-Epoch"] = cursor.epoch
        return Request(urlunsplit(parts._replace(query="&".join(query))), over(headers, own))

    def preflight(self, *, token: str | None, headers: Mapping[str, str]) -> Request:
        """Return the request that asks what the server can do.

        Raises:
            ValueError: this is no session's stream, so nothing says where to ask.
        """
        if self.capabilities is None:
            raise ValueError(
                "max_queued asks the server's /capabilities first, and so needs a URL of the form "
                "…/session/ID/events"
            )
        own = {"Accept": "application/json", "Accept-Encoding": "identity", **bearer(token)}
        return Request(self.capabilities, over(headers, own))


def bearer(token: str | None) -> dict[str, str]:
    """Return the header that carries a token; empty without one.

    Raises:
        TypeError: ``token`` is no ``str``.
        ValueError: it is empty or has characters that no header carries. It is not shown.
    """
    if token is None:
        return {}
    if not isinstance(token, str):
        raise TypeError(f"a token is a str, not {type(token).__name__}")
    if not token or not all("!" <= character <= "~" for character in token):
        raise ValueError("a token is one or more visible ASCII characters, without spaces")
    return {"Authorization": f"Bearer {token}"}


def shown_url(url: str) -> str:
    """Return a URL as a log may have it: no password, no query (a ticket may stand there)."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return ascii(urlunsplit((parts.scheme, host, parts.path, "", "")))[1:-1]


def over(headers: Mapping[str, str], own: Mapping[str, str]) -> dict[str, str]:
    """Return ``headers`` with those of ``own`` in place of theirs, whatever the letters' case."""
    taken = {name.lower() for name in own}
    return {**{n: v for n, v in headers.items() if n.lower() not in taken}, **own}
