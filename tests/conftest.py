"""Fixtures that every test may use."""

import pytest
from hypothesis import HealthCheck, settings

from tests.examples import examples

# Each property is tried every time; hundreds of tries of all of them would be a minute. How long a
# try takes says more of the machine than of the program.
settings.register_profile(
    "suite", max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("suite")


@pytest.fixture
def anyio_backend() -> str:
    """Async tests run on asyncio, as the proxy does."""
    return "asyncio"
