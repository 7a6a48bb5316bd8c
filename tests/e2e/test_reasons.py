"""What reviewers, the record and the agent read of a call that does several things."""

from ironcurtain_proxy.model.values import Json
from tests.e2e.installation import Installation, rule, tool
from tests.e2e.raw_client import at, texts

ROLES = {"move": {"source": ["read-path", "delete-path"], "destination": ["write-path"]}}


def test_the_gravest_reason_is_named_first(installation: Installation) -> None:
    text: Json = {"type": "string"}
    installation.add_scripted("files", ROLES, tools=[tool("move", source=text, destination=text)])
    installation.rules = [
        rule("ask-read", "escalate", "Reading is asked about.", roles=["read-path"]),
        rule("ask-write", "escalate", "Writing is asked about.", roles=["write-path"]),
        rule("ask-delete", "escalate", "Deleting is asked about.", roles=["delete-path"]),
    ]
    agent = installation.start()
    reply = agent.call("move", {"source": "/srv/a", "destination": "/srv/b"})
    why = "Deleting is asked about; Writing is asked about; Reading is asked about"
    assert why in "\n".join(texts(reply))
    decision = installation.outcomes()[-1]["policyDecision"]
    assert at(decision, "rule") == "ask-delete"
