"""The command line as a whole."""

import subprocess
import sys

import pytest

from ironcurtain_proxy.cli import COMMANDS
from tests.cli.test_decide import run


def test_help_names_every_command_with_an_example() -> None:
    result = run("--help")
    assert result.returncode == 0
    for name in COMMANDS:
        assert name in result.stdout
    assert "examples:" in result.stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_an_example(name: str) -> None:
    result = run(name, "--help")
    assert result.returncode == 0
    assert "example" in result.stdout
    assert result.stderr == ""


def test_an_unknown_command_is_refused_with_the_known_ones() -> None:
    result = run("sevre")
    assert result.returncode == 2
    assert "serve" in result.stderr
    assert "Traceback" not in result.stderr


def test_the_version_is_printed() -> None:
    assert run("--version").stdout.startswith("ironcurtain-proxy ")


@pytest.mark.parametrize("command", ["decide", "check", "audit", "serve"])
def test_commands_import_nothing_heavy_before_they_run(command: str) -> None:
    code = (
        f"import sys, ironcurtain_proxy.cli.{command}; "
        "sys.exit(bool({'mcp', 'pydantic', 'litellm', 'textual', 'sqlalchemy'} & {*sys.modules}))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=50).returncode == 0
