"""Load a session's state: what a client does after ``state_resync_required``."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tidegate.client.cursor import Cursor
from tidegate.client.reconnect import Verdict, judge
from tidegate.client.refusal import refusal
from tidegate.client.target import Target, bearer, over, shown_url
from tidegate.client.transport import (
    MAX_BODY,
    checked_url,
    httpx,
    problem_of,
    read_body,
    read_body_sync,
    timeouts,
    unasked_encoding,
    unusable,
)
from tidegate.errors import ClientError, LoadFailed

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Loaded", "load_session", "load_session_sync"]

LOAD_TIMEOUT: Final = 30.0
"""Seconds in which something of the answer has to arrive."""

MAX_STATE: Final = 64 * 1024 * 1024
"""The longest answer that is read, in bytes."""


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
    where, own = _request(url, token, headers)
    async with contextlib.nullcontext(client) if client else httpx.AsyncClient() as http:
        try:
            async with http.stream(
                "POST", where, headers=own, timeout=timeouts(timeout)
            ) as response:
                body = await read_body(response, _limit(response))
        except httpx.RequestError as error:
            raise _unreached(where, error) from error
    return _loaded(where, response, body)


def load_session_sync(
    url: str,
    *,
    token: str | None = None,
    headers: Mapping[str, str] | None = None,
    client: httpx.Client | None = None,
    timeout: float = LOAD_TIMEOUT,
) -> Loaded:
    """Do as `load_session` does, without an event loop."""
    where, own = _request(url, token, headers)
    with contextlib.nullcontext(client) if client else httpx.Client() as http:
        try:
            with http.stream("POST", where, headers=own, timeout=timeouts(timeout)) as response:
                body = read_body_sync(response, _limit(response))
        except httpx.RequestError as error:
            raise _unreached(where, error) from error
    return _loaded(where, response, body)


def _request(
    url: str, token: str | None, headers: Mapping[str, str] | None
) -> tuple[str, dict[str, str]]:
    where = Target.read(checked_url(url)).load
    if where is None:
        raise ValueError("a state is loaded from a URL of the form …/session/ID")
    own = {"Accept": "application/json", "Accept-Encoding": "identity", **bearer(token)}
    return where, over(headers or {}, own)


def _unreached(where: str, error: httpx.RequestError) -> ClientError:
    final = unusable(error)
    if final is not None:
        return LoadFailed(str(final))
    return ClientError(f"no state could be loaded from {shown_url(where)}: {problem_of(error)}")


def _limit(response: httpx.Response) -> int:
    """One byte more than an answer may have, so that it is seen when there are more."""
    return MAX_STATE + 1 if response.status_code == 200 else MAX_BODY


def _loaded(where: str, response: httpx.Response, body: bytes) -> Loaded:
    status = response.status_code
    if status == 200:
        if len(body) > MAX_STATE:
            raise LoadFailed(
                f"{shown_url(where)} answered with more than the {MAX_STATE} bytes that are read"
            )
        encoding = unasked_encoding(response)
        if encoding is not None:
            raise LoadFailed(f"{shown_url(where)} answered in the encoding {encoding}, unasked")
        try:
            return Loaded.read(msgspec.json.decode(body))
        except (msgspec.MsgspecError, ValueError, RecursionError):
            raise LoadFailed(f"{shown_url(where)} did not answer with JSON") from None
    code, sentence = refusal(response.reason_phrase, body)
    text = f"{shown_url(where)} answered {status}{f' ({code})' if code else ''}: {sentence}"
    if judge(status, "", can_refresh=False) is Verdict.RETRY:
        raise ClientError(text)
    raise LoadFailed(text)
