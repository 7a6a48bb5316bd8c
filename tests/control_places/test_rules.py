"""Which paths are control places."""

import pytest

from ironcurtain_proxy.control_places.rules import (
    ControlKind,
    ControlPlace,
    control_of,
    looks_like_repository,
)

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


def test_what_the_host_acts_on_is_a_control_place() -> None:
    cases: list[tuple[str, ControlKind, str]] = [
        (".git/config", "configuration", ".git/config"),
        (".git/config.lock", "configuration", ".git/config.lock"),
        ("lib/.git/config.worktree", "configuration", "lib/.git/config.worktree"),
        ("node_modules/a/.git/config", "configuration", "node_modules/a/.git/config"),
        (".GIT/config", "configuration", ".GIT/config"),
        (".git/hooks/pre-commit", "hook", ".git/hooks/pre-commit"),
        (".git/hooks/a.sample/b", "hook", ".git/hooks/a.sample/b"),
        (".git/rebase-merge/strategy", "state", ".git/rebase-merge"),
        (".git/sequencer/opts", "state", ".git/sequencer"),
        (".git/BISECT_RUN", "state", ".git/BISECT_RUN"),
        (".git/info/attributes", "configuration", ".git/info/attributes"),
        (".git/branches/br", "configuration", ".git/branches/br"),
        (".git/remotes/br", "configuration", ".git/remotes/br"),
        (".git/objects/info/alternates", "configuration", ".git/objects/info/alternates"),
        (".git/modules/a/config", "configuration", ".git/modules/a/config"),
        (".git/modules/a/evil/config", "configuration", ".git/modules/a/evil/config"),
        (".git/modules/b/c", "configuration", ".git/modules/b/c"),
        (".git/worktrees/w/commondir", "configuration", ".git/worktrees/w/commondir"),
        (".git/anything-that-git-may-learn", "configuration", ".git/anything-that-git-may-learn"),
        ("x/config", "configuration", "x/config"),
        ("x/hooks/update", "hook", "x/hooks/update"),
        ("sub/.git", "pointer", "sub/.git"),
        (".claude/commands/a.md", "acted-on", ".claude/commands/a.md"),
        (".CLAUDE/settings.json", "acted-on", ".CLAUDE/settings.json"),
        ("a/b/.vscode/tasks.json", "acted-on", "a/b/.vscode/tasks.json"),
        (".jj/repo/config.toml", "acted-on", ".jj/repo/config.toml"),
        (".github/extensions/x/run", "acted-on", ".github/extensions"),
        ("p/team.code-workspace", "acted-on", "p/team.code-workspace"),
        ("lefthook.yml", "acted-on", "lefthook.yml"),
        ("prek.toml", "acted-on", "prek.toml"),
        ("jupyter_server_config.json", "acted-on", "jupyter_server_config.json"),
        ("a/_MTN/monotonerc", "acted-on", "a/_MTN/monotonerc"),
        ("_opam/bin/git", "acted-on", "_opam/bin"),
        ("grumphp.yml.dist", "acted-on", "grumphp.yml.dist"),
        ("mise/config.toml", "acted-on", "mise/config.toml"),
        ("mise.dev.local.toml", "acted-on", "mise.dev.local.toml"),
        ("flake.lock", "acted-on", "flake.lock"),
        (".claude/agents/README.md", "acted-on", ".claude/agents/README.md"),
        (".ssh/config.d/README", "acted-on", ".ssh/config.d/README"),
        ("a/.venv/bin/git", "acted-on", "a/.venv/bin/git"),
        (".php-version", "version", ".php-version"),
        (".sdkmanrc", "version", ".sdkmanrc"),
        (".lfsconfig", "acted-on", ".lfsconfig"),
        (".obsidian/plugins/x/main.js", "acted-on", ".obsidian/plugins/x/main.js"),
        (".pyenv-vars", "acted-on", ".pyenv-vars"),
        ("buildServer.json", "acted-on", "buildServer.json"),
        ("bin/activate-hermit", "acted-on", "bin/activate-hermit"),
        (".frobnicate/settings/deep", "hidden", ".frobnicate"),
        ("a/.newtool", "hidden", "a/.newtool"),
    ]
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
        ({"HEAD", "objects"}, False),
        ({"objects", "refs", "config"}, False),
    ],
)
def test_a_directory_is_a_repository_by_what_it_holds(names: set[str], expected: bool) -> None:
    assert looks_like_repository(names) is expected
