"""`init` writes a configuration by a preset, and what it writes decides as the preset says."""

import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import anyio
import orjson
import pytest

from ironcurtain_proxy.config.policy.policy_loading import load_policy
from ironcurtain_proxy.config.presets import PRESETS, preset
from ironcurtain_proxy.config.settings import Settings
from ironcurtain_proxy.model.decision import effect_of
from ironcurtain_proxy.model.values import Json
from ironcurtain_proxy.wiring.rehearsal import rehearsal_for
from tests import program
from tests.program import PROXY
from tests.tables import table

SERVER = r"""
import json, sys
text = {"type": "string"}
def tool(name, description, **properties):
    return {"name": name, "description": description,
            "inputSchema": {"type": "object", "properties": properties}}
TOOLS = {
    "shell": [tool("run_command", "Run a command in a shell.", command=text, cwd=text)],
    "files": [tool("read_doc", "Reads a document.", path=text),
              tool("write_doc", "Writes a document.", path=text, content=text),
              tool("delete_doc", "Deletes a document.", path=text),
              tool("deploy", "Deploys the project.", target=text)],
    "fetch": [tool("fetch", "Fetches a URL.", url={"type": "string", "format": "uri"})],
}[sys.argv[1]]
for line in sys.stdin:
    m = json.loads(line)
    if "id" not in m:
        continue
    result = {}
    if m["method"] == "initialize":
        result = {"protocolVersion": m["params"]["protocolVersion"], "capabilities": {"tools": {}},
                  "serverInfo": {"name": "x", "version": "1"}}
    elif m["method"] == "tools/list":
        result = {"tools": TOOLS}
    print(json.dumps({"jsonrpc": "2.0", "id": m["id"], "result": result}), flush=True)
"""


class Place:
    """A home, a workspace, and a client's file with three servers that nobody has heard of."""

    def __init__(self, root: Path) -> None:
        self.home, self.workspace = root / "home", root / "home" / "project"
        self.workspace.mkdir(parents=True)
        server = root / "server.py"
        server.write_text(SERVER)
        self.client = root / "client.json"
        self.servers = {
            name: {"command": sys.executable, "args": [str(server), name]}
            for name in ("shell", "files", "fetch")
        }
        self.say(self.servers)

    def say(self, servers: object) -> None:
        self.client.write_bytes(orjson.dumps({"mcpServers": servers}))

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        environ = {**os.environ, "HOME": str(self.home)}
        return program.run([*PROXY, *arguments], environ, self.workspace)

    def init(self, name: str, *more: str) -> subprocess.CompletedProcess[str]:
        return self.run(
            *("init", "--preset", name, "--home", str(self.home)),
            *("--workspace", str(self.workspace), "--servers", str(self.client), *more),
        )

    def decisions(self, calls: dict[str, tuple[str, dict[str, str]]]) -> dict[str, str]:
        """What `serve` would answer to these calls."""
        settings = Settings.from_environment({"HOME": str(self.home), "PATH": os.environ["PATH"]})
        rehearsal = rehearsal_for(settings, load_policy(settings), os.environ, None)
        names = {"w": str(self.workspace), "h": str(self.home)}
        decided: dict[str, str] = {}
        for what, (name, given) in calls.items():
            server, _, tool = name.partition("/")
            arguments: dict[str, Json] = {k: text.format(**names) for k, text in given.items()}
            judged = partial(rehearsal.of_call, server, tool, arguments, is_unique=True)
            outcome = anyio.run(judged)
            decided[what] = effect_of(outcome.decision)
        return decided

    def files(self) -> dict[str, bytes]:
        state = self.home / ".ironcurtain"
        return {
            str(file.relative_to(state)): file.read_bytes()
            for file in state.rglob("*.json")
            if file.name != "sandbox.json"
        }


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


CALLS: dict[str, tuple[str, dict[str, str]]] = table(
    "config/presets/presets.calls", dict[str, tuple[str, dict[str, str]]]
)
FREE = {
    "coding": {"read inside", "read plan", "write inside", "delete inside", "reading command"},
    "supervised": {"read inside", "reading command"},
    "read-only": {"read inside", "reading command"},
}
NEVER = {"read key", "write hook"}


def expected(name: str) -> dict[str, str]:
    other = "deny" if name == "read-only" else "escalate"
    return {
        what: "allow" if what in FREE[name] else "deny" if what in NEVER else other
        for what in CALLS
    }


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_decides_as_its_table_says(place: Place, name: str) -> None:
    done = place.init(name, "--yes")
    assert done.returncode == 0, done.stdout + done.stderr
    assert place.decisions(CALLS) == expected(name)


def test_our_own_shell_that_is_written_by_hand_is_asked_about_like_one_of_init(
    place: Place,
) -> None:
    assert place.init("coding", "--yes").returncode == 0
    file = place.home / ".ironcurtain/mcp-servers.json"
    servers = orjson.loads(file.read_bytes())
    file.write_bytes(orjson.dumps({**servers, "own": {"builtin": "shell"}}))
    calls = {"make": ("own/run_command", {"command": "make"})}
    assert place.decisions(calls) == {"make": "escalate"}


@pytest.mark.parametrize("name", PRESETS)
def test_check_has_nothing_to_say_of_what_init_wrote(place: Place, name: str) -> None:
    assert place.init(name, "--yes").returncode == 0
    checked = place.run("check", "--live", "--json")
    document = orjson.loads(checked.stdout)
    assert checked.returncode == 0
    # The stand-in has the tool of mcp-server-fetch, and not its prompt.
    expected = {"sandbox", 'fetch prompt "fetch"'}
    assert [one for one in document["problems"] if one["source"] not in expected] == []
    assert document["servers"] == {"shell": "shell-server", "files": "files", "fetch": "fetch"}


