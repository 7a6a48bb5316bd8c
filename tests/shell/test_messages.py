"""Texts for people name no files; texts that a program may run or open do."""

import pytest

from ironcurtain_proxy.shell.effects import effect_of
from ironcurtain_proxy.shell.operations import needs_of
from ironcurtain_proxy.shell.statements import parse_command
from tests.shell.places import PROJECT
from tests.tables import table


def names_a_secret(command: str) -> bool:
    parsed = parse_command(command)
    return "secrets.access" in needs_of(parsed, effect_of(parsed, PROJECT))


@pytest.mark.parametrize(
    "command",
    [
        "git commit -m 'Read .env and credentials.json at the start'",
        "git commit -m \"$(cat <<'E'\nDelete shadow branches, keep .env\nE\n)\"",
        "gh pr create --title 'Use .npmrc' --body='See .env.local'",
        "gh api repos/a/b/pulls/1/comments -f body='see .env'",
        "git log --oneline && echo 'the shadow branch is gone' > notes.txt",
        "export MODE=fast && make test",
        "git stash push -m 'before .env'",
    ],
)
def test_a_message_names_no_secret(command: str) -> None:
    assert not names_a_secret(command)


def test_what_may_be_opened_or_run_names_its_secret() -> None:
    cases = table("shell/effects.opened_secrets", list[str])
    assert [command for command in cases if not names_a_secret(command)] == []
