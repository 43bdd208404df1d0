"""What streams and views tell about themselves: phases, counts, outcomes. Pure."""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

__all__ = [
    "Applied",
    "EndReason",
    "Phase",
    "StateCallback",
    "StreamState",
    "StreamStatistics",
    "report",
]

_log = logging.getLogger("tidegate.client")

Phase = Literal["connecting", "open", "waiting", "finished"]
"""Where a stream is."""

EndReason = Literal["session_closed", "no_content", "refused", "unavailable", "limit", "closed"]
"""Why a stream does not come back: the session is over; the server answered 204; it refused; too
many attempts failed; a frame was over the decoder's bound; the client closed it."""


@dataclass(frozen=True, slots=True)
class StreamState:
    """A phase that a stream enters.

    Attributes:
        phase: ``connecting`` (a request goes out), ``open`` (the server has let it in: its answer
            names the stream, or has brought a frame that is no refusal), ``waiting`` (before the
            next request) or ``finished``.
        attempt: how often in a row it has had to wait, from 1; 0 where all is well.
        delay: seconds that it waits; 0.0 in other phases.
        cause: why it waits or has finished; ``""`` in other phases.
    """

    phase: Phase
    attempt: int = 0
    delay: float = 0.0
    cause: str = ""


StateCallback = Callable[[StreamState], None]
"""Called with each phase, in the stream's task. What it raises is logged and changes nothing."""


def report(callback: StateCallback | None, state: StreamState) -> None:
    """Tell the callback, if there is one, and let nothing out of it."""
    if callback is None:
        return
    try:
        callback(state)
    except Exception:  # noqa: BLE001 - a display must not end the stream
        _log.exception("on_state raised for %s", state.phase)


@dataclass(frozen=True, slots=True)
class StreamStatistics:
    """Counts of one stream since it was made.

    Attributes:
        connects: how often it was open.
        retries: how often it waited before it came back.
        events: frames handed to the consumer, control frames included.
        malformed: frames whose data was no envelope; they were passed over.
        bytes_received: of all responses' bodies, after HTTP's own encodings.
        last_status: of the last answer, 0 before the first.
        last_problem: why it last had to come back, ``""`` if it never had to.
    """

    connects: int
    retries: int
    events: int
    malformed: int
    bytes_received: int
    last_status: int
    last_problem: str


class Applied(enum.Enum):
    """What a frame did to a view."""

    CHANGED = "changed"
    """The state is a new one."""

    CAUGHT_UP = "caught_up"
    """All that was missed has been replayed."""

    NOTHING = "nothing"
    """The state stays."""

    RESYNC = "resync"
    """The state no longer links to the stream: load it, and open the stream at its place."""
