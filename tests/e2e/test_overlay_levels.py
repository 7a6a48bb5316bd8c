"""A declared level belongs to a tool, whatever name the agent calls it by."""

from typing import Final

import pytest

from ironcurtain_proxy.model.values import Json
from tests.e2e.installation import Installation, rule, tool
from tests.e2e.mailbox_person import Person
from tests.e2e.raw_client import Message, RawClient
from tests.e2e.test_each_part_alone import ROLES, furnish

LEVELS: Final[Json] = {
    "files/delete_file": {"safetyLevel": "safe"},
    "files/read_file": {"safetyLevel": "dangerous"},
}


def two_servers(installation: Installation) -> tuple[RawClient, Person]:
    """Two servers with the same tools, so that each tool is offered under another name."""
    composites: Json = {
        name: {
            "description": "One step.",
            "steps": [{"tool": f"files__{step}", "arguments": {"path": "/srv/elsewhere/x"}}],
        }
        for name, step in (("safe", "delete_file"), ("dangerous", "read_file"))
    }
    interceptor: Json = {"interceptor": {"approvalPolicy": "dangerous"}}
    sections = {
        "security": interceptor,
        "capabilities": {"tools": LEVELS},
        "composites": composites,
    }
    person = furnish(installation, sections)
    installation.annotations["files"] = ROLES
    del installation.annotations["filesystem"]
    files = installation.servers["files"]
    assert isinstance(files, dict)
    del files["annotations"]
    installation.add_scripted(
        "other", ROLES, tools=[tool(name, path={"type": "string"}) for name in ROLES]
    )
    installation.rules = [rule("go", "allow", server=["files", "other"])]
    return installation.start(), person


@pytest.mark.requirement("E-40")
def test_a_declared_level_holds_under_the_name_of_two_servers_and_in_a_composite(
    installation: Installation,
) -> None:
    agent, person = two_servers(installation)
    for name, server, asked in (
        ("files__delete_file", "files", False),
        ("files__read_file", "files", True),
        ("other__delete_file", "other", True),
        ("other__read_file", "other", False),
        ("ironcurtain_run_safe", "files", False),
        ("ironcurtain_run_dangerous", "files", True),
    ):
        before, seen = len(installation.received(server)), len(installation.outcomes())
        mine: Message = {} if name.startswith("ironcurtain") else {"path": "/srv/elsewhere/x"}
        call = agent.start_call(name, mine)
        if asked:
            (request,) = person.until_asked()
            assert request["origins"] == ["tool-policy"]
            assert person.command("approve", str(request["escalationId"])).returncode == 0
        agent.result(call)
        assert len(installation.received(server)) == before + 1, name
        deciders = [one["decidedBy"] for one in installation.outcomes()[seen:]]
        assert ("human" in deciders) == asked, name
