"""``tidegate serve``: run the server."""

from __future__ import annotations

import logging
from typing import Annotated

import typer

from tidegate.cli.console import CommandFailed, write_line
from tidegate.errors import MissingExtra, ServeError

__all__ = ["serve"]

_OF_THE_EXTRA = {"uvicorn", "uvloop", "httptools", "starlette"}


def serve(
    *,
    host: Annotated[
        str, typer.Option(metavar="HOST", help="Where to listen; without a token only on loopback.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, metavar="PORT", help="0 takes a free one.")
    ] = 8765,
    event_ring_size: Annotated[
        int,
        typer.Option(
            min=0, metavar="N", help="Events of a session kept for replay; at most 1,000,000."
        ),
    ] = 8000,
    token: Annotated[
        str | None,
        typer.Option(
            envvar="TIDEGATE_TOKEN",
            metavar="TOKEN",
            show_default=False,
            help="Who does not give it is refused. Better in the environment.",
        ),
    ] = None,
    dev: Annotated[
        bool,
        typer.Option("--dev", help="Let pages of any origin on this machine in; loopback only."),
    ] = False,
    allow_origin: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ORIGIN",
            show_default=False,
            help="An origin whose pages may use this server, as https://example.org; repeatable.",
        ),
    ] = None,
) -> None:
    """Run a server of sessions until SIGINT or SIGTERM, which end its streams in good order.

    It says its URL on stdout when it can be reached, and what it notices on stderr. Sessions live
    in its memory. Without a token it listens on loopback only.
    """
    try:
        from tidegate import server  # noqa: PLC0415 - its packages are an extra
    except ModuleNotFoundError as error:
        name = (error.name or "").partition(".")[0]
        if name not in _OF_THE_EXTRA:
            raise
        raise MissingExtra(name, "server") from None
    # Before the settings, which may have something to say as well.
    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s")
    logging.getLogger("tidegate").setLevel(logging.INFO)
    try:
        settings = server.ServerSettings(
            host=host,
            port=port,
            event_ring_size=event_ring_size,
            token=token,
            dev=dev,
            allow_origins=tuple(allow_origin or ()),
        )
    except ServeError as error:
        raise CommandFailed(str(error), 2) from None
    raise typer.Exit(server.serve(settings, announce=write_line))
