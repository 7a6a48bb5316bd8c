"""Completion, help and version, as a shell asks for them."""

import shutil
import subprocess
import sys

import pytest

from ironcurtain_proxy.cli.arguments import COMMANDS, GROUPS
from tests.cli.test_decide import run
from tests.program import PATIENCE

TYPED = """
source /dev/stdin
COMP_WORDS=({words})
COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
_shtab_ironcurtain_proxy
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("ironcurtain-proxy rev", {"review", "reviewers"}),
        ("ironcurtain-proxy init --un", {"--undo"}),
        ("ironcurtain-proxy init --preset s", {"supervised"}),
        ("ironcurtain-proxy audit ver", {"verify"}),
    ],
)
def test_bash_completes_commands_options_and_choices(words: str, wanted: set[str]) -> None:
    script = run("completion", "bash").stdout
    done = subprocess.run(
        ["bash", "-c", TYPED.format(words=words)], input=script, capture_output=True, text=True,
        timeout=PATIENCE, check=True,
    )  # fmt: skip
    assert {word.strip() for word in done.stdout.splitlines()} == wanted


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_a_shell_can_read_its_completion(shell: str) -> None:
    script = run("completion", shell)
    assert script.returncode == 0
    for name in COMMANDS:
        assert name in script.stdout
    if program := shutil.which(shell):
        assert (
            subprocess.run([program, "-n"], input=script.stdout, text=True, check=False).returncode
            == 0
        )


def test_another_shell_is_refused() -> None:
    assert run("completion", "tcsh").returncode == 2


def test_help_groups_the_commands_as_people_look_for_them() -> None:
    assert list(GROUPS) == [
        *("set up", "answer", "take back", "look", "try out"),
        "engine and auto-approver",
    ]
    shown = run("--help", "--all").stdout
    places = [shown.index(f"\n{group}:\n") for group in GROUPS]
    assert places == sorted(places)


@pytest.mark.parametrize(
    ("word", "meant"), [("chek", "check"), ("reveiw", "review"), ("rolback", "rollback")]
)
def test_a_misspelled_command_gets_a_suggestion(word: str, meant: str) -> None:
    result = run(word)
    assert result.returncode == 2
    assert f'(did you mean "{meant}"?)' in result.stderr


def test_a_word_that_is_near_to_nothing_gets_none() -> None:
    result = run("xyzzy\x1b[31m")
    assert result.returncode == 2
    assert "did you mean" not in result.stderr
    assert "\x1b" not in result.stderr


@pytest.mark.parametrize("option", ["--version", "--help"])
def test_version_and_help_import_no_command_and_no_library(option: str) -> None:
    code = (
        "import sys; from ironcurtain_proxy.cli import main; "
        f"main([{option!r}]); "
        "sys.exit(bool({'orjson', 'anyio', 'rich', 'yaml', 'shtab'} & {*sys.modules} "
        "or [m for m in sys.modules if m.startswith('ironcurtain_proxy.c') "
        "and m not in ('ironcurtain_proxy.cli', 'ironcurtain_proxy.cli.arguments')]))"
    )
    assert (
        subprocess.run([sys.executable, "-c", code], check=False, timeout=PATIENCE).returncode == 0
    )
