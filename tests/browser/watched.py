"""A page of a real browser that follows a stream, and what it saw of it."""

from __future__ import annotations

import json

__all__ = ["Watched"]

# What any page would write. `seen` has what came, `states` what became of the connection.
FOLLOW = """
([url, types]) => {
  window.seen = [];
  window.states = [];
  window.source = new EventSource(url);
  const names = ["connecting", "open", "closed"];
  source.onopen = () => states.push("open");
  source.onerror = () => states.push(names[source.readyState]);
  for (const type of types) {
    source.addEventListener(type, (event) =>
      seen.push({cursor: event.lastEventId, ...JSON.parse(event.data)}));
  }
}
"""


class Watched:
    """A page that follows a stream with an EventSource.

    Args:
        page: a page of Playwright.
        types: the event types that it listens to.

    Attributes:
        seen: the envelopes of all that came up to the last wait, each with the page's cursor.
        states: what became of the connection, up to the last wait.
    """

    def __init__(self, page, types):
        self._page = page
        self._types = types
        self.seen = []
        self.states = []

    async def open(self, origin, path):
        """Load the page at the server's root, and follow a stream."""
        await self._page.goto(origin)
        await self._page.evaluate(FOLLOW, [path, self._types])

    async def until(self, condition, *arguments):
        """Wait until a JavaScript function of the page holds."""
        await self._page.wait_for_function(condition, arg=list(arguments), polling=10)
        # As text: Playwright takes objects over one by one.
        fresh, self.states = json.loads(
            await self._page.evaluate(
                "(n) => JSON.stringify([seen.slice(n), states])", len(self.seen)
            )
        )
        self.seen += fresh

    async def until_tick(self, number):
        """Wait for the tick of this number, or a later one."""
        await self.until("([n]) => seen.some((e) => e.type === 'tick' && e.data.n >= n)", number)

    async def until_type(self, wanted, count=1):
        await self.until(
            "([type, count]) => seen.filter((e) => e.type === type).length >= count",
            wanted,
            count,
        )

    async def until_state(self, wanted, count=1):
        await self.until(
            "([state, count]) => states.filter((s) => s === state).length >= count",
            wanted,
            count,
        )

    @property
    def ids(self):
        """The ids of the events, as the page got them, without the control frames."""
        return [event["cursor"] for event in self.seen if "id" in event]

    def of_type(self, wanted):
        return [event for event in self.seen if event["type"] == wanted]
