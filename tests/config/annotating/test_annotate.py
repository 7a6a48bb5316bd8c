"""What a tool is taken for: by its name, its schema and its description, never by one alone."""

from collections.abc import Mapping

import pytest

from ironcurtain_proxy.config.annotating.annotate import annotate, as_annotations, known_servers
from ironcurtain_proxy.config.annotating.texts import ReadTool
from ironcurtain_proxy.model.values import Json
from tests.tables import table

TEXT: dict[str, Json] = {"type": "string"}


def tool(name: str, description: str = "", **properties: Json) -> dict[str, Json]:
    schema: Json = {"type": "object", "properties": properties}
    return {"name": name, "description": description, "inputSchema": schema}


def listed(**members: Json) -> dict[str, Json]:
    return {"type": "array", "items": {"type": "object", "properties": members}}


def described(text: str) -> dict[str, Json]:
    return {**TEXT, "description": text}


def patterned(**members: Json) -> dict[str, Json]:
    """The schema of an object whose other members have texts, too."""
    closed: dict[str, Json] = {"type": "object", "additionalProperties": False}
    return {**closed, "properties": members, "patternProperties": {"^x": TEXT}}


def read(definition: Mapping[str, Json], server: str = "mine") -> ReadTool:
    (found,) = annotate(server, [definition]).tools
    return found


# --- shells --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("definition", "argument"),
    [
        (tool("bash", "Execute a bash command.", command=TEXT), "command"),
        (tool("run", "Runs a command line and returns what it prints.", cmd=TEXT), "cmd"),
        (tool("execute_command", "", command=TEXT, timeout_ms={"type": "number"}), "command"),
        (tool("start_process", "Start a new terminal process", command=TEXT), "command"),
        (
            tool(
                "start_process",
                "Start a new terminal process. On Windows PowerShell is used. For data analysis "
                "start a Python or Node.js REPL: python3 -i. Also docker ps, git log.",
                command=TEXT,
                shell=TEXT,
            ),
            "command",
        ),
        (tool("exec", "Executes shell scripts.", script=TEXT, workdir=TEXT), "script"),
        (tool("shell", "Runs a shell command", command={"type": ["string", "null"]}), "command"),
        (
            tool("shell", "Runs a shell command", command={"type": "array", "items": TEXT}),
            "command",
        ),
    ],
)
def test_a_shell_tool_of_an_unknown_server_is_recognised(
    definition: Mapping[str, Json], argument: str
) -> None:
    found = read(definition)
    assert (found.kind, found.command) == ("shell", argument)


@pytest.mark.parametrize(
    "definition",
    [
        tool("run_python", "Runs Python code.", code=TEXT),
        tool("query", "Executes a SQL command on the database.", command=TEXT),
        tool("ssh_exec", "Runs a shell command on a remote host.", command=TEXT, host=TEXT),
        tool("kubectl", "Run a kubectl command in the cluster", command=TEXT),
        tool("docker_exec", "Run a command in a container", command=TEXT, container=TEXT),
        tool("pwsh", "Runs a PowerShell command", command=TEXT),
        tool("git", "Run a git command", command=TEXT),
        tool("git_shell", "Runs git in a shell", command=TEXT),
        tool("exec", "Run a bash command inside the dev container", command=TEXT),
        tool("run", "Runs a command on the build machine over ssh", command=TEXT),
    ],
)
def test_a_text_for_another_interpreter_or_machine_is_no_shell_command(
    definition: Mapping[str, Json],
) -> None:
    found = read(definition)
    assert (found.kind, found.command) == ("unknown", None)


def test_a_command_that_is_nobodys_is_not_run() -> None:
    found = read(tool("explain_command", "Explains what a shell word means.", word=TEXT))
    assert found.kind != "shell"


def test_the_working_directory_is_a_path_only_if_it_is_said() -> None:
    found = read(tool("bash", "Execute a bash command.", command=TEXT, cwd=TEXT))
    spec = found.arguments["cwd"]
    assert isinstance(spec, dict)
    assert spec["default"] == ["read-path"]
    assert spec["when"] == [{"condition": {"arg": "cwd", "is": "falsy"}, "roles": ["none"]}]


# --- known servers -------------------------------------------------------------------------------


def shipped(server: str, *names: str) -> list[dict[str, Json]]:
    known = known_servers()[server]
    return [
        {"name": name, "inputSchema": dict(found.schema)}
        for name, found in known.items()
        if not names or name in names
    ]


@pytest.mark.parametrize("server", ["filesystem", "git", "fetch", "memory", "time", "everything"])
def test_a_known_server_is_recognised_by_its_tools_under_any_name(server: str) -> None:
    found = annotate("whatever", shipped(server))
    assert found.annotations == server
    assert not any(tool.is_denied for tool in found.tools)


def test_a_name_alone_makes_no_known_server() -> None:
    found = annotate("filesystem", [tool("read_file", "Reads", file=TEXT, host=TEXT)])
    assert found.annotations == "filesystem-server"


