"""What the operator declares of tools counts, whether or not anything asks besides the policy."""

import orjson

from ironcurtain_proxy.model.values import Json
from tests.e2e.installation import Installation, rule, tool
from tests.e2e.raw_client import at
from tests.e2e.test_auto_confirm import manager


def test_a_declared_command_is_understood_where_neither_profile_nor_mode_asks(
    installation: Installation,
) -> None:
    installation.add_scripted(
        "box", {"run": {"command": ["none"]}}, tools=[tool("run", command={"type": "string"})]
    )
    installation.rules = [rule("ask", "escalate", "a reviewer must agree", tool=["run"])]
    document: Json = {
        "security": {"interceptor": {"approvalPolicy": "none"}},
        "capabilities": {"profile": "none", "tools": {"box/run": {"commandArgument": "command"}}},
        "auto_confirm": {
            "enabled": True,
            "night_mode": {"enabled": False},
            "reviewers": [manager("architect_manager", "deciding", "deny")],
        },
    }
    directory = installation.home / ".ironcurtain"
    directory.mkdir()
    (directory / "config.json").write_bytes(orjson.dumps(document))
    agent = installation.start()
    agent.call("run", {"command": "git push --force origin main"})
    assert at(installation.outcomes()[-1], "engine", "operation") == "git-force-push"
