"""Fixtures that every test may use."""

import pytest
from hypothesis import settings

# Each property is tried every time; hundreds of tries of all of them would be a minute.
settings.register_profile("suite", max_examples=60)
settings.load_profile("suite")


@pytest.fixture
def anyio_backend() -> str:
    """Async tests run on asyncio, as the proxy does."""
    return "asyncio"