def test_a_second_run_changes_nothing(place: Place) -> None:
    place.init("coding", "--yes")
    before = place.files()
    again = place.init("coding", "--yes")
    assert again.returncode == 0
    assert "everything is there already" in again.stdout
    assert place.files() == before


def test_what_says_something_else_is_left_alone_and_replaced_by_consent(place: Place) -> None:
    place.init("coding", "--yes")
    config = place.home / ".ironcurtain" / "config.json"
    config.write_bytes(b'{"sandboxPolicy": "warn"}')
    before = place.files()
    refused = place.init("supervised", "--yes")
    assert refused.returncode == 1
    assert place.files() == before
    forced = place.init("supervised", "--yes", "--force")
    assert forced.returncode == 0
    kept = list(config.parent.glob("config.json.bak-*"))
    assert [file.read_bytes() for file in kept] == [b'{"sandboxPolicy": "warn"}']
    assert orjson.loads(config.read_bytes())["_preset"] == "supervised"


def test_a_second_workspace_uses_the_same_files(place: Place) -> None:
    place.init("coding", "--yes")
    before = place.files()
    place.workspace = place.home / "other"
    place.workspace.mkdir()
    done = place.init("coding", "--yes")
    assert done.returncode == 0, done.stdout
    assert "ALLOWED_DIRECTORY" in done.stdout
    assert place.files() == before


def test_without_yes_nothing_is_started_or_written(place: Place) -> None:
    mark = place.home / "started"
    place.say({"x": {"command": "touch", "args": [str(mark)]}})
    done = place.init("coding")
    assert done.returncode == 1
    assert "would start x" in done.stdout
    assert not mark.exists()
    assert not (place.home / ".ironcurtain").exists()


def test_a_server_that_does_not_answer_is_said_and_the_others_are_set_up(place: Place) -> None:
    place.say({**place.servers, "hangs": {"command": "sleep", "args": ["60"]},
               "gone": {"command": "no-such-program"}})  # fmt: skip
    done = place.init("coding", "--yes", "--seconds", "5")
    assert done.returncode == 1
    assert "hangs: did not answer" in done.stdout
    assert "gone: did not answer" in done.stdout
    assert set(place.decisions({"a": CALLS["read inside"]}).values()) == {"allow"}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"{", "is not JSON"),
        (b"[1]", "must hold servers by name"),
        (b'{"mcpServers": {}}', "names no server"),
        (b'{"mcpServers": {"a": {"url": "gopher://x"}}}', "must begin with https"),
        (b'{"mcpServers": {"a": {"command": 3}}}', "must be text"),
        (b'[{"name": ["a"], "command": "x"}]', "must hold servers by name"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_in_a_line(
    place: Place, content: bytes, said: str
) -> None:
    place.client.write_bytes(content)
    done = place.init("coding", "--yes")
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert not (place.home / ".ironcurtain" / "config.json").exists()


def test_a_list_of_servers_is_read_too(place: Place) -> None:
    listed = [{"name": name, **entry} for name, entry in place.servers.items()]
    place.client.write_bytes(orjson.dumps(listed))
    assert place.init("coding", "--yes").returncode == 0


def test_the_proxy_itself_is_not_put_behind_the_proxy(place: Place) -> None:
    own = {"command": "/usr/local/bin/ironcurtain-proxy"}
    place.say({**place.servers, "guard": own})
    done = place.init("coding", "--yes")
    assert done.returncode == 0
    assert '"guard" is left out: it is this proxy' in done.stdout
    servers = orjson.loads(place.files()["mcp-servers.json"])
    assert set(servers) == {"shell", "files", "fetch"}


def test_a_shell_server_runs_in_the_workspace_and_imports_nothing_from_there(place: Place) -> None:
    place.init("coding", "--yes")
    servers = orjson.loads(place.files()["mcp-servers.json"])
    assert servers["shell"]["cwd"] == "@workspace"
    # A variable would hold for the commands, too: `python -m unittest` would find no tests.
    assert "env" not in servers["shell"]
    assert "cwd" not in servers["files"]
    module = ["-u", "-m", "server", "shell"]
    where = {"PYTHONPATH": str(place.client.parent)}
    entry = {"command": sys.executable, "args": module, "env": where}
    place.say({**place.servers, "shell": entry})
    place.init("coding", "--yes", "--force")
    servers = orjson.loads(place.files()["mcp-servers.json"])
    assert servers["shell"]["args"] == ["-P", *module]


def test_a_tool_that_lacks_an_argument_of_the_known_one_leaves_a_policy_that_loads(
    place: Place,
) -> None:
    # The shipped annotation of edit_file asks for dryRun; this one has none.
    server = place.client.parent / "server.py"
    edit = 'tool("edit_file", "Edits a file.", path=text, edits={"type": "array", "items": {}})'
    read = 'tool("read_text_file", "Reads a file.", path=text)'
    server.write_text(SERVER.replace('"files": [', f'"files": [{edit}, {read}, '))
    files = {"command": sys.executable, "args": [str(server), "files"]}
    place.say({"filesystem": files})
    assert place.init("coding", "--yes").returncode == 0
    checked = place.run("check")
    assert checked.returncode == 0, checked.stdout


def test_what_is_written_is_the_users_alone(place: Place) -> None:
    place.init("coding", "--yes")
    state = place.home / ".ironcurtain"
    written = [state / name for name in place.files()]
    assert written
    assert all(file.stat().st_mode & 0o077 == 0 for file in (state, *written))


def test_the_coding_preset_contains_and_persists() -> None:
    config = preset("coding").config
    assert config["containment"] == {"undo": True}
    assert config["grants"] == {"persist": {"enabled": True, "scope": "project"}}
