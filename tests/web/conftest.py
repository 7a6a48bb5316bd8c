"""One browser for the tests of a file, in which each has a tab of its own."""

from collections.abc import AsyncIterator

import pytest
from playwright.async_api import BrowserContext

from tests.web.page_process import a_browser


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """The browser is driven by the loop of all tests of a file."""
    return "asyncio"


@pytest.fixture(scope="module")
async def browser(anyio_backend: str) -> AsyncIterator[BrowserContext]:
    """A browser that has started."""
    async with a_browser() as started:
        yield started
