"""Where the options of ``tidegate pipe`` end and the command begins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from typer.core import TyperCommand

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

__all__ = ["CommandWords", "options_first"]


class CommandWords(TyperCommand):
    """A command whose second word begins another program's command line.

    Its own options stand before the target or right after it. From the first word of the other
    command on, or from ``--``, everything belongs to that one: ``pipe session/a ls -l``.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the arguments, as the base class does, after `options_first`."""
        valued = {
            name
            for parameter in self.params
            if parameter.param_type_name == "option" and not getattr(parameter, "is_flag", False)
            for name in parameter.opts
        }
        return super().parse_args(ctx, options_first(args, valued))


def options_first(arguments: Sequence[str], valued: Collection[str]) -> list[str]:
    """Put the options in front, then ``--``, then the target and the other command as it stands.

    Args:
        arguments: as they were written.
        valued: the options whose value is the next argument.
    """
    options: list[str] = []
    target: list[str] = []
    left = list(arguments)
    while left:
        word = left.pop(0)
        if word == "--":
            break
        if word.startswith("-") and word != "-":
            options.append(word)
            if word in valued and left:
                options.append(left.pop(0))
        elif target:
            left.insert(0, word)
            break
        else:
            target.append(word)
    return [*options, "--", *target, *left] if target or left else options
