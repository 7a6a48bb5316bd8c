"""Profiles, approval modes, plans and composites: real servers, a person who answers."""

import orjson
import pytest

from ironcurtain_proxy.model.values import Json
from tests.e2e.installation import Installation, rule
from tests.e2e.mailbox_person import Person
from tests.e2e.raw_client import Message, RawClient, at, text, texts

ROLES = {
    "read": {"path": ["read-path"]},
    "edit": {"path": ["write-path"]},
    "remove": {"path": ["delete-path"]},
    "send": {"url": ["fetch-url"]},
}


def tools() -> list[Message]:
    return [
        {
            "name": name,
            "inputSchema": {
                "type": "object",
                "properties": {argument: {"type": "string"}},
                "required": [argument],
            },
        }
        for name, roles in ROLES.items()
        for argument in roles
    ]


def configure(installation: Installation, **sections: Json) -> None:
    directory = installation.home / ".ironcurtain"
    directory.mkdir(exist_ok=True)
    (directory / "config.json").write_bytes(orjson.dumps(sections))


def stderr(installation: Installation) -> str:
    return (installation.root / "stderr-0.txt").read_text()


@pytest.fixture
def person(installation: Installation) -> Person:
    """An installation whose policy allows everything; what asks is laid over it."""
    installation.add_scripted("files", ROLES, tools=tools())
    installation.rules = [rule("everything", tool=[*ROLES])]
    person = Person(installation)
    installation.variables["ESCALATION_DIR"] = str(person.directory)
    return person


def started(installation: Installation, **sections: Json) -> RawClient:
    configure(installation, **sections)
    return installation.start()


def supervised(installation: Installation, **more: Json) -> RawClient:
    return started(installation, capabilities={"profile": "supervised", **more})


@pytest.mark.requirement("D-8", "D-29", "D-34", "D-38", "D-39")
def test_a_supervised_session_reads_freely_and_asks_once_for_each_capability(
    installation: Installation, person: Person
) -> None:
    agent = supervised(installation)
    agent.call("read", {"path": str(installation.workspace / "a")})
    assert person.requests() == []

    write = agent.start_call("edit", {"path": str(installation.workspace / "a")})
    (request,) = person.until_asked()
    assert request["origins"] == ["capability"]
    assert "create or change files (fs.write)" in str(request["reason"])
    assert person.command("approve", "all").returncode == 0
    agent.result(write)
    agent.call("edit", {"path": str(installation.workspace / "b")})
    first, last = [one for one in installation.outcomes() if one["toolName"] == "edit"]
    assert first["stages"] == ["kernel:allow", "overlay:escalate", "grants:open", "human:approved"]
    assert last["stages"] == ["kernel:allow", "overlay:escalate", "grants:approve"]
    assert str(last["decidedBy"]).startswith("grant:")
    assert last["origins"] == ["capability"]

    egress = agent.start_call("send", {"url": "https://example.com/"})
    (request,) = person.until_asked()
    assert "send data over the network (net.egress)" in str(request["reason"])
    assert person.command("deny", "all").returncode == 0
    agent.result(egress)
    assert len(installation.received("files")) == 3


@pytest.mark.requirement("D-31", "D-32", "E-24", "E-25", "X-12")
def test_clearing_the_grants_makes_the_next_call_ask_again_and_a_denial_grants_nothing(
    installation: Installation, person: Person
) -> None:
    agent = supervised(installation)
    for answer in ("deny", "approve"):
        write = agent.start_call("edit", {"path": str(installation.workspace / "a")})
        person.until_asked()
        assert person.command(answer, "all").returncode == 0
        agent.result(write)
    listed = person.command("grants", "list")
    assert "create or change files (fs.write)" in listed.stdout
    assert person.command("grants", "clear").returncode == 0
    write = agent.start_call("edit", {"path": str(installation.workspace / "a")})
    person.until_asked()
    assert person.command("approve", "all").returncode == 0
    agent.result(write)


@pytest.mark.requirement("D-2", "D-5", "D-7", "D-36", "D-37")
def test_autonomous_work_in_isolation_writes_freely_and_cannot_send_anything_out(
    installation: Installation, person: Person
) -> None:
    agent = supervised(installation, profile="autonomous", isolation="isolated")
    agent.call("edit", {"path": str(installation.workspace / "a")})
    first = texts(agent.call("send", {"url": "https://example.com/"}))[0]
    assert first.startswith("DENIED: The profile autonomous forbids: send data over the network")
    assert person.requests() == []


