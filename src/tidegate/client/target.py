"""The URLs and headers of the routes that a client asks. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Self
from urllib.parse import parse_qs, quote, urlsplit, urlunsplit

import msgspec

from tidegate.client.selection import Selection, checked_channel

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tidegate.client.cursor import Cursor

__all__ = ["MAX_URL", "Request", "Target", "bearer", "gateway_url", "over", "shown_url"]

MAX_URL: Final = 8000
"""The longest URL that channels are named in; beyond it they go into a ``POST``."""

_VERSION: Final = "v1"
_MOUNT: Final = "session"
_ROUTES: Final = frozenset({"events", "load", "snapshot"})


@dataclass(frozen=True, slots=True)
class Request:
    """A request to make.

    Attributes:
        url: where.
        headers: all of them.
        body: what a ``POST`` carries; ``None`` for a ``GET``.
    """

    url: str
    headers: Mapping[str, str]
    body: bytes | None = None

    @property
    def method(self) -> str:
        """``GET``, or ``POST``."""
        return "GET" if self.body is None else "POST"


@dataclass(frozen=True, slots=True)
class Target:
    """Where a stream is, and what belongs to it.

    Attributes:
        events: the stream's URL.
        load: the URL to load a session's state from; ``None`` for a stream that is no session's.
        capabilities: the URL where the server says what it can do; ``None`` likewise.
        channels: the names of a stream of channels; ``None`` for any other stream.
        selection: what the request says beside the URL.
    """

    events: str
    load: str | None = None
    capabilities: str | None = None
    channels: tuple[str, ...] | None = None
    selection: Selection = field(default_factory=Selection)

    @classmethod
    def read(cls, url: str) -> Self:
        """Read the URL of a stream.

        ``…/session/ID`` and what stands below it name a session, ``…/v1/stream`` a stream of the
        channels in its query; any other URL is taken as it is. A query is kept for the stream and
        belongs to nothing else.

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
        if path[-2:] == [_VERSION, "stream"]:
            return cls(urlunsplit(parts), channels=_named(parts.query))
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
    def of_channels(cls, url: str, selection: Selection) -> Self:
        """Read the URL of a stream of channels.

        Args:
            url: a server's base URL, with the path that a gateway is mounted below, or
                ``…/v1/stream``, which may have the channels in its query.
            selection: the channels, unless they stand in the URL, and where the stream begins.

        Raises:
            InvalidChannelName: the URL names a channel that is none; a ``ValueError``.
            TypeError: ``url`` is no ``str``.
            ValueError: it is no URL, or a session's; the channels stand nowhere, or twice.
        """
        target = cls.read(url)
        if target.load is not None:
            raise ValueError(
                "channels, tail, from_beginning and tags go with a server's base URL or "
                "…/v1/stream, not with a session's"
            )
        named = target.channels or ()
        if named and selection.channels:
            raise ValueError("the URL names its channels already")
        channels = tuple(checked_channel(name) for name in named) or selection.channels
        if not channels:
            raise ValueError("a stream of channels names them: channels=[…], or ?channel= in a URL")
        if target.channels is None:
            events = gateway_url(target.events, "stream")
            return replace(target, events=events, channels=channels, selection=selection)
        return replace(target, channels=channels, selection=selection)

    @classmethod
    def of_session(cls, base_url: str, session_id: str) -> Self:
        """Return the target of a session at a server's base URL."""
        return cls.read(f"{base_url.rstrip('/')}/{_MOUNT}/{quote(session_id, safe='')}")

    def live_only(self) -> Target:
        """Return the same, but that a new stream begins with what comes next."""
        return replace(self, selection=self.selection.resumed())

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
        own = {
            "Accept": "text/event-stream",
            "Accept-Encoding": "identity",
            "Cache-Control": "no-store",
            **bearer(token),
        }
        selection = self.selection
        if cursor is not None:
            selection = selection.resumed()
            own["Last-Event-ID"] = cursor.text
            if cursor.plain and cursor.epoch is not None:
                own["Tidegate-Epoch"] = cursor.epoch
        url = _with_query(self.events, [*selection.query(), *parameters.items()])
        body = None
        if len(url) > MAX_URL and selection.channels:
            url = _with_query(self.events, parameters.items())
            body = msgspec.json.encode(selection.body())
            own["Content-Type"] = "application/json"
        return Request(url, over(headers, own), body)

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


def gateway_url(url: str, *path: str) -> str:
    """Return the URL of a gateway's route.

    Args:
        url: a server's base URL, with the path that a gateway is mounted below, or that of its
            stream or publish route. A query is kept for the stream alone.
        path: what follows ``/v1``, its parts as they are to be read.

    Raises:
        TypeError: ``url`` is no ``str``.
        ValueError: it is not ``http://`` or ``https://`` with a host.
    """
    parts = urlsplit(Target.read(url).events)
    base = parts.path.rstrip("/").split("/")
    if base[-2:-1] == [_VERSION] and base[-1] in {"stream", "publish"}:
        del base[-2:]
    full = "/".join([*base, _VERSION, *(quote(part, safe=":@~") for part in path)])
    query = parts.query if path == ("stream",) else ""
    return urlunsplit(parts._replace(path=full, query=query))


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


def _named(query: str) -> tuple[str, ...]:
    """Return the channels that stand in a query, each once."""
    return tuple(dict.fromkeys(parse_qs(query, keep_blank_values=True).get("channel", ())))


def _with_query(url: str, items: Iterable[tuple[str, str]]) -> str:
    """Add parameters to a URL, but those that stand there already."""
    parts = urlsplit(url)
    present = {item.partition("=")[0] for item in parts.query.split("&")}
    query = [parts.query] if parts.query else []
    query += [f"{name}={value}" for name, value in items if name not in present]
    return urlunsplit(parts._replace(query="&".join(query)))


def shown_url(url: str) -> str:
    """Return a URL as a log may have it: no password, no query (a ticket may stand there)."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return ascii(urlunsplit((parts.scheme, host, parts.path, "", "")))[1:-1]


def over(headers: Mapping[str, str], own: Mapping[str, str]) -> dict[str, str]:
    """Return ``headers`` with those of ``own`` in place of theirs, whatever the letters' case."""
    taken = {name.lower() for name in own}
    return {**{n: v for n, v in headers.items() if n.lower() not in taken}, **own}
