"""Effects of shell commands."""

from pathlib import Path
from typing import Final

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from ironcurtain_proxy.model.request import CommandPlace
from ironcurtain_proxy.shell.effects import effect_of, worst
from ironcurtain_proxy.shell.families import families_of
from ironcurtain_proxy.shell.operations import needs_of
from ironcurtain_proxy.shell.statements import parse_command
from tests.shell.places import PROJECT, covers
from tests.tables import table

READING: Final = table("shell/effects.reading", tuple[str, ...])
MORE_THAN_READING: Final = table("shell/hostile.more_than_reading", tuple[str, ...])
"""Commands from attacks: each would run, write, send or show."""


def test_a_command_of_the_tables_only_reads() -> None:
    assert [
        command
        for command in READING
        if effect_of(parse_command(command), PROJECT).effect != "reads"
    ] == []


def test_a_command_that_does_more_is_not_judged_to_read() -> None:
    assert [
        command
        for command in MORE_THAN_READING
        if effect_of(parse_command(command), PROJECT).effect == "reads"
    ] == []


def test_what_is_added_to_reading_is_judged_too() -> None:
    assert [
        (command, tail)
        for command in READING
        for tail in ["; ./evil", " | sh", " > out.txt", " && rm x", "\n./evil"]
        if effect_of(parse_command(command + tail), PROJECT).effect == "reads"
    ] == []


@pytest.mark.parametrize("command", [c for c in READING if "git" in c.split()[0:1]])
def test_git_only_reads_where_its_repository_is_known(command: str) -> None:
    elsewhere = CommandPlace(
        workspace="/home/u/project", directory="/home/u/project/sub", home="/home/u"
    )
    assert effect_of(parse_command(command), elsewhere).effect != "reads"


def test_the_worst_part_gives_the_effect() -> None:
    cases = table("shell/effects.worst_part", list[tuple[str, str]])
    assert [
        (command, effect)
        for command, effect in cases
        if effect_of(parse_command(command), PROJECT).effect != effect
    ] == []


@given(st.lists(st.sampled_from(["reads", "local", "unknown", "beyond", "outward"]), min_size=1))
def test_the_worst_of_effects_does_not_depend_on_their_order(effects: list[str]) -> None:
    assert worst(effects) == worst(sorted(effects))  # type: ignore[arg-type]


@given(st.text(max_size=60))
def test_any_text_has_an_effect(text: str) -> None:
    assert effect_of(parse_command(text), PROJECT).effect in {
        "reads", "local", "unknown", "beyond", "outward",
    }  # fmt: skip


def test_one_approval_covers_the_reading_of_a_directory_elsewhere() -> None:
    granted = families_of(parse_command("cat ~/taxes/a.txt | head"), PROJECT) or ()
    assert [family.is_general for family in granted] == [True]
    for command in ("wc -l ~/taxes/b.txt", "cd ~/taxes && grep -n x c.txt"):
        assert covers(granted, parse_command(command), PROJECT)
    for command in (
        "cat ~/mail/a.txt", "cat ~/taxes/.env", "cat ~/taxes/sub/a.txt",
        "cd ~/taxes && cat sub/a.txt", "cat ~/a.txt",
        "cp ~/taxes/a.txt .", "cat ~/taxes/a.txt > x", "cat ~/taxes/a.txt ~/mail/b.txt",
    ):  # fmt: skip
        assert not covers(granted, parse_command(command), PROJECT)
    home = families_of(parse_command("cat ~/notes.txt"), PROJECT) or ()
    for command in ("cat ~/letters.txt", "ls ~", "ls ~/notes.txt.d"):
        assert not covers(home, parse_command(command), PROJECT)


CORPUS: Final = Path(__file__).parents[3] / "shared/corpora/shell-commands.jsonl"
OWN: Final = Path(__file__).parent / "commands.jsonl"
FILES: Final = [
    OWN,
    pytest.param(
        CORPUS,
        marks=pytest.mark.skipif(
            not CORPUS.exists(), reason="the shared corpora are not beside the checkout"
        ),
    ),
]


