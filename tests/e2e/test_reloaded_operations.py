"""A policy that changes while a session runs, for prompts, resources, roots and subscriptions."""

import time
from pathlib import Path

import orjson

from ironcurtain_proxy.model.values import Json
from tests.e2e.installation import Installation, rule
from tests.e2e.raw_client import RawClient, at
from tests.e2e.test_operations import SAID, add_whole
from tests.program import PATIENCE


def annotate(installation: Installation, role: str) -> None:
    prompts: list[Json] = [{"promptName": "open", "args": {"path": [role]}}]
    tools: list[Json] = [{"toolName": name, "args": {}} for name in ("ask", "notify")]
    entry: Json = {"inputHash": "0", "tools": tools, "prompts": prompts}
    installation.write(
        "tool-annotations.json", {"generatedAt": "2026-01-01", "servers": {"whole": entry}}
    )


def noticed(agent: RawClient, kind: str) -> int:
    return len(agent.notifications(f"notifications/{kind}/list_changed"))


def change(installation: Installation, agent: RawClient, *rules: dict[str, Json]) -> None:
    """Write other rules, and wait until the agent is told."""
    before = noticed(agent, "prompts"), noticed(agent, "resources")
    installation.rules = [*rules]
    installation.write_policy()
    annotate(installation, "read-path")
    end = time.monotonic() + PATIENCE
    while (noticed(agent, "prompts"), noticed(agent, "resources")) <= before:
        assert time.monotonic() < end, agent.errors.read_text()
        agent.wait(0.1)


def names(agent: RawClient, kind: str, key: str) -> set[str]:
    listed = at(agent.result(agent.request(f"{kind}/list")), kind)
    assert isinstance(listed, list)
    return {str(at(one, key)) for one in listed}


def is_refused(agent: RawClient, method: str, params: dict[str, Json]) -> bool:
    return "error" in agent.answer(agent.request(method, params))


def test_another_policy_shows_and_opens_other_prompts_and_resources(
    installation: Installation, tmp_path: Path
) -> None:
    add_whole(installation, "whole", SAID)
    memo = rule("memo", uris={"schemes": [], "patterns": ["memo://*"]})
    notify = rule("notify", server=["whole"], tool=["notify"])
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "a.txt").write_text("a")
    installation.rules = [memo, notify]
    installation.write_policy()
    annotate(installation, "write-path")
    agent = installation.start()
    opened: dict[str, Json] = {"name": "open", "arguments": {"path": str(docs / "a.txt")}}
    assert names(agent, "resources", "uri") == {"memo://insights"}
    assert is_refused(agent, "prompts/get", opened)
    agent.result(agent.request("resources/subscribe", {"uri": "memo://insights"}))

    read = rule("docs", server=["whole"], paths={"roles": ["read-path"], "within": str(docs)})
    secret = rule("secret", uris={"schemes": ["secret"]})
    change(installation, agent, read, secret, notify)
    assert names(agent, "resources", "uri") == {"secret://key"}
    # Its annotation was replaced, too: the path is read now.
    assert not is_refused(agent, "prompts/get", opened)
    assert is_refused(agent, "resources/read", {"uri": "memo://insights"})

    # What was subscribed to is denied now: its news reach nobody.
    agent.call("notify")
    assert agent.notifications("notifications/resources/updated") == []
    told = [
        orjson.loads(line) for line in installation.journal_file("whole").read_bytes().splitlines()
    ]
    assert any(one.get("method") == "notifications/roots/list_changed" for one in told)
