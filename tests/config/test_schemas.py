"""The JSON Schemas of files agree with what the program reads."""

from functools import cache
from pathlib import Path
from typing import Any  # noqa: TID251  schemas

import jsonschema_rs
import orjson
import pytest

from ironcurtain_proxy.cli import main
from ironcurtain_proxy.config.policy.annotations_file import read_annotations_file
from ironcurtain_proxy.config.policy.policy_file import (
    ConditionsForm,
    PolicyReader,
    read_lists_file,
)
from ironcurtain_proxy.config.policy.reviewers_file import read_reviewers
from ironcurtain_proxy.config.reading.document import DocumentNode, Report
from ironcurtain_proxy.config.reading.forms import keys_of_form
from ironcurtain_proxy.config.schemas import FILES, DocumentKind, schema_of
from ironcurtain_proxy.config.servers.servers_file import parse_servers
from ironcurtain_proxy.config.settings import KEYS, gather_settings
from ironcurtain_proxy.model.conditions import VALUE_CONDITIONS
from ironcurtain_proxy.model.values import Json
from tests.config.files import RULE, policy, replaced, write

ROOT = Path(__file__).parents[2]
SHIPPED = ROOT / "ironcurtain_proxy/config"
PACKS = sorted((SHIPPED / "packs/shipped").glob("*.json"))


@cache
def validator(kind: DocumentKind) -> jsonschema_rs.Validator:
    """Return the validator of a kind's schema: to make one takes longer than all its documents."""
    return jsonschema_rs.validator_for(schema_of(kind))


def is_read(kind: DocumentKind, document: Json, path: Path) -> bool:
    report = Report()
    match kind:
        case "servers":
            parse_servers(DocumentNode(document, "", report), Path("/home/a"))
        case "annotations":
            read_annotations_file(write(path / "f.json", document), report)
        case "lists":
            read_lists_file(write(path / "f.json", document), report)
        case "config":
            environ = {"HOME": str(path), "IRONCURTAIN_CONFIG": str(write(path / "c", document))}
            gather_settings(environ, None, report)
        case "policy":
            path = write(path / "f.json", document)
            PolicyReader(home=Path("/home/a"), report=report).read(path)
        case "reviewers":
            read_reviewers(write(path / "f.json", document), Path("/home/a"), report)
        case "engine" | "managed":
            raise AssertionError(kind)
    return not report.has_errors


EXAMPLES = sorted((ROOT / "docs/examples").glob("*.json"))


