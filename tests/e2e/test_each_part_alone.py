"""Each part of the proxy switched on alone does its own work and changes nothing else."""

import orjson
import pytest

from ironcurtain_proxy.model.values import Json
from tests import program
from tests.e2e.installation import Installation, rule, tool
from tests.e2e.mailbox_person import Person
from tests.e2e.raw_client import Message
from tests.e2e.test_auto_confirm import manager
from tests.llm.scripted_model import says, scripted_model

ROLES = {
    "read_file": {"path": ["read-path"]},
    "write_file": {"path": ["write-path"]},
    "delete_file": {"path": ["delete-path"]},
    "list_directory": {"path": ["read-path"]},
}
PLACE = "/tmp/ironcurtain-test/x"
OFF: dict[str, Json] = {"security": {"interceptor": {"approvalPolicy": "none"}}}
"""What is on by default, off."""

Found = tuple[str, list[str] | None]
"""Who decided a call and by which stages; None: no review."""

RUNS: Found = ("kernel", None)
ASKED: Found = ("human", ["kernel:escalate", "grants:open", "human:denied"])
ASKED_OVER: Found = ("human", ["kernel:allow", "overlay:escalate", "grants:open", "human:denied"])
ASKED_BOTH: Found = (
    "human",
    ["kernel:escalate", "overlay:escalate", "grants:open", "human:denied"],
)
POLICY: dict[str, Found] = {
    "read_file": RUNS,
    "write_file": ASKED,
    "delete_file": RUNS,
    "list_directory": RUNS,
}
PARTS: dict[str, tuple[dict[str, Json], dict[str, Found]]] = {
    "the policy": ({}, {}),
    "the auto-approver": (
        {
            "autoApprove": {"enabled": True, "modelId": "openai:scripted", "targetCheck": False},
            "openaiApiKey": "sk",
        },
        {
            "write_file": (
                "auto-approver",
                ["kernel:escalate", "grants:open", "auto-approver:approved"],
            )
        },
    ),
    "the engine": (
        {"auto_confirm": {"enabled": True, "night_mode": {"enabled": False}}},
        {
            "write_file": (
                "engine:safety-rule",
                ["kernel:escalate", "grants:open", "engine:approve", "engine:safety-rule:approved"],
            )
        },
    ),
    "a profile of capabilities": (
        {"capabilities": {"profile": "supervised"}},
        {"write_file": ASKED_BOTH, "delete_file": ASKED_OVER},
    ),
    "the approval mode": (
        {"security": {"interceptor": {"approvalPolicy": "all"}}},
        {"read_file": ASKED_OVER, "write_file": ASKED_BOTH, "delete_file": ASKED_OVER},
    ),
}


def furnish(installation: Installation, sections: dict[str, Json]) -> Person:
    """A policy that allows, asks and denies, a user who asked for one write, and a person."""
    installation.add_scripted(
        "files",
        ROLES,
        tools=[tool(name, path={"type": "string"}) for name in ROLES],
        annotations="filesystem",
    )
    installation.rules = [
        rule("ask-writes", "escalate", "a write needs a word", tool=["write_file"]),
        rule("go", "allow", tool=["read_file", "delete_file"]),
    ]
    file = installation.root / "config.json"
    file.write_bytes(orjson.dumps({**OFF, **sections}))
    installation.variables["IRONCURTAIN_CONFIG"] = str(file)
    person = Person(installation)
    person.directory.mkdir(mode=0o700)
    installation.variables["ESCALATION_DIR"] = str(person.directory)
    message = orjson.dumps({"userMessage": f"please write the file {PLACE}"})
    (person.directory / "user-context.json").write_bytes(message)
    return person


@pytest.mark.requirement("X-3", "X-4")
@pytest.mark.parametrize("part", [part for part in PARTS if part != "the auto-approver"])
def test_a_part_alone_decides_what_is_its_own_and_leaves_the_rest_to_the_policy(
    installation: Installation, part: str
) -> None:
    decides_alone(installation, part)


@pytest.mark.requirement("X-3", "X-4")
@pytest.mark.worker("litellm")
def test_the_auto_approver_alone_decides_what_is_its_own(installation: Installation) -> None:
    with program.imported_beforehand("litellm"):
        decides_alone(installation, "the auto-approver")


def decides_alone(installation: Installation, part: str) -> None:
    sections, own = PARTS[part]
    with scripted_model(says("approve", "asked for")) as model:
        approver = sections.get("autoApprove")
        if isinstance(approver, dict):
            sections = {**sections, "autoApprove": {**approver, "apiBase": model.url}}
        person = furnish(installation, sections)
        agent = installation.start()
        expected = {**POLICY, **own}
        for name, found in expected.items():
            call = agent.start_call(name, {"path": PLACE})
            if found[0] == "human":
                person.answer({"decision": "denied"})
            agent.result(call)
    recorded = {
        str(one["toolName"]): (one["decidedBy"], one.get("stages"))
        for one in installation.outcomes()
    }
    assert recorded == expected
    ran = {str(one["name"]) for one in installation.received("files")}
    denied = {"list_directory"} | {name for name, one in expected.items() if one[0] == "human"}
    assert ran == set(ROLES) - denied
    assert bool(model.requests) == (part == "the auto-approver")


@pytest.mark.requirement("X-17", "B-166")
def test_beside_a_held_call_what_the_policy_allows_runs_and_further_questions_are_refused(
    installation: Installation,
) -> None:
    reviewer = manager("architect_manager", "deaf", str(installation.root / "pid"))
    section: Json = {"enabled": True, "night_mode": {"enabled": False}, "reviewers": [reviewer]}
    furnish(installation, {"auto_confirm": section})
    installation.rules = [
        rule("ask-deletes", "escalate", "a reviewer must agree", tool=["delete_file"]),
        rule("go", "allow", tool=["read_file", "write_file"]),
    ]
    del installation.variables["ESCALATION_DIR"]
    agent = installation.start()
    held = agent.start_call("delete_file", {"path": "/srv/elsewhere/0"})
    more = agent.start_call("delete_file", {"path": "/srv/elsewhere/1"})
    # The reviewer never answers: of the two, the one that is answered was refused.
    agent.until(lambda one: one.get("id") in {held, more}, "a refusal")
    assert refusal(installation) == ("limit", "denied")
    for name in ("read_file", "write_file"):
        assert "isError" not in agent.call(name, {"path": PLACE})
        assert installation.outcomes()[-1]["decidedBy"] == "kernel"
    agent.call("delete_file", {"path": "/srv/elsewhere/2"})
    assert refusal(installation) == ("limit", "denied")
    assert len({held, more} - set(agent.order())) == 1, "one is still held"
    assert received(installation) == ["read_file", "write_file"]


def refusal(installation: Installation) -> tuple[Json, Json]:
    last: Message = installation.outcomes()[-1]
    return last.get("refusedBy"), last.get("escalationResult")


def received(installation: Installation) -> list[str]:
    return [str(one["name"]) for one in installation.received("files")]
