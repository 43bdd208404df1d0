"""Load a channel's state: what a client does after ``state_resync_required``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tidegate.client.cursor import Cursor
from tidegate.client.fetch import LOAD_TIMEOUT, Question, fetch, fetch_sync
from tidegate.client.selection import checked_channel
from tidegate.client.target import gateway_url
from tidegate.client.transport import checked_url
from tidegate.errors import LoadFailed

if TYPE_CHECKING:
    from collections.abc import Mapping

    import httpx

__all__ = ["LoadedChannel", "load_channel", "load_channel_sync"]

_ABSENT: Final = "snapshot_not_found"


@dataclass(frozen=True, slots=True)
class LoadedChannel:
    """A channel's state and the place that it belongs to.

    Attributes:
        state: the state.
        position: the last event that is in it; ``""`` for none.
        epoch: the life of the channel's history that the position belongs to.
        cursor: opens a stream of the channel at that place; ``None``: nothing is stored, and the
            rest means nothing.
    """

    state: Any = None
    position: str = ""
    epoch: str = ""
    cursor: str | None = None

    @classmethod
    def read(cls, answer: LoadedChannel | Mapping[str, Any] | None) -> LoadedChannel:
        """Read what the snapshot route answers, ``{"state", "position", "epoch", "cursor"}``.

        Args:
            answer: that; ``None``, or one without a cursor, says that nothing is stored.

        Raises:
            LoadFailed: it is not that.
        """
        if isinstance(answer, LoadedChannel):
            return answer
        match answer:
            case None | {"cursor": None}:
                return cls()
            case {
                "state": state,
                "position": str(position),
                "epoch": str(epoch),
                "cursor": str(cursor),
            } if Cursor.opaque(cursor) is not None:
                return cls(state, position, epoch, cursor)
            case {"state": None} if "cursor" not in answer:
                return cls()
            case _:
                raise LoadFailed(
                    "what was loaded is no channel's state: it takes state, position, epoch and "
                    "cursor, the latter three as the server wrote them"
                )


async def load_channel(
    url: str,
    channel: str,
    *,
    token: str | None = None,
    headers: Mapping[str, str] | None = None,
    client: httpx.AsyncClient | None = None,
    timeout: float = LOAD_TIMEOUT,  # noqa: ASYNC109 - between two bytes, not of the whole call
) -> LoadedChannel:
    """Ask the server for a channel's snapshot, with ``GET …/v1/channels/{channel}/snapshot``.

    Args:
        url: the server's base URL, with the path that a gateway is mounted below, or that of its
            stream.
        channel: the channel's name.
        token: sent as ``Authorization: Bearer``.
        headers: more headers.
        client: whose connections to use; it is not closed.
        timeout: seconds in which something of the answer has to arrive.

    Raises:
        InvalidChannelName: ``channel`` is no name; a ``ValueError``.
        LoadFailed: the server says no, or what it says is no state: again would not help.
        ClientError: it could not be reached, or answered 5xx, 408 or 429: again may help.
    """
    question = _question(url, channel, token, headers)
    return LoadedChannel.read(await fetch(question, client, timeout))


def load_channel_sync(
    url: str,
    channel: str,
    *,
    token: str | None = None,
    headers: Mapping[str, str] | None = None,
    client: httpx.Client | None = None,
    timeout: float = LOAD_TIMEOUT,
) -> LoadedChannel:
    """Do as `load_channel` does, without an event loop."""
    question = _question(url, channel, token, headers)
    return LoadedChannel.read(fetch_sync(question, client, timeout))


def _question(
    url: str, channel: str, token: str | None, headers: Mapping[str, str] | None
) -> Question:
    where = gateway_url(checked_url(url), "channels", checked_channel(channel), "snapshot")
    return Question("GET", where, token, headers, absent=_ABSENT)
