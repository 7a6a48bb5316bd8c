"""A manager that is an MCP server, behind a real client: the one of the document, as it stands."""

import re
import sys
from pathlib import Path

import pytest

from ironcurtain_proxy.model.values import Json
from tests.e2e.installation import ROOT, Installation
from tests.e2e.raw_client import texts
from tests.e2e.test_auto_confirm import OUTSIDE, Office, manager

DENIED = (
    "tool 'delete_file' execution denied: the reviewer architect_manager did not approve the action"
)


@pytest.fixture
def office(installation: Installation) -> Office:
    return Office(installation)


def documented(directory: Path, **more: Json) -> Json:
    """The document's example, as the operator would name it."""
    text = (ROOT / "docs/auto-confirm.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    program = directory / "manager.py"
    program.write_text(example, encoding="utf-8")
    return {
        "name": "architect_manager",
        "kind": "process",
        "protocol": "mcp",
        "command": [sys.executable, str(program)],
        **more,
    }


@pytest.mark.requirement("B-7", "B-10", "B-65", "B-165", "B-176")
def test_the_document_s_manager_approves_what_it_knows_and_denies_the_rest(office: Office) -> None:
    agent = office.start(
        documented(office.installation.root),
        escalation_targets={"medium_risk": "architect_manager"},
    )
    agent.call("write_file", {"path": OUTSIDE})
    assert office.outcome()["decidedBy"] == "reviewer:architect_manager"
    assert len(office.installation.received("files")) == 1
    assert texts(agent.call("delete_file", {"path": OUTSIDE}))[0] == DENIED
    assert office.outcome()["decidedBy"] == "reviewer:architect_manager"
    assert len(office.installation.received("files")) == 1


@pytest.mark.requirement("B-60", "B-169")
def test_a_manager_without_the_tool_is_followed_by_the_fallback(office: Office) -> None:
    agent = office.start(
        documented(office.installation.root, tool="decide"),
        manager("claude_code_high_level", "deciding", "approve"),
    )
    agent.call("delete_file", {"path": OUTSIDE})
    assert office.outcome()["decidedBy"] == "reviewer:claude_code_high_level"
    said = (office.installation.root / "stderr-0.txt").read_text(encoding="utf-8")
    assert "architect_manager could not be started: it offers no tool 'decide'" in said
