"""The JSON Schemas of files agree with what the program reads."""

from pathlib import Path

import jsonschema_rs
import orjson
import pytest

from ironcurtain_proxy.cli import main
from ironcurtain_proxy.config.policy.annotations_file import read_annotations_file
from ironcurtain_proxy.config.policy.lists_file import read_lists_file
from ironcurtain_proxy.config.reading.document import Spot
from ironcurtain_proxy.config.reading.problems import Report
from ironcurtain_proxy.config.schemas import FILES, DocumentKind, schema_of
from ironcurtain_proxy.config.servers.servers_file import parse_servers
from ironcurtain_proxy.model.json import Json
from tests.config.files import write

ROOT = Path(__file__).parents[2]
SHIPPED = ROOT / "ironcurtain_proxy/config"
PACKS = sorted((SHIPPED / "packs/shipped").glob("*.json"))


def is_read(kind: DocumentKind, document: Json, path: Path) -> bool:
    report = Report()
    match kind:
        case "servers":
            parse_servers(Spot(document, "", report), Path("/home/a"))
        case "annotations":
            read_annotations_file(write(path / "f.json", document), report)
        case "lists":
            read_lists_file(write(path / "f.json", document), report)
        case _:
            raise AssertionError(kind)
    return not report.has_errors


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
    ("lists", {"lists": {"a": {"values": "x"}}}),
    ("annotations", {"servers": {"a": {"tools": [{"toolName": "t", "args": {"p": ["none"]}}]}}}),
    ("annotations", {"servers": {"a": {"tools": [{"toolName": "t", "args": {"p": ["non"]}}]}}}),
    ("annotations", {"servers": {"a": {"tools": [{"toolName": "", "args": {}}]}}}),
]


@pytest.mark.parametrize(("kind", "document"), CASES, ids=str)
def test_a_schema_accepts_what_the_program_reads(
    kind: DocumentKind, document: Json, tmp_path: Path
) -> None:
    accepted = jsonschema_rs.validator_for(schema_of(kind)).is_valid(document)
    assert accepted is is_read(kind, document, tmp_path)


def test_the_packs_and_the_shipped_annotations_fit_their_schema() -> None:
    validator = jsonschema_rs.validator_for(schema_of("annotations"))
    files = [*PACKS, SHIPPED / "policy/shipped/tool-annotations.json"]
    assert len(files) > 20
    for file in files:
        assert list(validator.iter_errors(orjson.loads(file.read_bytes()))) == [], file.name


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
    assert orjson.loads(capsys.readouterr().out) == schema_of("servers")
