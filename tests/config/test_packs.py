"""The packs: read strictly, recognised by package, and read for configured servers alone."""

import re
from collections.abc import Iterator
from json import dumps, loads  # noqa: TID251  the texts of schemas, to be searched
from pathlib import Path
from typing import Final

import orjson
import pytest

from ironcurtain_proxy.config.annotating.annotate import annotate
from ironcurtain_proxy.config.annotating.described import described
from ironcurtain_proxy.config.policy.annotations_file import read_annotations_file
from ironcurtain_proxy.config.policy.policy_loading import packs_of
from ironcurtain_proxy.config.reading.document import Report
from ironcurtain_proxy.config.servers.recognition import (
    Pack,
    pack_file,
    pack_of,
    read_pack,
    recognised,
    recognised_pack,
)
from ironcurtain_proxy.model.server import ServerSpec
from ironcurtain_proxy.model.values import Json
from tests.model.test_input_schema import SCHEMAS
from tests.tables import table

PACKS = Path(__file__).parents[2] / "ironcurtain_proxy" / "config" / "packs"
NAMES = sorted(file.stem for file in (PACKS / "shipped").glob("*.json"))


def test_there_are_packs_for_many_servers() -> None:
    assert len(NAMES) >= 25
    assert sorted(orjson.loads((PACKS / "index.json").read_bytes()).values()) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_pack_is_a_file_of_annotations_that_says_where_it_comes_from(name: str) -> None:
    file = pack_file(name)
    pack = read_pack(name)
    assert file is not None
    assert pack is not None
    report = Report()
    read = read_annotations_file(file, report)
    assert [str(problem) for problem in report.problems] == []
    assert read is not None
    assert read.servers == {name}
    assert pack.obtained in {"started", "published schema"}
    assert pack.version
    assert pack_of(pack.package) == name
    assert pack.allow <= pack.tools.keys() == pack.schemas.keys()


@pytest.mark.parametrize("name", NAMES)
def test_a_pack_proposes_to_allow_only_what_reads(name: str) -> None:
    pack = read_pack(name)
    assert pack is not None
    assert {tool: pack.tools[tool].get("effect") for tool in pack.allow} == dict.fromkeys(
        pack.allow, "reads"
    )


_FILES: Final[dict[str, str]] = table("config/packs.files", dict[str, str])
"""The arguments that name files of this machine, by their servers' own documents. Such a text is
sent as an absolute path: a path in a JSON document or the name of a group would be another one."""


def packed(name: str) -> Pack:
    pack = read_pack(name)
    assert pack is not None
    return pack


def _roles(name: str, spec: Json) -> Iterator[tuple[str, list[str]]]:
    """Yield the names and roles of an argument and of what is in it."""
    if isinstance(spec, list):
        yield name, [str(one) for one in spec]
    elif isinstance(spec, dict):
        yield from _roles(name, spec["default"])
        inside = spec.get("inside", {})
        assert isinstance(inside, dict)
        for inner, said in inside.items():
            yield from _roles(inner, said)


def _path_arguments(name: str) -> Iterator[tuple[str, str]]:
    """Yield the tools and arguments of a pack that have a role of paths."""
    for tool, annotation in packed(name).tools.items():
        arguments = annotation["args"]
        assert isinstance(arguments, dict)
        for argument, spec in arguments.items():
            for inner, roles in _roles(argument, spec):
                if any(role.endswith("-path") for role in roles):
                    yield tool, inner


def test_only_arguments_that_name_files_of_this_machine_are_paths() -> None:
    found = {name: " ".join(sorted({one for _, one in _path_arguments(name)})) for name in NAMES}
    assert {name: said for name, said in found.items() if said} == _FILES
    gitlab = {one for one in _path_arguments("gitlab") if one[1] == "file_path"}
    assert gitlab == {("upload_markdown", "file_path")}


def test_a_file_that_a_browser_saves_is_written_and_an_answer_without_one_names_none() -> None:
    file = pack_file("playwright")
    assert file is not None
    read = read_annotations_file(file, Report())
    assert read is not None
    named, left_out = {}, {}
    for (_, tool), one in read.annotations.items():
        if "filename" in one.arguments:
            named[tool] = {*one.arguments["filename"].roles({"filename": "a"})}
            left_out[tool] = {*one.arguments["filename"].roles({})}
    assert [tool for tool, roles in named.items() if "write-path" not in roles] == []
    answers = {tool for tool, roles in left_out.items() if roles == {"none"}}
    assert packed("playwright").allow & named.keys() == answers


def test_tabs_of_a_browser_are_listed_unasked_and_an_address_is_fetched() -> None:
    file = pack_file("playwright")
    assert file is not None
    read = read_annotations_file(file, Report())
    assert read is not None
    address = read.annotations["playwright", "browser_tabs"].arguments["url"]
    assert {*address.roles({"action": "list"})} == {"none"}
    assert {*address.roles({"action": "new", "url": "https://e.example"})} == {"fetch-url"}
    assert "browser_tabs" in packed("playwright").allow


