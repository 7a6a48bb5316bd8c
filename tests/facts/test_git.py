"""Where git would connect to, asked of a real git."""

import os
import shutil
import subprocess
from collections.abc import Callable
from mmap import mmap
from pathlib import Path

import pytest

from ironcurtain_proxy.facts.arguments import Refusal
from ironcurtain_proxy.facts.git import GitRemotes, RemoteOperation

GOOD = "https://github.com/acme/x.git"
EVIL = "https://evil.example.com/x.git"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


@pytest.fixture
def remotes(home: Path) -> GitRemotes:
    return GitRemotes(environment(home))


def environment(home: Path) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": str(home), "GIT_CONFIG_NOSYSTEM": "1"}


@pytest.fixture
def repository(tmp_path: Path, home: Path) -> Callable[[str], str]:
    def make(config: str) -> str:
        path = tmp_path / "repo"
        command = ["git", "init", "-q", "-b", "main", str(path)]
        subprocess.run(command, check=True, env=environment(home))
        with (path / ".git" / "config").open("a") as file:
            file.write(config)
        return str(path)

    return make


def remote(name: str, *lines: str) -> str:
    return f'[remote "{name}"]\n' + "".join(f"\t{line}\n" for line in lines)


INSTEAD = '[url "https://evil.example.com/"]\n\tinsteadOf = https://github.com/acme/\n'
PUSH_INSTEAD = INSTEAD.replace("insteadOf", "pushInsteadOf")
ORIGIN = remote("origin", f"url = {GOOD}")


@pytest.mark.parametrize(
    ("config", "given", "operation", "urls"),
    [
        pytest.param(ORIGIN, "origin", "push", {GOOD}, id="a name is its URL"),
        pytest.param(
            remote("origin", f"url = {GOOD}", f"pushurl = {EVIL}"),
            "origin",
            "push",
            {EVIL},
            id="a pushurl is where pushes go",
        ),
        pytest.param(
            remote("origin", f"url = {GOOD}", f"pushurl = {EVIL}"),
            "origin",
            "fetch",
            {GOOD},
            id="a pushurl is not where fetches go",
        ),
        pytest.param(
            remote("origin", f"url = {GOOD}", f"pushurl = {EVIL}"),
            "origin",
            "both",
            {GOOD, EVIL},
            id="an unknown tool may go to both",
        ),
        pytest.param(
            remote("origin", f"url = {GOOD}", f"url = {EVIL}"),
            "origin",
            "push",
            {GOOD, EVIL},
            id="a push goes to every URL",
        ),
        pytest.param(ORIGIN + INSTEAD, "origin", "push", {EVIL}, id="a URL is rewritten"),
        pytest.param(ORIGIN + PUSH_INSTEAD, "origin", "push", {EVIL}, id="only for pushes"),
        pytest.param(ORIGIN + PUSH_INSTEAD, "origin", "fetch", {GOOD}, id="not for fetches"),
        pytest.param(INSTEAD, GOOD, "fetch", {EVIL}, id="a spelled-out URL is rewritten too"),
        pytest.param(PUSH_INSTEAD, GOOD, "push", {EVIL}, id="for pushes too"),
        pytest.param("", GOOD, "push", {GOOD}, id="a spelled-out URL is itself"),
        pytest.param("", "github.com", "push", {"github.com"}, id="an unknown name is itself"),
        pytest.param(
            remote(GOOD, f"url = {EVIL}"), GOOD, "push", {EVIL}, id="a URL may be a remote's name"
        ),
        pytest.param(
            remote("github.com", f"url = {EVIL}"),
            "github.com",
            "fetch",
            {EVIL},
            id="a host may be a remote's name",
        ),
        pytest.param(
            remote("odd", "fetch = +a:b"), "odd", "push", {"odd"}, id="a remote without URL"
        ),
        pytest.param(
            remote("odd", f"pushurl = {EVIL}"), "odd", "push", {EVIL}, id="only with a pushurl"
        ),
        pytest.param(ORIGIN, "--upload-pack=id", "fetch", {"--upload-pack=id"}, id="no option"),
    ],
)
def test_every_url_that_git_would_use_is_found(
    repository: Callable[[str], str],
    remotes: GitRemotes,
    config: str,
    given: str,
    operation: RemoteOperation,
    urls: set[str],
) -> None:
    """G8."""
    found = remotes.destinations(given, repository(config), operation)
    assert not isinstance(found, Refusal)
    assert set(found) == urls