def test_a_known_name_with_another_schema_is_another_tool() -> None:
    changed = shipped("filesystem", "read_text_file", "list_directory", "get_file_info")
    changed[0]["inputSchema"] = {"type": "object", "properties": {"target": TEXT}}
    assert annotate("x", changed).annotations == "x"


def test_one_tool_in_common_does_not_make_a_server_a_known_one() -> None:
    assert annotate("x", shipped("memory", "create_entities")).annotations == "x"
    found = annotate("x", [*shipped("everything", "echo"), tool("deploy", "Deploys", env=TEXT)])
    assert {tool.kind for tool in found.tools} == {"unknown"}


def test_a_tool_that_a_known_server_never_had_is_left_out() -> None:
    """Its paths in the workspace would be settled before any rule."""
    tools = [*shipped("filesystem"), tool("upload", "Uploads a file to a server", path=TEXT)]
    found = annotate("x", tools, "filesystem")
    assert [one.name for one in found.tools if one.is_denied] == ["upload"]
    annotations = as_annotations([found])["servers"]
    assert isinstance(annotations, dict)
    assert "upload" not in str(annotations)


# --- paths and addresses -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("definition", "roles"),
    [
        (tool("read_doc", "Reads a document.", path=TEXT), ["read-path"]),
        (tool("view", "Shows the first lines.", fileName=TEXT), ["read-path"]),
        (tool("list", "Lists entries", folders={"type": "array", "items": TEXT}), ["read-path"]),
        (tool("write_doc", "", file_path=TEXT, content=TEXT), ["read-path", "write-path"]),
        (
            tool("remove", "Removes it.", target_path=TEXT),
            ["read-path", "write-path", "delete-path"],
        ),
        (
            tool("get_doc", "Reads a file and deletes it afterwards.", path=TEXT),
            ["read-path", "write-path", "delete-path"],
        ),
        (tool("show", "Shows it", where={**TEXT, "format": "path"}), ["read-path"]),
        (
            tool("show", "Shows it", what={**TEXT, "description": "Absolute path of the report"}),
            ["read-path"],
        ),
    ],
)
def test_a_path_is_told_by_name_format_or_description(
    definition: Mapping[str, Json], roles: list[str]
) -> None:
    found = read(definition)
    assert found.kind == "files"
    assert roles in found.arguments.values()


@pytest.mark.parametrize(
    "definition",
    [
        tool("read_doc", "Reads a document.", path=TEXT, tenant=TEXT),
        tool("list_issues", "Lists issues", repo=TEXT),
        tool("do", "", path=TEXT),
        tool("process_file", "Sends a file to the cloud.", path=TEXT),
        tool("read_doc", "Reads", source={**TEXT, "description": "A path or a URL"}),
        tool("read_docs", "Reads", files=listed(path=TEXT, tenant=TEXT)),
        tool("read_docs", "Reads", files={**listed(path=TEXT), "items": {"$ref": "#/x"}}),
        tool("copy_docs", "Copies", files=listed(path=TEXT, to=TEXT)),
        tool("read_docs", "Reads", options={"type": "object"}),
        tool("read_docs", "Reads", path={}),
        tool("read_file", "Reads a file of the drive.", fileId=TEXT),
        tool("read_docs", "Reads", reference=described("Such as /tmp/x"), path=TEXT),
        tool("open_doc", "Opens", id=described("Optional. e.g. /tmp/x")),
        tool("show_doc", "Shows", offset={"type": "object", "properties": {"page": TEXT}}),
        tool("write_doc", "Writes", workspace={}),
        tool("create_doc", "Creates", path=TEXT, label=described("The file to read")),
        tool("read_docs", "Reads", path=TEXT, more=patterned(encoding=TEXT)),
        tool("read_docs", "Reads", what={"anyOf": [described("A path"), described("A URL")]}),
        tool("download", "Downloads a file", url=TEXT, path=TEXT),
        {"name": "read_doc", "inputSchema": {"$ref": "#/x", "properties": {"path": TEXT}}},
        {"name": "read_doc"},
        {"name": "read_doc", "inputSchema": "text"},
        {"name": "read_doc", "inputSchema": {"type": "object", "properties": ["path"]}},
    ],
)
def test_where_a_doubt_is_left_the_tool_is_unknown(definition: Mapping[str, Json]) -> None:
    found = read(definition)
    assert found.kind == "unknown"
    assert found.why


def test_a_path_that_a_server_calls_a_date_stays_a_path() -> None:
    found = read(tool("read_doc", "Reads a document.", path={**TEXT, "format": "date"}))
    assert (found.kind, found.arguments["path"]) == ("files", ["read-path"])