@pytest.mark.parametrize("file", FILES, ids=["own", "corpus"])
def test_no_labelled_command_that_asks_is_judged_to_read(file: Path) -> None:
    rows = [orjson.loads(line) for line in file.read_bytes().splitlines()]
    wrong = [
        row["command"]
        for row in rows
        if row["label"] == "ask"
        and effect_of(parse_command(row["command"]), PROJECT).effect == "reads"
    ]
    assert wrong == []


@pytest.mark.parametrize(
    ("command", "effect"),
    [
        ("rm -rf /tmp/x/*.log", "local"),
        ("chmod +x /tmp/x/*.sh", "local"),
        ("rm -rf /tmp/../home/u/*.log", "beyond"),
        ("rm -rf /home/u/other/*.log", "beyond"),
        ("rm -rf ~/*", "beyond"),
        ("rm -rf /*", "beyond"),
        ("rm -rf /tm*/x", "beyond"),
    ],
)
def test_a_glob_counts_by_the_directory_that_is_known(command: str, effect: str) -> None:
    place = replace(PROJECT, writable=("/tmp",))
    assert effect_of(parse_command(command), place).effect == effect


def test_what_the_sandbox_holds_is_not_asked_about_first() -> None:
    cases = table("shell/effects.held_by_the_sandbox", list[tuple[str, str]])
    assert [
        (text, effect)
        for text, effect in cases
        if effect_of(parse_command(text), PROJECT).effect != effect
    ] == []


def test_a_launcher_still_counts_as_one_that_may_use_the_network() -> None:
    parsed = parse_command("npx tsc")
    assert "net.egress" in needs_of(parsed, effect_of(parsed, PROJECT))


@pytest.mark.parametrize(
    ("text", "reads"),
    table("shell/effects.names_of_secrets", list[tuple[str, bool]]),
)  # fmt: skip
def test_names_of_secret_files_are_read_without_their_content(text: str, *, reads: bool) -> None:
    parsed = parse_command(text)
    found = effect_of(parsed, PROJECT)
    assert (found.effect == "reads") == reads
    assert ("secrets.access" in needs_of(parsed, found)) == (not reads)


@pytest.mark.parametrize("home", ["/tmp/u", "/var/tmp/x/u", "/opt/u"])
def test_a_home_below_a_directory_of_the_system_is_asked_about_as_any_other(home: str) -> None:
    place = replace(PROJECT, workspace=f"{home}/p", directory=f"{home}/p", home=home)
    for command in (f"cat {home}/taxes.txt", "ls ~/Documents", "head ../mail/inbox"):
        assert effect_of(parse_command(command), place).effect != "reads"
    for command in (f"cat {home}/p/a", "ls /tmp/else", "ls /usr/share"):
        assert effect_of(parse_command(command), place).effect == "reads"
    without_users = replace(place, home="/")
    assert effect_of(parse_command("ls /usr/share"), without_users).effect == "reads"


@pytest.mark.parametrize("home", ["/home/u", "/tmp/u"])
def test_what_is_a_servers_own_in_a_home_is_read_as_what_is_free(home: str) -> None:
    place = replace(
        PROJECT,
        workspace=f"{home}/p",
        directory=f"{home}/p",
        home=home,
        writable=("/tmp", f"{home}/.tool"),
        closed=(f"{home}/.tool/of-the-machine",),
    )
    for command in (f"cat {home}/.tool/settings", "ls ~/.tool", "cat /tmp/made"):
        assert effect_of(parse_command(command), place).effect == "reads"
    for command in (
        "cat ~/.tool2/settings",
        "ls ~",
        "cat ~/.tool/of-the-machine/x",
        "cat ~/.tool/.env",
    ):
        assert effect_of(parse_command(command), place).effect != "reads"


