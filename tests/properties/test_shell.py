"""Theorems about shell commands, and a comparison with a real shell."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from ironcurtain_proxy.model.request import CommandPlace
from ironcurtain_proxy.shell.effects import EffectLevel, effect_of
from ironcurtain_proxy.shell.operations import needs_of, operation_of
from ironcurtain_proxy.shell.statements import parse_command
from ironcurtain_proxy.shell.wrappers import any_program
from tests.examples import examples
from tests.program import PATIENCE
from tests.shell.places import PROJECT
from tests.tables import table

BASH: Final = shutil.which("bash")

COMMANDS: Final = (
    "ls", "ls -la", "cat a b", "git status", "git log | head", "rm -rf a", "sort $x", "echo 'a b'",
    "for f in a b; do cat $f; done", "cat <<E\nhi\nE", "x=1; echo $x", "ls > a", "sh -c 'ls'",
    "curl https://a", "ls 'a", "# a", "", "find . -name '*.py' | xargs wc -l", "ls &", "(ls)",
    "{ ls; }",
)  # fmt: skip
UNSAFE: Final = ("X", "./X", "rm a", "X a b", "ls > a", "$x", "PATH=a ls", "sh -c X", "sudo ls")
JOINS: Final = ("{a}; {b}", "{a} && {b}", "{a} | {b}", "{a}\n{b}", "{b}; {a}", "{b} || {a}",
                "echo $({b}); {a}", "echo \"`{b}`\"; {a}", "if {b}; then {a}\nfi", "({b}); {a}",
                "cat <({b}); {a}", "{a} <<< $({b})")  # fmt: skip
WRAPPERS: Final = ("nice {a}", "timeout 5 {a}", "env {a}", "xargs {a}", "sudo {a}", "time {a}",
                   "command {a}", "({a})", "{{ {a}\n}}", "! {a}", "sh -c {q}", "eval {q}",
                   "docker exec c {a}", "find . -exec {a} ;", "watch {q}",
                   "echo $({a})")  # fmt: skip
PIECES: Final = table("properties/shell.pieces", tuple[str, ...])  # fmt: skip


def effect(text: str, place: CommandPlace = PROJECT) -> EffectLevel:
    """What a text can do."""
    return effect_of(parse_command(text), place).effect


def quoted(text: str) -> str:
    """One word that is the text."""
    return "'" + text.replace("'", "'\\''") + "'"


@given(st.sampled_from(COMMANDS), st.sampled_from(UNSAFE), st.sampled_from(JOINS))
def test_nothing_makes_an_unsafe_command_beside_it_safe(one: str, bad: str, join: str) -> None:
    assert effect(join.format(a=one, b=bad)) != "reads"


@given(st.text(max_size=30), st.sampled_from(UNSAFE), st.sampled_from(JOINS[:6]))
def test_no_text_makes_an_unsafe_command_safe(text: str, bad: str, join: str) -> None:
    if effect(text) == "reads":
        assert effect(join.format(a=text, b=bad)) != "reads"


@given(st.sampled_from(COMMANDS + UNSAFE), st.lists(st.sampled_from(WRAPPERS), max_size=3))
def test_wrapping_never_makes_a_command_safe(text: str, wrappers: list[str]) -> None:
    wrapped = text
    for wrapper in wrappers:
        wrapped = wrapper.format(a=wrapped, q=quoted(wrapped))
    if effect(text) != "reads" and text not in {"", "# a"}:
        assert effect(wrapped) != "reads"


@given(st.sampled_from(COMMANDS[:-6]), st.sampled_from(JOINS), st.sampled_from(WRAPPERS))
def test_a_denied_program_is_found_in_any_part(one: str, join: str, wrapper: str) -> None:
    text = join.format(a=one, b="denied")
    assert any_program(parse_command(text), frozenset({"denied"}))
    inside = wrapper.format(a="denied", q="'denied'")
    assert any_program(parse_command(inside), frozenset({"denied"}))


@given(st.lists(st.sampled_from(PIECES), max_size=14))
def test_judging_never_fails_and_only_reading_is_the_safe_operation(pieces: list[str]) -> None:
    parsed = parse_command("".join(pieces))
    found = effect_of(parsed, PROJECT)
    reads = found.effect == "reads"
    assert reads == (operation_of(parsed, PROJECT) == "safe")
    assert not (reads and parsed.unreadable)
    assert ("proc.exec" in needs_of(parsed, found)) != reads


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory with a program `X` that leaves a mark, and harmless ones, on its path."""
    directory = tmp_path_factory.mktemp("shell")
    programs = directory / "bin"
    programs.mkdir()
    (directory / "work").mkdir()
    (programs / "X").write_text(f"#!/bin/sh\n: > {directory}/mark\n")
    (programs / "X").chmod(0o755)
    for name in ("cat", "env", "ls", "sh", "xargs"):
        found = shutil.which(name)
        if found is not None:
            (programs / name).symlink_to(found)
    yield directory
    shutil.rmtree(directory)


@pytest.mark.skipif(BASH is None, reason="there is no bash")
@settings(
    max_examples=examples(750),
    deadline=None,
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.function_scoped_fixture],
)
@example(["echo ", '\\"', "\\\n", "#|X"])
@example(["echo ", "a", "\\\n", "#;X"])
@example(["cat <<E\n", "`X`", "\nE\n"])
@given(st.lists(st.sampled_from(PIECES), min_size=1, max_size=12))
def test_bash_runs_and_writes_nothing_that_was_judged_safe(place: Path, pieces: list[str]) -> None:
    text = "echo " + "".join(pieces)
    if "X" not in text and ">" not in text:
        return
    work = str(place / "work")
    here = CommandPlace(workspace=work, directory=work, home=work)
    if BASH is None or effect(text, here) != "reads":
        return
    subprocess.run(
        [BASH, "-c", text],
        cwd=place / "work",
        env={"PATH": str(place / "bin")},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=PATIENCE,
        check=False,
    )
    assert not (place / "mark").exists()
    assert list((place / "work").iterdir()) == []
