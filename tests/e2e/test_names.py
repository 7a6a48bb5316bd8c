"""Which names the agent knows the tools by, and that none of them is ambiguous."""

import pytest

from tests.e2e.house import House
from tests.e2e.raw_client import at, text
from tests.e2e.servers.scripted import TOOLS


def test_the_tools_of_a_single_server_have_their_bare_names(scripted: House) -> None:
    agent = scripted.start()
    assert agent.tool_names() == list(TOOLS)
    assert text(agent.call("answer", {"text": "here"})) == "here"


def test_the_tools_of_several_servers_carry_the_name_of_their_server(house: House) -> None:
    house.add_scripted("one")
    house.add_scripted("two")
    house.allow_scripted("one", "two")
    agent = house.start()
    assert sorted(map(str, agent.tool_names())) == sorted(
        f"{server}__{tool}" for server in ("one", "two") for tool in TOOLS
    )
    assert text(agent.call("two__answer", {"text": "second"})) == "second"
    assert [at(params, "name") for params in house.received("two")] == ["answer"]
    assert house.received("one") == []


def test_names_that_two_servers_could_share_are_refused_at_start(house: House) -> None:
    """G32."""
    house.add_scripted("a")
    house.add_scripted("a__b")
    house.allow_scripted("a")
    proxy = house.launch()
    assert proxy.process.wait(30) == 2
    complaint = proxy.errors.read_text(encoding="utf-8")
    assert "a__b" in complaint
    assert "Traceback" not in complaint
    assert not house.journal_file("a").exists()


@pytest.mark.requirement("C-21")
@pytest.mark.parametrize("name", ["nothing", "scripted__answer", "Answer", "answer ", ""])
def test_a_name_that_was_not_listed_is_no_tool(name: str, scripted: House) -> None:
    result = scripted.start().call(name)
    assert result["isError"] is True
    assert text(result) == f"Unknown tool: {name}"
    assert scripted.received() == []
    assert scripted.last_decision() == ("deny", "unknown-tool")


def test_only_the_filtered_servers_run(house: House) -> None:
    house.add_scripted("one")
    house.add_scripted("two")
    house.allow_scripted("one", "two")
    agent = house.start(SERVER_FILTER="two")
    assert agent.tool_names() == list(TOOLS)
    assert text(agent.call("answer", {"text": "alone"})) == "alone"
    assert not house.journal_file("one").exists()
