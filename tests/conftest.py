"""Fixtures that every test may use."""

import os
import sys
from collections.abc import Iterator
from functools import wraps
from inspect import iscoroutinefunction

import anyio
import pytest
from hypothesis import HealthCheck, settings

from tests import program
from tests.auto_confirm.store.postgres import find, running_server
from tests.e2e.confined_installation import known_sandbox
from tests.examples import examples

# Each property is tried every time; hundreds of tries of all of them would be a minute. How long a
# try takes says more of the machine than of the program.
settings.register_profile(
    "suite", max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("suite")

# Test modules that were rewritten and compiled are there for the next run, and the program's for
# the processes that tests start: without, a run compiles 1,200 files before its first test.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# `python3` shall be an interpreter: that of a version manager is a shell script, six times as slow.
os.environ["PATH"] = f"{sys.base_prefix}/bin:{os.environ['PATH']}"

# Clients look for their settings where these say, and so do we: a test's home is its own.
for _name in (
    *("CLAUDE_CONFIG_DIR", "CODEX_HOME", "GEMINI_CLI_HOME", "COPILOT_HOME", "XDG_CONFIG_HOME"),
):
    os.environ.pop(_name, None)


def pytest_configure(config: pytest.Config) -> None:
    """Start the process that forks while the tests are collected, and try a sandbox.

    The workers then share both.
    """
    if config.getoption("workers", 0):
        program.prepare()
        known_sandbox()


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Iterator[None]:
    """End an async test that hangs a little earlier than pytest would, at the line that waits.

    So a test needs no deadline of its own, which a busy machine would not keep.
    """
    test = pyfuncitem.obj
    if iscoroutinefunction(test):
        config = pyfuncitem.config
        limit = 0.9 * float(config.getoption("timeout") or config.getini("timeout"))

        @wraps(test)
        async def in_time(**given: object) -> None:
            with anyio.fail_after(limit):
                await test(**given)

        pyfuncitem.obj = in_time
    return (yield)


@pytest.fixture
def anyio_backend() -> str:
    """Async tests run on asyncio, as the proxy does."""
    return "asyncio"


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
