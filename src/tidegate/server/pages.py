"""The two plain pages of the server. They load nothing from anywhere."""

from __future__ import annotations

from typing import Final

from starlette.responses import HTMLResponse, Response

__all__ = ["index_page", "login_page"]

_HEADERS: Final = {
    "content-security-policy": (
        "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
        "connect-src 'self'; form-action 'none'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
}

_PAGE: Final = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Tidegate</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>body{{font:16px/1.5 system-ui,sans-serif;max-width:44rem;margin:3rem auto;padding:0 1rem}}
code{{font:14px ui-monospace,monospace}}</style>
{body}
</html>
"""

_INDEX: Final = """<h1>Tidegate</h1>
<p>This server carries events to clients, in order and resumable.</p>
<ul>
<li><code>POST /session</code> makes a session, <code>GET /session</code> lists them
<li><code>GET /session/ID/events</code> streams its events,
<code>POST /session/ID/events</code> publishes one
<li><code>GET /v1/stream?channel=room:1</code> streams channels,
<code>POST /v1/publish</code> publishes to them
<li><code>GET /capabilities</code>, <code>/healthz</code>, <code>/readyz</code>
</ul>
"""

_LOGIN: Final = """<h1>Tidegate</h1>
<form><label>Token <input type="password" autocomplete="current-password" autofocus></label>
<button>Log in</button> <output></output></form>
<script>
document.forms[0].onsubmit = async (event) => {
  event.preventDefault();
  const token = document.querySelector("input").value;
  const answer = await fetch("login", {method: "POST", body: JSON.stringify({token})});
  if (answer.ok) location = "."; else document.querySelector("output").value = "Not the token.";
};
</script>
"""


def index_page() -> Response:
    """Return the page at ``/``."""
    return HTMLResponse(_PAGE.format(body=_INDEX), headers=_HEADERS)


def login_page() -> Response:
    """Return the form that posts a token to ``/login``."""
    return HTMLResponse(_PAGE.format(body=_LOGIN), headers=_HEADERS)
