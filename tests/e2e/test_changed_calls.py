"""A reviewer changes a call and approves it: the proxy, its server and the review are processes."""

import os
import subprocess

import pytest

from tests.e2e.installation import Installation, rule
from tests.e2e.mailbox_person import Person
from tests.e2e.raw_client import at, texts
from tests.program import PROXY


@pytest.fixture
def installation_that_asks(installation: Installation) -> Installation:
    installation.add_scripted("scripted", {"ask": {"text": ["write-path"]}})
    installation.rules = [
        rule(
            "never",
            "deny",
            "nobody writes there",
            tool=["ask"],
            paths={"roles": ["write-path"], "within": "/srv/never"},
        ),
        rule("ask-first", "escalate", "a person must agree", tool=["ask"]),
    ]
    installation.variables["ESCALATION_DIR"] = str(installation.root / "escalations")
    return installation


def reviewed(installation: Installation, person: Person, line: str) -> str:
    """Let `review --plain` read a line once it has shown the call. Returns what it printed."""
    with subprocess.Popen(
        [*PROXY, "review", "--plain", "--dir", str(person.directory)],
        env={**os.environ, "HOME": str(installation.home)},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    ) as process:  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        said = [process.stdout.readline()]
        process.stdin.write(f"{line}\n/quit\n")
        process.stdin.close()
        return "".join([*said, *process.stdout])


def test_a_changed_call_is_judged_anew_and_recorded_as_the_reviewers_words(
    installation_that_asks: Installation,
) -> None:
    installation = installation_that_asks
    agent, person = installation.start(), Person(installation)
    call = agent.start_call("ask", {"text": "/srv/x"})
    person.until_asked()
    reviewed(installation, person, '/edit 1 {"text": "/srv/y"}')
    agent.result(call)
    assert [at(params, "arguments") for params in installation.received()] == [{"text": "/srv/y"}]
    outcome = installation.outcomes()[-1]
    assert (outcome["arguments"], outcome["decidedBy"]) == ({"text": "/srv/y"}, "human")
    assert at(outcome, "edited", "by") == "human"
    assert at(outcome, "edited", "instead of") == {"text": "/srv/x"}
    call = agent.start_call("ask", {"text": "/srv/x"})
    person.until_asked()
    reviewed(installation, person, '/edit 1 {"text": "/srv/never/z"}')
    assert "denied" in texts(agent.result(call))[0]
    assert len(installation.received()) == 1
    assert installation.last_decision() == ("deny", "never")