CASES: list[tuple[DocumentKind, Json]] = [
    ("servers", {"a": {"command": "x", "_why": 1}, "_comment": "c", "$schema": "s"}),
    ("servers", {"$schema": "s", "mcpServers": {"a": {"url": "https://a.example/"}}}),
    ("servers", {"a": {"builtin": "shell", "sandbox": {"network": False}}}),
    ("servers", {"a": {"command": "x", "sandbox": {"limits": {"openFiles": 1}}}}),
    ("servers", {"a": {"command": "x", "sandbox": {"filesystem": {"private": ["~/../x"]}}}}),
    ("servers", {"a": {"command": "x", "sandbox": {"filesystem": {"private": ["~/.x"]}}}}),
    ("servers", {"a": {"command": "x", "env": {"A=B": ""}}}),
    ("servers", {"a": {"command": "x", "sandobx": False}}),
    ("servers", {"a": {"command": None}}),
    ("servers", {"a": {"command": "x", "ask": ["form"]}}),
    ("servers", {"a": {"command": "x", "ask": ["none"]}}),
    ("lists", {"lists": {"a": {"values": ["x"]}}, "$schema": "s"}),
    ("policy", policy(RULE)),
    ("policy", policy({"name": "a", "then": "deny", "if": {}}, base="coding")),
    ("policy", policy(replaced(RULE, ("then",), "block"))),
    ("policy", policy(replaced(RULE, ("if", "tools"), ["a"]))),
    ("policy", policy(replaced(RULE, ("if", "server"), None))),
    ("policy", policy(replaced(RULE, ("if", "paths"), {"roles": []}))),
    ("policy", policy(replaced(RULE, ("if", "lists", 0, "matchType"), "domain"))),
    ("policy", policy(replaced(RULE, ("if", "sql"), "runs"))),
    ("policy", policy(replaced(RULE, ("if", "sql"), "reads"))),
    ("policy", policy(replaced(RULE, ("if", "uris"), {"schemes": ["memo"]}))),
    ("policy", policy(replaced(RULE, ("if", "operations"), ["resources/subscribe"]))),
    ("config", {"$schema": "s", "mcpServers": {"a": {"command": "x"}}, "_": 1}),
    ("config", {"auditMaxBytes": 5}),
    ("config", {"auditMaxBytes": None}),
    ("config", {"auditFsync": "never"}),
    ("config", {"audtFsync": "always"}),
    ("config", {"escalation": {"holdAfterSeconds": 7, "_why": "", "channels": ["terminal"]}}),
    ("config", {"escalation": {"holdAfter": 7}}),
    ("config", {"escalation": {"noticeWebhook": "https://a@b.example"}}),
    ("config", {"escalation": {"noticeWebhook": "https://b.example:99999/"}}),
    ("config", {"escalation": {"noticeWebhook": "https://b.example:443/x?y=1"}}),
    ("config", {"escalation": {"noticeNtfy": "http://[::1]/t"}}),
    ("config", {"autoApprove": {"modelId": "openai:gpt", "only": ["a/*"], "confidence": 1}}),
    ("config", {"autoApprove": {"modelId": "gpt"}}),
    ("config", {"autoApprove": {"only": ["a"]}}),
    ("config", {"containment": {"caches": [".git"]}}),
    ("config", {"containment": {"caches": ["build"], "undo": True}}),
    ("config", {"grants": {"persist": {"scope": "project", "expiresDays": 0}}}),
    ("config", {"telemetry": {"endpoint": "ftp://x"}}),
    ("lists", {"lists": {"a": {"values": "x"}}}),
    ("annotations", {"servers": {"a": {"tools": [{"toolName": "t", "args": {"p": ["none"]}}]}}}),
    ("annotations", {"servers": {"a": {"tools": [{"toolName": "t", "args": {"p": ["non"]}}]}}}),
    ("annotations", {"servers": {"a": {"tools": [{"toolName": "", "args": {}}]}}}),
    ("reviewers", {"quorum": 0, "reviewers": [], "$schema": "s"}),
    ("reviewers", {"quorum": 17, "reviewers": []}),
    ("reviewers", {"quorum": 0, "reviewers": [], "revoked": ["x"]}),
]


@pytest.mark.parametrize(("kind", "document"), CASES, ids=str)
def test_a_schema_accepts_what_the_program_reads(
    kind: DocumentKind, document: Json, tmp_path: Path
) -> None:
    accepted = validator(kind).is_valid(document)
    assert accepted is is_read(kind, document, tmp_path)


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.name)
def test_an_example_fits_the_schema_of_configurations(file: Path) -> None:
    assert list(validator("config").iter_errors(orjson.loads(file.read_bytes()))) == []


def test_the_shipped_policy_fits_its_schema() -> None:
    document = orjson.loads((SHIPPED / "policy/shipped/compiled-policy.json").read_bytes())
    assert list(validator("policy").iter_errors(document)) == []


def test_the_form_of_conditions_has_each_kind() -> None:
    keys = keys_of_form(ConditionsForm)
    assert [kind.key for kind in VALUE_CONDITIONS if kind.key not in keys] == []


def test_the_packs_and_the_shipped_annotations_fit_their_schema() -> None:
    files = [*PACKS, SHIPPED / "policy/shipped/tool-annotations.json"]
    assert len(files) > 20
    for file in files:
        assert list(validator("annotations").iter_errors(orjson.loads(file.read_bytes()))) == [], (
            file.name
        )


@pytest.mark.parametrize("kind", FILES)
def test_a_schema_describes_the_keys_whose_meaning_their_names_leave_open(
    kind: DocumentKind,
) -> None:
    assert b'"description"' in orjson.dumps(schema_of(kind)["$defs"])


def test_the_command_lists_the_files_and_prints_a_schema(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["config", "schema"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == [*FILES]
    assert main(["config", "schema", "servers"]) == 0
    printed = orjson.loads(capsys.readouterr().out)
    assert printed == orjson.loads(orjson.dumps(schema_of("servers")))


def test_the_schema_of_configurations_has_every_key() -> None:
    def keys(schema: dict[str, Any], prefix: str = "") -> set[str]:
        found: set[str] = set()
        for key, inner in schema["properties"].items():
            found |= keys(inner, f"{prefix}{key}.") if "properties" in inner else {prefix + key}
        return found

    assert keys(schema_of("config")) == {*KEYS}
