"""The packages that the command lines of launchers ask for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ironcurtain_proxy.shell.launchers import Launched, container_image, launched
from tests.tables import table


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
        ("npm exec -y -- cowsay@1.6.0 -y", "cowsay", "1.6.0"),
        ("npm x cowsay", "cowsay", None),
        ("pnpm dlx cowsay", "cowsay", None),
        ("pnpx cowsay@1.6.0", "cowsay", "1.6.0"),
        ("yarn dlx -q cowsay", "cowsay", None),
        ("bunx cowsay", "cowsay", None),
        ("bun x cowsay@1.6.0", "cowsay", "1.6.0"),
        ("uvx --with y --with z<2 x@1.2", "x", "1.2"),
        ("uv --quiet tool run x", "x", None),
        ("uv run --with x x", "x", None),
        ("uv run --with x==1.2 --frozen x serve", "x", "1.2"),
    ],
)
def test_package_and_version_are_told_apart(words: str, name: str, version: str | None) -> None:
    found = read(words)
    first = found.packages[0]
    assert (first.name, first.version, found.is_replaceable) == (name, version, True)


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
        ("npm exec --package=x -- y --from z", "y", ("--from", "z")),
        ("npm exec x z -- --from -- z", None, ("z", "--from", "--", "z")),
        ("npx -p a -p b c d", "c", ("d",)),
        ("uv run --with x[cli] x run /s/server.py", "x", ("run", "/s/server.py")),
        ("uv run --with x /s/server.py -v", "python", ("/s/server.py", "-v")),
        ("uv run --with x -m x.server -v", "python", ("-m", "x.server", "-v")),
    ],
)
def test_the_program_keeps_its_own_arguments(
    words: str, program: str | None, args: tuple[str, ...]
) -> None:
    found = read(words)
    assert (found.program, found.args, found.is_replaceable) == (program, args, True)


def test_what_an_installed_package_cannot_stand_in_for_is_never_replaced() -> None:
    cases = table("shell/launchers.never_replaced", list[str])
    assert [words for words in cases if read(words).is_replaceable] == []


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("npx -y cowsay@1.6.0 moo", "npm install -g cowsay@1.6.0"),
        ("/usr/bin/npx --package=@a/b b", "npm install -g @a/b"),
        ("npx -p a -p b c", "npm install -g a b"),
        ("npx -y -- cowsay", "npm install -g cowsay"),
        ("uvx mcp-server-git -r .", "uv tool install mcp-server-git"),
        (
            "uvx --python 3.12 --from git+https://h/x x",
            "uv tool install --python 3.12 git+https://h/x",
        ),
        ("npx -y cowsay@^1.6.0", "npx --yes '--package=cowsay@^1.6.0' -- true"),
        ("npx -y owner/cowsay", "npx --yes --package=owner/cowsay -- true"),
        ("bunx cowsay", "npm install -g cowsay"),
        ("npx -y --registry=https://r/ x", "npm install -g --registry https://r/ x"),
        ("uvx x@1.2", "uv tool install x==1.2"),
        ("uvx --no-index -f /w --refresh x", "uv tool install --no-index -f /w x"),
        ("uvx x@latest", "uv tool install x"),
        ("uvx --with a,b<3,>1 x", "uv tool install --with a --with 'b<3,>1' x"),
        ("uv run --with x --with y z", "uv tool install --with y x"),
        ("uv run --directory /p server.py", "uv sync --directory /p"),
        ("uv --directory /p run server.py", "uv sync --directory /p"),
        ("pipx run --with y x", "pipx install --preinstall y x"),
        ("uv tool run x", "uv tool install x"),
        ("uvx --with mcp<2 x", "uv tool install --with 'mcp<2' x"),
        ("pipx run --spec x[all] x", "pipx install 'x[all]'"),
        ("npx", None),
        ("npx -p", None),
        ("uv run --no-project x.py", None),
        ("uv run --script x.py", None),
        ("uv run -", None),
        ("uv pip install x", None),
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
    st.sampled_from(
        [("npx",), ("npm", "exec"), ("uvx",), ("uv", "tool", "run"), ("uv", "run"), ("pipx", "run")]
    ),
    st.lists(
        st.one_of(st.text(max_size=8), st.sampled_from(["-p", "--from", "--with", "--", "a@1.2.3"]))
    ),
)
def test_no_command_line_gives_a_name_that_leaves_its_directory(
    words: tuple[str, ...], args: list[str]
) -> None:
    found = launched(words[0], [*words[1:], *args])
    if found is not None and found.is_replaceable:
        for name in (*[one.name for one in found.packages], found.program or "x"):
            assert not {".", ".."} & set(name.split("/"))
            assert "\0" not in name


@pytest.mark.parametrize(
    ("words", "image"),
    [
        ("docker run -i --rm mcp/time", "mcp/time"),
        ("docker run --rm -i -e TOKEN -v /a:/b ghcr.io/o/x:1.2 --flag", "ghcr.io/o/x:1.2"),
        ("docker run -eTOKEN=1 --name=x --network none mcp/time", "mcp/time"),
        ("docker container run -it mcp/time", "mcp/time"),
        ("/usr/bin/podman run --interactive --pull always mcp/time", "mcp/time"),
        ("docker exec -i x server", None),
        ("docker run", None),
        ("docker", None),
        ("node run mcp/time", None),
    ],
)
def test_the_image_of_a_container_is_told_from_the_options_of_its_start(
    words: str, image: str | None
) -> None:
    command, *args = words.split()
    assert container_image(command, args) == image
