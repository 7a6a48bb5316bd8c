"""A store on each database, and a clock that is wound by hand."""

import os
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import psycopg
import pytest
from sqlalchemy.engine import make_url

from ironcurtain_proxy.auto_confirm.store.store import Store, open_store
from tests.auto_confirm.store.postgres import find, running_server
from tests.fakes import FakeClock

_NUMBERS = count(1)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """The URL of a database from which others can be made."""
    said = os.environ.get("DATABASE_URL", "")
    if said.startswith("postgres"):
        yield said
        return
    if find("postgres") is None or find("initdb") is None:
        missing = "no postgres on this machine, and no DATABASE_URL"
        if os.environ.get("REQUIRE_POSTGRES") == "1":
            pytest.fail(missing)
        pytest.skip(missing)
    with running_server() as url:
        yield url


@pytest.fixture
def postgres_url(postgres_server: str) -> Iterator[str]:
    """A database of the test's own."""
    name = f"store_{os.getpid()}_{next(_NUMBERS)}"
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
        yield make_url(postgres_server).set(database=name).render_as_string(hide_password=False)
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest) -> str | None:
    """Each database; None is the SQLite file in the state directory."""
    if request.param == "sqlite":
        return None
    found: str = request.getfixturevalue("postgres_url")
    return found


@pytest.fixture
def clock() -> FakeClock:
    """Stands still until it is wound."""
    return FakeClock()


@pytest.fixture
def store(url: str | None, tmp_path: Path, clock: FakeClock) -> Iterator[Store]:
    """An empty store."""
    with open_store(url, tmp_path / "state", clock) as opened:
        yield opened


@pytest.fixture
def sqlite_store(tmp_path: Path, clock: FakeClock) -> Iterator[Store]:
    """An empty store on SQLite, for what does not differ."""
    with open_store(None, tmp_path / "state", clock) as opened:
        yield opened
