"""What is off is not imported."""

import subprocess
import sys
from importlib.util import find_spec

from tests.program import PATIENCE
from tests.tables import table

SELDOM = table("wiring/imports.seldom", dict[str, str])


def test_a_start_imports_nothing_that_only_some_sessions_need() -> None:
    seldom = {
        f"ironcurtain_proxy.{folder}.{name}"
        for folder, names in SELDOM.items()
        for name in names.split()
    }
    code = "import sys, ironcurtain_proxy.wiring.serving; print(*sys.modules)"
    ended = subprocess.run(
        [sys.executable, "-c", code], check=True, timeout=PATIENCE, capture_output=True, text=True
    )
    assert all(find_spec(name) for name in seldom)
    assert seldom & {*ended.stdout.split()} == set()


def test_a_question_about_a_tool_without_a_command_imports_no_tables_of_commands() -> None:
    code = """
import sys
from tests.grants.test_grant_settlement import CALL
from ironcurtain_proxy.grants.families import identical_call
assert identical_call(CALL) is not None
print("ironcurtain_proxy.shell.families" in sys.modules)
"""
    ended = subprocess.run(
        [sys.executable, "-c", code], check=True, timeout=PATIENCE, capture_output=True
    )
    assert ended.stdout.split() == [b"False"]


def test_a_proxy_before_a_server_over_http_imports_no_sdk() -> None:
    """The command `login` alone needs it; it would be the longest part of such a start."""
    code = "import sys, ironcurtain_proxy.downstream.remote.session; print(*sys.modules)"
    ended = subprocess.run(
        [sys.executable, "-c", code], check=True, timeout=PATIENCE, capture_output=True, text=True
    )
    assert {"mcp", "mcp_types", "pydantic", "starlette"} & {*ended.stdout.split()} == set()
