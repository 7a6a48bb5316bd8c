"""The rules that `init` writes for the servers of a person."""

from pathlib import Path

import orjson
import pytest

from ironcurtain_proxy.config.annotating.annotate import annotate
from ironcurtain_proxy.config.presets import PRESETS, compose, preset
from ironcurtain_proxy.config.servers.recognition import read_pack
from ironcurtain_proxy.model.values import Json
from tests import program
from tests.program import PROXY

QUERY: dict[str, Json] = {
    "name": "read_query",
    "description": "Reads rows.",
    "inputSchema": {"type": "object", "properties": {"query": {"type": "string"}}},
}


def rules_of(server: str, *, is_packed: bool) -> list[list[str]]:
    pack = read_pack("sqlite") if is_packed else None
    read = annotate(server, [QUERY], None, pack)
    found = []
    for name in PRESETS:
        rules = compose(preset(name), [read], "/w").policy["rules"]
        assert isinstance(rules, list)
        found.append([str(rule["name"]) for rule in rules if isinstance(rule, dict)])
    return found


def test_sql_that_reads_is_allowed_before_the_other_calls_of_a_known_database_are_asked_about() -> (
    None
):
    for names in rules_of("db", is_packed=True):
        assert names[0] == "allow-sql-reads-sqlite"
        assert names[1].endswith("-unknown-tools-sqlite")


def test_what_an_unknown_server_calls_sql_is_asked_about() -> None:
    for names in rules_of("db", is_packed=False):
        assert names[0].endswith("-unknown-tools-db")


SNAPSHOT: dict[str, Json] = {
    "name": "browser_snapshot",
    "inputSchema": {
        "type": "object",
        "properties": {"target": {"type": "string"}, "filename": {"type": "string"}},
    },
}


@pytest.mark.parametrize("name", PRESETS)
def test_a_file_that_a_known_tool_saves_is_decided_as_a_file(tmp_path: Path, name: str) -> None:
    home, workspace = tmp_path / "home", tmp_path / "home/project"
    (home / ".ironcurtain/generated").mkdir(parents=True)
    workspace.mkdir()
    read = annotate("pages", [SNAPSHOT], None, read_pack("playwright"))
    documents = compose(preset(name), [read], str(workspace))
    for file, document in {
        "generated/compiled-policy.json": documents.policy,
        "generated/tool-annotations.json": documents.annotations,
        "config.json": documents.config,
    }.items():
        (home / ".ironcurtain" / file).write_bytes(orjson.dumps(document))

    def effect(**arguments: str) -> object:
        words = ["explain", "playwright/browser_snapshot", "--json", "--args"]
        said = program.run([*PROXY, *words, orjson.dumps(arguments).decode()], {"HOME": str(home)})
        return orjson.loads(said.stdout)["decision"]

    elsewhere = {"coding": "escalate", "supervised": "escalate", "read-only": "deny"}[name]
    assert effect() == effect(target="e5") == "allow"
    assert effect(filename=str(home / "notes.md")) == elsewhere
    assert effect(target="e5", filename=str(home / ".bashrc")) in {elsewhere, "deny"}
