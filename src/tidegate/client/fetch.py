"""One question to a server whose answer is JSON, with and without an event loop."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tidegate.client.reconnect import Verdict, judge
from tidegate.client.refusal import refusal
from tidegate.client.target import bearer, over, shown_url
from tidegate.client.transport import (
    MAX_BODY,
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

__all__ = ["LOAD_TIMEOUT", "Question", "fetch", "fetch_sync"]

LOAD_TIMEOUT: Final = 30.0
"""Seconds in which something of the answer has to arrive."""

MAX_STATE: Final = 64 * 1024 * 1024
"""The longest answer that is read, in bytes."""


class Question:
    """What is asked.

    Args:
        method: of the request.
        url: of the request.
        token: sent as ``Authorization: Bearer``.
        headers: more headers.
        absent: the code of a 404 that says that there is no state, which is an answer too.

    Raises:
        TypeError: the token is no ``str``.
        ValueError: no header can carry it.
    """

    def __init__(
        self,
        method: str,
        url: str,
        token: str | None,
        headers: Mapping[str, str] | None,
        *,
        absent: str | None = None,
    ) -> None:
        own = {"Accept": "application/json", "Accept-Encoding": "identity", **bearer(token)}
        self.method = method
        self.url = url
        self.headers = over(headers or {}, own)
        self.absent = absent


async def fetch(
    question: Question,
    client: httpx.AsyncClient | None,
    timeout: float,  # noqa: ASYNC109 - between two bytes, not of the whole call
) -> Any:
    """Ask, and return the answer as JSON gives it; ``None`` for the 404 that is one.

    Raises:
        LoadFailed: the server says no, or what it says is no JSON: again would not help.
        ClientError: it could not be reached, or answered 5xx, 408 or 429: again may help.
    """
    async with contextlib.nullcontext(client) if client else httpx.AsyncClient() as http:
        try:
            async with http.stream(
                question.method, question.url, headers=question.headers, timeout=timeouts(timeout)
            ) as response:
                body = await read_body(response, _limit(response))
        except httpx.RequestError as error:
            raise _unreached(question, error) from error
    return _answer(question, response, body)


def fetch_sync(question: Question, client: httpx.Client | None, timeout: float) -> Any:
    """Do as `fetch` does, without an event loop."""
    with contextlib.nullcontext(client) if client else httpx.Client() as http:
        try:
            with http.stream(
                question.method, question.url, headers=question.headers, timeout=timeouts(timeout)
            ) as response:
                body = read_body_sync(response, _limit(response))
        except httpx.RequestError as error:
            raise _unreached(question, error) from error
    return _answer(question, response, body)


def _unreached(question: Question, error: httpx.RequestError) -> ClientError:
    final = unusable(error)
    if final is not None:
        return LoadFailed(str(final))
    where = shown_url(question.url)
    return ClientError(f"no state could be loaded from {where}: {problem_of(error)}")


def _limit(response: httpx.Response) -> int:
    """One byte more than an answer may have, so that it is seen when there are more."""
    return MAX_STATE + 1 if response.status_code == 200 else MAX_BODY


def _answer(question: Question, response: httpx.Response, body: bytes) -> Any:
    status, where = response.status_code, shown_url(question.url)
    if status == 200:
        if len(body) > MAX_STATE:
            raise LoadFailed(f"{where} answered with more than the {MAX_STATE} bytes that are read")
        encoding = unasked_encoding(response)
        if encoding is not None:
            raise LoadFailed(f"{where} answered in the encoding {encoding}, unasked")
        try:
            return msgspec.json.decode(body)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            raise LoadFailed(f"{where} did not answer with JSON") from None
    code, sentence = refusal(response.reason_phrase, body)
    if status == 404 and code is not None and code == question.absent:
        return None
    text = f"{where} answered {status}{f' ({code})' if code else ''}: {sentence}"
    if judge(status, "", can_refresh=False) is Verdict.RETRY:
        raise ClientError(text)
    raise LoadFailed(text)
