"""The contract suite of brokers: whatever passes it can stand under a gateway."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

from tidegate.testing.bench import Bench, takes_clock
from tidegate.testing.checks import (
    delivery,
    harm,
    keeping,
    publishing,
    reading,
    snapshots,
    through_node,
)
from tidegate.testing.clocks import ManualClock
from tidegate.testing.report import CheckFailed, CheckReport, CheckSkipped, Failure

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from tidegate.gateway.brokers.base import Broker
    from tidegate.testing.bench import Check
    from tidegate.testing.faults import BrokerFaults

__all__ = ["BROKER_CHECKS", "check_broker"]

BROKER_CHECKS: Final[tuple[Check, ...]] = (
    *publishing.CHECKS,
    *reading.CHECKS,
    *keeping.CHECKS,
    *delivery.CHECKS,
    *snapshots.CHECKS,
    *through_node.CHECKS,
    *harm.CHECKS,
)
"""All checks, in the order in which they run."""


async def check_broker(
    make_broker: Callable[..., Broker],
    *,
    faults: BrokerFaults | None = None,
    only: Collection[str] | None = None,
    seed: int = 0,
    patience: float = 15.0,
    check_timeout: float = 60.0,
) -> CheckReport:
    """Check that a broker keeps the contract of `tidegate.gateway.brokers.Broker`.

    Each check makes brokers of its own, with channels that no one has used: what a durable
    store holds already does not matter. They run one after another. Cancelling the call stops
    the broker that is being checked.

    Args:
        make_broker: returns a fresh broker that has not been started, of a durable or shared
            store always on the same data. If it takes an argument ``clock``, it is given one
            that returns seconds since 1970, and the suite moves it; else it waits in places.
        faults: what can be done to the store from outside; more is checked then.
        only: the names of the checks to run; ``None`` for all.
        seed: of what is left to chance. Which task of the broker runs first is not.
        patience: seconds to wait for what has to happen in the end.
        check_timeout: seconds that one check may take.

    Returns:
        Which checks held, and which were skipped and why.

    Raises:
        CheckFailed: some did not hold; it lists them all.
        ValueError: ``only`` names a check that there is not.
        RuntimeError: Python runs with ``-O``, without ``assert``: nothing would be checked.
    """
    if not __debug__:
        raise RuntimeError("the checks are assertions; run Python without -O")
    known = {check.__name__ for check in BROKER_CHECKS}
    unknown = set(only or ()) - known
    if unknown:
        raise ValueError(f"there are no checks {', '.join(sorted(unknown))}")
    passed: list[str] = []
    skipped: dict[str, str] = {}
    failures: list[Failure] = []
    # One for all: a store that several brokers share goes by one clock.
    clock = ManualClock(time.time()) if takes_clock(make_broker) else None
    for check in BROKER_CHECKS:
        name = check.__name__
        if only is not None and name not in only:
            continue
        bench = Bench(make_broker, faults=faults, seed=seed, patience=patience, clock=clock)
        try:
            async with asyncio.timeout(check_timeout):
                await check(bench)
        except CheckSkipped as skip:
            skipped[name] = skip.reason
        except Exception as error:  # noqa: BLE001 - whatever a broker raises, it fails the check
            rule = (check.__doc__ or "").partition("\n")[0]
            failures.append(Failure(check=name, rule=rule, error=error))
        else:
            passed.append(name)
    report = CheckReport(passed=passed, skipped=skipped, failures=failures)
    if failures:
        raise CheckFailed(report)
    return report
