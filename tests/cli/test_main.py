"""The command line as a whole."""

import subprocess
import sys
from pathlib import Path

import pytest

from ironcurtain_proxy.cli import COMMANDS
from tests.cli.test_decide import run
from tests.program import FRESH


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


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("words", [["--help"], ["audit", "--help"], ["shell", "ls"]])
def test_an_output_on_a_full_disk_ends_with_one_line_and_a_failure(
    tmp_path: Path, words: list[str], unbuffered: str
) -> None:
    environ = {"HOME": str(tmp_path), "PATH": "/usr/bin", "PYTHONUNBUFFERED": unbuffered}
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(
            [*FRESH, *words], stdout=full, stderr=subprocess.PIPE, env=environ, check=False
        )
    assert ended.returncode == 1
    assert ended.stderr == b"ironcurtain-proxy: cannot write: No space left on device\n"


def test_garbage_is_not_looked_for_in_imported_modules() -> None:
    """A single look through them took a tenth of the start."""
    code = "import gc; from ironcurtain_proxy.cli import main; main(['completion', 'bash']); "
    found = subprocess.run(
        [sys.executable, "-c", code + "print(gc.isenabled(), gc.get_freeze_count() > 10_000)"],
        capture_output=True,
        text=True,
        check=True,
        timeout=55,
    )
    assert found.stdout.endswith("\nTrue True\n")
