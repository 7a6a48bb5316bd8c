"""`decide` on operations that are no tool calls."""

import os
from pathlib import Path

import orjson
import pytest

from ironcurtain_proxy.model.values import Json
from tests import program
from tests.program import PROXY
from tests.tables import table

RULES: list[Json] = [
    {"name": "memo", "if": {"uris": {"schemes": ["memo"]}}, "then": "allow", "reason": "r"},
    {"name": "greet", "if": {"prompt": ["greet"]}, "then": "escalate", "reason": "r"},
]
PROMPTS: Json = [{"promptName": "greet", "args": {"name": ["none"]}}]
FORM: Json = {"message": "?", "requestedSchema": {"type": "object", "properties": {"a": {}}}}
COMPLETION: Json = {
    "ref": {"type": "ref/prompt", "name": "greet"},
    "argument": {"name": "name", "value": "A"},
}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    annotations: Json = {"servers": {"s": {"inputHash": "0", "tools": [], "prompts": PROMPTS}}}
    engine: Json = {"allowedDirectory": str(tmp_path), "ask": {"s": "form"}}
    for name, content in (
        ("compiled-policy.json", {"rules": RULES}),
        ("tool-annotations.json", annotations),
        ("engine.json", engine),
    ):
        (tmp_path / name).write_bytes(orjson.dumps(content))
    return tmp_path


def decide(directory: Path, method: str, params: Json) -> tuple[str, str, str]:
    line = orjson.dumps({"serverName": "s", "method": method, "params": params})
    done = program.run([*PROXY, "decide", "--dir", str(directory)], os.environ, given=line)
    assert done.stderr == ""
    found = orjson.loads(done.stdout)
    return found["decision"], found["rule"], found["reason"]


@pytest.mark.parametrize(
    ("method", "params", "decision", "rule"),
    table(
        "cli/decide_operations.a_request_is_decided_by_the_rules",
        list[tuple[str, dict[str, Json], str, str]],
    ),
)
def test_a_request_is_decided_by_the_rules_about_it(
    method: str, params: Json, decision: str, rule: str, directory: Path
) -> None:
    assert decide(directory, method, params)[:2] == (decision, rule)


def test_roots_are_those_of_the_policy(directory: Path) -> None:
    found = decide(directory, "roots/list", {})
    assert found == ("allow", "policy-roots", f"Roots come from the policy: file://{directory}")


def test_params_that_are_no_object_are_not_understood(directory: Path) -> None:
    line = orjson.dumps({"id": 1, "serverName": "s", "method": "resources/read", "params": []})
    done = program.run([*PROXY, "decide", "--dir", str(directory)], os.environ, given=line)
    assert (done.returncode, orjson.loads(done.stdout)["rule"]) == (1, "invalid-request")
