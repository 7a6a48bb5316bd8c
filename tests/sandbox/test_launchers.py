"""What the command lines of `npx`, `uvx` and `pipx run` ask for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ironcurtain_proxy.sandbox.launchers import Launched, launched


def read(words: str) -> Launched:
    command, *args = words.split()
    found = launched(command, args)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("words", "name", "version"),
    [
        ("npx -y cowsay", "cowsay", None),
        ("npx -y cowsay@1.6.0", "cowsay", "1.6.0"),
        ("npx -y @scope/cowsay@1.6.0-rc.1", "@scope/cowsay", "1.6.0-rc.1"),
        ("npx cowsay@latest", "cowsay", None),
        ("npx cowsay@v1.6.0", "cowsay", "1.6.0"),
        ("uvx x@1.2", "x", "1.2"),
        ("uvx x@latest", "x", None),
        ("uvx --from x[all]==1.2 y", "x", "1.2"),
        ("uv tool run x", "x", None),
        ("pipx run --spec x==1.2.3 y", "x", "1.2.3"),
    ],
)
def test_package_and_version_are_told_apart(words: str, name: str, version: str | None) -> None:
    found = read(words)
    assert (found.name, found.version, found.is_replaceable) == (name, version, True)


@pytest.mark.parametrize(
    ("words", "program", "args"),
    [
        ("npx -y cowsay -y --from x", None, ("-y", "--from", "x")),
        ("npx -p @a/b c d", "c", ("d",)),
        ("npx --package=@a/b -y -- c -- d", "c", ("--", "d")),
        ("npx -y --registry https://r/ cowsay moo", None, ("moo",)),
        ("uvx --python 3.12 x -p 1", None, ("-p", "1")),
        ("uvx --from x y --from z", "y", ("--from", "z")),
        ("/opt/uv tool run -q x", None, ()),
        ("pipx run --spec x y z", "y", ("z",)),
    ],
)
def test_the_program_keeps_its_own_arguments(
    words: str, program: str | None, args: tuple[str, ...]
) -> None:
    found = read(words)
    assert (found.program, found.args, found.is_replaceable) == (program, args, True)


@pytest.mark.parametrize(
    "words",
    [
        "npx cowsay@^1.6.0",
        "npx cowsay@1",
        "npx cowsay@next",
        "npx cowsay@npm:other@1.0.0",
        "npx owner/repository",
        "npx ./cowsay",
        "npx ..",
        "npx @scope/..",
        "npx git+https://host/x",
        "npx -p a -p b c",
        "npx -p a",
        "npx -p a ../c",
        "npx -p a -c c",
        "npx --prefix /elsewhere a",
        "npx --unheard-of a",
        "uvx x>=1.2",
        "uvx x==1.*",
        "uvx x===1.2",
        "uvx --from git+https://host/x x",
        "uvx --from x@git+https://host/x x",
        "uvx --with y x",
        "uvx --isolated x",
        "uvx --from x ../y",
        "uvx ./x",
        "pipx run --with y x",
        "pipx run https://host/x.py",
    ],
)
def test_what_an_installed_package_cannot_stand_in_for_is_never_replaced(words: str) -> None:
    assert not read(words).is_replaceable


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("npx -y cowsay@1.6.0 moo", "npm install -g cowsay@1.6.0"),
        ("/usr/bin/npx --package=@a/b b", "npm install -g @a/b"),
        ("npx -p a -p b c", "npm install -g a b"),
        ("npx -y -- cowsay", "npm install -g cowsay"),
        ("uvx mcp-server-git -r .", "uv tool install mcp-server-git"),
        ("uvx --python 3.12 --from git+https://h/x x", "uv tool install git+https://h/x"),
        ("uv tool run x", "uv tool install x"),
        ("uvx --with mcp<2 x", "uv tool install --with 'mcp<2' x"),
        ("pipx run --spec x[all] x", "pipx install 'x[all]'"),
        ("npx", None),
        ("npx -p", None),
        ("uv run x", None),
        ("pipx list", None),
        ("node index.js", None),
    ],
)
def test_the_command_that_installs_a_package_names_it_as_it_was_written(
    words: str, expected: str | None
) -> None:
    command, *args = words.split()
    found = launched(command, args)
    assert (found and found.install) == expected


@given(
    st.sampled_from([("npx",), ("uvx",), ("uv", "tool", "run"), ("pipx", "run")]),
    st.lists(st.one_of(st.text(max_size=8), st.sampled_from(["-p", "--from", "--", "a@1.2.3"]))),
)
def test_no_command_line_gives_a_name_that_leaves_its_directory(
    words: tuple[str, ...], args: list[str]
) -> None:
    found = launched(words[0], [*words[1:], *args])
    if found is not None and found.is_replaceable:
        for name in (found.name, found.program or found.name):
            assert not {"", ".", ".."} & set(name.split("/"))
            assert "\0" not in name
