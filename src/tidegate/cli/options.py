"""The options and arguments that several commands share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tidegate.cli.console import CommandFailed
from tidegate.cli.names import BadName, Target, parse_base_url, parse_target

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["DEFAULT_URL", "TargetName", "Token", "Url", "base_url", "tags_of", "target_of"]

TargetName = Annotated[
    str,
    typer.Argument(
        metavar="TARGET",
        help="A channel by its name, or a session as session/ID.",
        show_default=False,
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


def target_of(name: str) -> Target:
    """Read the argument that names a channel or a session.

    Raises:
        CommandFailed: it names neither; exit status 2.
    """
    try:
        return parse_target(name)
    except BadName as error:
        raise CommandFailed(str(error), 2) from None


def tags_of(texts: Sequence[str]) -> dict[str, str]:
    """Read the values of ``--tags``, each ``KEY:VALUE``.

    Raises:
        CommandFailed: one is none, or a key stands there twice; exit status 2.
    """
    tags: dict[str, str] = {}
    for text in texts:
        key, colon, value = text.partition(":")
        if not colon or not key or key in tags:
            why = "names a key for the second time" if key in tags else "is no KEY:VALUE"
            raise CommandFailed(f"--tags {text[:80]!a} {why}", 2)
        tags[key] = value
    return tags


def base_url(url: str) -> str:
    """Check the value of ``--url``.

    Raises:
        CommandFailed: it is not the URL of a server; exit status 2.
    """
    try:
        return parse_base_url(url)
    except BadName as error:
        raise CommandFailed(str(error), 2) from None
