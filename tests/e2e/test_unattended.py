"""Nobody reviews: the people behind the session are told what to run, the agent is not."""

import shlex
from pathlib import Path

import pytest

from ironcurtain_proxy.agent.asking import tool_usage
from tests.e2e.installation import Installation, rule
from tests.e2e.raw_client import RawClient, at, texts

LOG = "notifications/message"
COMMAND = "ironcurtain-proxy review"


@pytest.fixture
def asking(installation: Installation) -> Installation:
    installation.add_scripted("scripted", {"ask": {"text": ["write-path"]}})
    installation.rules = [rule("ask-first", "escalate", "a person must agree", tool=["ask"])]
    return installation


def own_warnings(agent: RawClient) -> list[object]:
    # The answer to a later request: what was sent before it has arrived.
    agent.answer(agent.request("ping"))
    return [
        at(message, "params", "data")
        for message in agent.notifications(LOG)
        if at(message, "params", "logger") == "ironcurtain"
    ]


def on_stderr(asking: Installation, agent: RawClient) -> list[str]:
    agent.close()
    lines = Path(agent.errors).read_text().splitlines()
    return [line for line in lines if "nobody is reviewing" in line]


def test_the_people_are_told_once_what_to_run_and_the_agent_is_not(asking: Installation) -> None:
    agent = asking.start()
    replies = [agent.call("ask", {"text": f"/srv/{name}"}) for name in "abc"]
    (said,) = own_warnings(agent)
    assert str(said).endswith(f"run in a terminal: {COMMAND}")
    assert not any("ironcurtain-proxy" in text for reply in replies for text in texts(reply))
    (line,) = on_stderr(asking, agent)
    assert line.endswith(COMMAND)


def test_a_session_that_asks_nothing_says_nothing(asking: Installation) -> None:
    asking.rules = [rule("go", "allow", "all", tool=["ask"])]
    agent = asking.start()
    agent.call("ask", {"text": "/srv/a"})
    assert own_warnings(agent) == []
    assert on_stderr(asking, agent) == []


def test_a_client_that_wants_errors_only_gets_no_warning(asking: Installation) -> None:
    agent = asking.start()
    agent.answer(agent.request("logging/setLevel", {"level": "error"}))
    agent.call("ask", {"text": "/srv/a"})
    assert own_warnings(agent) == []
    assert len(on_stderr(asking, agent)) == 1


def test_where_no_terminal_is_asked_the_command_is_not_named(asking: Installation) -> None:
    asking.variables["ESCALATION_CHANNELS"] = "elicitation"
    agent = asking.start()
    agent.call("ask", {"text": "/srv/a"})
    (said,) = own_warnings(agent)
    assert COMMAND not in str(said)
    assert "escalation.channels" in str(said)


def test_the_agent_s_instructions_name_no_command() -> None:
    assert "ironcurtain-proxy " not in tool_usage().replace("ironcurtain-proxy. Every", "")
    assert shlex.quote(COMMAND) not in tool_usage()
