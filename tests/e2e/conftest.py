"""Fixtures of the end-to-end tests: installations with a running proxy in them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.auto_confirm.store.conftest import postgres_url
from tests.e2e.confined_installation import add_hostile, escalations, require_sandbox
from tests.e2e.installation import Installation
from tests.e2e.raw_client import RawClient
from tests.e2e.website import Website, open_website

__all__ = ["postgres_url"]


@pytest.fixture
def installation(tmp_path: Path) -> Iterator[Installation]:
    """An empty installation of the test's own."""
    built = Installation(tmp_path)
    yield built
    built.end()


@pytest.fixture
def scripted(installation: Installation) -> Installation:
    """An installation of the test's own with one scripted server."""
    installation.add_scripted()
    installation.allow_scripted()
    return installation


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """One installation for all tests of a module that leave the server as they find it."""
    built = Installation(tmp_path_factory.mktemp("shared"))
    built.add_scripted()
    built.allow_scripted()
    yield built
    built.end()


@pytest.fixture(scope="module")
def agent(shared: Installation) -> RawClient:
    """One agent in the shared installation, connected."""
    return shared.start()


@pytest.fixture(scope="session")
def sandbox() -> None:
    """Skip where no sandbox can be had, or fail if there must be one."""
    require_sandbox()


@pytest.fixture
def single(installation: Installation) -> Installation:
    """An installation of the test's own with one confined server."""
    add_hostile(installation, "hostile")
    escalations(installation)
    installation.variables["SANDBOX_POLICY"] = "enforce"
    return installation


@pytest.fixture
def website() -> Iterator[Website]:
    """A web server on this machine, outside every sandbox."""
    with open_website() as server:
        yield server
