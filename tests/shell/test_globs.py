"""Patterns for names of files among the operands of programs that only read."""

import pytest
from msgspec.structs import replace

from ironcurtain_proxy.shell.effects import effect_of
from ironcurtain_proxy.shell.statements import parse_command
from tests.shell.places import PROJECT
from tests.tables import table


@pytest.mark.parametrize(
    "command",
    [
        "grep -n 'func F' cmd/*.go", "ls -la src/*.go", "cat src/*.go src/*_test.go",
        "wc -l src/b?.go", "sort src/[ab]*.txt", "head -3 ./*.md", "rg x src/*.go",
        "sed -n 1,5p src/*.txt", "jq . src/*.jsonl", "cat /home/u/project/src/*.go",
        "grep -l x cmd/app/*.go | head",
    ],
)  # fmt: skip
def test_files_of_one_directory_by_their_ending_are_only_read(command: str) -> None:
    assert effect_of(parse_command(command), PROJECT).effect == "reads"


def test_patterns_that_may_be_more_are_not_only_read() -> None:
    cases = table("shell/parsing.more_than_a_pattern", list[str])
    assert [
        command for command in cases if effect_of(parse_command(command), PROJECT).effect == "reads"
    ] == []


def test_a_link_that_leads_out_ends_reading_by_a_pattern_in_its_directory() -> None:
    strayed = replace(PROJECT, strays=(f"{PROJECT.workspace}/src/key.txt",))
    assert effect_of(parse_command("cat src/*.txt"), strayed).effect == "beyond"
    assert effect_of(parse_command("cat cmd/*.txt"), strayed).effect == "reads"


def test_a_loop_over_files_does_what_is_done_with_each() -> None:
    cases = table("shell/parsing.loops", list[tuple[str, str]])
    assert [
        (command, effect)
        for command, effect in cases
        if effect_of(parse_command(command), PROJECT).effect != effect
    ] == []
