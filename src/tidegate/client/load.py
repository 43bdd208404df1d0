"""Load a session's state: what a client does after ``state_resync_required``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tidegate.client.cursor import Cursor
from tidegate.client.fetch import LOAD_TIMEOUT, Question, fetch, fetch_sync
from tidegate.client.target import Target
from tidegate.client.transport import checked_url, problem_of
from tidegate.errors import LoadFailed

if TYPE_CHECKING:
    from collections.abc import Mapping

    import httpx

__all__ = ["Loaded", "load_session", "load_session_sync"]


@dataclass(frozen=True, slots=True)
class Loaded:
    """A session's state and the place in its stream that it belongs to.

    Attributes:
        state: the state; ``None`` if there is no snapshot.
        last_event_id: the last event that is in the state, 0 for none; or a cursor's text.
        epoch: the life of the history that the number belongs to.
        complete: whether the state and the events after ``last_event_id`` are all there is; if not,
            events between them are gone for good and loading again would not bring them back.
    """

    state: Any
    last_event_id: int | str = 0
    epoch: str | None = None
    complete: bool = True

    @classmethod
    def read(cls, answer: Loaded | Mapping[str, Any]) -> Loaded:
        """Read what the ``/load`` route answers, ``{"state", "lastEventId", "epoch", "complete"}``.

        Raises:
            LoadFailed: it is not that.
        """
        if isinstance(answer, Loaded):
            return answer
        try:
            loaded = cls(
                state=answer["state"],
                last_event_id=answer["lastEventId"],
                epoch=answer.get("epoch"),
                complete=answer.get("complete", True) is not False,
            )
            Cursor.given(loaded.last_event_id, loaded.epoch)
        except (TypeError, ValueError, LookupError, AttributeError) as error:
            raise LoadFailed(
                f"what was loaded is no session's state: {problem_of(error)}"
            ) from None
        return loaded


async def load_session(
    url: str,
    *,
    token: str | None = None,
    headers: Mapping[str, str] | None = None,
    client: httpx.AsyncClient | None = None,
    timeout: float = LOAD_TIMEOUT,  # noqa: ASYNC109 - between two bytes, not of the whole call
) -> Loaded:
    """Ask the server for a session's state, with ``POST …/session/ID/load``.

    Args:
        url: ``http://HOST/session/ID``, or the URL of one of its routes.
        token: sent as ``Authorization: Bearer``.
        headers: more headers.
        client: whose connections to use; it is not closed.
        timeout: seconds in which something of the answer has to arrive.

    Raises:
        LoadFailed: the server says no, or what it says is no state: again would not help.
        ClientError: it could not be reached, or answered 5xx, 408 or 429: again may help.
        ValueError: ``url`` names no session.
    """
    question = _question(url, token, headers)
    return Loaded.read(await fetch(question, client, timeout))


def load_session_sync(
    url: str,
    *,
    token: str | None = None,
    headers: Mapping[str, str] | None = None,
    client: httpx.Client | None = None,
    timeout: float = LOAD_TIMEOUT,
) -> Loaded:
    """Do as `load_session` does, without an event loop."""
    return Loaded.read(fetch_sync(_question(url, token, headers), client, timeout))


def _question(url: str, token: str | None, headers: Mapping[str, str] | None) -> Question:
    where = Target.read(checked_url(url)).load
    if where is None:
        raise ValueError("a state is loaded from a URL of the form …/session/ID")
    return Question("POST", where, token, headers)
