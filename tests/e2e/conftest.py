"""Fixtures of the end-to-end tests: houses with a running proxy in them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.confined import add_hostile, escalations, require_sandbox
from tests.e2e.house import House
from tests.e2e.raw_client import RawClient
from tests.e2e.website import Website, open_website
from tests.store.conftest import postgres_server, postgres_url

__all__ = ["postgres_server", "postgres_url"]


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    """An empty house of the test's own."""
    built = House(tmp_path)
    yield built
    built.end()


@pytest.fixture
def scripted(house: House) -> House:
    """A house of the test's own with one scripted server."""
    house.add_scripted()
    house.allow_scripted()
    return house


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """One house for all tests of a module that leave the server as they find it."""
    built = House(tmp_path_factory.mktemp("shared"))
    built.add_scripted()
    built.allow_scripted()
    yield built
    built.end()


@pytest.fixture(scope="module")
def agent(shared: House) -> RawClient:
    """One agent in the shared house, connected."""
    return shared.start()


@pytest.fixture(scope="session")
def sandbox() -> None:
    """Skip where no sandbox can be had, or fail if there must be one."""
    require_sandbox()


@pytest.fixture
def single(house: House) -> House:
    """A house of the test's own with one confined server."""
    add_hostile(house, "hostile")
    escalations(house)
    house.variables["SANDBOX_POLICY"] = "enforce"
    return house


@pytest.fixture
def website() -> Iterator[Website]:
    """A web server on this machine, outside every sandbox."""
    with open_website() as server:
        yield server
