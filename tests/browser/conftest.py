"""A real Chromium, and pages of it."""

from __future__ import annotations

import os
import shutil

import pytest
from playwright.async_api import async_playwright

ARGUMENTS = [
    "--no-sandbox",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-dev-shm-usage",
    "--disable-extensions",
    "--disable-gpu",
    "--disable-sync",
    "--no-first-run",
    # Only the tests' own servers.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
    "--no-proxy-server",
]


@pytest.fixture(scope="module")
async def browser(anyio_backend):
    chromium = os.environ.get("TIDEGATE_CHROMIUM") or shutil.which("chromium")
    assert chromium, "Chromium is not installed"
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium, args=ARGUMENTS)
        yield browser
        await browser.close()


@pytest.fixture
async def page(browser):
    """An empty page in a profile of its own; it is closed, with its streams, at the end."""
    context = await browser.new_context()
    context.set_default_timeout(20_000)
    yield await context.new_page()
    await context.close()
