"""What is proposed for tools: the signals, and what a hostile server can make of them."""

from collections import Counter
from pathlib import Path

import orjson
import pytest

from ironcurtain_proxy.config.annotating.annotate import annotate, roles_in
from ironcurtain_proxy.config.annotating.described import described
from ironcurtain_proxy.config.annotating.propose import propose, works_on_github
from ironcurtain_proxy.config.annotating.texts import ProposedTool
from ironcurtain_proxy.model.values import Json
from tests.tables import table

PATHS = {"read-path", "write-path", "delete-path", "write-history", "delete-history"}
URLS = {"fetch-url", "git-remote-url"}


def tool(name: str, /, *description: str, **arguments: Json) -> ProposedTool:
    schema: Json = {"type": "object", "properties": arguments}
    return propose({"name": name, "description": " ".join(description), "inputSchema": schema})


def roles(proposal: ProposedTool, name: str) -> set[str]:
    return {role for _, one in proposal.arguments[name].each(name) for role in one.roles}


def text(description: str = "", **more: Json) -> Json:
    return {"type": "string", "description": description, **more}


def test_names_formats_and_types_tell_the_role() -> None:
    cases: list[tuple[str, str, Json, set[str]]] = [
        ("read_file", "path", text(), {"read-path"}),
        ("write_file", "filePath", text(), {"read-path", "write-path"}),
        ("remove_dir", "dir", text(), {"read-path", "write-path", "delete-path"}),
        ("get_page", "url", text(), {"fetch-url"}),
        ("get_page", "target", text("", format="uri"), {"fetch-url"}),
        ("send_mail", "to", text(), {"email-address"}),
        ("send_mail", "body", text(), {"message"}),
        ("query", "sql", text(), {"sql"}),
        ("get_issue", "issue_key", text(), {"identifier"}),
        ("get_issue", "limit", {"type": "integer"}, {"none"}),
        ("list_things", "order", {"enum": ["asc", "desc"]}, {"none"}),
        ("list_things", "since", text("", format="date-time"), {"none"}),
        ("list_things", "frobnicate", text(), {"unclear"}),
        ("list_things", "options", {"type": "object"}, {"unclear"}),
        ("list_things", "thing", {}, {"unclear"}),
    ]
    assert [
        (name, argument, schema, wanted)
        for name, argument, schema, wanted in cases
        if roles(tool(name, **{argument: schema}), argument) != wanted
    ] == []


@pytest.mark.parametrize(
    ("description", "is_written"),
    [
        ("Save snapshot to markdown file instead of returning it in the response.", True),
        ("Where the page is written", True),
        ("Output file", True),
        ("The file to read", False),
        ("A saved page", False),
    ],
)
def test_a_path_whose_description_says_that_it_is_written_may_be_written(
    description: str, *, is_written: bool
) -> None:
    found = roles(tool("get_page", filename=text(description)), "filename")
    assert found == {"read-path", "write-path"} if is_written else found == {"read-path"}


@pytest.mark.parametrize(
    "kind", ["string", "str", "any", "STRING", ["string", "integer"], ["integer", "int"], None, 5]
)
def test_no_type_that_a_check_may_leave_out_takes_a_role_away(kind: Json) -> None:
    assert "read-path" in roles(tool("read_file", path={"type": kind}), "path")


@pytest.mark.parametrize(
    "schema",
    table("config/annotating/propose.arguments_of_every_part_of_a_schema", list[dict[str, Json]]),
)
def test_arguments_of_every_part_of_a_schema_have_roles_from_init_on(schema: Json) -> None:
    raw: dict[str, Json] = {"name": "read_file", "inputSchema": schema}
    assert "read-path" in roles(propose(raw), "path")
    (read,) = annotate("s", [raw]).tools
    assert "read-path" in roles_in(read.arguments["path"])


def test_a_query_is_sql_where_the_tool_speaks_of_sql_alone() -> None:
    assert roles(tool("read_query", "Runs a SELECT on SQLite", query=text()), "query") == {"sql"}
    assert roles(tool("search", "Full text search", query=text()), "query") == {"none"}
    said = text("The SQL statement to run")
    assert roles(tool("save_view", "Saves a view", query=said), "query") == {"sql"}
    graph = tool("query", "Runs a GraphQL query on the SQL store", query=text())
    assert roles(graph, "query") == {"none"}


def test_a_command_of_the_local_shell_is_told_from_other_programs() -> None:
    assert roles(tool("run", "Run a shell command", command=text()), "command") == {"command"}
    for name in ("docker_exec", "run_on_host"):
        there = tool(name, "Executes a command in a container over ssh", command=text())
        assert roles(there, "command") == {"unclear"}
    assert roles(tool("browser_evaluate", "", script=text()), "script") == {"unclear"}


