"""The token that guards a small set-up, and the cookie that stands for it. Pure."""

from __future__ import annotations

import hashlib
import hmac
import re
from typing import Final

__all__ = ["COOKIE", "TokenCheck"]

COOKIE: Final = "tidegate_login"
"""The name of the cookie that ``POST /login`` sets."""

_BEARER = re.compile(r"bearer +([^ ]+) *", re.IGNORECASE | re.ASCII)


class TokenCheck:
    """Compares what clients present with the token, in constant time.

    Args:
        token: the server's token.
    """

    def __init__(self, token: str) -> None:
        self._digest = _digest(token)
        # Derived: whoever reads the cookie has not got the token. The same after a
        # restart: nobody needs to log in again.
        self.cookie = hmac.new(token.encode(), b"tidegate login cookie 1", "sha256").hexdigest()

    def is_token(self, text: str) -> bool:
        """Tell whether ``text`` is the token."""
        return hmac.compare_digest(_digest(text), self._digest)

    def is_bearer(self, authorization: str) -> bool:
        """Tell whether an ``Authorization`` header bears the token."""
        bearer = _BEARER.fullmatch(authorization)
        return bearer is not None and self.is_token(bearer[1])

    def is_cookie(self, header: str) -> bool:
        """Tell whether a ``Cookie`` header holds the cookie that `cookie` is the value of."""
        # Not by http.cookies: it gives up at the first odd name, and cookies of this
        # machine's other servers, whatever their port, come along with ours.
        pairs = (part.strip().partition("=") for part in header.split(";"))
        return any(
            name == COOKIE and hmac.compare_digest(value.encode(), self.cookie.encode())
            for name, _, value in pairs
        )


def _digest(text: str) -> bytes:
    # Compared as digests: the time taken says nothing about the length either.
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