BRANCH = '[branch "main"]\n'
BAD = remote("bad", f"url = {EVIL}")


@pytest.mark.parametrize(
    ("config", "operation", "urls"),
    [
        pytest.param("", "push", set(), id="no remote at all"),
        pytest.param(ORIGIN, "fetch", {GOOD}, id="origin"),
        pytest.param(BAD, "fetch", {EVIL}, id="the only one"),
        pytest.param(
            ORIGIN + BAD + BRANCH + "\tremote = bad\n",
            "fetch",
            {GOOD, EVIL},
            id="the branch's, and origin",
        ),
        pytest.param(
            ORIGIN + BAD + BRANCH + "\tpushRemote = bad\n",
            "push",
            {GOOD, EVIL},
            id="the branch's for pushes",
        ),
        pytest.param(
            ORIGIN + BAD + BRANCH + "\tpushRemote = bad\n", "fetch", {GOOD}, id="not for fetches"
        ),
        pytest.param(
            ORIGIN + BAD + "[remote]\n\tpushDefault = bad\n",
            "push",
            {GOOD, EVIL},
            id="the repository's for pushes",
        ),
        pytest.param(
            ORIGIN + BRANCH + f"\tremote = {EVIL}\n",
            "fetch",
            {GOOD, EVIL},
            id="a URL in place of a name",
        ),
        pytest.param(
            ORIGIN + BAD + "[fetch]\n\tall = true\n", "fetch", {GOOD, EVIL}, id="all at once"
        ),
    ],
)
def test_leaving_the_remote_out_means_every_default(
    repository: Callable[[str], str],
    remotes: GitRemotes,
    config: str,
    operation: RemoteOperation,
    urls: set[str],
) -> None:
    """G9."""
    found = remotes.default_destinations(repository(config), operation)
    assert not isinstance(found, Refusal)
    assert set(found) == urls


@pytest.mark.parametrize(
    ("config", "given", "operation"),
    [
        pytest.param("[remotes]\n\tall = a b\n", "all", "fetch", id="a group"),
        pytest.param(
            '[remotes "github"]\n\tcom = bad\n', "github.com", "fetch", id="a dotted group"
        ),
        pytest.param(
            '[remotes "https://github.com/acme/x"]\n\tgit = bad\n', GOOD, "fetch", id="a URL group"
        ),
        pytest.param(
            remote("origin", f"url = {GOOD}", "vcs = hg"), "origin", "push", id="a helper program"
        ),
        pytest.param(
            remote("origin", f'url = "{GOOD}\\n{EVIL}"'), "origin", "fetch", id="a line in a URL"
        ),
        pytest.param("[broken\n", "origin", "push", id="a broken configuration"),
        pytest.param(ORIGIN, "a\nb", "push", id="a line in a name"),
        pytest.param(ORIGIN, "a\ud800", "push", id="half a character"),
    ],
)
def test_what_git_keeps_elsewhere_is_refused(
    repository: Callable[[str], str],
    remotes: GitRemotes,
    config: str,
    given: str,
    operation: RemoteOperation,
) -> None:
    """G8."""
    assert isinstance(remotes.destinations(given, repository(config), operation), Refusal)


@pytest.mark.parametrize("folder", ["remotes", "branches"])
def test_a_remote_in_an_outdated_file_is_refused(
    repository: Callable[[str], str], remotes: GitRemotes, folder: str
) -> None:
    """G8."""
    path = repository("")
    kept = Path(path, ".git", folder)
    kept.mkdir(exist_ok=True)
    (kept / "github.com").write_text(f"URL: {EVIL}\n")
    assert isinstance(remotes.destinations("github.com", path, "push"), Refusal)


