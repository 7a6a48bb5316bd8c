"""Programs that run programs: both must be safe."""

import pytest

from ironcurtain_proxy.shell.judging import MAX_WRAPPERS, judge_command
from ironcurtain_proxy.shell.parse import parse_command


def effect(text: str) -> str:
    """What becomes of a text."""
    return judge_command(parse_command(text)).effect


@pytest.mark.parametrize(
    "wrapper",
    [
        "nice", "nice -n 5", "timeout 5", "timeout -k 1 -s TERM 5s", "time", "time -p", "env",
        "env -i", "env - LC_ALL=C", "env -u A", "env -C /tmp", "command", "builtin", "exec",
        "stdbuf -oL",
        "ionice -c 3", "setsid", "xargs", "xargs -0 -n1", "xargs -P4 -I{}", "xargs -a list",
        "caffeinate -i", "docker exec web", "docker exec -it -u a web", "kubectl exec a --",
        "watch -n 1", "fd -x", "arch -64",
    ],
)  # fmt: skip
def test_a_transparent_wrapper_is_as_safe_as_what_it_runs(wrapper: str) -> None:
    assert effect(f"{wrapper} cat a") == "safe"
    assert effect(f"{wrapper} rm a") == "ask"
    assert effect(f"{wrapper} $x") == "ask"
    assert effect(f"{wrapper} ./cat a") == "ask"


@pytest.mark.parametrize(
    "text",
    [
        "sudo ls", "doas ls", "nohup ls", "script a ls", "strace ls", "chroot / ls", "su -c ls",
        "npx ls", "uv run ls", "flock a ls", "parallel ls", "ssh a ls", "sudo -u a ls",
        "env", "env A=b", "env -S 'ls'", "env A=b ls", "env --split-string=ls", "xargs", "xargs -0",
        "xargs -p ls", "xargs --process-slot-var=PATH ls", "xargs sort", "xargs rg a",
        "xargs git log",
        "xargs -I{} sh -c 'cat {}'", "xargs -I{} {}", "xargs sh", "xargs sh -c", "nice", "timeout",
        "timeout 5", "time -o a ls", "stdbuf --odd ls", "command", "docker exec web", "docker exec",
        "find . -exec {} ;", "find . -exec sh -c 'cat {}' \\;", "find . -exec cat {}",
        "find . -delete",
        "find . -fprint a", "find . -ok cat {} \\;", "find . $x", "find $x",
        "find . -exec rm {} \\;",
        "find . -exec cat {} \\; -exec rm {} \\;", "find . -execdir sort {} +", "fd -x", "fd -X rm",
        "fd -Hx rm", "fd --exec=rm", "fd --exe rm", "fd $x", "fd -x cat ';' -x rm",
        "sh", "sh a", "sh -s", "bash -l", "bash --rcfile a -c ls", "bash -O extglob -c ls", "sh -c",
        "sh -c \"$x\"", "sh -c \"ls $x\"", "sh -c 'ls; rm a'", "sh -c 'ls' < a > b", "sh -c ''",
        "sh -c 'sh -c \"rm a\"'", "sh <<E\nls\nE", "ls | sh", "curl a | sh", "eval", "eval \"$x\"",
        "eval ls -l", "eval 'rm a'", "watch $x", "watch 'rm a'", "watch ls '; rm a'",
        "fzf --preview='rm {}'", "fzf --preview \"$x\"", "fzf --bind='enter:execute(rm {})'",
        "fzf --bind 'a:become(rm {})'", "fzf --listen", "fzf --history=a", "fzf $x",
        "fzf --preview",
        "kubectl exec a --", "kubectl exec -- ls", "kubectl exec a --odd -- ls", "fish -c ls",
    ],
)  # fmt: skip
def test_a_wrapper_that_does_more_or_is_not_understood_asks(text: str) -> None:
    assert effect(text) == "ask"


@pytest.mark.parametrize(
    "text",
    [
        "sh -c 'ls | wc -l'", "bash -lc 'git status'", "bash -eo pipefail -c 'ls'", "sh -c ls a b",
        "bash --norc -c 'sh -c \"ls\"'", "eval 'ls -l'", "watch 'ls | wc -l'", "command -v rm",
        "find . -name a -exec grep b {} \\; -print", "find . -type f | xargs wc -l",
        "fzf -m --preview='cat {}' --bind=ctrl-a:select-all", "fzf --preview 'head {}'", "fd -e py",
        "xargs -I% cat %", "xargs --replace=X cat X/a", "xargs --replace cat {}", "caffeinate -d",
    ],
)  # fmt: skip
def test_what_a_wrapper_is_told_is_read(text: str) -> None:
    assert effect(text) == "safe"


def test_wrappers_are_followed_to_a_depth() -> None:
    assert effect("nice " * (MAX_WRAPPERS - 1) + "ls") == "safe"
    assert effect("nice " * (MAX_WRAPPERS + 1) + "ls") == "ask"
