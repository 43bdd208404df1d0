"""The way into whatever a target names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.cli.channel import ChannelDoor
from tidegate.cli.names import ChannelTarget, SessionTarget
from tidegate.cli.session import SessionDoor

if TYPE_CHECKING:
    from tidegate.cli.delivery import Door
    from tidegate.cli.names import Target

__all__ = ["door_to"]


def door_to(
    target: Target,
    url: str,
    *,
    token: str | None = None,
    client_id: str | None = None,
    create: bool = True,
    retries: bool = False,
    deadline: float = 15.0,
) -> Door:
    """Return the way into a session or a channel.

    Args:
        target: what the command line names.
        url: the server's base URL.
        token: the server's token, if it wants one.
        client_id: who publishes; events of a session bear it.
        create: make the session if there is none. A channel is there when it is used.
        retries: repeat a publish, within ``deadline``, where that cannot publish twice.
        deadline: seconds in which one publish has come to its end.

    Raises:
        CommandFailed: the token is none.
    """
    match target:
        case ChannelTarget(channel):
            return ChannelDoor(url, channel, token=token, retries=retries, deadline=deadline)
        case SessionTarget(session_id):
            return SessionDoor(
                url,
                session_id,
                token=token,
                client_id=client_id,
                create=create,
                retries=retries,
                deadline=deadline,
            )
