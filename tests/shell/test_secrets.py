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


# Held by a sandbox, what is written or removed can be taken back; what is shown cannot.
_SHOWN: Final = (
    "cp .env notes.txt", "mv .env notes.txt", "mv .env .env.bak", "cp .env .env.bak",
    "cp -t notes .env", "cp --target-directory=notes .env", "cp -rt notes .env", "cp .env",
    "cp x .env notes", "cp -l .env notes.txt", "ln .env notes.txt", "ln -s .env notes.txt",
    "ln -sf .env notes.txt; rm notes.txt", "cat .env", "cat < .env", "tee notes.txt < .env",
    "tee < .env", "tee .env < server.key", "tee --help .env < .env", "rm .env; cat .env",
    "cat .env > x; rm .env", "echo x > .env; cat .env", "echo $(cat .env) > .env",
    "rm $(cat .env)", 'rm "$(<.env)"', "rm `cat .env`", "exec 3<>.env; cat <&3",
    "exec 3<.env; cat <&3", "cat <> .env", 'rm() { cat "$1"; }; rm .env',
    'function rm { cat "$1"; }; rm .env', "alias rm=cat; rm .env",
    "shopt -s expand_aliases\nalias rm=cat\nrm .env", "hash -p /bin/cat rm; rm .env",
    "PATH=.:$PATH rm .env", "PATH=. ; rm .env", "export PATH=.:$PATH; rm .env",
    "declare PATH=.; rm .env", "./rm .env", "bin/tee .env", "/tmp/rm .env", "sudo rm .env",
    "xargs rm .env", "xargs -a .env rm", "echo .env | xargs cat",
    "find . -name .env -exec cat {} +", "env rm .env", "command rm .env", 'eval "rm .env"',
    'bash -c "rm .env; cat .env"', "sh -c 'cat .env'", "f=.env; cat $f",
    "f=.env; cp $f notes.txt", "cp {.env,notes.txt}", "mv {.env,notes.txt}", "cp .en* notes.txt",
    "cp x .env*", "tee $x .env", "rm $o .env", "rm -- $x .env", 'cp "$a" .env',
    "grep x .env > .env", "sort -o .env .env", "sed -i s/a/b/ .env", "sed -n w.env .env",
    "dd if=.env of=.env", "git diff .env", "git checkout -- .env", "git add -f .env",
    "tar cf x.tar .env", "base64 .env", "source .env", ". .env", "set -a; . ./.env",
    'python3 -c "print(open(\'.env\').read())"',
    'node -e "require(\'fs\').readFileSync(\'.env\')"', "rm --interactive=never --foo .env",
    "truncate --reference=.env --size=0 .env", "touch -r .env notes.txt; cp .env notes.txt",
    "mv -T .env notes", "cp -P .env notes", "cp -H .env notes", "install .env notes",
    "cp -b x .env", "cp --backup x .env", "mv --backup=numbered x .env",
    "cp --parents x/.env notes", "tee >(cat .env)", "echo x > >(cat .env)",
    "cat <(cat .env) > .env", "printenv > .env", "env > .env", "export > x",
    "trap 'cat .env' EXIT; rm .env", "read -r x < .env; echo $x > .env", "mapfile a < .env",
    "while read l; do echo $l; done < .env", "diff .env .env.example > .env",
    "cp .env /dev/stdout", "cp .env /dev/stderr", "mv .env /dev/fd/1", "cat .env | tee .env",
    "cp .env .env", "mv .env .env", "cp server.key .env", "cp ~/.ssh/id_rsa .env",
    "BASH_ENV=.env bash x", "ENV=.env sh -i", "enable -f ./x rm; rm .env", "builtin . .env",
    "zsh -c 'rm .env; <.env'", "< .env", "< .env > .env", "cat << EOF > .env\n$(cat .env)\nEOF",
    "cat << EOF > .env\n$(< .env)\nEOF", "cat >&2 .env",
)  # fmt: skip
_WRITTEN: Final = (
    "rm .env", "rm -f .env", "rm -rf .env .env.local", "rm -- .env", "touch .env",
    "echo A=1 > .env", "echo A=1 >> .env", "echo A=1 >| sub/.env", "printf 'A=1' > .env",
    ": > .env", "> .env", "cp .env.example .env", "cp -f .env.example .env",
    "cp -p -v .env.example ./.env", "mv notes.txt .env", "echo A=1 | tee .env",
    "echo A=1 | tee -a .env .env.local", "truncate -s 0 .env", "ls 2> .env", "make &> .env",
    "cat > .env << 'EOF'\nA=1\nEOF", "cat <<EOF > .env\nA=1\nEOF", "rm .env && make",
    "mkdir -p x && echo A=1 > x/.env && bash run.sh", "cp .env.example .env && bash run.sh",
)  # fmt: skip


def _may_show(command: str) -> bool:
    parsed = parse_command(command)
    found = effect_of(parsed, PROJECT)
    is_asked = found.effect in {"outward", "beyond"}
    return is_asked or "secrets.access" in needs_of(parsed, found, held=True)


@pytest.mark.parametrize("command", _SHOWN)
def test_a_command_that_may_show_a_secret_needs_somebody_in_a_sandbox_too(command: str) -> None:
    assert _may_show(command)


@pytest.mark.parametrize("command", _WRITTEN)
def test_a_file_with_secrets_that_is_only_written_or_removed_is_held(command: str) -> None:
    parsed = parse_command(command)
    assert not _may_show(command)
    assert "secrets.access" in needs_of(parsed, effect_of(parsed, PROJECT)), "without a sandbox"
