"""The fleet that machines of the tests belong to."""

from pathlib import Path

import pytest

from tests.bundle.fleet import Fleet


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    """A fleet with its first bundle."""
    made = Fleet(tmp_path)
    made.begin()
    return made
