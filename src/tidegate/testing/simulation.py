"""An event loop whose time is simulated: a test of hours takes a moment, and repeats itself."""

from __future__ import annotations

import asyncio
import math
import selectors
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping

__all__ = ["START", "SimulatedClock", "SimulatedLoop", "run_simulated"]

T = TypeVar("T")

START: Final = 1_700_000_000.0
"""What a `SimulatedClock` shows when its loop begins: seconds since 1970."""

_STALLED_SECONDS: Final = 5.0


class _JumpingSelector(selectors.BaseSelector):
    """Tells of what is ready, and moves the time on instead of waiting."""

    def __init__(self) -> None:
        self._inner = selectors.DefaultSelector()
        self.now = 0.0

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._inner.register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._inner.unregister(fileobj)

    def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._inner.modify(fileobj, events, data)

    def close(self) -> None:
        self._inner.close()

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._inner.get_map()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is not None:
            ready = self._inner.select(0)
            # A step more: far from the start asyncio's clock resolution is lost in rounding,
            # and a timer that is due at this very moment would never be.
            self.now = math.nextafter(self.now + (0.0 if ready else timeout), math.inf)
            return ready
        # Nothing is due, ever. A thread may still have something to say.
        ready = self._inner.select(_STALLED_SECONDS)
        if not ready:
            raise RuntimeError("the simulation is stalled: every task waits, and no timer is set")
        return ready


class SimulatedLoop(asyncio.SelectorEventLoop):
    """An event loop that never sleeps: where all tasks wait for a time, it is that time.

    Timers go off in their order, and nothing else decides who runs first. With seeded
    randomness, and without threads and sockets, a program does the same in each run.

    Raises:
        RuntimeError: every task waits, no timer is set and no thread calls: it would hang.
    """

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        """Seconds since the loop began, simulated."""
        return self._jumping.now


class SimulatedClock:
    """The time of day in a simulation: an argument for whatever takes a ``clock``.

    It goes on with the running loop's time, simulated or not.

    Args:
        start: seconds since 1970 at the first call.

    Attributes:
        offset: seconds to add; a test that wants a clock to jump changes it.
    """

    def __init__(self, start: float = START) -> None:
        self._start = start
        self._began: float | None = None
        self.offset = 0.0

    def __call__(self) -> float:
        """Return seconds since 1970."""
        now = asyncio.get_running_loop().time()
        if self._began is None:
            self._began = now
        return self._start + now - self._began + self.offset


def run_simulated(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in a `SimulatedLoop` of its own, as ``asyncio.run`` does.

    What it raises is raised; tasks that it leaves behind are cancelled.
    """
    with asyncio.Runner(loop_factory=SimulatedLoop) as runner:
        return runner.run(main)
