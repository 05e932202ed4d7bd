"""A real browser for tests of pages; where there is none, these tests skip."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@contextmanager
def chromium() -> Iterator[Any]:
    """Start the Chromium of this machine without a window, or skip the test with the reason."""
    program = next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        pytest.skip("no Chromium on this machine (Debian: apt-get install chromium)")
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with playwright.sync_playwright() as started:
        # Its sandbox needs rights that containers do not have; the pages are our own.
        browser = started.chromium.launch(executable_path=program, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


class Visit:
    """A page that is open, with what it asked for and complained about."""

    def __init__(self, browser: Any, path: Path, **options: Any) -> None:
        self.context = browser.new_context(offline=True, **options)
        self.page = self.context.new_page()
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.goto(path.as_uri())

    def __enter__(self) -> "Visit":
        return self

    def __exit__(self, *_: object) -> None:
        self.context.close()

    def __call__(self, expression: str) -> Any:
        """Return the value of an expression in JavaScript."""
        return self.page.evaluate(expression)

    def check_names(self) -> None:
        """Assert that pictures and table headings are told to those who cannot see them, and headings are in order."""
        assert self("[...document.images].filter(image => !image.alt.trim()).length") == 0
        assert self("[...document.querySelectorAll('th')].filter(cell => !cell.scope).length") == 0
        levels = self("[...document.querySelectorAll('h1, h2, h3')].map(node => Number(node.tagName[1]))")
        assert levels[0] == 1
        assert levels.count(1) == 1
        assert all(after - before <= 1 for before, after in pairwise(levels))