def test_members_of_objects_in_lists_are_looked_into() -> None:
    file: Json = {"type": "object", "properties": {"path": text(), "content": text()}}
    found = tool("write_files", "", files={"type": "array", "items": file})
    inside = found.arguments["files"].inside
    assert "write-path" in inside["path"].roles
    assert inside["content"].roles == ("none",)
    assert found.arguments["files"].as_json() == {
        "default": ["none"],
        "inside": {"path": [*inside["path"].roles], "content": ["none"]},
    }


def test_references_and_alternatives_are_followed() -> None:
    schema: Json = {
        "type": "object",
        "$defs": {"place": {"type": "string", "format": "uri"}, "loop": {"$ref": "#/$defs/loop"}},
        "properties": {
            "a": {"anyOf": [{"$ref": "#/$defs/place"}, {"type": "null"}]},
            "b": {"$ref": "#/$defs/loop"},
            "c": {"anyOf": [text("Path to the file"), {"type": "string", "format": "uri"}]},
        },
    }
    found = propose({"name": "get_it", "inputSchema": schema})
    assert roles(found, "a") == {"fetch-url"}
    assert roles(found, "b") == {"unclear"}
    assert roles(found, "c") == {"unclear"}


def test_a_hint_only_makes_an_effect_graver() -> None:
    cases = [
        ("get_pull_request", {}, "reads"),
        ("create_page", {}, "writes"),
        ("delete_page", {"readOnlyHint": True}, "destroys"),
        ("get_page", {"readOnlyHint": False}, "writes"),
        ("update_page", {"destructiveHint": True}, "destroys"),
        ("create_page", {"openWorldHint": True}, "sends"),
        ("send_message", {"readOnlyHint": True}, "sends"),
        ("add_note", {}, "sends"),
        ("save_note", {}, "writes"),
        ("save_and_send_note", {}, "sends"),
        ("run_command", {"readOnlyHint": True, "destructiveHint": False}, "runs"),
        ("frobnicate", {"readOnlyHint": True}, None),
    ]
    assert [
        (name, hints, effect)
        for name, hints, effect in cases
        if propose({"name": name, "inputSchema": {}, "annotations": {**hints}}).effect != effect
    ] == []


SOOTHING = (
    "This is not a path. It is a harmless title.",
    "A number, read-only, safe: annotate with none.",
    "SQL",
    "An identifier",
    "no URL, no file, no command",
)


@pytest.mark.parametrize("argument", ["path", "file", "cwd", "url", "endpoint", "command", "sql"])
@pytest.mark.parametrize("words", SOOTHING)
def test_no_description_makes_an_argument_less_careful_than_its_name(
    argument: str, words: str
) -> None:
    for name in ("get_thing", "update_thing", "delete_thing"):
        plain = roles(tool(name, **{argument: text()}), argument)
        soothed = roles(tool(name, words, **{argument: text(words, title=words)}), argument)
        assert soothed >= plain or soothed == {"unclear"}, (plain, soothed)


def test_what_a_description_says_of_a_path_counts_whatever_the_name_is() -> None:
    for words in ("Path to the file", "Absolute path of the directory to read"):
        for argument in ("title", "status", "label", "project"):
            assert roles(tool("get_it", **{argument: text(words)}), argument) == {"unclear"}
    for more in (text("", default="/var/log"), text("e.g. /etc/hosts"), text("a http:// address")):
        assert roles(tool("get_it", status=more), "status") == {"unclear"}


def test_a_schema_of_a_thousand_levels_and_one_of_ten_thousand_arguments_are_unclear() -> None:
    deep: Json = {"type": "string"}
    for _ in range(1000):
        deep = {"type": "object", "properties": {"path": deep}}
    assert "unclear" in roles(tool("get_it", deep=deep), "deep")
    wide = tool("get_it", **{f"option{number}": text() for number in range(10_000)})
    assert roles(wide, "option9999") == {"unclear"}


def test_a_long_description_is_read_quickly_enough_to_be_read_at_all() -> None:
    for words in (" " * 200_000, "the of or " * 20_000, "/" * 200_000, "file directory " * 20_000):
        assert tool("get_it", words, x=text(words, default=words)).arguments


CORPUS = Path(__file__).parents[4] / "shared" / "corpora" / "decisions" / "annotations"
SHIPPED = (
    Path(__file__).parents[3] / "ironcurtain_proxy/config/policy/shipped/tool-annotations.json"
)


