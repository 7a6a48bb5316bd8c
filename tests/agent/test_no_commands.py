"""The agent is never sent shell commands that are the operator's to run."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import ironcurtain_proxy
from ironcurtain_proxy.agent.asking import tool_usage
from ironcurtain_proxy.agent.replies import PREFLIGHT_TOOL, STATUS_TOOL
from ironcurtain_proxy.cli.arguments import COMMANDS
from tests import source

ROOT = Path(ironcurtain_proxy.__file__).parent
TELLING_THE_AGENT = (
    *("agent", "approval", "audit", "decision", "downstream", "facts", "grants", "jsonrpc"),
    *("mailbox", "mediation", "model", "review", "sandbox", "shell", "snapshots"),
    *("auto_approver", "auto_confirm"),
)
"""Folders whose reasons and replies reach an agent."""
FOR_THE_OPERATOR = {
    "decision/explanation.py": "what `explain` prints",
    "audit/shipping.py": "what `audit ship` prints",
    "audit/recovery.py": "a notice at the start, on standard error",
    "mailbox/mailboxes.py": "an answer to the reviewer's own command",
    "downstream/remote/stored_login.py": "a line on standard error",
}
OPTION = r"--[a-z]+"
NAMES = "|".join(re.escape(name) for name in COMMANDS)
COMMAND = re.compile(rf"ironcurtain-proxy +(?:{NAMES}|{OPTION})\b|`(?:{NAMES})(?: {OPTION})?`")


def said(tree: ast.Module) -> Iterator[str]:
    """Every text of a module but its docstrings."""
    docstrings = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(text)) if id(node) not in docstrings:
                yield text
            case _:
                pass


def modules() -> list[Path]:
    found = [file for name in TELLING_THE_AGENT for file in (ROOT / name).rglob("*.py")]
    return [file for file in found if str(file.relative_to(ROOT)) not in FOR_THE_OPERATOR]


@source.one_worker
def test_no_reason_and_no_reply_names_a_command() -> None:
    assert len(modules()) > 100
    found = [
        (str(file.relative_to(ROOT)), text)
        for file in modules()
        for text in said(source.modules()[file])
        if COMMAND.search(text)
    ]
    assert found == []


def test_neither_the_instructions_nor_the_own_tools_name_a_command() -> None:
    for text in (tool_usage(), str(STATUS_TOOL), str(PREFLIGHT_TOOL)):
        assert COMMAND.search(text) is None


def test_no_reason_of_a_shipped_policy_names_a_command() -> None:
    policies = [*ROOT.rglob("*policy*.json"), *ROOT.rglob("*annotations*.json")]
    assert policies
    for file in policies:
        assert COMMAND.search(file.read_text(encoding="utf-8")) is None, file


@pytest.mark.parametrize(
    "text",
    ["run `ironcurtain-proxy check --live`", "see `check --live`", "ironcurtain-proxy review"],
)
def test_a_command_is_found_where_there_is_one(text: str) -> None:
    assert COMMAND.search(text) is not None