def test_a_schema_takes_the_absolute_path_that_is_sent() -> None:
    known = {source: dumps(schema) for source, schema in SCHEMAS}
    patterns = [
        (name, tool, argument, pattern)
        for name in NAMES
        for tool, argument in _path_arguments(name)
        for pattern in re.findall(
            rf'"{argument}": {{[^{{}}]*"pattern": ("(?:[^"\\]|\\.)*")',
            known.get(f"{packed(name).package} {tool}", ""),
        )
    ]
    refused = [one for one in patterns if not re.search(loads(one[3]), "/work/a.png")]
    assert refused == []


@pytest.mark.parametrize(
    ("command", "args", "name"),
    [
        ("npx", ["-y", "@notionhq/notion-mcp-server@2.5.2"], "notion"),
        ("npx", ["tavily-mcp"], "tavily"),
        ("uvx", ["mcp-atlassian==0.23.1"], "atlassian"),
        ("uv", ["tool", "run", "mcp-obsidian"], "obsidian"),
        ("/home/me/.local/bin/mcp-atlassian", [], "atlassian"),
        ("/usr/lib/node_modules/.bin/mcp-server-postgres", ["x"], "postgres-reference"),
        ("uvx", ["mcp-server-postgres"], None),
        ("python", ["mcp-server-postgres"], None),
        ("sh", ["mcp-server-postgres"], None),
        ("node", ["/x/node_modules/@playwright/mcp/cli.js"], "playwright"),
        ("python", ["-m", "mcp_obsidian"], "obsidian"),
        ("uvx", ["--with", "mcp<2", "mcp-obsidian"], "obsidian"),
        ("uvx", ["--from", "git+https://github.com/oraios/serena", "serena"], "serena"),
        ("uvx", ["--from", "git+https://github.com/evil/serena", "serena"], None),
        ("docker", ["run", "-i", "--rm", "-e", "T", "mcp/notion"], "notion"),
        ("docker", ["run", "-i", "ghcr.io/sooperset/mcp-atlassian:0.11"], "atlassian"),
        ("uvx", ["tavily-mcp"], None),
        ("npx", ["other", "@notionhq/notion-mcp-server"], None),
        ("npx", ["@evil/notion-mcp-server"], None),
    ],
)
def test_a_pack_is_recognised_by_the_package_that_is_started(
    command: str, args: list[str], name: str | None
) -> None:
    assert recognised_pack(command, args) == name
    assert recognised(command, args) is None


def spec(name: str, command: str, *args: str, annotations: str | None = None) -> ServerSpec:
    return ServerSpec(name=name, annotations=annotations or name, command=command, args=args)


def test_only_the_packs_of_configured_servers_are_read() -> None:
    assert packs_of([]) == ()
    (file,) = packs_of([spec("tavily", "npx", "tavily-mcp"), spec("mine", "./server")])
    assert file.name == "tavily.json"
    (named,) = packs_of([spec("web", "npx", "tavily-mcp", annotations="tavily")])
    assert named == file


def test_a_server_that_only_has_the_name_of_a_pack_has_no_pack() -> None:
    assert packs_of([spec("tavily", "./my-own-server")]) == ()


def listed(name: str, *arguments: str) -> dict[str, Json]:
    properties: dict[str, Json] = {one: {"type": "string"} for one in arguments}
    return {"name": name, "inputSchema": {"type": "object", "properties": properties}}


def test_a_tool_that_the_pack_does_not_describe_is_worked_out() -> None:
    pack = read_pack("slack-reference")
    assert pack is not None
    known = listed("slack_list_channels", "limit", "cursor")
    newer = listed("slack_list_channels", "limit", "path")
    other = listed("slack_delete_everything", "path")
    read = annotate("slack", [known, other], None, pack)
    assert read.annotations == "slack-reference"
    assert [(tool.kind, tool.effect) for tool in read.tools] == [
        ("looks", "reads"),
        ("files", None),
    ]
    (changed,) = annotate("slack", [newer], None, pack).tools
    assert changed.kind != "looks"
    told = described("slack", "slack", [newer, other], pack)
    assert "of another schema" in told.tools[0].source
    assert "read-path" in told.tools[0].proposal.arguments["path"].roles
    assert told.tools[1].source == ""


_READING: Final = {"check", "count", "describe", "find", "get", "list", "read", "search", "view"}
_DECIDED: Final = {
    # They read, but what they show is worth a look; or their names only sound like it.
    "desktop-commander": {"get_config", "get_recent_tool_calls", "list_processes", "stop_search"},
    "google-workspace": {
        "get_drive_file_download_url",
        "get_gmail_attachment_content",
        "find_and_replace_doc",
    },
    "kubernetes": {"kubectl_get"},
    "linear": {"linear_getAuthenticationSessions"},
    "supabase": {"get_publishable_keys"},
}
_REACHING: Final = {"fetch-url", "sql", "command", "read-path", "write-path", "delete-path"}


@pytest.mark.parametrize("name", NAMES)
def test_a_pack_asks_about_no_tool_that_only_reads_its_own(name: str) -> None:
    pack = packed(name)
    asked: set[str] = set()
    for tool, entry in pack.tools.items():
        first, *rest = re.findall("[A-Z]?[a-z]+", tool)
        verb = rest[0] if rest and first.lower() not in _READING else first
        said = orjson.dumps(entry.get("args")).decode()
        reaches = any(f'"{role}"' in said for role in _REACHING)
        if verb.lower() in _READING and not reaches and tool not in pack.allow:
            asked.add(tool)
    assert asked == _DECIDED.get(name, set())