def test_rewriting_in_the_servers_own_configuration_counts(
    repository: Callable[[str], str], remotes: GitRemotes, home: Path
) -> None:
    """G8."""
    path = repository(ORIGIN)
    (home / ".gitconfig").write_text(INSTEAD)
    assert remotes.destinations("origin", path, "push") == (EVIL,)


def test_a_clone_is_rewritten_by_the_user_and_not_by_a_repository(
    repository: Callable[[str], str], remotes: GitRemotes, home: Path
) -> None:
    repository(PUSH_INSTEAD)
    assert remotes.destinations(GOOD, None, "fetch") == (GOOD,)
    (home / ".gitconfig").write_text(INSTEAD)
    assert remotes.destinations(GOOD, None, "fetch") == (EVIL,)
    assert remotes.destinations("--upload-pack=id", None, "fetch") == ("--upload-pack=id",)


def test_outside_a_repository_a_name_is_a_name(tmp_path: Path, remotes: GitRemotes) -> None:
    assert remotes.destinations("origin", str(tmp_path), "push") == ("origin",)
    assert remotes.destinations("origin", str(tmp_path / "missing"), "push") == ("origin",)
    assert remotes.default_destinations(str(tmp_path), "push") == ()


def test_a_repository_of_someone_else_is_refused(
    repository: Callable[[str], str], remotes: GitRemotes
) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a repository away")
    path = repository(ORIGIN)
    os.chown(path, 65534, 65534)
    os.chown(Path(path, ".git"), 65534, 65534)
    assert isinstance(remotes.destinations("origin", path, "push"), Refusal)


def test_nothing_of_the_repository_is_run(
    repository: Callable[[str], str], remotes: GitRemotes, tmp_path: Path
) -> None:
    mark = tmp_path / "ran"
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch {mark}\n")
    program.chmod(0o755)
    path = repository(
        ORIGIN
        + f"[core]\n\tfsmonitor = {program}\n\tpager = {program}\n\tsshCommand = {program}\n"
        + f"\taskPass = {program}\n\teditor = {program}\n\thooksPath = {tmp_path}\n"
        + f"[credential]\n\thelper = {program}\n"
        + f"[alias]\n\tremote = !{program}\n\tconfig = !{program}\n"
        + f"[pager]\n\tremote = {program}\n\tconfig = {program}\n"
    )
    remotes.destinations("origin", path, "both")
    remotes.default_destinations(path, "both")
    assert not mark.exists()


def test_a_git_that_hangs_is_given_up(repository: Callable[[str], str], home: Path) -> None:
    path = repository("[include]\n\tpath = pipe\n" + ORIGIN)
    os.mkfifo(Path(path, ".git", "pipe"))
    hurried = GitRemotes(environment(home), deadline=0.2)
    assert isinstance(hurried.destinations("origin", path, "push"), Refusal)


def test_a_flood_of_remotes_is_refused(
    repository: Callable[[str], str], remotes: GitRemotes
) -> None:
    path = repository("".join(remote(f"r{n}", f"url = {GOOD}/{'x' * 500}") for n in range(2000)))
    assert isinstance(remotes.destinations("r1", path, "push"), Refusal)


def test_without_git_a_remote_is_refused(tmp_path: Path) -> None:
    blind = GitRemotes({"PATH": str(tmp_path)})
    assert isinstance(blind.destinations(GOOD, str(tmp_path), "push"), Refusal)


def test_the_servers_own_settings_by_environment_count(
    repository: Callable[[str], str], home: Path
) -> None:
    """G8."""
    own = {
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "remote.origin.pushurl",
        "GIT_CONFIG_VALUE_0": EVIL,
    }
    seeing = GitRemotes({**environment(home), **own, "GIT_PAGER": "less"})
    assert seeing.destinations("origin", repository(ORIGIN), "push") == (EVIL,)


