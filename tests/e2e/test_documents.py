"""What the documents show works as it stands there."""

import os
import re
import subprocess
import sys
from pathlib import Path

import orjson
import pytest

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
