"""`explain` also says what asks besides the policy, and what would spare the question."""

import os
from pathlib import Path

import orjson
import pytest

from ironcurtain_proxy.model.values import Json
from tests import program
from tests.program import PROXY

FS: Json = {"command": "true", "annotations": "filesystem", "sandbox": False}


def explain(
    tmp_path: Path, overlay: dict[str, Json], *arguments: str, others: tuple[str, ...] = ()
) -> str:
    workspace = tmp_path / "workspace"
    workspace.mkdir(exist_ok=True)
    config = tmp_path / "config.json"
    config.write_bytes(
        orjson.dumps(
            {
                "mcpServers": dict.fromkeys(("fs", *others), FS),
                "allowedDirectory": str(workspace),
                **overlay,
            }
        )
    )
    call = orjson.dumps({"path": str(workspace / "a"), "content": "x"}).decode()
    command = ["explain", "fs/write_file", "--config", str(config), "--args", call, *arguments]
    shown = program.run([*PROXY, *command], {"PATH": os.defpath, "HOME": str(tmp_path)})
    assert shown.returncode == 0, shown.stderr
    return shown.stdout


@pytest.mark.requirement("D-42")
def test_each_origin_is_named_with_the_least_that_would_spare_the_question(tmp_path: Path) -> None:
    shown = explain(
        tmp_path,
        {
            "capabilities": {"profile": "supervised"},
            "security": {"interceptor": {"approvalPolicy": "all"}},
        },
    )
    assert "asks: The profile supervised asks before: create or change files (fs.write)" in shown
    assert '"fs.write": "allow" in the rules of a profile of your own' in shown
    assert "asks: The approval policy all asks before every tool" in shown
    assert '"exemptTools": ["fs/write_file"]' in shown


def test_what_nothing_else_asks_about_is_said_too(tmp_path: Path) -> None:
    shown = explain(tmp_path, {"security": {"interceptor": {"approvalPolicy": "none"}}})
    assert "nothing else asks" in shown


def test_programs_are_told_the_same(tmp_path: Path) -> None:
    overlay = orjson.loads(
        explain(tmp_path, {"capabilities": {"profile": "supervised"}}, "--json")
    )["overlay"]
    assert overlay["decision"] == "escalate"
    assert overlay["capabilities"] == ["fs.write"]
    (origin,) = overlay["origins"]
    assert origin["origin"] == "capability"
    assert origin["capabilities"] == ["create or change files (fs.write)"]


def test_what_a_profile_denies_is_denied(tmp_path: Path) -> None:
    own: Json = {"careful": {"rules": {"fs.write": "deny"}}}
    shown = explain(tmp_path, {"capabilities": {"profile": "careful", "profiles": own}})
    assert "DENIED by capability:fs.write" in shown


ALL: dict[str, Json] = {"approvalPolicy": "all", "exemptTools": ["write_file"]}
UNIQUE = 'once every server has listed its tools, and no other has "write_file"'


@pytest.mark.requirement("D-42")
def test_a_bare_name_spares_the_question_where_there_is_one_server(tmp_path: Path) -> None:
    shown = explain(tmp_path, {"security": {"interceptor": ALL}})
    assert "nothing else asks" in shown
    assert UNIQUE not in shown


@pytest.mark.requirement("D-42")
def test_where_there_are_several_servers_a_bare_name_spares_the_question_under_a_condition(
    tmp_path: Path,
) -> None:
    overlay: dict[str, Json] = {"security": {"interceptor": ALL}}
    shown = explain(tmp_path, overlay, others=("docs",))
    certain, found, under_condition = shown.partition(UNIQUE)
    assert "asks: The approval policy all asks before every tool" in certain
    assert found
    assert "nothing else asks" in under_condition
    assert 'write "fs/write_file" where you wrote "write_file"' in under_condition
    fields = orjson.loads(explain(tmp_path, overlay, "--json", others=("docs",)))["overlay"]
    assert fields["decision"] == "escalate"
    assert fields["ifNameIsUnique"]["origins"] == []


@pytest.mark.requirement("D-42")
def test_a_bare_name_that_restricts_holds_at_once(tmp_path: Path) -> None:
    sensitive: Json = {"approvalPolicy": "configured", "sensitiveTools": ["write_file"]}
    overlay: dict[str, Json] = {"security": {"interceptor": sensitive}}
    shown = explain(tmp_path, overlay, others=("docs",))
    assert "asks: The tool fs/write_file is listed as sensitive" in shown
    assert UNIQUE not in shown


@pytest.mark.requirement("D-42")
def test_a_full_name_needs_no_condition(tmp_path: Path) -> None:
    named: Json = {"approvalPolicy": "all", "exemptTools": ["fs/write_file"]}
    overlay: dict[str, Json] = {"security": {"interceptor": named}}
    shown = explain(tmp_path, overlay, others=("docs",))
    assert "nothing else asks" in shown
    assert UNIQUE not in shown
