"""Patterns for names of files among the operands of programs that only read."""

import pytest
from msgspec.structs import replace

from ironcurtain_proxy.shell.effects import effect_of
from ironcurtain_proxy.shell.statements import parse_command
from tests.shell.places import PROJECT


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
    cases = [
        # They may become an option, a script or the pattern.
        "cat *.go", "grep *.go x", "grep src/*.go x", "sed src/*.txt", "awk src/*.txt",
        "jq src/*.x",
        # The second of several is a file to write, or a tree to compare.
        "uniq src/*.txt", "xxd src/*.bin", "diff src/*.go", "git diff src/*.go",
        # They may name a secret.
        "cat src/*", "cat src/*.json", "cat src/*.yml", "cat src/*.key", "cat src/*.pem",
        "cat src/.e*.go", "cat src/*.env", "cat .ssh/*.pub", "cat src/id_*", "cat src/*.p?m",
        # More than a pattern, or elsewhere.
        "cat src/$x/*.go", "cat src/$(x)*.go", "cat src/{a,b}.go", "cat src/*/b.go",
        "cat ../x/*.go", "cat ~/*.md", "cat /etc/*.conf", "cat src/../../x/*.go",
        "cat src/*.go > out.txt", "tee src/*.go", "xargs -a src/*.go",
    ]  # fmt: skip
    assert [
        command for command in cases if effect_of(parse_command(command), PROJECT).effect == "reads"
    ] == []


def test_a_link_that_leads_out_ends_reading_by_a_pattern_in_its_directory() -> None:
    strayed = replace(PROJECT, strays=(f"{PROJECT.workspace}/src/key.txt",))
    assert effect_of(parse_command("cat src/*.txt"), strayed).effect == "beyond"
    assert effect_of(parse_command("cat cmd/*.txt"), strayed).effect == "reads"


def test_a_loop_over_files_does_what_is_done_with_each() -> None:
    cases = [
        ('for f in src/*.go; do echo "== $f"; head -5 "$f"; grep -n x "$f" | wc -l; done', "reads"),
        ('cd src && for f in ./*.txt; do wc -l "$f"; done', "reads"),
        ('for f in src/*.go; do cat "$f" > "$f"; done', "local"),
        ('for f in src/*.go; do cd ..; cat "$f"; done', "local"),
        ('for f in src/*; do cat "$f"; done', "local"),
        ('for f in src/.*; do cat "$f"; done', "local"),
        ('for f in ../*.go; do cat "$f"; done', "beyond"),
        ('for f in /home/u/taxes/*.conf; do cat "$f"; done', "beyond"),
        ('for f in /etc/*.conf; do cat "$f"; done', "local"),
        ('for f in src/*.sh; do bash "$f"; done', "local"),
        ('for f in src/*.txt; do sed -i s/a/b/ "$f"; done', "local"),
        ('for f in src/*.txt; do "$f"; done', "local"),
        ('for f in src/*.txt; do grep "$f" x; done', "local"),
        ('for f in /etc/*.conf; do rm "$f"; done', "beyond"),
    ]
    assert [
        (command, effect)
        for command, effect in cases
        if effect_of(parse_command(command), PROJECT).effect != effect
    ] == []
