"""What the documents show works as it stands there."""

import itertools
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import orjson
import pytest

from ironcurtain_proxy.audit.display import COLOURS, CallTable, columns
from ironcurtain_proxy.cli.reviewing import TOKEN_FILE
from ironcurtain_proxy.config.auto_confirm import PROVIDER_VARIABLE
from ironcurtain_proxy.config.clients.entries import CLIENTS, KnownClient
from ironcurtain_proxy.config.clients.finding import find
from ironcurtain_proxy.config.reading import layers
from ironcurtain_proxy.model.annotation import ROLE_TRAITS
from tests import program
from tests.e2e.installation import ROOT
from tests.e2e.real_servers import npm_server
from tests.program import PROXY

CLIENTS_PAGE = ROOT / "docs/clients.md"
CONFIGURATION = ROOT / "docs/configuration.md"
POLICY = ROOT / "docs/policy.md"


def json_blocks(file: Path) -> list[bytes]:
    return [
        block.encode() for block in re.findall(r"```json\n(.*?)```", file.read_text(), re.DOTALL)
    ]


def test_the_policy_of_the_documents_is_a_policy(tmp_path: Path) -> None:
    policy, annotations = json_blocks(POLICY)
    (tmp_path / "compiled-policy.json").write_bytes(policy)
    (tmp_path / "tool-annotations.json").write_bytes(annotations)
    checked = program.run([*PROXY, "check", "--dir", str(tmp_path)], os.environ)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_the_configuration_by_hand_is_one() -> None:
    by_hand = CLIENTS_PAGE.read_text().partition("### By hand")[2]
    servers, config = map(orjson.loads, re.findall(r"```json\n(.*?)```", by_hand, re.DOTALL)[:2])
    assert set(config) == {"allowedDirectory"}
    assert set(servers["mcpServers"]) == {"filesystem", "git", "time"}


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.id)
def test_what_a_client_is_given_by_hand_starts_the_proxy(
    client: KnownClient, tmp_path: Path
) -> None:
    text = CLIENTS_PAGE.read_text()
    blocks = re.findall(rf"```{client.format}\n(.*?)```", text, re.DOTALL)
    given = [
        block
        for block in blocks
        if re.search(rf'[".]?{client.key}[":.]', block) and "ironcurtain-proxy" in block
    ]
    file = tmp_path / f"any.{client.format}"
    assert given
    for block in given:
        file.write_text(block)
        (found,) = find(tmp_path, tmp_path, {}, [file]).files
        assert [one.name for one in found.tables[0].ours] == ["ironcurtain"]


def test_every_file_of_a_client_is_documented() -> None:
    text = CLIENTS_PAGE.read_text()
    linux = [f"~/{file}" for client in CLIENTS for file in client.user_files if file[0] == "."]
    project = [file for client in CLIENTS for file in client.project_files]
    variants = ("~/.config/Code - Insiders", "~/.config/VSCodium")
    files = [file for file in (*linux, *project) if not file.startswith(variants)]
    assert [file for file in files if f"`{file}`" not in text] == []


def test_every_variable_is_documented() -> None:
    documented = set(re.findall(r"\bvariable\s+`([A-Z_]+)`", CONFIGURATION.read_text()))
    known = {
        *layers._VARIABLES,
        *layers.SECRET_VARIABLES,
        layers.CONFIG_VARIABLE,
        layers.SESSION_VARIABLE,
        PROVIDER_VARIABLE,
        TOKEN_FILE,
    }
    assert documented == known


def test_every_role_is_documented() -> None:
    text = POLICY.read_text()
    assert [role for role in ROLE_TRAITS if f"`{role}`" not in text] == []


def shown_block(page: str, first: str) -> list[str]:
    """Return the lines of the indented block that begins so, without the indentation."""
    lines = (ROOT / page).read_text().splitlines()
    begin = next(at for at, line in enumerate(lines) if line.startswith(f"    {first}"))
    block = itertools.takewhile(lambda line: not line or line.startswith("    "), lines[begin:])
    return [line[4:] for line in block]


def is_as_shown(printed: str, shown: str) -> bool:
    """Compare a line with that of a page, which may cut it off with an ellipsis."""
    begin, cut, _ = shown.partition("…")
    return printed.startswith(begin) if cut else printed == shown


def test_the_first_hour_shows_what_init_prints_before_it_asks(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / "project/.git").mkdir(parents=True)
    (home / ".cursor").mkdir()
    npx = ["-y", "@modelcontextprotocol/server-filesystem", "/home/me/project"]
    servers = {
        "filesystem": {"command": "npx", "args": npx},
        "git": {"command": "uvx", "args": ["mcp-server-git"]},
        "tracker": {"url": "https://mcp.tracker.example/mcp"},
    }
    (home / ".cursor/mcp.json").write_bytes(orjson.dumps({"mcpServers": servers}))
    environ = {"PATH": os.environ["PATH"], "HOME": str(home)}
    ran = program.run([*PROXY, "init", "--dry-run"], environ, home / "project")
    assert ran.returncode == 0, ran.stderr
    promised = shown_block("docs/first-hour.md", "cursor: hooks in")
    promised = promised[: promised.index("") + promised[promised.index("") + 1 :].index("") + 1]
    printed = ran.stdout.splitlines()[: len(promised)]
    assert [pair for pair in zip(printed, promised, strict=True) if not is_as_shown(*pair)] == []


def test_grants_try_prints_what_its_page_shows(tmp_path: Path) -> None:
    (tmp_path / "home/app/.git").mkdir(parents=True)
    (tmp_path / "home/.ironcurtain").mkdir()
    config = {"allowedDirectory": str(tmp_path / "home/app")}
    (tmp_path / "home/.ironcurtain/config.json").write_bytes(orjson.dumps(config))
    command, *shown = shown_block("docs/grants.md", "$ ironcurtain-proxy grants try")
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path / "home")}
    words = shlex.split(command)[2:]
    ran = program.run([*PROXY, *words], environ, tmp_path / "home/app")
    assert ran.stdout.splitlines() == [line for line in shown if line]


def test_the_table_of_the_front_page_is_that_of_audit_tail() -> None:
    header, *rows = [line for line in shown_block("README.md", "NO ") if line]
    widest = max(map(columns, rows))
    table = CallTable(width=widest, when=lambda time: time)
    assert table.header() == header
    begin = header.index("DECISION")
    assert {row[begin:].split()[0] for row in rows} <= COLOURS.keys()


def test_the_quick_start_shows_what_it_promises(tmp_path: Path) -> None:
    npm_server("filesystem")
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh/id_ed25519").write_text("the user's own")
    shown = subprocess.run(
        [sys.executable, str(ROOT / "scripts/quickstart.py")],
        stdin=subprocess.DEVNULL,
        env={"PATH": os.environ["PATH"], "HOME": str(home), "TMPDIR": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert shown.returncode == 0, shown.stdout + shown.stderr
    assert re.findall(r"the outcome +(\w+)", shown.stdout) == [
        *("ALLOWED", "DENIED", "REFUSED"),
        *("ALLOWED", "ALLOWED"),
    ]
    assert "no terminal" in shown.stdout
    assert "structural-protected-path" in shown.stdout
    assert "\x1b" not in shown.stdout
    assert shown.stdout.splitlines()[-1].endswith("ironcurtain-proxy init")
    assert [entry.name for entry in tmp_path.iterdir()] == ["home"], "it left something behind"
