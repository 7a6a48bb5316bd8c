"""The six public servers behind one proxy: listed as they are, called, recorded."""

import re
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TypeAlias

import orjson
import pytest

from ironcurtain_proxy.model.values import Json
from tests.e2e.installation import ROOT, Installation, rule
from tests.e2e.raw_client import Message, RawClient, at, text, texts
from tests.e2e.real_servers import COMMANDS, add_real, unconfined
from tests.tables import table

Connected: TypeAlias = tuple[Installation, RawClient]


class Page(BaseHTTPRequestHandler):
    """One small page under every address."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.end_headers()
        self.wfile.write(f"you asked for {self.path}".encode())

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the library's name
        """Say nothing."""


@pytest.fixture(scope="module")
def website() -> Iterator[str]:
    """The address of a web server on this machine."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def six(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connected]:
    """All six, with the policy that is shipped, and one rule that opens this machine's website."""
    installation = Installation(tmp_path_factory.mktemp("six"))
    add_real(installation, *COMMANDS)
    shipped = orjson.loads((ROOT / "compiled-policy.json").read_bytes())["rules"]
    here: Json = {"roles": ["fetch-url"], "allowed": ["127.0.0.1"]}
    installation.rules += [rule("fetch-here", server=["fetch"], domains=here), *shipped]
    (installation.workspace / "note.txt").write_text("a note\n")
    repository = installation.workspace / "repo"
    subprocess.run(["git", "init", "--quiet", str(repository)], check=True)
    (repository / "file.txt").write_text("content\n")
    yield installation, installation.start()
    installation.end()


@pytest.mark.parametrize("server", COMMANDS)
def test_the_tools_of_a_real_server_are_listed_as_it_lists_them(
    server: str, six: Connected
) -> None:
    installation, agent = six
    environment = {"PATH": installation.environment()["PATH"], "HOME": str(installation.home)}
    errors = installation.root / f"direct-{server}.txt"
    command = unconfined(COMMANDS[server](installation))
    with RawClient(command, environment, errors, installation.workspace) as direct:
        # Only this one shows more tools to a client that has roots, as the proxy does.
        direct.initialize(capabilities={"roots": {}} if server == "everything" else {})
        expected: list[Json] = [
            {**one, "name": f"{server}__{one['name']}"} for one in direct.tools()
        ]
    prefix = f"{server}__"
    shown: list[Json] = [one for one in agent.tools() if str(one["name"]).startswith(prefix)]
    assert orjson.dumps(shown) == orjson.dumps(expected)


def test_all_six_are_there(six: Connected) -> None:
    _, agent = six
    counts: dict[str, int] = {}
    for name in agent.tool_names():
        server = str(name).partition("__")[0]
        counts[server] = counts.get(server, 0) + 1
    everything = counts.pop("everything")
    assert counts == {"filesystem": 14, "memory": 9, "git": 12, "fetch": 1, "time": 2}
    assert everything >= 13


@pytest.mark.requirement("C-33", "C-4")
@pytest.mark.parametrize(
    ("tool", "arguments", "expected"),
    table(
        "e2e/real_servers.a_real_server_answers_and_the_call",
        list[tuple[str, dict[str, Json], str]],
    ),
)
def test_a_real_server_answers_and_the_call_is_recorded(
    tool: str, arguments: dict[str, Json], expected: str, website: str, six: Connected
) -> None:
    installation, agent = six
    given = {
        name: value.format(website=website) if isinstance(value, str) else value
        for name, value in arguments.items()
    }
    result = agent.call(tool, given)
    assert not result.get("isError"), texts(result)
    assert expected in "\n".join(texts(result))
    intent, outcome = installation.records()[-2:]
    assert intent["phase"] == "intent"
    assert outcome["requestId"] == intent["requestId"]
    assert f"{outcome['serverName']}__{outcome['toolName']}" == tool
    assert at(outcome, "policyDecision", "status") == "allow"
    assert at(outcome, "result", "status") == "success"


@pytest.mark.parametrize(
    ("tool", "arguments", "status"),
    table(
        "e2e/real_servers.the_shipped_policy_keeps_a_real_server",
        list[tuple[str, dict[str, Json], str]],
    ),
)
def test_the_shipped_policy_keeps_a_real_server_to_its_own(
    tool: str, arguments: Message, status: str, six: Connected
) -> None:
    installation, agent = six
    before = len(installation.records())
    assert agent.call(tool, arguments)["isError"] is True
    (record,) = installation.records()[before:]
    assert at(record, "policyDecision", "status") == status
    assert at(record, "result", "status") == "denied"


def test_progress_of_a_real_server_arrives(six: Connected) -> None:
    _, agent = six
    given: Message = {"duration": 0.2, "steps": 2}
    name = "everything__trigger-long-running-operation"
    agent.call(name, given, _meta={"progressToken": "long"})
    assert len(agent.notifications("notifications/progress")) >= 2


def test_structured_content_of_a_real_server_arrives(six: Connected) -> None:
    _, agent = six
    result = agent.call("everything__get-structured-content", {"location": "New York"})
    structured = at(result, "structuredContent")
    assert isinstance(structured, dict)
    assert orjson.loads(text(result)) == structured


def test_what_a_real_server_refuses_is_its_own_error(six: Connected) -> None:
    installation, agent = six
    result = agent.call("filesystem__read_text_file", {"path": "absent.txt"})
    assert result["isError"] is True
    assert "ENOENT" in text(result)
    assert at(installation.outcomes()[-1], "result", "status") == "error"


def test_a_single_server_keeps_its_bare_names(installation: Installation) -> None:
    add_real(installation, "time")
    agent = installation.start()
    agent.until_listed("convert_time")
    assert agent.tool_names() == ["get_current_time", "convert_time"]
    assert re.search(r"\d\d:\d\d", text(agent.call("get_current_time", {"timezone": "UTC"})))


def test_a_server_under_another_name_keeps_the_policy_of_its_kind(
    installation: Installation,
) -> None:
    installation.add_server("files", COMMANDS["filesystem"](installation))
    (installation.workspace / "note.txt").write_text("a note\n")
    agent = installation.start()
    assert text(agent.call("read_text_file", {"path": "note.txt"})) == "a note\n"
    assert agent.call("read_text_file", {"path": "/etc/hosts"})["isError"] is True
    assert installation.last_decision()[0] == "escalate"


def test_the_record_of_six_servers_can_be_verified(six: Connected, tmp_path: Path) -> None:
    installation, _ = six
    verified = installation.verify_audit()
    assert verified.returncode == 0, verified.stdout + verified.stderr
    lines = installation.audit.read_bytes().splitlines(keepends=True)
    installation.audit, real = tmp_path / "edited.jsonl", installation.audit
    try:
        installation.audit.write_bytes(b"".join(lines[:1] + lines[2:]))
        assert installation.verify_audit().returncode == 1
        installation.audit.write_bytes(b"".join(lines).replace(b"note.txt", b"nate.txt", 1))
        assert installation.verify_audit().returncode == 1
    finally:
        installation.audit = real
