"""Puts the commands together and turns what goes wrong into a sentence and an exit status."""

from __future__ import annotations

import inspect
from importlib import metadata
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidegate.cli import pipe, publish, serve, tail
from tidegate.cli.command_words import CommandWords
from tidegate.cli.console import (
    BROKEN_PIPE,
    CommandFailed,
    ReaderGone,
    complain,
    flush_streams,
)
from tidegate.errors import TidegateError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["app", "run"]

# Typer carries its own copy of click or uses the real one, by its version: this is the one it uses.
_ClickException: Any = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")

app = typer.Typer(
    name="tidegate",
    help="Ordered, resumable event streams over SSE.",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for _command in (serve.serve, pipe.pipe, publish.publish, tail.tail):
    # The docstring is the help: a paragraph of it is one line there, wrapped to the terminal.
    _paragraphs = inspect.cleandoc(_command.__doc__ or "").split("\n\n")
    app.command(
        _command.__name__,
        cls=CommandWords if _command is pipe.pipe else None,
        help="\n\n".join(" ".join(text.split()) for text in _paragraphs),
    )(_command)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"tidegate {metadata.version('tidegate')}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _top(
    context: typer.Context,
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help(), nl=False)
        raise typer.Exit(2)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit status; never raises what a user can cause.

    Args:
        arguments: without the program's name; by default those of ``sys.argv``.
    """
    try:
        status = app(args=arguments, prog_name="tidegate", standalone_mode=False)
        status = status if isinstance(status, int) else 0
    except CommandFailed as error:
        complain(str(error))
        status = error.exit_code
    except TidegateError as error:
        complain(str(error))
        status = 1
    except (ReaderGone, BrokenPipeError):
        status = BROKEN_PIPE
    except (KeyboardInterrupt, typer.Abort):
        status = 130
    except _ClickException as error:
        where = error.ctx.command_path if getattr(error, "ctx", None) else "tidegate"
        complain(f"{' '.join(error.format_message().split())} (see: {where} --help)")
        status = error.exit_code
    except OSError as error:
        # A full disk, too many open files: nothing that a traceback would explain better.
        where = "" if error.filename is None else f"{error.filename!a}: "
        complain(f"{where}{error.strerror or error}")
        status = 1
    return flush_streams(status)
