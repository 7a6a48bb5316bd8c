"""Which names the agent knows the tools by, and that none of them is ambiguous."""

import pytest

from tests.e2e.installation import Installation
from tests.e2e.raw_client import RawClient, at, text
from tests.e2e.servers.scripted import SHOWN
from tests.program import PATIENCE


def test_the_tools_of_a_single_server_have_their_bare_names(agent: RawClient) -> None:
    assert agent.tool_names() == list(SHOWN)
    assert text(agent.call("answer", {"text": "here"})) == "here"


def test_the_tools_of_several_servers_carry_the_name_of_their_server(
    installation: Installation,
) -> None:
    installation.add_scripted("one")
    installation.add_scripted("two")
    installation.allow_scripted("one", "two")
    agent = installation.start()
    assert sorted(map(str, agent.tool_names())) == sorted(
        f"{server}__{tool}" for server in ("one", "two") for tool in SHOWN
    )
    assert text(agent.call("two__answer", {"text": "second"})) == "second"
    assert [at(params, "name") for params in installation.received("two")] == ["answer"]
    assert installation.received("one") == []


def test_names_that_two_servers_could_share_are_refused_at_start(
    installation: Installation,
) -> None:
    """G32."""
    installation.add_scripted("a")
    installation.add_scripted("a__b")
    installation.allow_scripted("a")
    proxy = installation.launch()
    assert proxy.process.wait(PATIENCE) == 2
    complaint = proxy.errors.read_text(encoding="utf-8")
    assert "a__b" in complaint
    assert "Traceback" not in complaint
    assert not installation.journal_file("a").exists()


@pytest.mark.requirement("C-21")
@pytest.mark.parametrize("name", ["nothing", "scripted__answer", "Answer", "answer ", ""])
def test_a_name_that_was_not_listed_is_no_tool(
    name: str, agent: RawClient, shared: Installation
) -> None:
    before = len(shared.received())
    result = agent.call(name)
    assert result["isError"] is True
    assert text(result) == f"Unknown tool: {name}"
    assert len(shared.received()) == before
    assert shared.last_decision() == ("deny", "unknown-tool")


def test_only_the_filtered_servers_run(installation: Installation) -> None:
    installation.add_scripted("one")
    installation.add_scripted("two")
    installation.allow_scripted("one", "two")
    agent = installation.start(SERVER_FILTER="two")
    assert agent.tool_names() == list(SHOWN)
    assert text(agent.call("answer", {"text": "alone"})) == "alone"
    assert not installation.journal_file("one").exists()