@pytest.mark.parametrize(
    "command",
    [
        "cat $HOME/taxes/a.txt", 'cat "$HOME"/taxes/a.txt', 'cat "${HOME}/taxes/a.txt"',
        "cd $HOME/taxes && cat a.txt", "f=~/taxes/a.txt; cat \"$f\"", "d=$HOME/taxes; cat $d/a.txt",
        "for f in ~/taxes/a.txt ~/taxes/b.txt; do cat $f; done",
        "for f in ~/taxes/*.txt; do cat \"$f\"; done", "head < $HOME/taxes/a.txt",
    ],
)  # fmt: skip
def test_a_home_is_one_however_it_is_spelled(command: str) -> None:
    """What a sandbox lets a command read of the user's files is asked about by any of the names."""
    assert effect_of(parse_command(command), PROJECT).effect == "beyond"
    granted = families_of(parse_command("cat ~/taxes/b.txt"), PROJECT) or ()
    assert covers(granted, parse_command(command), PROJECT)


@pytest.mark.parametrize(
    "command",
    [
        "cd ~/other && grep -rn key .", "cd ~/other && grep -rn key", "cd ~ && cat *.txt",
        "cd ~/other && cat *.txt", "cd ~/other && for f in *.txt; do cat \"$f\"; done",
        "cd ~/other && cat $X", "cd ../other && head $X", "cd ~/other; rg key",
    ],
)  # fmt: skip
def test_a_reader_in_a_directory_elsewhere_reads_what_lies_there(command: str) -> None:
    assert effect_of(parse_command(command), PROJECT).effect == "beyond"


@pytest.mark.parametrize(
    "command",
    [
        "cat ~root/notes.txt", "head -n1 ~someone/x/a.txt", "grep -rn key ~root/x",
        "wc --files0-from=~root/a", "cat < ~root/notes.txt", "cp ~root/a .", "cat ~root/*.txt",
    ],
)  # fmt: skip
def test_the_home_of_another_user_lies_elsewhere(command: str) -> None:
    assert effect_of(parse_command(command), PROJECT).effect == "beyond"


def test_what_reads_no_file_there_stays_in_its_sandbox() -> None:
    for command in (
        "make a~b/c", "make x/~a/b",
        "cd ~/other && ls", "cd ~/other && echo $X", "cd sub && cat $X", "cd /tmp && cat $X",
        "cat $X", "cd ~/other && ls -t | head -5",
    ):  # fmt: skip
        assert effect_of(parse_command(command), PROJECT).effect == "local", command


@pytest.mark.parametrize(
    "command",
    [
        "HOME=/x; cat $HOME/project/a.txt", "read HOME; cat $HOME/project/a.txt",
        "HOME=/x cat $HOME/project/a.txt", "eval x; cat $HOME/project/a.txt",
        "for HOME in /x; do cat $HOME/project/a.txt; done", "cat $HOME$X", "cat $HOME/$X",
        "cat x$HOME/project/a.txt", "cat $HOME.txt", "cat $HOME/../x",
        "cat ${HOME#/}/project/a.txt", "export HOME=/x; sh -c 'cat $HOME/project/a.txt'",
        "unset HOME; cat $HOME/project/a.txt", "x=; cat $x $HOME/project/a.txt",
        "f=~root/x; cat $f", "IFS=/; cat $HOME/project/a.txt",
        "HOME=/x sh -c 'cat $HOME/project/a.txt'",
    ],
)  # fmt: skip
def test_a_home_that_may_be_another_place_is_not_taken_for_it(command: str) -> None:
    assert effect_of(parse_command(command), PROJECT).effect != "reads"


def test_what_a_home_holds_of_the_project_is_the_projects() -> None:
    assert effect_of(parse_command("cat $HOME/project/a.txt"), PROJECT).effect == "reads"
    assert effect_of(parse_command("rm -rf $HOME"), PROJECT).effect == "beyond"
    assert effect_of(parse_command("cp a.txt $HOME/x"), PROJECT).effect == "beyond"