def test_paths_inside_objects_are_paths_and_so_is_what_the_agent_adds_to_them() -> None:
    found = read(tool("read_docs", "Reads", files=listed(path=TEXT, encoding=TEXT)))
    assert found.kind == "files"
    inside: Json = {"path": ["read-path"], "encoding": ["none"]}
    assert found.arguments["files"] == {"default": ["read-path"], "inside": inside}


def test_a_sheet_or_a_page_beside_a_path_is_a_place_in_that_file() -> None:
    found = read(tool("read_range", "Reads cells.", path=TEXT, sheet=TEXT, range=TEXT))
    assert (found.kind, found.changes) == ("files", False)
    assert found.arguments == {"path": ["read-path"], "sheet": ["none"], "range": ["none"]}
    style: Json = {"type": "object", "properties": {"fontName": TEXT, "size": {"type": "number"}}}
    found = read(tool("format_page", "Formats a page.", file=TEXT, page=TEXT, style=style))
    assert (found.kind, found.changes) == ("files", True)
    assert found.arguments["style"] == {
        "default": ["read-path", "write-path"],
        "inside": {"fontName": ["none"], "size": ["none"]},
    }


@pytest.mark.parametrize(
    "definition",
    [
        tool("read_range", "Reads cells.", spreadsheetId=TEXT, sheet=TEXT),
        tool("add_sheet", "Adds a sheet.", path=TEXT, new_name=TEXT),
        tool("add_file", "Adds a file.", path=TEXT, project=TEXT),
        tool("copy_sheet", "Copies a sheet.", path=TEXT, sheet=TEXT, link=TEXT),
        tool("copy_sheet", "Copies a sheet to the server.", path=TEXT, sheet=TEXT),
        tool("send_sheet", "Sends a sheet.", path=TEXT, sheet=TEXT),
        tool("get_sheet", "Reads a sheet.", path=TEXT, sheet={**TEXT, "description": "A URL"}),
    ],
)
def test_what_may_name_more_than_a_part_of_a_file_stays_unknown(
    definition: Mapping[str, Json],
) -> None:
    assert read(definition).kind == "unknown"


def test_what_an_unknown_tool_is_said_to_read_gets_a_point_like_what_writes() -> None:
    assert read(tool("list_tasks", "Lists tasks")).effect == "writes"
    assert read(tool("send_tasks", "Sends tasks")).effect == "sends"
    assert read(tool("delete_task", "Deletes a task", id=TEXT)).effect == "destroys"


def test_the_paths_of_an_unknown_tool_count_as_read_written_and_deleted() -> None:
    found = read(tool("do", "", path=TEXT))
    assert found.arguments["path"] == ["read-path", "write-path", "delete-path"]


@pytest.mark.parametrize("name", ["url", "pageUrl", "uri"])
def test_an_address_is_fetched(name: str) -> None:
    found = read(tool("fetch_page", "Fetches a page", **{name: TEXT}))
    assert (found.kind, found.arguments[name]) == ("fetches", ["fetch-url"])


# --- hostile servers -----------------------------------------------------------------------------


def nested(depth: int) -> Json:
    schema: Json = {"type": "string"}
    for _ in range(depth):
        schema = {"anyOf": [schema]}
    return schema


@pytest.mark.parametrize(
    "definition",
    [
        {"name": " x", "inputSchema": {}},
        {"name": "", "inputSchema": {}},
        {"name": "\x1b[2J", "inputSchema": {}},
        {"name": 3, "inputSchema": {}},
        {"inputSchema": {}},
        {"name": "x" * 500, "inputSchema": {}},
        {"name": "big", "inputSchema": {"properties": {"a": {"description": "x" * 100_000}}}},
        {"name": "deep", "inputSchema": {"properties": {"path": nested(300)}}},
        {"name": "half", "inputSchema": {"properties": {"\ud800": {}}}},
    ],
)
def test_a_tool_that_cannot_be_written_down_is_left_out(definition: dict[str, Json]) -> None:
    found = annotate("x", [definition, tool("read_doc", "Reads a document.", path=TEXT)])
    assert [one.name for one in found.tools] == ["read_doc"]
    assert found.left_out == 1


def test_a_schema_that_hides_a_type_in_depth_is_not_understood() -> None:
    assert read(tool("read_doc", "Reads a document.", path=nested(60))).kind == "unknown"


def test_a_server_with_countless_tools_is_read_so_far() -> None:
    tools = [tool(f"read_{n}", "Reads a document.", path=TEXT) for n in range(1000)]
    found = annotate("x", tools)
    assert (len(found.tools), found.left_out) == (500, 500)


@pytest.mark.parametrize(
    ("server", "tool_name", "kind"),
    table("config/annotating/annotate.the_tools_of_known_servers", list[tuple[str, str, str]]),
)
def test_the_tools_of_known_servers_are_what_the_shipped_policy_takes_them_for(
    server: str, tool_name: str, kind: str
) -> None:
    found = {one.name: one.kind for one in annotate("x", shipped(server)).tools}
    assert found[tool_name] == kind
