"""Names of files that usually hold secrets, in shell commands."""

from typing import Final

import pytest
from msgspec.structs import replace

from ironcurtain_proxy.model.request import Word
from ironcurtain_proxy.shell.effects import effect_of
from ironcurtain_proxy.shell.operations import needs_of
from ironcurtain_proxy.shell.places import names_a_secret
from ironcurtain_proxy.shell.statements import parse_command
from tests.shell.places import PROJECT


@pytest.mark.parametrize("text", ["process.env", "import.meta.env", "secrets.token_hex"])
def test_a_name_of_a_program_is_no_file(text: str) -> None:
    assert not names_a_secret([Word(text)])


def _effect(command: str) -> str:
    return effect_of(parse_command(command), PROJECT).effect


@pytest.mark.parametrize(
    "operand", ["'.e*'", "':(glob).e*'", "':(top).env'", "':/.env'", "'*.env'", "'*.pem'"]
)
def test_a_pattern_of_git_for_a_secret_does_not_only_read(operand: str) -> None:
    assert _effect(f"git show HEAD -- {operand}") != "reads"


@pytest.mark.parametrize("operand", ["'*.py'", "':!*.lock'", "':(top)src'", "'docs/*.json'"])
def test_a_pattern_of_git_for_other_files_only_reads(operand: str) -> None:
    assert _effect(f"git diff -- {operand}") == "reads"


@pytest.mark.parametrize(
    "given", ["LANGUAGE=../../x", "LC_ALL=/home/u/project/x", "LANG=./x", "TZ=:/x", "TZ=/x"]
)
def test_a_locale_that_is_a_file_is_no_harmless_variable(given: str) -> None:
    assert _effect(f"{given} ls") != "reads"


@pytest.mark.parametrize("given", ["LC_ALL=C.UTF-8", "LANG=de_DE@euro", "TZ=Europe/Berlin"])
def test_a_locale_by_name_is_a_harmless_variable(given: str) -> None:
    assert _effect(f"{given} ls") == "reads"


_WITH_PASSWORD: Final = replace(PROJECT, shows_credentials=True)
"""A repository whose configuration has a remote with a password in its URL."""


@pytest.mark.parametrize(
    "command",
    ["cd .git; cat config", "cd .git && head -5 config", "rg url .git", "cat .git/config",
     "cd .git/worktrees/x && cat ../../config", "git remote -v"],
)  # fmt: skip
def test_a_command_that_shows_a_password_of_git_does_not_only_read(command: str) -> None:
    parsed = parse_command(command)
    found = effect_of(parsed, _WITH_PASSWORD)
    assert found.effect != "reads"
    assert "secrets.access" in needs_of(parsed, found)


def test_the_same_command_only_reads_where_the_configuration_has_no_password() -> None:
    assert _effect("cd .git; cat config") == "reads"


@pytest.mark.parametrize(
    ("command", "names"),
    [("echo .env >> .gitignore", False), ("echo '*.pem' > ./.dockerignore", False),
     ("grep -rn --exclude=.env TODO .", False), ("tar czf a.tgz --exclude=.env .", False),
     ("echo .env > list", True), ("echo .env | xargs cat", True),
     ("echo $(<.env) >> .gitignore", True), ("printf .env >> .gitignore", True),
     ("cat .env >> .gitignore", True), ("echo x >> .env", True),
     ("grep --exclude-from=.env x .", True)],
)  # fmt: skip
def test_what_is_listed_to_be_left_out_is_not_used(command: str, *, names: bool) -> None:
    parsed = parse_command(command)
    needed = needs_of(parsed, effect_of(parsed, PROJECT))
    assert ("secrets.access" in needed) == names
