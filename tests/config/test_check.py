"""`ironcurtain-proxy check`, as a process."""

from pathlib import Path

import orjson
import pytest

from tests import program
from tests.config.files import RULE, TOOL, annotations, policy, replaced, write
from tests.program import PROXY


def check(home: Path, *options: str, **variables: str) -> tuple[int, str, str]:
    environment = {"HOME": str(home), "PATH": "/usr/bin:/bin", **variables}
    done = program.run([*PROXY, "check", *options], environment)
    return done.returncode, done.stdout, done.stderr


def test_a_fresh_machine_lacks_servers_and_a_workspace(tmp_path: Path) -> None:
    code, out, err = check(tmp_path)
    assert (code, err) == (1, "")
    assert out.count("no server is configured") == 1
    assert "no workspace is set" in out
    assert "1 error, 1 warning\n" in out


def test_all_problems_are_shown_at_once_and_refuse_the_start(tmp_path: Path) -> None:
    """G1."""
    generated = tmp_path / ".ironcurtain/generated"
    rules = policy(
        replaced(RULE, ("then",), "Deny"), {"name": "x", "if": {"tools": []}, "then": "allow"}
    )
    write(generated / "compiled-policy.json", rules)
    write(generated / "tool-annotations.json", annotations(replaced(TOOL, ("args", "dryRun"), 1)))
    write(tmp_path / ".ironcurtain/config.json", {"sandboxPolice": "warn"})
    code, out, err = check(tmp_path, ALLOWED_DIRECTORY="/", AUDIT_REDACTION="si")
    assert (code, err) == (1, "")
    for text in (
        (
            'compiled-policy.json: $.rules[0].then: "Deny" is not one of allow, deny, escalate '
            '(did you mean "deny"?)'
        ),
        'compiled-policy.json: $.rules[1].if.tools: unknown key (did you mean "tool"?)',
        "tool-annotations.json: $.servers.filesystem.tools[0].args.dryRun: must be a list",
        'config.json: $.sandboxPolice: unknown key (did you mean "sandboxPolicy"?)',
        "ALLOWED_DIRECTORY: must not be the root of the file system",
        "AUDIT_REDACTION: must be true or false, not text",
    ):
        assert text in out
    assert "Traceback" not in out


def test_json_is_for_programs(tmp_path: Path) -> None:
    servers = '{"g": {"command": "uvx", "args": ["mcp-server-git"]}}'
    code, out, _ = check(tmp_path, "--json", MCP_SERVERS_CONFIG=servers, SANDBOX_POLICY="x")
    answer = orjson.loads(out)
    assert code == 1
    assert answer["ok"] is False
    assert answer["servers"] == {"g": "git"}
    assert answer["problems"] == [
        {
            "severity": "error",
            "source": "SANDBOX_POLICY",
            "jsonPath": "",
            "message": '"x" is not one of enforce, warn',
            "suggestion": None,
        }
    ]


def test_a_directory_is_checked_alone(tmp_path: Path) -> None:
    write(tmp_path / "d/compiled-policy.json", policy(RULE))
    write(tmp_path / "d/tool-annotations.json", annotations(TOOL))
    code, out, _ = check(tmp_path, "--dir", str(tmp_path / "d"), SANDBOX_POLICY="nonsense")
    assert code == 0
    assert '"read_file" is not an annotated tool' in out
    code, _, err = check(tmp_path, "--dir", "x", "--live")
    assert code == 2
    assert err == "ironcurtain-proxy: --dir is checked alone: leave out --config and --live\n"


@pytest.mark.parametrize("option", ["--help"])
def test_help_has_an_example(option: str, tmp_path: Path) -> None:
    code, out, _ = check(tmp_path, option)
    assert code == 0
    assert "examples:\n" in out
