"""What reviewers, the record and the agent read of a call that does several things."""

from ironcurtain_proxy.model.json import Json
from tests.e2e.house import House, rule, tool
from tests.e2e.raw_client import at, texts

ROLES = {"move": {"source": ["read-path", "delete-path"], "destination": ["write-path"]}}


def test_the_gravest_reason_is_named_first(house: House) -> None:
    text: Json = {"type": "string"}
    house.add_scripted("files", ROLES, tools=[tool("move", source=text, destination=text)])
    house.rules = [
        rule("ask-read", "escalate", "Reading is asked about.", roles=["read-path"]),
        rule("ask-write", "escalate", "Writing is asked about.", roles=["write-path"]),
        rule("ask-delete", "escalate", "Deleting is asked about.", roles=["delete-path"]),
    ]
    agent = house.start()
    reply = agent.call("move", {"source": "/srv/a", "destination": "/srv/b"})
    why = "Deleting is asked about; Writing is asked about; Reading is asked about"
    assert why in "\n".join(texts(reply))
    decision = house.outcomes()[-1]["policyDecision"]
    assert at(decision, "rule") == "ask-delete"
