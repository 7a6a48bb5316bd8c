"""The interaction suite of the Python SDK with the proxy between client and server.

    .venv/bin/python scripts/eras/interaction.py [PYTEST ARGUMENT …]

Its in-memory cells run: the server listens in the test's process, and the client starts a proxy,
which reaches the server over HTTP and is given a policy that allows everything. `meant.toml` names
those that fail, and why; the exit status is 1 if others do.
"""

import inspect
import os
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from mcp import Client, StdioServerParameters, stdio_client
from mcp.server import Server
from mcp_types import (
    CancelledNotification,
    ListPromptsResult,
    ListToolsResult,
    PaginatedRequestParams,
    Prompt,
    Tool,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(HERE.parent), str(ROOT)]
from conformance import approve, everything  # noqa: E402
from suites import (  # noqa: E402
    Results,
    listening,
    variables,
    without_names,
    without_names_in_errors,
)

from tests import program  # noqa: E402

# The suite's own package has that name, too.
sys.path.remove(str(ROOT))
for _name in [name for name in sys.modules if name.partition(".")[0] == "tests"]:
    del sys.modules[_name]

SUITE = everything().parents[2]
LIBRARIES = ("inline-snapshot", "dirty-equals", "trio", "pytest-examples", "blockbuster", "logfire")
TESTS = ("tests/interaction/lowlevel", "tests/interaction/mcpserver")


_START: list[str] = []
"""The beginning of a command that starts a module where the proxy is imported already."""

_CALLED: dict[str, set[str]] = {}
"""The tools and prompts that the running test calls."""


def list_what_is_called(server: object) -> None:
    """Let a server list what it has, where its test gives it no list."""
    if not isinstance(server, Server):
        return
    has = server.get_request_handler
    if has("tools/call") and not has("tools/list"):
        tools = [Tool(name=name, input_schema={"type": "object"}) for name in _CALLED["tools"]]

        async def list_tools(*_: object) -> ListToolsResult:
            return ListToolsResult(tools=tools)

        server.add_request_handler("tools/list", PaginatedRequestParams, list_tools)
    if has("prompts/get") and not has("prompts/list"):
        prompts = [Prompt(name=name) for name in _CALLED["prompts"]]

        async def list_prompts(*_: object) -> ListPromptsResult:
            return ListPromptsResult(prompts=prompts)

        server.add_request_handler("prompts/list", PaginatedRequestParams, list_prompts)


def withdraw_by_own_numbers(session: object) -> None:
    """Let a client withdraw its one request: its test knows the number that the server saw."""
    send = session.send_notification

    async def sent(notification: object) -> None:
        open_now = [*session._dispatcher._pending]  # noqa: SLF001  kept nowhere else
        if isinstance(notification, CancelledNotification) and len(open_now) == 1:
            notification.params.request_id = open_now[0]
        await send(notification)

    session.send_notification = sent


@asynccontextmanager
async def connect_through_the_proxy(server: object, **options: object) -> AsyncIterator[object]:
    """Connect a client to a server, with the proxy between; see `connect_in_memory`."""
    version = options.pop("spec_version", "")
    mode = version if version in MODERN_PROTOCOL_VERSIONS else "legacy"
    list_what_is_called(server)
    without_names(options)
    with tempfile.TemporaryDirectory() as directory:
        async with listening(server) as url:
            environ = variables(Path(directory), url)
            threading.Thread(target=approve, args=[Path(directory)], daemon=True).start()
            python, *args = _START
            command = StdioServerParameters(
                command=python, args=[*args, "allowing"], env=environ, cwd=HERE
            )
            failure: Exception | pytest.fail.Exception | None = None
            async with Client(stdio_client(command), mode=mode, **options) as client:
                without_names_in_errors(client)
                withdraw_by_own_numbers(client.session)
                try:
                    yield client
                except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001  raised below
                    failure = error
        # Alone, as the in-memory transport raises it: in a group it would end pytest's own task.
        if failure is not None:
            raise failure


class BehindTheProxy(Results):
    """The plugin of pytest that puts the proxy in the place of the in-memory transport."""

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Note what the test calls: a proxy knows what is listed alone."""
        source = inspect.getsource(item.function)
        _CALLED["tools"] = set(re.findall(r'(?:call_tool\(\s*|name == )"([^"]+)"', source))
        _CALLED["prompts"] = set(re.findall(r'get_prompt\(\s*"([^"]+)"', source))

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Keep the in-memory cells."""
        import tests.interaction.conftest as suite  # noqa: PLC0415  of the suite's own folder

        suite._FACTORIES["in-memory"] = connect_through_the_proxy  # noqa: SLF001  its only seam
        items[:] = [item for item in items if "in-memory" in item.nodeid]


def main() -> int:
    """Run the suite. 1: a test fails that is not meant to."""
    libraries = SUITE.parent / "suite-libraries"
    if not libraries.exists():
        pip = [sys.executable, "-m", "pip", "install", "-q", "--target", str(libraries)]
        subprocess.run([*pip, *LIBRARIES], check=True)
    sys.path.append(str(libraries))
    os.chdir(SUITE)
    sys.path.insert(0, str(SUITE))
    tests = BehindTheProxy()
    plain = ["-q", "-p", "no:randomly", "-p", "no:cacheprovider", "--timeout=60", "-W", "ignore"]
    _START[:] = program.starting_with("ironcurtain_proxy.cli")
    pytest.main([*plain, "--tb=no", *(sys.argv[1:] or TESTS)], plugins=[tests])
    return tests.tell("interaction", ("2025-11-25", "2026-07-28"))


if __name__ == "__main__":
    sys.exit(main())
