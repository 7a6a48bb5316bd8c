"""A tool of a public server that runs as a task alone, called by a client that knows no tasks."""

from tests.e2e.installation import Installation, rule
from tests.e2e.raw_client import at, text
from tests.e2e.real_servers import add_real

TOOL = "simulate-research-query"


def test_a_tool_that_runs_as_a_task_is_decided_and_recorded_as_a_call(
    installation: Installation,
) -> None:
    add_real(installation, "everything")
    installation.rules = [rule("research", server=["everything"], tool=[TOOL])]
    client = installation.start()
    client.until_listed(TOOL)
    result = client.call(TOOL, {"topic": "kernels", "ambiguous": False})
    assert "# Research Report: kernels" in text(result)
    intent, outcome = installation.records()
    assert intent["phase"] == "intent"
    assert at(outcome, "policyDecision", "rule") == "research"
