"""What programs run that run others, for the denial of a program and for effects."""

import pytest

from ironcurtain_proxy.shell.effects import effect_of
from ironcurtain_proxy.shell.statements import parse_command
from ironcurtain_proxy.shell.wrappers import MAX_WRAPPERS, any_program, inner_commands
from tests.shell.places import PROJECT
from tests.tables import table


@pytest.mark.parametrize(
    "text",
    table("shell/parsing.hidden_programs", list[str]),
)  # fmt: skip
def test_a_program_is_found_for_a_denial_wherever_it_hides(text: str) -> None:
    parsed = parse_command(text)
    assert any_program(parsed, frozenset({"rm", "other"}))
    assert not any_program(parsed, frozenset({"other"}))


@pytest.mark.parametrize(
    "text", ["grep rm a; echo rm; ls rm/x", "command -v rm", "find . -name rm", "npm run rm",
             "bash x && cat > a <<E\nrm a\nE"]
)  # fmt: skip
def test_a_word_that_is_no_program_is_not_denied(text: str) -> None:
    assert not any_program(parse_command(text), frozenset({"rm"}))


def test_a_program_behind_too_many_wrappers_is_still_found() -> None:
    text = "nice " * (MAX_WRAPPERS * 3) + "rm a"
    assert any_program(parse_command(text), frozenset({"rm"}))
    assert effect_of(parse_command(text), PROJECT).effect != "reads"


def test_wrappers_in_wrappers_are_counted_once_each() -> None:
    found = list(inner_commands(parse_command("timeout 5 " * 8 + "ls")))
    assert len(found) == 9


@pytest.mark.parametrize("wrapper", ["env", "sudo", "xargs", "find . -exec", "nohup", "docker run"])
def test_a_program_that_runs_others_never_only_reads(wrapper: str) -> None:
    assert effect_of(parse_command(f"{wrapper} ls"), PROJECT).effect != "reads"
