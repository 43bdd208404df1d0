"""Hold the layout: one test module for each source module, and no module that has grown too long.

``src/tidegate/x/y.py`` is tested by ``tests/x/test_y.py``; ``__init__`` and ``__main__`` are not
asked for one. A test module in a mirrored folder without its source module is an error too: it is
what a renamed module leaves behind. Prints each problem on a line of its own and ends with 1 if
there is one. Long modules are only reported.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Findings", "check", "main"]

PACKAGE = Path("src/tidegate")
TESTS = Path("tests")

# Source modules without a test module of their own, and why.
UNTESTED: dict[str, str] = {}

# Test modules without a source module, and what they test instead.
UNMIRRORED: dict[str, str] = {
    "tests/channel/test_endurance.py": "Channel under many events, subscribers, loops and threads",
    "tests/channel/test_state_machine.py": "the whole of Channel against a simple model",
    "tests/test_exports.py": "what each module exports, and what an import leaves behind",
    "tests/test_layout.py": "this script",
    "tests/test_readme.py": "the examples of README.md and docs/",
}

# Folders of tests that mirror nothing: they drive several parts at once.
FREE_FOLDERS = frozenset({"browser", "chaos", "integration", "support", "typing"})

MAX_LINES = 500


@dataclass(frozen=True)
class Findings:
    """What a look at the tree found.

    Attributes:
        problems: sentences that fail the check.
        notes: sentences that do not.
    """

    problems: list[str]
    notes: list[str]


def _test_of(module: Path) -> Path:
    """The test module that belongs to a source module, both relative to the root."""
    return TESTS / module.relative_to(PACKAGE).with_name(f"test_{module.name}")


def _module_of(test: Path) -> Path:
    """The source module that belongs to a test module, both relative to the root."""
    return PACKAGE / test.relative_to(TESTS).with_name(test.name.removeprefix("test_"))


def check(
    root: Path,
    *,
    untested: dict[str, str] | None = None,
    unmirrored: dict[str, str] | None = None,
) -> Findings:
    """Compare ``src`` with ``tests`` below ``root``.

    Args:
        root: the top of a checkout.
        untested: source modules that need no test module, each with its reason.
        unmirrored: test modules that need no source module, each with its reason.
    """
    untested = UNTESTED if untested is None else untested
    unmirrored = UNMIRRORED if unmirrored is None else unmirrored
    problems: list[str] = []
    notes: list[str] = []

    modules = sorted(path.relative_to(root) for path in (root / PACKAGE).rglob("*.py"))
    for module in modules:
        lines = len((root / module).read_text(encoding="utf-8").splitlines())
        if lines > MAX_LINES:
            notes.append(f"{module} has {lines} lines; does it still have one subject?")
        if module.name in ("__init__.py", "__main__.py"):
            continue
        test = _test_of(module)
        has_test = (root / test).is_file()
        if str(module) in untested:
            if has_test:
                problems.append(f"{module} is listed as untested, but {test} is there")
        elif not has_test:
            problems.append(f"{module} has no {test}")

    for test in sorted(path.relative_to(root) for path in (root / TESTS).rglob("test_*.py")):
        if test.relative_to(TESTS).parts[0] in FREE_FOLDERS or str(test) in unmirrored:
            continue
        module = _module_of(test)
        if module not in modules:
            problems.append(f"{test} mirrors no module: there is no {module}")

    for name, reason in sorted({**untested, **unmirrored}.items()):
        if not (root / name).is_file():
            problems.append(f"{name} is listed as an exception and does not exist")
        if not reason.strip():
            problems.append(f"{name} is listed as an exception without a reason")
    return Findings(problems, notes)


def main(root: Path | None = None) -> int:
    """Check this checkout (or ``root``), print what was found, and return the exit status."""
    found = check(root or Path(__file__).resolve().parent.parent)
    for note in found.notes:
        print(f"note: {note}")
    for problem in found.problems:
        print(f"layout: {problem}", file=sys.stderr)
    if not found.problems:
        print("layout: every module has its test module")
    return 1 if found.problems else 0


if __name__ == "__main__":
    sys.exit(main())
