"""What a suite of checks found."""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["CheckFailed", "CheckReport", "CheckSkipped", "Failure"]


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """One check that failed.

    Attributes:
        check: its name.
        rule: what the contract says.
        error: what was raised: an `AssertionError`, or whatever came out of the broker.
    """

    check: str
    rule: str
    error: Exception

    def __str__(self) -> str:
        error = self.error
        if isinstance(error, AssertionError):
            found = str(error) or "an assertion without a message"
        elif isinstance(error, TimeoutError):
            found = str(error) or "it took too long"
        else:
            last = traceback.extract_tb(error.__traceback__)[-1:]
            place = "".join(f" ({frame.filename}:{frame.lineno})" for frame in last)
            found = f"{type(error).__name__}: {error}{place}"
        return f"{self.check}: {self.rule}\n    found: {found}"


class CheckReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a suite did.

    Attributes:
        passed: the names of the checks that held.
        skipped: the names of those that did not apply, and why.
        failures: what did not hold.
    """

    passed: Sequence[str]
    skipped: Mapping[str, str]
    failures: Sequence[Failure] = ()


class CheckFailed(AssertionError):
    """Some checks of a suite failed; all are named at once.

    Attributes:
        report: what passed, was skipped and failed.
    """

    def __init__(self, report: CheckReport) -> None:
        super().__init__(report)
        self.report = report

    @property
    def names(self) -> frozenset[str]:
        """The names of the checks that failed."""
        return frozenset(failure.check for failure in self.report.failures)

    def __str__(self) -> str:
        failures = self.report.failures
        many = len(failures) + len(self.report.passed)
        lines = [f"{len(failures)} of {many} checks failed:"]
        lines += [f"  {failure}" for failure in failures]
        return "\n".join(lines)


class CheckSkipped(Exception):
    """Raised inside a check that does not apply to what is checked."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
