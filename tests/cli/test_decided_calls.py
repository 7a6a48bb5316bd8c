"""Calls that a person has decided, by `decide` and by the naive specification alike."""

import os
from pathlib import Path
from typing import Final

import orjson
import pytest

from ironcurtain_proxy.cli.decide import Kernel
from ironcurtain_proxy.config.policy.engine_file import load_engine
from ironcurtain_proxy.model.decision import effect_of
from ironcurtain_proxy.model.request import Facts
from ironcurtain_proxy.model.values import Json
from tests import program
from tests.e2e.installation import STAMP, rule
from tests.program import PROXY
from tests.reference.authorizer import reference_authorize
from tests.tables import table

HERE: Final = Path(__file__).parent
CALLS: Final = [
    orjson.loads(line) for line in (HERE / "decided-calls.jsonl").read_bytes().splitlines()
]
ROLES: Final[dict[str, dict[str, list[str]]]] = table(
    "cli/decided_calls.roles", dict[str, dict[str, list[str]]]
)


def path_rule(name: str, then: str, role: str, within: str) -> dict[str, Json]:
    roles: list[Json] = [role]
    return rule(name, then, paths={"roles": roles, "within": within})


def rules(home: str) -> list[Json]:
    """One of each kind; the first that matches a role holds for it."""
    return [
        path_rule("no-secrets", "deny", "read-path", f"{home}/docs/secret"),
        path_rule("read-docs", "allow", "read-path", f"{home}/docs"),
        path_rule("take-inbox", "allow", "delete-path", f"{home}/inbox"),
        rule("ask-writes", "escalate", roles=["write-path"], server=["filesystem"]),
        rule("bad-host", "deny", domains={"roles": ["fetch-url"], "allowed": ["*.bad.example"]}),
        rule("known-host", domains={"roles": ["fetch-url"], "allowed": ["*.example.com"]}),
        rule("ask-web", "escalate", server=["web"]),
        rule(
            "mail-team",
            lists=[{"roles": ["email-address"], "allowed": ["a@acme.io"], "matchType": "emails"}],
        ),
        rule("ask-mail", "escalate", tool=["send"]),
        rule("list-notes", server=["notes"], tool=["list"]),
    ]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `decide` reads, and the tree that the calls speak of."""
    place = tmp_path_factory.mktemp("decided").resolve()
    home = place / "home"
    for name in ("box/sub", "docs/secret", "inbox", "other", "box/keys"):
        (home / name).mkdir(parents=True)
    (home / "box/out").symlink_to(home / "other")
    (home / "docs/way").symlink_to(home / "docs/secret")
    (home / "other/back").symlink_to(home / "box")
    servers: dict[str, dict[str, Json]] = {}
    for key, roles in ROLES.items():
        server, _, tool = key.partition("/")
        tools = servers.setdefault(server, {"inputHash": "0", "tools": []})["tools"]
        assert isinstance(tools, list)
        arguments: dict[str, Json] = {name: [*one] for name, one in roles.items()}
        entry: dict[str, Json] = {"toolName": tool, "serverName": server, "comment": ""}
        tools.append({**entry, "args": arguments, "inputSchema": {}})
    engine = {
        "allowedDirectory": str(home / "box"),
        "protectedPaths": [str(home / "other/policy")],
        "home": str(home),
        "trustedServers": ["memory"],
        "domainAllowlists": {"web": ["*.example.com", "*.bad.example", "ask.example"]},
    }
    for name, content in (
        ("compiled-policy.json", {**STAMP, "rules": rules(str(home))}),
        ("tool-annotations.json", {"generatedAt": "", "servers": servers}),
        ("engine.json", engine),
    ):
        (place / name).write_bytes(orjson.dumps(content))
    return place


@pytest.fixture(scope="module")
def answers(directory: Path) -> list[dict[str, Json]]:
    lines = []
    for case in CALLS:
        server, _, tool = case["call"].partition("/")
        lines.append(
            orjson.dumps({"serverName": server, "toolName": tool, "arguments": case["arguments"]})
        )
    command = [*PROXY, "decide", "--no-schema", "--dir", str(directory)]
    done = program.run(command, os.environ, given=b"\n".join(lines))
    assert done.returncode == 0
    return [orjson.loads(line) for line in done.stdout.encode().splitlines()]


@pytest.mark.requirement("C-19", "C-20", "C-22", "C-26", "C-27", "C-28", "C-29")
@pytest.mark.parametrize(
    "number", range(len(CALLS)), ids=[f"{c['call']} {c['arguments']}" for c in CALLS]
)
def test_a_call_gets_the_answer_of_a_person_and_of_the_specification(
    number: int, directory: Path, answers: list[dict[str, Json]]
) -> None:
    case, answer = CALLS[number], answers[number]
    expected = (case["decision"], case["rule"])
    assert (answer["decision"], answer["rule"]) == expected
    engine = load_engine(directory, Path("/h"))
    server, _, tool = case["call"].partition("/")
    gathered = Kernel.of(engine, check_schemas=False).gather(server, tool, case["arguments"])
    if isinstance(gathered, Facts):
        found = reference_authorize(gathered.request, engine.loaded.policy)
        assert (effect_of(found), found.ground.rule) == expected
