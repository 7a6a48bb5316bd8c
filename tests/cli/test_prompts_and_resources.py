"""`annotate` and `check --live` on prompts and resources of a running server."""

import io
import sys
from pathlib import Path

import orjson
import pytest
from msgspec.structs import replace

from ironcurtain_proxy.cli import main
from ironcurtain_proxy.cli.annotate import reviewed
from ironcurtain_proxy.cli.init_dialogue import Dialogue
from ironcurtain_proxy.config.annotating.described import described, described_prompts, with_server
from ironcurtain_proxy.model.values import Json
from tests.e2e.servers import whole

PROMPT: dict[str, Json] = {
    "name": "greet",
    "arguments": [{"name": "name"}, {"name": "url", "description": "a page"}, "no object"],
}
SAID: Json = {
    "prompts": [PROMPT, {"name": " padded"}],
    "resources": [{"uri": "demo://a", "name": "a"}, {"uri": "memo://b", "name": "b"}],
    "resourceTemplates": [{"uriTemplate": "demo://{x}", "name": "x"}],
}
MEMO: Json = {"name": "memo", "if": {"uris": {"schemes": ["memo"]}}, "then": "allow", "reason": "r"}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("IRONCURTAIN_CONFIG", "MCP_SERVERS_CONFIG", "GENERATED_DIR"):
        monkeypatch.delenv(name, raising=False)
    entry: Json = {
        "command": sys.executable,
        "args": [str(Path(whole.__file__))],
        "sandbox": False,
        "env": {"WHOLE": orjson.dumps(SAID).decode()},
    }
    state = tmp_path / ".ironcurtain"
    (state / "generated").mkdir(parents=True)
    (state / "config.json").write_bytes(orjson.dumps({"mcpServers": {"whole": entry}}))
    (state / "generated" / "compiled-policy.json").write_bytes(orjson.dumps({"rules": [MEMO]}))
    return tmp_path


def written(home: Path) -> dict[str, Json]:
    file = home / ".ironcurtain" / "generated" / "tool-annotations.json"
    found: dict[str, Json] = orjson.loads(file.read_bytes())["servers"]["whole"]
    return found


def test_prompts_are_proposed_written_and_then_known(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["annotate", "whole", "--yes"]) == 0
    out = capsys.readouterr().out
    assert "prompt greet" in out
    assert "resources demo: 2 listed" in out
    assert "1 more tools or prompts cannot be written down" in out
    (prompt,) = [one for one in _prompts(home) if isinstance(one, dict)]
    assert prompt["args"] == {"name": ["identifier"], "url": ["fetch-url"]}
    main(["check", "--live"])
    checked = capsys.readouterr().out
    assert 'whole resources "demo:": no rule covers 2 of them' in checked
    assert "memo:" not in checked
    assert 'prompt "greet"' not in checked


def _prompts(home: Path) -> list[Json]:
    found = written(home)["prompts"]
    assert isinstance(found, list)
    return found


def test_prompts_that_differ_from_their_annotations_are_told(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prompts: Json = [
        {"promptName": "greet", "args": {"name": ["none"], "nam": ["none"]}},
        {"promptName": "gone", "args": {}},
    ]
    annotations: Json = {"servers": {"whole": {"tools": [], "prompts": prompts}}}
    file = home / ".ironcurtain" / "generated" / "tool-annotations.json"
    file.write_bytes(orjson.dumps(annotations))
    main(["check", "--live"])
    out = capsys.readouterr().out
    assert 'prompt "greet": argument "url" is not annotated' in out
    assert 'argument "nam" is annotated, but the prompt no longer has it' in out
    assert 'prompt "gone": is annotated, but the server does not offer it' in out


def test_prompts_that_could_not_be_listed_stay_as_they_were_written(tmp_path: Path) -> None:
    file = tmp_path / "tool-annotations.json"
    prompts: Json = [{"promptName": "greet", "args": {}}]
    file.write_bytes(orjson.dumps({"servers": {"s": {"tools": [], "prompts": prompts}}}))
    server = described("s", "s", [])
    servers = with_server(file, replace(server, prompts=None))["servers"]
    assert isinstance(servers, dict)
    entry = servers["s"]
    assert isinstance(entry, dict)
    assert entry["prompts"] == prompts


def test_a_person_changes_the_role_of_a_prompts_argument(monkeypatch: pytest.MonkeyPatch) -> None:
    prompts, left_out = described_prompts([PROMPT])
    monkeypatch.setattr("sys.stdin", io.StringIO("c\na\na\n\n"))
    server = replace(described("s", "s", []), prompts=prompts)
    (prompt,) = reviewed(server, Dialogue(yes=False, as_json=False)).prompts or ()
    assert (prompt.proposal.arguments["name"].roles, left_out) == (("none",), 0)
