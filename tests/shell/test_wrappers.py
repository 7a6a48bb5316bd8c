"""What programs run that run others, for the denial of a program and for effects."""

import pytest

from ironcurtain_proxy.shell.effects import effect_of
from ironcurtain_proxy.shell.statements import parse_command
from ironcurtain_proxy.shell.wrappers import MAX_WRAPPERS, any_program, inner_commands
from tests.shell.places import PROJECT


@pytest.mark.parametrize(
    "text",
    [
        "rm a", "ls; rm a", "ls $(rm a)", "sudo rm a", "/bin/rm a", "\\rm a", "'r'm a", "/x/y/rm a",
        "env A=b rm", "xargs -0 rm", "find . -exec rm {} +", "sh -c 'ls; rm a'", "sudo -X rm a",
        "timeout 5 nice -n 3 rm a", "if a; then rm a; fi", "f() { rm a; }", "eval 'rm a'",
        "eval ls rm", "xargs --odd rm", "docker exec a rm b", "watch -n 1 'rm a'", "npx rm",
        "rm a 'b", "kubectl exec a -- rm b", "fzf --preview 'rm {}'", "script -q a rm b",
        "./sudo rm a", "watch rm a", "fd -x rm", "fd -Hx rm", "fd --exec=rm", "fd --exe rm",
        "fd -x cat ';' -x rm", "uv run rm a", "poetry run rm a", "docker compose run web rm a",
        "docker exec a sh -c 'rm b'", "bash --rcfile a -c 'rm a'", "bash -O extglob -c 'rm a'",
        "sh -c 'sh -c \"rm a\"'", "xargs -I{} sh -c 'rm {}'", "env -S 'rm a'", "watch ls '; rm a'",
        "find . -name x -ok rm {} \\;", "find . -execdir sh -c 'rm {}' \\;", "npm exec -- rm a",
        "busybox rm a", "parallel rm ::: a", "taskset 1 rm a", "su -c 'rm a'", "flock f -c 'rm a'",
        "script -c 'rm a'", "bash <<E\nrm a\nE", "bash <<< 'rm a'", "ltrace rm", "fish -c 'rm a'",
        "bundle exec rm a", "env -u A -i B=c rm", "time -p rm a", "command -p rm a", "exec rm a",
        "ls && bash <<E\nrm a\nE", "ls | bash - <<'E'\nrm a\nE", "! bash <<< 'rm a'",
        "sudo bash <<E\nrm a\nE", "(ls; sh) <<E\nrm a\nE", "while a; do sh; done <<E\nrm a\nE",
        "cat > a <<'E' && bash <<F\nb\nE\nrm a\nF",
    ],
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
