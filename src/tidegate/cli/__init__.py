"""The command line: ``tidegate serve``, ``pipe``, ``publish`` and ``tail``."""

from __future__ import annotations

import sys
from typing import NoReturn

from tidegate.cli.streams import mend_streams
from tidegate.errors import MissingExtra

__all__ = ["main"]

_OF_THE_EXTRA = {"typer", "rich", "httpx"}


def main() -> None:
    """Run the command line of ``sys.argv`` and exit with its status.

    What can go wrong ends as one sentence on stderr: status 2 if the command line or a line of
    input is wrong, 1 if something else is, 130 after Ctrl-C.
    """
    try:
        mend_streams()
        status = _run()
    except KeyboardInterrupt:  # while the packages are imported
        status = 130
    sys.exit(status)


def _run() -> int:
    try:
        from tidegate.cli.app import run  # noqa: PLC0415 - its packages are an extra
    except MissingExtra as error:
        _name_the_extra(error.package)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in _OF_THE_EXTRA:
            raise
        _name_the_extra(package)
    return run()


def _name_the_extra(package: str) -> NoReturn:
    sys.stderr.write(f"tidegate: {MissingExtra(package, 'cli')}\n")
    sys.exit(1)
