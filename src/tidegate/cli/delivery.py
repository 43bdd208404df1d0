"""When a publish is tried again, and after how long. Pure."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Protocol, Self

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["Away", "Door", "Refused", "Send", "retry_delay"]

_FIRST_DELAY = 0.25
_LONGEST_DELAY = 5.0


class Away(Exception):
    """The server cannot be reached, or not now; another try may succeed.

    Attributes:
        retry_after: seconds that the server asked to wait, or ``None``.
    """

    def __init__(self, problem: str, retry_after: float | None = None) -> None:
        super().__init__(problem)
        self.retry_after = retry_after


class Refused(Exception):
    """The server said no in a way that another try would not change.

    Attributes:
        about_events: it was the events that it did not like; others it might take.
    """

    def __init__(self, problem: str, *, about_events: bool = False) -> None:
        super().__init__(problem)
        self.about_events = about_events


Send = Callable[[list[dict[str, Any]]], Awaitable[int | str]]
"""Publishes events and returns the last one's id; raises ``Away`` or ``Refused``."""


class Door(Protocol):
    """The way into a session or a channel: an async context manager."""

    async def __aenter__(self) -> Self:
        """Make ready; nothing is asked of the server."""

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the connections."""

    async def attach(self, patience: float = 0.0) -> None:
        """Find that the server takes events there, trying again for ``patience`` seconds.

        Raises:
            Away: the server cannot do it now, and the patience is over.
            Refused: it will not.
        """

    async def publish(self, events: list[dict[str, Any]]) -> int | str:
        """Publish at least one event, in order; return the last one's id.

        Raises:
            Away: the server cannot do it now, or nobody knows whether it did.
            Refused: it will not.
        """

    def receipt(self) -> dict[str, Any]:
        """Return what the server said of the last event that was published, for programs."""


def retry_delay(attempt: int, retry_after: float | None, rng: Callable[[], float]) -> float:
    """Return the seconds to wait after the ``attempt``-th failure in a row, from 1.

    Doubled from 0.25 s to 5 s, of which a random part of up to one half is taken off, so that
    many publishers do not come back at the same moment. What the server asked for is the least.
    """
    longest = min(_LONGEST_DELAY, _FIRST_DELAY * 2.0 ** min(attempt - 1, 16))
    delay = longest * (1.0 - rng() / 2.0)
    return max(delay, retry_after) if retry_after is not None else delay
