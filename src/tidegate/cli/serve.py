"""``tidegate serve``: run the server."""

from __future__ import annotations

import logging
from pathlib import Path  # noqa: TC003 - typer reads the hints
from typing import Annotated

import typer

from tidegate.cli.console import CommandFailed, write_line
from tidegate.config import load_config
from tidegate.errors import BrokerUnavailable, ConfigError, MissingExtra, ServeError

__all__ = ["serve"]

_NOT_STARTED = 3
_OF_THE_EXTRA = {"uvicorn", "uvloop", "httptools", "starlette"}


def serve(
    *,
    host: Annotated[
        str | None,
        typer.Option(
            metavar="HOST",
            show_default="127.0.0.1",
            help="Where to listen; without a token only on loopback.",
        ),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            min=0, max=65535, metavar="PORT", show_default="8765", help="0 takes a free one."
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            show_default=False,
            help="A tidegate.toml. The environment (TIDEGATE__SECTION__KEY) goes before it, and "
            "flags go before both.",
        ),
    ] = None,
    broker: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            show_default="memory:",
            help="Where the histories of channels live: memory: or sqlite:///PATH.",
        ),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            show_default=False,
            help="A folder for the histories of channels: they survive a restart.",
        ),
    ] = None,
    event_ring_size: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="N",
            show_default="8000",
            help="Events of a session kept for replay; at most 1,000,000.",
        ),
    ] = None,
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
        typer.Option(
            "--dev",
            help="Let everybody on this machine, and pages of any origin on it, use sessions and "
            "channels; loopback only.",
        ),
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
    """Run a server of sessions and channels until SIGINT or SIGTERM.

    They end its streams in good order. It says its URL on stdout when it can be reached, and what
    it notices on stderr. Sessions live in its memory, and so do channels, unless --data or --broker
    says where. Without a token it listens on loopback only, and channels need --token or --dev.
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
    flags = {
        "host": host,
        "port": port,
        "event_ring_size": event_ring_size,
        "token": token,
        "dev": dev or None,
        "allow_origins": tuple(allow_origin) if allow_origin else None,
    }
    given = {name: value for name, value in flags.items() if value is not None}
    if broker is not None and data is not None:
        raise CommandFailed("--broker and --data exclude each other; --data is a broker too", 2)
    try:
        configured = load_config(config, overrides={"gateway": {"broker": broker, "data": data}})
        settings = server.ServerSettings.from_config(configured, **given)
    except (ConfigError, ServeError) as error:
        raise CommandFailed(str(error), 2) from None
    try:
        status = server.serve(settings, announce=write_line)
    except ConfigError as error:
        raise CommandFailed(str(error), 2) from None
    except BrokerUnavailable as error:
        raise CommandFailed(str(error), _NOT_STARTED) from None
    raise typer.Exit(status)
