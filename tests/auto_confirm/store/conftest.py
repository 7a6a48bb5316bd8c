"""A store on each database, and a clock that is wound by hand."""

import os
import shutil
from collections.abc import Iterator
from functools import partial
from itertools import count
from pathlib import Path

import psycopg
import pytest
from sqlalchemy.engine import make_url

from ironcurtain_proxy.auto_confirm.store.store import Store, open_store
from tests.auto_confirm.store.used_again import UsedAgain
from tests.fakes import FakeClock

_NUMBERS = count(1)
_HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One worker runs all these files, with one server of PostgreSQL."""
    for item in items:
        if item.path.is_relative_to(_HERE):
            item.add_marker(pytest.mark.worker("postgresql"))


@pytest.fixture(scope="session")
def postgres_template(postgres_server: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The name of a database in which only the tables are made: to copy it is quicker."""
    name = f"store_{os.getpid()}_template"
    _say(postgres_server, f"CREATE DATABASE {name} STRATEGY file_copy")
    open_store(_url_of(postgres_server, name), tmp_path_factory.mktemp("none"), FakeClock()).close()
    return name


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same as a file."""
    state = tmp_path_factory.mktemp("template")
    open_store(None, state, FakeClock()).close()
    return state / "interactions.db"


@pytest.fixture(scope="session")
def used_again(postgres_server: str, postgres_template: str) -> UsedAgain:
    """Databases with the tables of a store."""
    return UsedAgain(
        template=postgres_template,
        url_of=partial(_url_of, postgres_server),
        make=partial(_make, postgres_server, postgres_template),
        remove=partial(_remove, postgres_server),
    )


@pytest.fixture
def postgres_url(postgres_server: str) -> Iterator[str]:
    """An empty database of the test's own."""
    name = _make(postgres_server, "template1")
    yield _url_of(postgres_server, name)
    _remove(postgres_server, name)


@pytest.fixture
def postgres_store_url(postgres_server: str, used_again: UsedAgain) -> Iterator[str]:
    """A database of the test's own, with the tables of a store."""
    with used_again.one() as name:
        yield _url_of(postgres_server, name)


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest) -> str | None:
    """A new store of each database; None is the SQLite file in the state directory."""
    if request.param == "sqlite":
        return None
    found: str = request.getfixturevalue("postgres_store_url")
    return found


@pytest.fixture(params=["sqlite", "postgresql"])
def empty_url(request: pytest.FixtureRequest) -> str | None:
    """The same, and on PostgreSQL no table is made yet."""
    if request.param == "sqlite":
        return None
    found: str = request.getfixturevalue("postgres_url")
    return found


@pytest.fixture
def clock() -> FakeClock:
    """Stands still until it is wound."""
    return FakeClock()


@pytest.fixture
def store(
    url: str | None, sqlite_template: Path, tmp_path: Path, clock: FakeClock
) -> Iterator[Store]:
    """A store without rows."""
    if url is None:
        _copied(sqlite_template, tmp_path / "state")
    with open_store(url, tmp_path / "state", clock) as opened:
        yield opened


@pytest.fixture
def sqlite_store(sqlite_template: Path, tmp_path: Path, clock: FakeClock) -> Iterator[Store]:
    """A store without rows on SQLite, for what does not differ."""
    _copied(sqlite_template, tmp_path / "state")
    with open_store(None, tmp_path / "state", clock) as opened:
        yield opened


def _copied(template: Path, state: Path) -> None:
    state.mkdir(mode=0o700)
    shutil.copy(template, state)


def _make(server: str, template: str) -> str:
    name = f"store_{os.getpid()}_{next(_NUMBERS)}"
    _say(server, f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy")
    return name


def _remove(server: str, name: str) -> None:
    _say(server, f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


def _say(server: str, statement: str) -> None:
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(statement.encode())


def _url_of(server: str, database: str) -> str:
    return make_url(server).set(database=database).render_as_string(hide_password=False)
