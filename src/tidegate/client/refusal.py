"""How a server says no, in a status or in a stream, made fit to be shown. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from tidegate.client.control import REFUSING_KINDS
from tidegate.client.events import MalformedFrame, parse_frame

if TYPE_CHECKING:
    from tidegate.sse import ServerSentEvent

__all__ = ["MAX_SHOWN", "refusal", "refused_by", "shown"]

MAX_SHOWN: Final = 512
"""How many characters of a text of the server's are shown."""

_MAX_CODE: Final = 128


def shown(text: str, limit: int = MAX_SHOWN) -> str:
    r"""Return a text of the server's as a terminal or a log may have it.

    What does not print becomes ``\x1b``, ``\u202e`` and the like: controls, line ends, marks that
    turn the direction of writing. What is over the limit is cut off, and an ellipsis says so.

    Args:
        text: whatever was sent.
        limit: how many characters come out at most.
    """
    escaped = "".join(
        one if one.isprintable() else one.encode("unicode_escape").decode("ascii")
        for one in text[: limit + 1]
    )
    return escaped if len(escaped) <= limit else f"{escaped[: limit - 1]}…"


def refusal(reason: str, body: bytes) -> tuple[str | None, str]:
    """Read the code and the sentence of an error's body, ``{"error": …, "code": …}``.

    Args:
        reason: what to say if the body says nothing.
        body: as far as it was read.

    Returns:
        Both as `shown` gives them; the code is ``None`` if there is none.
    """
    try:
        answer = msgspec.json.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict):
        answer = {}
    code, sentence = answer.get("code"), answer.get("error")
    return (
        shown(code, _MAX_CODE) if isinstance(code, str) else None,
        shown(sentence if isinstance(sentence, str) else reason) or "no reason given",
    )


def refused_by(frame: ServerSentEvent) -> str | None:
    """Tell whether the first frame of a stream refuses the stream, as a 429 or 503 would.

    Returns:
        Why, fit to be shown; ``None`` if it is any other frame.
    """
    try:
        event = parse_frame(frame, None)
    except MalformedFrame:
        return None
    if event.type != "stream_error" or not isinstance(event.data, dict):
        return None
    kind, sentence = event.data.get("errorKind"), event.data.get("error")
    if not isinstance(kind, str) or kind not in REFUSING_KINDS:
        return None
    return shown(f"{kind}: {sentence}" if isinstance(sentence, str) else kind)