@pytest.mark.requirement("D-5", "D-44")
def test_autonomous_without_isolation_asks_as_supervised_does_and_says_so(
    installation: Installation, person: Person
) -> None:
    agent = supervised(installation, profile="autonomous")
    write = agent.start_call("edit", {"path": str(installation.workspace / "a")})
    person.until_asked()
    assert person.command("approve", "all").returncode == 0
    agent.result(write)
    assert "supervised holds instead" in stderr(installation)


@pytest.mark.requirement("D-44")
def test_the_command_line_says_that_all_this_is_isolated(
    installation: Installation, person: Person
) -> None:
    configure(installation, capabilities={"profile": "autonomous", "isolation": "unisolated"})
    agent = installation.launch("--isolation", "isolated")
    agent.initialize()
    agent.call("edit", {"path": str(installation.workspace / "a")})
    assert person.requests() == []


@pytest.mark.requirement("E-13", "E-21", "E-22", "E-23", "X-4")
def test_all_asks_about_every_tool_until_it_is_always_allowed(
    installation: Installation, person: Person
) -> None:
    agent = started(installation, security={"interceptor": {"approvalPolicy": "all"}})
    path = str(installation.workspace / "a")
    for remember in ((), ("--remember",)):
        call = agent.start_call("read", {"path": path})
        (request,) = person.until_asked()
        assert request["origins"] == ["tool-policy"]
        assert person.command("approve", "all", *remember).returncode == 0
        agent.result(call)
    agent.call("read", {"path": str(installation.workspace / "b")})
    assert str(installation.outcomes()[-1]["decidedBy"]).startswith("grant:")
    other = agent.start_call("edit", {"path": path})
    person.until_asked()
    assert person.command("deny", "all").returncode == 0
    assert texts(agent.result(other))[0] == (
        "tool 'edit' execution denied: user did not approve the action"
    )


@pytest.mark.requirement("E-4", "E-9")
def test_an_exempt_tool_is_not_asked_about_and_a_sensitive_one_always_is(
    installation: Installation, person: Person
) -> None:
    interceptor: dict[str, Json] = {
        "approvalPolicy": "configured",
        "exemptTools": ["read"],
        "sensitiveTools": ["read", "files/edit"],
    }
    agent = started(installation, security={"interceptor": interceptor})
    agent.call("read", {"path": str(installation.workspace / "a")})
    agent.call("remove", {"path": str(installation.workspace / "a")})
    assert person.requests() == []
    write = agent.start_call("edit", {"path": str(installation.workspace / "a")})
    person.until_asked()
    assert person.command("deny", "all").returncode == 0
    agent.result(write)


@pytest.mark.requirement("E-5", "E-10", "E-27")
def test_a_fresh_install_asks_about_dangerous_tools_that_no_rule_names(
    installation: Installation,
) -> None:
    installation.add_scripted("files", ROLES, tools=tools(), annotations="filesystem")
    installation.rules = [rule("everything", server=["filesystem"])]
    agent = installation.start()
    agent.call("read", {"path": str(installation.workspace / "a")})
    agent.call("remove", {"path": str(installation.workspace / "a")})
    first, second = texts(agent.call("remove", {"path": "/srv/elsewhere"}))
    assert first == ("tool 'remove' execution denied: no approval channel available")
    assert "approval-policy:dangerous" in second
    assert len(installation.received("files")) == 2


@pytest.mark.requirement("E-18", "X-3", "X-13")
def test_with_the_mode_none_only_the_policy_decides(
    installation: Installation, person: Person
) -> None:
    agent = started(installation, security={"interceptor": {"approvalPolicy": "none"}})
    agent.call("remove", {"path": "/srv/elsewhere"})
    assert person.requests() == []
    assert "approvalPolicy" in stderr(installation)


