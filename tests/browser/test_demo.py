"""The demo, driven as a visitor would: by its buttons, in a real browser."""

import os
import re
import shutil
import sys
from contextlib import asynccontextmanager

import pytest
from playwright.async_api import async_playwright, expect

from tests.servers import serve_command

pytestmark = [pytest.mark.browser, pytest.mark.server, pytest.mark.timeout(180)]

PATIENCE = 60_000  # milliseconds
SOME = re.compile(r"^[1-9]\d*$")


@pytest.fixture(scope="module")
def demo():
    with serve_command(sys.executable, "-m", "examples.demo", "--port", "0", alive="/") as url:
        yield url


class Visit:
    """The open page."""

    def __init__(self, page):
        self.page = page

    def pane(self, name):
        return self.page.locator(f"[data-pane={name}]")

    def count(self, pane, what):
        return self.pane(pane).locator(f"[data-count={what}]")

    async def number(self, pane, what):
        return int(await self.count(pane, what).inner_text())

    async def some(self, pane, what):
        """Wait until a counter is no longer 0."""
        await expect(self.count(pane, what)).to_have_text(SOME, timeout=PATIENCE)

    async def more(self, pane, what, than):
        """Wait until a counter has passed a number."""
        above = re.compile(f"^(?!({'|'.join(map(str, range(than + 1)))})$)")
        await expect(self.count(pane, what)).to_have_text(above, timeout=PATIENCE)

    async def logged(self, pane, text):
        await expect(self.pane(pane).locator(".log")).to_contain_text(text, timeout=PATIENCE)

    async def live(self, *panes):
        for name in panes:
            await expect(self.pane(name).locator(".state")).to_have_text("live", timeout=PATIENCE)

    async def press(self, pane, action):
        await self.pane(pane).locator(f"[data-action={action}]").click()

    async def no_gap_and_no_duplicate(self):
        for what in ("gaps", "duplicates"):
            await expect(self.page.locator(f"[data-total={what}]")).to_have_text("0")
            for pane in ("build", "story", "flood", "diagnostics"):
                await expect(self.count(pane, what)).to_have_text("0")


@asynccontextmanager
async def visit(url):
    chromium = os.environ.get("TIDEGATE_CHROMIUM") or shutil.which("chromium")
    assert chromium, "Chromium is not installed"
    problems = []
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = await browser.new_page()
        page.on("pageerror", lambda error: problems.append(str(error)))
        await page.goto(url)
        yield Visit(page)
        await browser.close()
    assert problems == []


LEDGER = """async (steps) => {
    const { Ledger } = await import("/page/ledger.js");
    const ledger = new Ledger();
    for (const step of steps) {
        if (typeof step === "string") ledger.event(step);
        else ledger.control(...step);
    }
    const { gaps, duplicates, announced, epochs, resumes } = ledger.counts;
    return [gaps, duplicates, announced, epochs, resumes];
}"""


def resync(reason, last, earliest):
    data = {"reason": reason, "lastDeliveredId": last, "earliestAvailableId": earliest}
    return ["state_resync_required", data]


REPLAYED = ["replay_complete", {"replayedCount": 0}]


# What the page is shown, and what it counts: gaps, duplicates, announced, epochs, resumes.
BOOKS = [
    (["a-4", "a-5", REPLAYED, "a-6", REPLAYED], [0, 0, 0, 0, 1]),
    (["a-4", "a-7"], [2, 0, 0, 0, 0]),
    (["a-4", "a-5", "a-5", "a-4", "a-6"], [0, 2, 0, 0, 0]),
    (["a-4", resync("ring_evicted", 4, 9), "a-9"], [0, 0, 4, 0, 0]),
    (["a-4", resync("ring_evicted", 4, 9), "a-11"], [2, 0, 4, 0, 0]),
    (["a-4", resync("epoch_reset", 4, 1), "b-1", "b-2"], [0, 0, 0, 1, 0]),
    (["a-4", "b-1"], [1, 0, 0, 1, 0]),
    (["a-4", resync("epoch_reset", 4, 1), "b-3"], [2, 0, 0, 1, 0]),
]


async def test_the_page_would_see_a_gap_or_a_duplicate(demo):
    async with visit(demo) as page:
        for steps, counts in BOOKS:
            assert await page.page.evaluate(LEDGER, steps) == counts, steps


async def test_live_events_come_with_their_ids(demo):
    async with visit(demo) as page:
        await page.live("build", "story", "flood", "diagnostics")
        await page.some("build", "events")
        row = page.pane("build").locator(".log li", has_text=".py").first
        await expect(row.locator(".id")).to_have_text(SOME, timeout=PATIENCE)
        await page.no_gap_and_no_duplicate()


async def test_a_cut_connection_comes_back_and_resumes(demo):
    async with visit(demo) as page:
        await page.some("build", "events")
        for turn in range(2):
            await page.press("build", "cut")
            await page.more("build", "resumes", turn)
            await page.more("build", "events", await page.number("build", "events"))
        await page.logged("build", "the connection is gone")
        await page.no_gap_and_no_duplicate()


async def test_a_story_is_left_and_entered_again_in_the_middle(demo):
    async with visit(demo) as page:
        await page.live("story")
        await page.press("story", "tell")
        story = page.pane("story").locator(".story")
        await expect(story).to_contain_text("There was a gate", timeout=PATIENCE)
        await page.press("story", "leave")
        await expect(page.pane("story").locator(".state")).to_have_text("left")
        left_at = await page.number("story", "events")
        # The story goes on meanwhile; the build tells that time passes.
        await page.more("build", "events", await page.number("build", "events") + 3)
        assert await page.number("story", "events") == left_at
        await page.press("story", "leave")
        await page.more("story", "events", left_at)
        await page.press("story", "cut")
        await page.more("story", "resumes", 1)
        await page.logged("story", "story_end")
        await expect(story).to_contain_text(
            "found that between the two nothing was missing at all."
        )
        text = await story.inner_text()
        await page.no_gap_and_no_duplicate()
    from examples.demo.story import TEXT

    assert text.split() == TEXT.split()


async def test_a_slow_reader_is_warned_then_evicted_then_told_what_it_missed(demo):
    async with visit(demo) as page:
        await page.live("flood", "diagnostics")
        await page.press("flood", "slow")
        await page.logged("flood", "slow_client_warning")
        await page.logged("diagnostics", "flood: slow_client_warning")
        await page.logged("diagnostics", "flood: client_evicted")
        await page.logged("flood", "state_resync_required")
        await page.logged("flood", "resynced (ring_evicted)")
        await page.live("flood")
        for what in ("warnings", "evictions", "resyncs", "announced"):
            await page.some("flood", what)
        await page.no_gap_and_no_duplicate()


async def test_a_restart_of_the_server_is_seen_as_a_new_epoch(demo):
    async with visit(demo) as page:
        await page.live("build", "story", "flood", "diagnostics")
        await page.some("build", "events")
        await page.page.locator("[data-action=restart]").click()
        await page.some("build", "epochs")
        await page.logged("build", '"reason":"epoch_reset"')
        await page.more("build", "events", await page.number("build", "events"))
        await page.live("build", "story", "flood", "diagnostics")
        await page.no_gap_and_no_duplicate()
    assert "asked to restart" in demo.output
