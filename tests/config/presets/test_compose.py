"""The rules that `init` writes for the servers of a person."""

from pathlib import Path

import orjson
import pytest

from ironcurtain_proxy.config.annotating.annotate import annotate, roles_in
from ironcurtain_proxy.config.annotating.texts import ReadServer
from ironcurtain_proxy.config.presets import PRESETS, PresetName, compose, preset
from ironcurtain_proxy.config.servers import recognition
from ironcurtain_proxy.config.servers.recognition import Pack, read_pack
from ironcurtain_proxy.model.values import Json, list_of, object_of
from tests import program
from tests.program import PROXY

PACKS = Path(recognition.__file__).parents[1] / "packs/shipped"
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


def tools_of(name: str) -> tuple[ReadServer, Pack]:
    """A server by its pack, with all arguments of each tool."""
    pack = read_pack(name)
    assert pack is not None
    listed: list[dict[str, Json]] = [
        {"name": tool, "inputSchema": {"properties": {one: {} for one in object_of(known["args"])}}}
        for tool, known in pack.tools.items()
    ]
    return annotate(name, listed, None, pack), pack


@pytest.mark.parametrize("preset_name", PRESETS)
@pytest.mark.parametrize("name", sorted(one.stem for one in PACKS.glob("*.json")))
def test_an_upload_is_never_a_tool_of_files(name: str, preset_name: PresetName) -> None:
    """Rules about paths allow what lies in the workspace, and say nothing of where it goes."""
    server, pack = tools_of(name)
    rules = list_of(compose(preset(preset_name), [server], "/w").policy["rules"])
    named = {
        str(tool)
        for rule in rules
        for tool in list_of(object_of(object_of(rule)["if"]).get("tool"))
        if object_of(rule)["then"] != "allow"
    }
    for tool in server.tools:
        if (
            tool.effect in {"sends", "runs"}
            and tool.kind != "shell"
            and tool.name not in pack.allow
        ):
            assert tool.name in named, tool.name


@pytest.mark.parametrize("name", sorted(one.stem for one in PACKS.glob("*.json")))
def test_rules_about_paths_answer_for_each_argument_of_a_tool_of_files(name: str) -> None:
    """Another role has no rule there: the call would be denied, and nobody could be asked."""
    for tool in tools_of(name)[0].tools:
        if tool.kind == "files":
            roles = {role for one in tool.arguments.values() for role in roles_in(one)}
            assert all(role.endswith("-path") for role in roles - {"none"}), tool.name
