"""What is off is not imported."""

import subprocess
import sys


def test_a_start_imports_nothing_that_only_some_sessions_need() -> None:
    code = (
        "import sys, ironcurtain_proxy.wiring.serving; "
        "seldom = ('.leads', '.lookout', '.watchman', '.annotating', '.families'); "
        "print(*[one for one in sys.modules if one.endswith(seldom) and 'grants' not in one])"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], check=True, timeout=50, capture_output=True
    )
    assert ended.stdout.split() == []


def test_a_question_about_a_tool_without_a_command_imports_no_tables_of_commands() -> None:
    code = """
import sys
from tests.grants.test_grant_settlement import CALL
from ironcurtain_proxy.grants.families import identical_call
assert identical_call(CALL) is not None
print("ironcurtain_proxy.shell.families" in sys.modules)
"""
    ended = subprocess.run(
        [sys.executable, "-c", code], check=True, timeout=50, capture_output=True
    )
    assert ended.stdout.split() == [b"False"]
