"""Which paths are control places."""

from time import process_time

import pytest

from ironcurtain_proxy.control_places.commands import read_commands
from ironcurtain_proxy.control_places.git_files import hash_length_of
from ironcurtain_proxy.control_places.rules import (
    ControlKind,
    ControlPlace,
    control_of,
    looks_like_repository,
)
from ironcurtain_proxy.control_places.words import relative
from tests.tables import table

BARE = {
    ("x",),
    (".git", "modules", "a"),
    (".git", "worktrees", "w"),
    (".git", "modules", "a", "evil"),
}


def judged(
    text: str,
    *,
    is_directory: bool = False,
    is_link: bool = False,
    settled: frozenset[str] = frozenset(),
) -> ControlPlace | None:
    """Judge a path of a workspace in which the directories of `BARE` are repositories."""
    return control_of(
        tuple(text.split("/")),
        is_directory=is_directory,
        is_link=is_link,
        is_repository=BARE.__contains__,
        is_settled=lambda path: "/".join(path) in settled,
    )


def test_data_is_no_control_place() -> None:
    cases = [
        *("src/main.py", "Makefile", "docs/a.b/c.md", "hooks/pre-commit", "config", "HEAD"),
        *(
            ".git/HEAD",
            ".git/index",
            ".git/index.lock",
            ".git/objects/ab/cd",
            ".git/refs/heads/main",
        ),
        *(".git/logs/HEAD", ".git/packed-refs", ".git/COMMIT_EDITMSG", ".git/sharedindex.ab12"),
        *(".git/hooks/pre-commit.sample", ".git/info/exclude", ".git/MERGE_HEAD", "x/refs/heads/y"),
        *(".git/modules/a/objects/ab/cd", ".git/worktrees/w/HEAD", ".git/worktrees/w/index"),
        *(
            ".gitignore",
            "a/.eslintrc.cjs",
            ".github/workflows/ci.yml",
            ".env.example",
            ".venv/bin/x",
        ),
        *(".obsidian-mcp/locks", ".playwright-mcp/page.yml"),
        *("node_modules/a/.hidden/b", ".pytest_cache/v/x", ".prettierrc.toml", ".yarn/cache/a.zip"),
        *(
            ".claude/README.md",
            ".claude/scripts/README.md",
            "mise.go",
            "bin/git",
            "venv/lib/bin/ls",
        ),
    ]
    assert [path for path in cases if judged(path) is not None] == []


def test_a_project_s_own_linters_tests_and_builds_are_code_as_the_packages_that_they_load() -> None:
    cases = [
        *("conftest.py", "noxfile.py", "setup.py", "alembic/env.py", "tox.ini", ".pylintrc"),
        *(
            "eslint.config.js",
            ".eslintrc.cjs",
            ".prettierrc.js",
            "vite.config.ts",
            "next.config.js",
        ),
        *(
            "build.rs",
            "build.gradle",
            "settings.gradle",
            "mix.exs",
            "Package.swift",
            ".rubocop.yml",
        ),
    ]
    assert [path for path in cases if judged(path) is not None] == []


def test_what_the_host_acts_on_is_a_control_place() -> None:
    cases = table("control_places/rules.acted_on", list[tuple[str, ControlKind, str]])
    assert [
        (path, kind, root)
        for path, kind, root in cases
        if judged(path) != ControlPlace(kind, tuple(root.split("/")))
    ] == []


def test_a_directory_of_git_alone_is_data_until_something_lies_in_it() -> None:
    assert judged("lib/.git", is_directory=True) is None


def test_a_link_in_the_data_of_a_repository_is_a_pointer() -> None:
    assert judged(".git/objects/ab", is_link=True) == ControlPlace(
        "pointer", (".git", "objects", "ab")
    )
    assert judged(".git/HEAD", is_link=True) is not None
    assert judged(".git/hooks", is_link=True) is not None
    assert judged("src/link", is_link=True) is None


def test_a_hidden_name_that_is_settled_is_data_and_one_that_is_acted_on_never_is() -> None:
    settled = frozenset({".frobnicate", ".claude"})
    assert judged(".frobnicate/a/b", settled=settled) is None
    assert judged(".frobnicate/.inner", settled=settled) == ControlPlace(
        "hidden", (".frobnicate", ".inner")
    )
    assert judged(".claude/agents/a.md", settled=settled) is not None


def test_a_workspace_that_is_itself_a_repository_s_directory_is_judged_as_one() -> None:
    found = control_of(
        ("config",),
        is_directory=False,
        is_link=False,
        is_repository=lambda path: path == (),
        is_settled=lambda _: False,
    )
    assert found == ControlPlace("configuration", ("config",))


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ({"HEAD", "objects", "refs"}, True),
        ({"HEAD", "commondir"}, True),
        ({"head", "Objects", "REFS"}, True),
        ({"Head", "CommonDir"}, True),
        ({"HEAD", "objects", "ref\u017f"}, True),
        ({"HE\u200bAD", "objects", "refs"}, True),
        ({"HEAD", "objects"}, False),
        ({"head", "Objects", "r\u00e9f"}, False),
        ({"objects", "refs", "config"}, False),
    ],
)
def test_a_directory_is_a_repository_by_what_it_holds(names: set[str], expected: bool) -> None:
    assert looks_like_repository(names) is expected


@pytest.mark.parametrize("piece", ["{", "${", "OPT", "CONFIG", "xargs "])
def test_settings_made_to_be_slow_are_read_in_steps_that_grow_with_their_length(piece: str) -> None:
    """Steps in expressions cannot be counted, but the processor's time in them is in proportion.

    A text of 16 times the length may take 40 times as long; where each place is read to the end it
    takes more than 80 times as long, on any machine.
    """
    few, many = (piece * ((1 << power) // len(piece)) for power in (12, 16))
    assert processor_time(many) < 40 * processor_time(few, few + "\n", few + "\n\n")


def processor_time(*texts: str) -> float:
    """The least time in which one of several texts is read; none was read before."""
    read_commands.cache_clear()
    found = []
    for text in texts:
        begun = process_time()
        read_commands(".envrc", text)
        found.append(process_time() - begun)
    return min(found)


def test_a_repository_of_many_blank_lines_names_its_objects_as_others() -> None:
    assert hash_length_of(b"\n" * (1 << 20)) == hash_length_of(b"")


def test_a_word_is_read_without_the_variable_before_it_and_else_whole() -> None:
    assert relative("${A:-x}/bin/tool") == "bin/tool"
    assert relative("{a,b}/bin/tool") == "{a,b}/bin/tool"
