"""Why a command could not get at the server, in words that say what to do. Pure."""

from __future__ import annotations

__all__ = ["not_let_in", "why_away"]

_NO_CONNECTION = ("ConnectError", "ConnectTimeout")
_OF_TLS = ("SSL", "CERTIFICATE", "TLS")


def not_let_in(token: str | None, said: str = "") -> str:
    """Say what a 401 means.

    Args:
        token: what was sent, if anything was.
        said: the server's sentence. One that is closed to everybody names the options that it
            has to be started with, and no token would help.
    """
    if "--dev" in said:
        return f"{said} (401)"
    if token is None:
        return "the server wants a token (401); give --token or TIDEGATE_TOKEN"
    return "the token is not the server's (401)"


def why_away(problem: str, url: str) -> str | None:
    """Say what a problem of the client's means.

    Args:
        problem: its class and its text, as the client writes them: ``ConnectError: …``.
        url: the server's base URL.

    Returns:
        The sentence, or ``None`` where the problem says more itself: it is another one than that
        nobody answers there.
    """
    name, _, text = problem.partition(":")
    if name not in _NO_CONNECTION or any(word in text.upper() for word in _OF_TLS):
        return None
    return f"no server at {url}; is tidegate serve running, and is --url right?"
