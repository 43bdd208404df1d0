"""The options and arguments that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

from tidegate.cli.console import CommandFailed
from tidegate.cli.names import BadName, parse_base_url, parse_target, session_id_of

__all__ = ["Target", "Token", "Url", "base_url", "session_id"]

Target = Annotated[
    str,
    typer.Argument(
        metavar="session/ID", help="The session, written session/ID.", show_default=False
    ),
]

Url = Annotated[
    str,
    typer.Option("--url", envvar="TIDEGATE_URL", metavar="URL", help="Where the server is."),
]

Token = Annotated[
    str | None,
    typer.Option(
        "--token",
        envvar="TIDEGATE_TOKEN",
        metavar="TOKEN",
        show_default=False,
        help="The server's token. Better in the environment: others can see a command line.",
    ),
]

DEFAULT_URL = "http://127.0.0.1:8765"


def session_id(target: str) -> str:
    """Return the id of the session that an argument names.

    Raises:
        CommandFailed: it names none; exit status 2.
    """
    try:
        return session_id_of(parse_target(target))
    except BadName as error:
        raise CommandFailed(str(error), 2) from None


def base_url(url: str) -> str:
    """Check the value of ``--url``.

    Raises:
        CommandFailed: it is not the URL of a server; exit status 2.
    """
    try:
        return parse_base_url(url)
    except BadName as error:
        raise CommandFailed(str(error), 2) from None