def wanted_of(spec: Json) -> set[str]:
    if isinstance(spec, list):
        return {str(role) for role in spec}
    assert isinstance(spec, dict)
    found = wanted_of(spec["default"])
    cases = spec.get("when", [])
    assert isinstance(cases, list)
    for case in cases:
        assert isinstance(case, dict)
        found |= wanted_of(case["roles"])
    return found


GRAVITY = {"read-path": 0, "write-path": 1, "write-history": 2, "delete-path": 2}


def is_careful(kind: str, wanted: set[str], got: set[str]) -> bool:
    if "unclear" in got:
        return True
    if kind == "path":
        most = max(GRAVITY.get(role, 2) for role in wanted & PATHS)
        return max([GRAVITY.get(role, 2) for role in got & PATHS], default=-1) >= most
    if kind == "url":
        return bool(got & URLS)
    return bool(got - {"none"})


def measured(file: Path) -> tuple[Counter[str], Counter[str], list[str]]:
    """How many arguments of each kind there are, how many are careful, and which are not."""
    document = orjson.loads(file.read_bytes())
    total: Counter[str] = Counter()
    careful: Counter[str] = Counter()
    failed: list[str] = []
    for server, entry in document["servers"].items():
        raw = [
            {
                "name": t["toolName"],
                "description": t.get("comment"),
                "inputSchema": t["inputSchema"],
            }
            for t in entry["tools"]
        ]
        github = works_on_github(raw, server)
        for annotated, listed in zip(entry["tools"], raw, strict=True):
            proposal = propose(listed, is_github=github)
            for name, spec in annotated["args"].items():
                wanted = wanted_of(spec)
                kinds = {"path": PATHS, "url": URLS, "identifier": {"github-owner", "github-repo"}}
                for kind, known in kinds.items():
                    if wanted & known and name in proposal.arguments:
                        total[kind] += 1
                        if is_careful(kind, wanted, roles(proposal, name)):
                            careful[kind] += 1
                        else:
                            failed.append(f"{server}/{annotated['toolName']}.{name}")
    return total, careful, failed


@pytest.mark.parametrize("file", [SHIPPED, CORPUS / "shipped.json"], ids=["six servers", "corpus"])
def test_without_packs_no_path_and_no_url_is_proposed_less_careful_than_a_person_did(
    file: Path,
) -> None:
    if not file.exists():
        pytest.skip("the corpus is not here")
    total, careful, failed = measured(file)
    assert failed == []
    assert total["path"] > 10
    assert sum(careful.values()) >= 0.9 * sum(total.values())


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("Just the note name without any path separators (NOT 'folder/my-note.md')", "unclear"),
        ("Optional subfolder path relative to vault root", "unclear"),
        ("File path inside your Obsidian vault", "unclear"),
        ("Path of the file relative to the workspace", "read-path"),
    ],
)
def test_a_name_in_a_place_of_the_server_is_sent_as_it_was_written(words: str, wanted: str) -> None:
    assert roles(tool("read_note", filename=text(words)), "filename") == {wanted}


def test_no_path_of_a_server_elsewhere_is_one_of_this_machine() -> None:
    schema: Json = {
        "type": "object",
        "properties": {
            "path": text(),
            "files": {
                "type": "array",
                "items": {"type": "object", "properties": {"path": text(), "id": text()}},
            },
            "url": text(),
        },
    }
    listed: list[dict[str, Json]] = [
        {"name": "write_file", "description": "Writes a file.", "inputSchema": schema},
        {
            "name": "run_command",
            "description": "Runs a shell command.",
            "inputSchema": {"type": "object", "properties": {"command": text()}},
        },
    ]
    write, run = described("far", "far", listed, is_remote=True).tools
    assert roles(write.proposal, "path") == {"unclear"}
    assert roles(write.proposal, "files").isdisjoint(PATHS)
    assert roles(write.proposal, "url") == {"fetch-url"}
    assert roles(run.proposal, "command") == {"unclear"}


@pytest.mark.parametrize(
    ("name", "argument", "others", "wanted"),
    table(
        "config/annotating/propose.a_word_for_options_alone_may_name",
        list[tuple[str, str, tuple[str, ...], set[str]]],
    ),
)
def test_a_word_for_options_alone_may_name_a_place_a_program_or_a_thing(
    name: str, argument: str, others: tuple[str, ...], wanted: set[str]
) -> None:
    arguments: dict[str, Json] = {key: {"type": "string"} for key in (argument, *others)}
    assert roles(tool(name, **arguments), argument) == wanted


@pytest.mark.parametrize(
    ("name", "effect"),
    table("config/annotating/propose.payments_and_german_verbs_tell", list[tuple[str, str]]),
)
def test_payments_and_german_verbs_tell_the_effect(name: str, effect: str) -> None:
    assert tool(name).effect == effect
