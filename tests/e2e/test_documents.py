"""What the documents show works as it stands there."""

import os
import re
import subprocess
import sys
from pathlib import Path

import orjson

from ironcurtain_proxy.cli.reviewing import TOKEN_FILE
from ironcurtain_proxy.config.auto_confirm.work_context_settings import PROVIDER_VARIABLE
from ironcurtain_proxy.config.reading import environment
from ironcurtain_proxy.model.annotation import ROLE_TRAITS
from tests.e2e.installation import PROXY, ROOT
from tests.e2e.real_servers import npm_server

README = ROOT / "README.md"
CONFIGURATION = ROOT / "docs/configuration.md"


def json_blocks(file: Path) -> list[bytes]:
    return [
        block.encode() for block in re.findall(r"```json\n(.*?)```", file.read_text(), re.DOTALL)
    ]


def test_the_policy_of_the_documents_is_a_policy(tmp_path: Path) -> None:
    policy, annotations = json_blocks(CONFIGURATION)
    (tmp_path / "compiled-policy.json").write_bytes(policy)
    (tmp_path / "tool-annotations.json").write_bytes(annotations)
    checked = subprocess.run(
        [*PROXY, "check", "--dir", str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_the_client_configuration_of_the_readme_is_one() -> None:
    client, servers, config = map(orjson.loads, json_blocks(README))
    assert set(config) == {"allowedDirectory"}
    assert set(servers["mcpServers"]) == {"filesystem", "git", "time"}
    assert client["mcpServers"]["ironcurtain"]["command"] == "ironcurtain-proxy"


def test_every_variable_is_documented() -> None:
    documented = set(re.findall(r"\bvariable\s+`([A-Z_]+)`", CONFIGURATION.read_text()))
    known = {
        *environment._VARIABLES,
        *environment.SECRET_VARIABLES,
        environment.CONFIG_VARIABLE,
        environment.SESSION_VARIABLE,
        PROVIDER_VARIABLE,
        TOKEN_FILE,
    }
    assert documented == known


def test_every_role_is_documented() -> None:
    text = CONFIGURATION.read_text()
    assert [role for role in ROLE_TRAITS if f"`{role}`" not in text] == []


def test_the_quick_start_shows_what_it_promises(tmp_path: Path) -> None:
    npm_server("filesystem")
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh/id_ed25519").write_text("the user's own")
    shown = subprocess.run(
        [sys.executable, str(ROOT / "scripts/quickstart.py")],
        env={"PATH": os.environ["PATH"], "HOME": str(home), "TMPDIR": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert shown.returncode == 0, shown.stdout + shown.stderr
    assert re.findall(r"the outcome +(\w+)", shown.stdout) == ["ALLOWED", "DENIED", "REFUSED"]
    assert "structural-protected-path" in shown.stdout
    assert "\x1b" not in shown.stdout
    assert "mcpServers" in shown.stdout.splitlines()[-1]
    assert [entry.name for entry in tmp_path.iterdir()] == ["home"], "it left something behind"
