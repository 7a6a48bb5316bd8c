"""The interaction suite of the Python SDK with the proxy between client and server.

    .venv/bin/python scripts/eras/interaction.py [PYTEST ARGUMENT …]

Its in-memory cells run: the server listens in the test's process, and the client starts a proxy,
which reaches the server over HTTP and is given a policy that allows everything. `MEANT` says which
of them fail, and why; the exit status is 1 if others do.
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
from suites import Results, listening, variables, without_names  # noqa: E402

from tests import program  # noqa: E402

# The suite's own package has that name, too.
sys.path.remove(str(ROOT))
for _name in [name for name in sys.modules if name.partition(".")[0] == "tests"]:
    del sys.modules[_name]

SUITE = everything().parents[2]
LIBRARIES = ("inline-snapshot", "dirty-equals", "trio", "pytest-examples", "blockbuster", "logfire")
TESTS = ("tests/interaction/lowlevel", "tests/interaction/mcpserver")


MEANT = {
    "the proxy says its own name, capabilities and instructions, on both sides": (
        r"initialize_(returns|capabilities|minimal|server_sees)|exposes_request_id_and_client_info"
        r"|three_key_meta|logging_helpers|set_logging_level_is_rejected|legacy_ad"
    ),
    "lists have one page, also for clients that follow no cursor": r"cursor|paginating",
    "a server of both eras is asked for its lists in both ways": r"implicit_tools_list",
    "roots come from the policy": r"roots",
    "an answer is held to what was asked, and a page that was not shown is not complete": (
        r"accepted_elicitation|elicitation_complete"
    ),
    "a client that shows no questions is asked none: its server reads -32601": (
        r"elicit_form_without_callback|create_message_without_callback"
    ),
    "-32042 is withheld": r"url_elicitation_required",
    "sampling has no includeContext": r"create_message_params",
    "arguments are refused in the words of the proxy": r"invalid_arguments|complex_parameter_types",
    "an unknown resultType is withheld": r"claimed",
    "progress of no call under way is dropped": r"progress_notification_reaches|after_the_response",
    "news are of subscribed resources": r"resource_updated_notification",
    "a server is listened to by one request of the proxy's own": (
        r"graceful_server_close|dropped_after_the_ack|subscription_id_is|each_receive_their_own_ack"
    ),
    "a list that its server changes in silence is 30 seconds old at most": (
        r"adding_and_removing_tools"
    ),
    "-32002 has ended in the newer era": r"unknown_uri.*2026-07-28",
    "the test withdraws a request by the number that its server saw": (
        r"cancellation_stops|requests_after_cancellation"
    ),
}
"""What fails, by the reason: patterns of the names of tests."""

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
        _CALLED["tools"] = set(re.findall(r'call_tool\(\s*"([^"]+)"', source))
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
    return tests.tell(MEANT, ("2025-11-25", "2026-07-28"))


if __name__ == "__main__":
    sys.exit(main())