def test_a_directory_that_becomes_a_repository_is_looked_at_anew(
    tmp_path: Path, home: Path
) -> None:
    remotes = GitRemotes({"PATH": os.environ["PATH"], "HOME": str(home)})
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    for _ in range(2):
        assert remotes.default_destinations(str(below), "push") == ()
        assert remotes.destinations("origin", str(below), "push") == ("origin",)
    subprocess.run(["git", "init", "-q", str(tmp_path / "a")], check=True, env=environment(home))
    with (tmp_path / "a" / ".git" / "config").open("a") as file:
        file.write(ORIGIN)
    assert remotes.default_destinations(str(below), "push") == (GOOD,)
    assert remotes.destinations("origin", str(below), "push") == (GOOD,)


def in_memory(path: Path) -> None:
    """Change a file without a new time, as a program does that holds it in its memory."""
    before = path.stat()
    with path.open("r+b") as file, mmap(file.fileno(), 0) as content:
        content[:] = content[:].replace(b"github.com", b"hijack.com")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def rewrite(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(INSTEAD)


def lead_away(pointer: Path) -> None:
    """Lead a worktree to another repository."""
    other = pointer.parents[1] / "other"
    shutil.copytree(pointer.parents[1] / "repo", other)
    config = other / ".git" / "config"
    config.write_text(config.read_text().replace(GOOD, EVIL))
    pointer.write_text(f"gitdir: {other}/.git/worktrees/tree\n")


@pytest.mark.parametrize(
    ("change", "name", "of_worktree"),
    [
        pytest.param(rewrite, "home/.gitconfig", None, id="the user's settings, for a clone"),
        pytest.param(in_memory, "repo/.git/config", False, id="the repository's settings"),
        pytest.param(in_memory, "repo/.git/config", True, id="those of a worktree's repository"),
        pytest.param(lead_away, "tree/.git", True, id="where a worktree belongs"),
        pytest.param(rewrite, "home/.gitconfig", False, id="the user's settings"),
        pytest.param(rewrite, "home/.config/git/config", True, id="the user's other settings"),
        pytest.param(
            lambda head: head.write_text("ref: refs/heads/away\n"), "repo/.git/HEAD", False,
            id="the branch",
        ),
    ],
)  # fmt: skip
def test_git_is_asked_anew_once_what_its_answer_rests_on_has_changed(
    repository: Callable[[str], str],
    home: Path,
    tmp_path: Path,
    change: Callable[[Path], None],
    name: str,
    of_worktree: bool | None,
) -> None:
    """A clone (`None`) belongs to no repository."""
    path = repository(ORIGIN + BAD + '[branch "away"]\n\tremote = bad\n')
    log, plain = tmp_path / "log", {"PATH": os.environ["PATH"], "HOME": str(home)}
    program = tmp_path / "bin" / "git"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho x >> {log}\nexec {shutil.which("git")} "$@"\n')
    program.chmod(0o755)
    if of_worktree:
        commit = [
            "-c",
            "user.name=a",
            "-c",
            "user.email=a@b.example",
            "commit",
            "-q",
            "--allow-empty",
            "-m",
            "a",
        ]
        subprocess.run(["git", "-C", path, *commit], check=True, env=plain)
        add = ("worktree", "add", "-q", "-b", "tree", str(tmp_path / "tree"))
        subprocess.run(["git", "-C", path, *add], check=True, env=plain)
        path = str(tmp_path / "tree")
    remotes = GitRemotes({**plain, "PATH": f"{program.parent}:{plain['PATH']}"})

    def ask() -> tuple[bool, object]:
        """Return whether git was started, and the URLs."""
        before = log.read_text() if log.exists() else ""
        urls = (
            remotes.destinations(GOOD, None, "fetch")
            if of_worktree is None
            else remotes.default_destinations(path, "push")
        )
        return log.read_text() != before, urls

    asked, first = ask()
    assert first == (GOOD,)
    while asked:
        asked, again = ask()
        assert again == first
    change(tmp_path / name)
    asked, urls = ask()
    assert asked
    assert urls not in (first, ())
    assert not isinstance(urls, Refusal)
