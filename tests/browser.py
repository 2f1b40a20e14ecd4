"""A page as Debian's Chromium has it."""

import shutil
from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright

CHROMIUM = shutil.which("chromium")
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")


def opened(page: Path) -> tuple[str, list[str]]:
    """Return the document after loading, and what went to the console."""
    console: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        tab = browser.new_page()
        tab.on("console", lambda message: console.append(message.text))
        tab.on("pageerror", lambda error: console.append(str(error)))
        tab.goto(page.as_uri(), wait_until="load")
        document = tab.content()
        browser.close()
    return document, console
