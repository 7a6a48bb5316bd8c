"""The agent is never sent shell commands that are the operator's to run."""

import ast
import re
from collections.abc import Iterator

import pytest

from ironcurtain_proxy.agent.asking import tool_usage
from ironcurtain_proxy.agent.replies import PREFLIGHT_TOOL, STATUS_TOOL
from ironcurtain_proxy.cli.arguments import COMMANDS
from tests import source

TELLING_THE_AGENT = (
    *("agent/", "approval/", "audit/", "decision/", "downstream/", "facts/", "grants/", "jsonrpc/"),
    *("mailbox/", "mediation/", "model/", "review/", "sandbox/", "shell/", "snapshots/"),
    *("auto_approver/", "auto_confirm/"),
)
"""Folders whose reasons and replies reach an agent."""
FOR_THE_OPERATOR = {
    "decision/explanation.py": "what `explain` prints",
    "audit/shipping.py": "what `audit ship` prints",
    "audit/recovery.py": "a notice at the start, on standard error",
    "mailbox/mailboxes.py": "an answer to the reviewer's own command",
}
ON_STANDARD_ERROR = {
    ("downstream/remote/session.py", "ironcurtain-proxy login "),
    ("downstream/remote/session.py", "it wants a login: ironcurtain-proxy login "),
}
OPTION = r"--[a-z]+"
NAMES = "|".join(re.escape(name) for name in COMMANDS)
COMMAND = re.compile(rf"ironcurtain-proxy +(?:{NAMES}|{OPTION})\b|`(?:{NAMES})(?: {OPTION})?`")


def said() -> Iterator[tuple[str, str]]:
    """Each text that is no docstring, in a module of these folders."""
    docstrings = {id(node.value) for _, node in source.nodes(ast.Expr)}
    for file, node in source.nodes(ast.Constant):
        name = str(file.relative_to(source.PACKAGE))
        if (
            name.startswith(TELLING_THE_AGENT)
            and name not in FOR_THE_OPERATOR
            and isinstance(node.value, str)
            and id(node) not in docstrings
        ):
            yield name, node.value


@source.one_worker
def test_no_reason_and_no_reply_names_a_command() -> None:
    texts = list(said())
    assert len({name for name, _ in texts}) > 100
    assert {one for one in texts if COMMAND.search(one[1])} == ON_STANDARD_ERROR


def test_neither_the_instructions_nor_the_own_tools_name_a_command() -> None:
    for text in (tool_usage(), str(STATUS_TOOL), str(PREFLIGHT_TOOL)):
        assert COMMAND.search(text) is None


def test_no_reason_of_a_shipped_policy_names_a_command() -> None:
    policies = [
        file
        for name in ("policy", "annotations")
        for file in source.PACKAGE.rglob(f"*{name}*.json")
    ]
    assert policies
    for file in policies:
        assert COMMAND.search(file.read_text(encoding="utf-8")) is None, file


@pytest.mark.parametrize(
    "text",
    ["run `ironcurtain-proxy check --live`", "see `check --live`", "ironcurtain-proxy review"],
)
def test_a_command_is_found_where_there_is_one(text: str) -> None:
    assert COMMAND.search(text) is not None
