"""Files of the user's outside the workspace: whatever way a shell names them, it is asked about."""

import itertools
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from msgspec.structs import replace

from ironcurtain_proxy.model.request import CommandPlace
from ironcurtain_proxy.shell.effects import effect_of
from ironcurtain_proxy.shell.families import families_of
from ironcurtain_proxy.shell.statements import parse_command
from tests.shell.places import PROJECT, covers
from tests.tables import table

MARK: Final = "only the user reads this"


def effect(command: str, place: CommandPlace = PROJECT) -> str:
    return effect_of(parse_command(command), place).effect


@pytest.mark.parametrize("command", table("shell/elsewhere.asked", list[str]))
def test_a_file_elsewhere_is_asked_about(command: str) -> None:
    assert effect(command) == "beyond"


@pytest.mark.parametrize("command", table("shell/elsewhere.unasked", list[str]))
def test_what_shows_no_content_elsewhere_is_not_asked_about(command: str) -> None:
    assert effect(command) in {"reads", "local", "unknown"}


def test_the_history_of_the_own_repository_is_read_from_its_first_worktree_too() -> None:
    place = replace(PROJECT, repository="/home/u/main/.git")
    for command in table("shell/elsewhere.own_history", list[str]):
        assert (effect(command, place), effect(command)) == ("local", "beyond"), command


@pytest.mark.parametrize("command", table("shell/elsewhere.other_history", list[str]))
def test_nothing_else_of_the_first_worktree_is_read(command: str) -> None:
    assert effect(command, replace(PROJECT, repository="/home/u/main/.git")) == "beyond"


def test_an_approval_of_git_elsewhere_covers_objects_named_when_it_runs() -> None:
    granted = families_of(parse_command("git -C ~/x show HEAD"), PROJECT, held=True) or ()
    for covered in (True, False):
        for command in table(f"shell/elsewhere.{'' if covered else 'no_'}objects", list[str]):
            assert covers(granted, parse_command(command), PROJECT, held=True) == covered, command
    # Without a sandbox an unknown word may be an option that runs a program.
    assert not covers(granted, parse_command("git -C ~/x show $h"), PROJECT)


def _spellings(home: str) -> Iterator[str]:
    """Yield words by which bash names the file `other/n.txt` of a home, seen from `ws` in it."""
    above, _, name = home.rpartition("/")
    tops = (
        "~", "$HOME", "${HOME}", '"$HOME"', "..", "sub/../..", "$PWD/..", "${PWD%/*}",
        "$(dirname $PWD)", home, f"{home}/ws/..", f"{above}/*", f"{above}/{{{name},x}}",
        f"{{{home},/x}}", f"$'{home}'", f"${{X:-{home}}}", f"$(echo {home})", "`echo ~`", "~+/..",
        "/proc/self/cwd/..", "$(printenv HOME)", "$(sh -c 'echo ~')", f"{above}/'{name}'",
        f"{above}/[{name[0]}]{name[1:]}", "$(cd ..; pwd)", "$(realpath ..)", "$(pwd)/..",
    )  # fmt: skip
    for top, end in itertools.product(tops, ("other/n.txt", "{other,x}/n.txt", "oth*/?.txt")):
        yield f"{top}/{end}"


OPENED: Final = (
    "cat @", "cat < @", "grep -h . @", "sed -n p @", "head -n1 -- @", "tail -n1 a.txt @",
    "f=@; cat $f", "export f=@; cat $f", "f=(@); cat ${f[@]}", "set -- @; cat $1", "echo $(< @)",
    "echo @ | xargs cat", "xargs cat <<< @", "for f in @; do cat $f; done", "f=@ bash -c 'cat $f'",
    "echo @ | while read f; do cat $f; done", "read f <<< $(echo @); cat $f", "bash <<< 'cat @'",
    "bash <<'E'\ncat @\nE", "cat <<E\n$(cat @)\nE", "f() { cat @; }; f", "f() { cat $1; }; f @",
    "trap 'cat @' EXIT", "cat <(cat @)", "ln -s @ k; cat k", "find @ -exec cat {} +", "dd if=@",
    "sh -c 'cat $1' _ @", "find @ | xargs cat", "eval cat @", "exec 3< @; cat <&3", "xargs -a @",
    "case x in x) cat @;; esac", "mapfile x < @; echo $x", "cp @ k; cat k", "awk 1 @",
    "cat @ & wait",
)  # fmt: skip


def test_no_spelling_of_a_file_elsewhere_is_read_unasked(tmp_path: Path) -> None:
    home = tmp_path.resolve() / "me"
    (home / "other").mkdir(parents=True)
    (home / "ws/sub").mkdir(parents=True)
    (home / "other/n.txt").write_text(f"{MARK}\n")
    here = CommandPlace(workspace=f"{home}/ws", directory=f"{home}/ws", home=str(home))
    unasked: list[str] = []
    asked: list[str] = []
    for word, opened in itertools.product(_spellings(str(home)), OPENED):
        if "'" not in opened or "'" not in word:
            command = opened.replace("@", word)
            (asked if effect(command, here) == "beyond" else unasked).append(command)

    def shown(command: str) -> bool:
        done = subprocess.run(
            ["/bin/bash", "-c", command],
            cwd=home / "ws",
            env={"HOME": str(home), "PATH": os.environ["PATH"]},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
        return MARK.encode() in done.stdout

    assert [command for command in unasked if shown(command)] == []
    assert sum(map(shown, asked[:: len(asked) // 40])) >= 20