@pytest.mark.requirement("D-23", "D-24", "D-25", "D-26", "D-27", "D-28", "X-9")
def test_a_plan_is_asked_about_once_and_holds_for_as_many_calls_as_were_announced(
    installation: Installation, person: Person
) -> None:
    installation.rules.insert(
        0,
        rule(
            "never",
            "deny",
            "not there",
            tool=["edit"],
            paths={"roles": ["write-path"], "within": "/srv/closed"},
        ),
    )
    agent = supervised(installation)
    steps: list[Json] = [
        {"name": "read", "arguments": {"path": str(installation.workspace / "a")}},
        {"name": "edit", "arguments": {"path": str(installation.workspace / "a")}},
        {"name": "edit", "arguments": {"path": str(installation.workspace / "b")}},
        {"name": "send", "arguments": {"url": "https://example.com/"}},
        {"name": "read", "arguments": {"path": str(installation.workspace / "b")}},
    ]
    plan = agent.start_call("ironcurtain_preflight", {"calls": steps})
    (request,) = person.until_asked()
    assert request["toolName"] == "ironcurtain_preflight"
    assert "fs.write" in str(request["reason"])
    assert "net.egress" in str(request["reason"])
    assert person.command("approve", str(request["escalationId"])).returncode == 0
    answer = agent.result(plan)
    run = at(answer, "structuredContent", "run")
    for step in steps:
        assert isinstance(step, dict)
        arguments = step["arguments"]
        assert isinstance(arguments, dict)
        agent.call(str(step["name"]), arguments)
    assert len(installation.received("files")) == 5
    assert person.requests() == []
    assert f"grant:{run}" in [outcome["decidedBy"] for outcome in installation.outcomes()]
    # The sixth call is beyond it, and no capability was remembered.
    beyond = agent.start_call("edit", {"path": str(installation.workspace / "c")})
    person.until_asked()
    assert person.command("deny", "all").returncode == 0
    agent.result(beyond)
    # One forbidden step refuses a plan, and nobody is asked.
    closed: Json = {"name": "edit", "arguments": {"path": "/srv/closed/x"}}
    refused = texts(agent.call("ironcurtain_preflight", {"calls": [*steps, closed]}))
    assert refused[0] == "DENIED: step 6, edit: not there"
    assert person.requests() == []


@pytest.mark.requirement("D-23", "D-24", "D-28", "X-9")
def test_a_composite_of_five_steps_is_asked_about_once(
    installation: Installation, person: Person
) -> None:
    inside: dict[str, Json] = {"path": str(installation.workspace / "a")}
    steps: list[Json] = [
        {"tool": "read", "arguments": inside},
        {"tool": "edit", "arguments": inside},
        {"tool": "edit", "arguments": inside},
        {"tool": "remove", "arguments": inside},
        {"tool": "read", "arguments": inside},
    ]
    agent = started(
        installation,
        capabilities={"profile": "supervised"},
        composites={"tidy": {"description": "Tidies up.", "steps": steps}},
    )
    names = [tool["name"] for tool in agent.tools()]
    assert "ironcurtain_run_tidy" in names
    call = agent.start_call("ironcurtain_run_tidy", {})
    (request,) = person.until_asked()
    assert person.command("approve", str(request["escalationId"])).returncode == 0
    result = agent.result(call)
    assert result["isError"] is False
    assert [line for line in texts(result) if line.startswith("step")] == [
        f"step {number}, {tool}: done"
        for number, tool in enumerate(("read", "edit", "edit", "remove", "read"), 1)
    ]
    assert len(installation.received("files")) == 5
    # Its budget ended with it.
    write = agent.start_call("edit", inside)
    person.until_asked()
    assert person.command("deny", "all").returncode == 0
    agent.result(write)


@pytest.mark.requirement("E-28", "E-29", "E-30")
def test_the_agent_is_told_how_to_take_a_refusal(
    installation: Installation, person: Person
) -> None:
    agent = installation.launch()
    instructions = str(at(agent.initialize(), "instructions"))
    guidance = instructions.partition("## Tool Approval")[2]
    assert "user did not approve the action" in guidance
    assert "offer to retry it or\n  suggest an alternative" in guidance
    assert "no approval channel available" in guidance
    assert "nobody is reviewing. Inform the user" in guidance


@pytest.mark.requirement("D-30", "X-12")
def test_what_was_approved_in_one_session_is_asked_about_in_another(
    installation: Installation, person: Person
) -> None:
    first = supervised(installation)
    write = first.start_call("edit", {"path": str(installation.workspace / "a")})
    person.until_asked()
    assert person.command("approve", "all").returncode == 0
    first.result(write)
    second = installation.start()
    write = second.start_call("edit", {"path": str(installation.workspace / "a")})
    person.until_asked()
    assert person.command("deny", "all").returncode == 0
    assert "did not approve" in text(second.result(write))
