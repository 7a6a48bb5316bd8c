"""The page as its user meets it: the command in a process, and a real browser before it."""

import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
import anyio.to_thread
import pytest
from playwright.async_api import BrowserContext, Page, async_playwright, expect

from tests import program
from tests.program import PATIENCE

_QUIET = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@dataclass
class Command:
    """A running `ironcurtain-proxy web`."""

    process: "program.Forked | subprocess.Popen[bytes]"

    async def link(self) -> str:
        """The next link that the command shows."""
        assert self.process.stdout is not None
        return (await anyio.to_thread.run_sync(self.process.stdout.readline)).decode().strip()


@asynccontextmanager
async def a_command(
    box: Path, home: Path, arguments: Sequence[str] = (), log: Path | None = None
) -> AsyncIterator[Command]:
    environ = {**os.environ, "HOME": str(home)}
    if log is not None:
        environ["AUDIT_LOG_PATH"] = str(log)
    argv = [*program.PROXY, "web", "--dir", str(box), *arguments]
    with Path(os.devnull).open("wb") as errors:  # noqa: ASYNC230  returns at once
        process = program.start(argv, environ, errors, Path.cwd())
    try:
        yield Command(process)
    finally:
        process.terminate()
        await anyio.to_thread.run_sync(process.wait)
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()


@asynccontextmanager
async def a_browser() -> AsyncIterator[BrowserContext]:
    """A browser with one window, which an empty tab keeps open: a window costs half a second."""
    program = shutil.which("chromium")
    if program is None:
        if os.environ.get("REQUIRE_BROWSER"):
            pytest.fail("Chromium is not installed")
        pytest.skip("Chromium is not installed: apt-get install chromium")
    expect.set_options(timeout=PATIENCE * 1000)
    async with async_playwright() as driver:
        browser = await driver.chromium.launch(executable_path=program, args=[*_QUIET])
        try:
            window = await browser.new_context()
            await window.new_page()
            yield window
        finally:
            await browser.close()


@asynccontextmanager
async def a_tab(
    browser: BrowserContext, link: str, width: int = 1200, height: int = 900
) -> AsyncIterator[Page]:
    page = await browser.new_page()
    page.set_default_timeout(PATIENCE * 1000)
    try:
        await page.set_viewport_size({"width": width, "height": height})
        await page.goto(link)
        yield page
    finally:
        await page.close()
