"""`annotate`: a server is started, its tools are proposed, changed and written."""

import io
import sys
from pathlib import Path

import orjson
import pytest
from starlette.responses import JSONResponse, Response

from ironcurtain_proxy.cli import main
from ironcurtain_proxy.cli.annotate import OPENS, reviewed, shown_tool
from ironcurtain_proxy.cli.init_dialogue import Dialogue
from ironcurtain_proxy.config.annotating.described import DescribedServer, described, with_server
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.model.values import Json
from tests.downstream.remote.site import Heard, Site, serving
from tests.tables import table

SCRIPTED = Path(__file__).parents[1] / "e2e" / "servers" / "scripted.py"
TOOLS: list[Json] = table("cli/annotate.tools", list[Json])


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    for name in ("IRONCURTAIN_CONFIG", "MCP_SERVERS_CONFIG", "GENERATED_DIR"):
        monkeypatch.delenv(name, raising=False)
    tools = tmp_path / "tools.json"
    tools.write_bytes(orjson.dumps({"tools": TOOLS}))
    entry = {
        "command": sys.executable,
        "args": [str(SCRIPTED)],
        "env": {"SCRIPTED_TOOLS": str(tools)},
    }
    (tmp_path / "mcp.json").write_bytes(orjson.dumps({"mcpServers": {"notes": entry}}))
    return home


def annotations(home: Path) -> Path:
    return home / ".ironcurtain" / "generated" / "tool-annotations.json"


def test_a_real_server_is_annotated_without_a_question(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(home.parent / "mcp.json")
    annotations(home).parent.mkdir(parents=True)
    other: Json = {"servers": {"other": {"tools": []}}}
    annotations(home).write_bytes(orjson.dumps(other))
    assert main(["annotate", "notes", "--server-file", file, "--yes"]) == 0
    out = capsys.readouterr().out
    assert "\u001b" not in out
    assert "read_notes  reads" in out
    assert "x                            unclear ?" in out
    assert "name" not in out.splitlines()[1]
    assert "bad" not in out
    written = orjson.loads(annotations(home).read_bytes())["servers"]
    assert written["other"] == {"tools": []}
    assert len(written["notes"]["inputHash"]) == 64
    read, frob = written["notes"]["tools"]
    assert (read["args"], read["effect"]) == ({"path": ["read-path"]}, "reads")
    assert (frob["args"], "effect" in frob) == ({"x": ["unclear"]}, False)
    assert frob["comment"] == "Not certain: x"
    assert [found.name for found in annotations(home).parent.iterdir() if ".bak-" in found.name]
    assert main(["annotate", "notes", "--server-file", file, "--json", "--dry-run"]) == 0
    answer = orjson.loads(capsys.readouterr().out)
    assert answer["tools"][1]["uncertain"] == ["x"]
    assert "written" not in answer


def test_an_unknown_server_is_named_with_those_that_there_are(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(home.parent / "mcp.json")
    assert main(["annotate", "note", "--server-file", file, "--yes"]) == 2
    assert '(did you mean "notes"?)' in capsys.readouterr().err


def test_without_a_terminal_nobody_is_asked(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["annotate", "notes", "--server-file", str(home.parent / "mcp.json")]) == 2
    assert "annotate asks questions, which needs a terminal" in capsys.readouterr().err
    assert not annotations(home).exists()


def server() -> DescribedServer:
    tools = [tool for tool in TOOLS if isinstance(tool, dict)]
    return described("notes", "notes", tools)


def answered(monkeypatch: pytest.MonkeyPatch, *lines: str) -> DescribedServer:
    monkeypatch.setattr("sys.stdin", io.StringIO("".join(f"{line}\n" for line in lines)))
    return reviewed(server(), Dialogue(yes=False, as_json=False))


def test_enter_accepts_and_a_key_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert answered(monkeypatch, "", "") == server()
    assert answered(monkeypatch, "a") == server()
    sql = "abcdefghijklmnopqrstuvwxyz"[list(OPENS).index("sql")]
    changed = answered(monkeypatch, "", "c", "a", sql, "e", "c", "")
    proposal = changed.tools[1].proposal
    assert proposal.arguments["x"].roles == ("sql",)
    assert proposal.effect == "destroys"
    assert changed.tools[0] == server().tools[0]


def test_input_that_ends_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigurationError, match="input ended"):
        answered(monkeypatch, "", "c")


def test_a_file_that_cannot_be_read_is_left_as_it_is(tmp_path: Path) -> None:
    for content in (b"{", b'{"servers": []}', b"[]"):
        path = tmp_path / "tool-annotations.json"
        path.write_bytes(content)
        with pytest.raises(ConfigurationError):
            with_server(path, server())
        assert path.read_bytes() == content


def test_nothing_that_a_server_says_reaches_the_terminal_unseen() -> None:
    evil = "\u001b]0;x\u0007 path\u202e\n  sql   unclear"
    raw: dict[str, Json] = {
        "name": "get_it",
        "description": evil,
        "annotations": {evil: evil},
        "inputSchema": {"properties": {evil: {"type": "string", "description": evil}}},
    }
    (tool,) = described("s", "s", [raw]).tools
    lines = list(shown_tool(tool))
    assert all(line.isprintable() for line in lines)


def test_ten_thousand_tools_are_cut_and_counted() -> None:
    many: list[dict[str, Json]] = [{"name": f"get_{n}", "inputSchema": {}} for n in range(10_000)]
    found = described("s", "s", many)
    assert len(found.tools) == 2000
    assert found.left_out == 8000


def test_no_argument_of_a_server_over_http_names_a_path_of_this_machine(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def lists_a_path(heard: Heard) -> Response | None:
        if heard.said != "tools/list":
            return None
        result: Json = {"tools": [TOOLS[0]]}
        return JSONResponse({"jsonrpc": "2.0", "id": heard.body["id"], "result": result})

    with serving(Site(handler=lists_a_path)) as site:
        entry: Json = {"url": site.url, "addresses": ["127.0.0.1"]}
        file = home.parent / "far.json"
        file.write_bytes(orjson.dumps({"mcpServers": {"far": entry}}))
        assert main(["annotate", "far", "--server-file", str(file), "--yes", "--json"]) == 0
    (tool,) = orjson.loads(capsys.readouterr().out)["tools"]
    assert tool["name"] == "read_notes"
    assert tool["arguments"]["path"] == ["unclear"]
