"""What can make programs run outside every sandbox is found, wherever and however it is written.

The server's part is played by this process: the kernel tells of its writes in the same way.
"""

import os
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ironcurtain_proxy.sandbox import lookout, survey
from ironcurtain_proxy.sandbox.lookout import ControlLookout
from ironcurtain_proxy.sandbox.putting_back import RemovedFiles

EVIL = "[core]\n\tfsmonitor = ./evil\n"
NOBODY = 65534


@dataclass
class Watched:
    """A workspace that is looked after."""

    top: Path
    elsewhere: Path
    state: Path
    lookout: ControlLookout = field(init=False)

    def begin(self) -> tuple[str, ...]:
        """As at the start of a session; gives what sandboxes are to close."""
        self.lookout = ControlLookout((str(self.top),), RemovedFiles(self.state))
        self.lookout.begin()
        return self.lookout.closed()

    def put(self, name: str, text: str = "x") -> Path:
        path = self.top / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def look(self) -> list[str]:
        return [one.said for one in self.lookout.look()]


def made(place: Path) -> Watched:
    names = [place / name for name in ("w", "elsewhere", "state")]
    for name in names:
        name.mkdir()
    return Watched(*names)


def repository(w: Watched, name: str = ".git") -> None:
    for file, text in {"HEAD": "ref: refs/heads/x\n", "config": "", "hooks/x.sample": ""}.items():
        w.put(f"{name}/{file}", text)
    for directory in ("objects", "refs"):
        (w.top / name / directory).mkdir()


@pytest.mark.parametrize(
    "name", [".git/config.worktree", ".git/commondir", ".claude/settings.local.json"]
)
def test_what_is_looked_at_while_it_is_being_written_is_gone_in_the_end(
    w: Watched, name: str
) -> None:
    repository(w)
    (w.top / ".claude").mkdir()
    w.begin()
    with (w.top / name).open("w") as file:
        w.look()
        file.write(EVIL)
        file.flush()
        w.look()
    w.look()
    assert not (w.top / name).exists()


def test_a_repository_whose_parts_lie_elsewhere_is_found(w: Watched) -> None:
    w.begin()
    w.put("x/real/config", "[alias]\n\tst = !evil\n")
    for name in ("x/real/objects", "x/real/refs"):
        (w.top / name).mkdir()
    w.put("x/HEAD", "ref: refs/heads/x\n")
    w.put("x/commondir", "real\n")
    done = subprocess.run(["git", "-C", w.top / "x", "rev-parse"], check=False, capture_output=True)
    assert done.returncode == 0
    assert len(w.look()) == 1
    assert not (w.top / "x/HEAD").exists()
    done = subprocess.run(["git", "-C", w.top / "x", "rev-parse"], check=False, capture_output=True)
    assert done.returncode != 0


@pytest.mark.parametrize(
    "target",
    [
        "{elsewhere}/evil",
        "/proc/self/cwd/node_modules/evil",
        "/dev/fd/../cwd/node_modules/evil",
        "../link/evil",
    ],
)
def test_a_pointer_to_where_a_server_may_write_is_taken_away(w: Watched, target: str) -> None:
    repository(w)
    w.begin()
    (w.top / "link").symlink_to(w.top / ".git/modules")
    w.put("p/.git", f"gitdir: {target.format(elsewhere=w.elsewhere)}\n")
    assert len(w.look()) == 1
    assert not (w.top / "p/.git").exists()


def test_a_pointer_is_looked_at_again_when_what_it_leads_to_is_another(w: Watched) -> None:
    repository(w)
    w.begin()
    repository(w, "a/.git/modules/s")
    repository(w, "a/.git")
    w.put("p/.git", "gitdir: ../a/.git/modules/s\n")
    assert w.look() == []
    (w.top / "a").rename(w.top / "b")
    (w.top / "a").symlink_to(w.top / "node_modules/evil")
    w.look()
    assert not (w.top / "p/.git").exists()


def test_a_module_with_a_long_name_that_is_made_slowly_is_found(w: Watched) -> None:
    repository(w)
    w.begin()
    (w.top / ".git/modules/a/b").mkdir(parents=True)
    w.look()
    w.put(".git/modules/a/b/HEAD")
    hook = w.put(".git/modules/a/b/hooks/post-checkout")
    assert w.look() != []
    assert not hook.exists()


def test_a_workspace_that_becomes_too_large_is_said_and_looked_at_all_the_same(
    w: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(survey, "MOST_DIRECTORIES", 10)
    w.begin()
    for number in range(20):
        w.put(f"d{number}/.claude/settings.json")
    assert "too many directories" in w.look()[0]
    assert w.lookout.unseen
    assert w.look() == []
    assert [*w.top.glob("*/.claude")] == []


def test_what_is_too_much_to_be_closed_ends_containment(
    w: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookout, "_MOST_CLOSED", 3)
    for number in range(4):
        assert not (number and w.lookout.unseen)
        w.put(f"d{number}/.envrc")
        w.begin()
    assert w.lookout.unseen


def test_a_directory_of_another_user_that_is_closed_to_us_is_no_hindrance(
    as_nobody: Watched,
) -> None:
    if os.getuid() != 0:
        pytest.skip("only root makes a directory of another user")
    w = as_nobody
    os.seteuid(0)
    w.put("theirs/x").parent.chmod(0o700)
    os.seteuid(NOBODY)
    w.begin()
    assert not w.lookout.unseen
    assert w.look() == []


def test_more_entries_of_a_directory_than_are_taken_away_singly_take_it_with_them(
    w: Watched,
) -> None:
    repository(w)
    mine = w.put(".git/hooks/pre-commit", "mine")
    w.put("settings/.claude/settings.json", "mine")
    w.begin()
    w.lookout.closed_files.clear()
    for number in range(3000):
        w.put(f".git/hooks/a{number}.sample")
        w.put(f".git/hooks/b{number}")
    for number in range(100):
        w.put(f"settings/.claude/c{number}")
    assert len(w.look()) == 2
    assert {one.name for one in mine.parent.iterdir()} == {"pre-commit"}
    assert mine.read_text() == "mine"
    assert [one.name for one in (w.top / "settings/.claude").iterdir()] == ["settings.json"]
    assert w.look() == []


def test_directories_nested_without_end_are_taken_away(w: Watched) -> None:
    w.begin()
    here = os.open(w.top, os.O_RDONLY)
    for _ in range(300):
        os.mkdir("d" * 20, dir_fd=here)
        inner = os.open("d" * 20, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.mkdir(".claude", dir_fd=here)
    os.close(here)
    assert len(w.look()) == 1
    assert w.look() == []


@pytest.mark.parametrize("is_closed", [True, False])
def test_a_second_name_of_an_accepted_configuration_is_ended(w: Watched, is_closed: bool) -> None:
    text = "[core]\n\tbare = false\n"
    repository(w)
    config = w.put(".git/config", text)
    w.begin()
    if not is_closed:
        # As the user's own git writes it: another file, over which no sandbox has a mount.
        w.put(".git/new", text).rename(config)
        assert w.look() == []
    else:
        w.lookout.closed_files.clear()
    (w.top / "node_modules").mkdir()
    (w.top / "node_modules/c").hardlink_to(config)
    assert len(w.look()) == 1
    w.put("node_modules/c", EVIL)
    assert w.look() == []
    assert config.read_text() == text


@pytest.mark.parametrize(
    "name",
    [
        ".git/modules/m/hooks/x",
        ".git/rebase-merge/strategy",
        ".unheard-of/x",
        ".git/info/attributes",
    ],
)
def test_what_a_look_in_the_middle_lets_pass_is_gone_in_the_end(w: Watched, name: str) -> None:
    repository(w)
    w.begin()
    w.put(name, "evil")
    assert w.lookout.look_for_later() == ()
    assert len(w.look()) == 1
    assert not (w.top / name).exists()


def test_every_accepted_configuration_is_read_at_every_look(w: Watched) -> None:
    w.begin()
    for number in range(100):
        repository(w, f"r{number}/.git")
        w.put(f"r{number}/.git/config", "[core]\n\tbare = false\n")
    assert w.look() == []
    stamp = (w.top / "r7/.git/config").stat()
    w.put("r7/.git/config", EVIL)
    os.utime(w.top / "r7/.git/config", ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    assert len(w.look()) == 1
    assert EVIL not in (w.top / "r7/.git/config").read_text()


# --- what there is at the start


def linked_hook(w: Watched) -> Path:
    target = w.put("scripts/pre-commit")
    (w.top / ".git/hooks/pre-commit").symlink_to("../../scripts/pre-commit")
    return target


def linked_hooks(w: Watched) -> Path:
    target = w.put("githooks/pre-commit").parent
    (w.top / ".git/hooks/x.sample").unlink()
    (w.top / ".git/hooks").rmdir()
    (w.top / ".git/hooks").symlink_to("../githooks")
    return target


def other_hooks(w: Watched) -> Path:
    w.put(".git/config", "[core]\n\tbare = false\n\thooksPath = .husky\n")
    return w.put(".husky/pre-commit").parent


def quoted_hooks(w: Watched) -> Path:
    target = w.put("my hooks/pre-commit").parent
    w.put(".git/config", f'[core] hookspath = "{target}" ; mine\n')
    return target


def included(w: Watched) -> Path:
    w.put(".git/config", '[includeIf "gitdir:/"]\n\tpath = ../tools/gitconfig\n')
    return w.put("tools/gitconfig")


def linked_settings(w: Watched) -> Path:
    target = w.put("agents/claude.json")
    (w.top / ".claude").mkdir()
    (w.top / ".claude/settings.json").symlink_to("../agents/claude.json")
    return target


@pytest.mark.parametrize(
    "place", [linked_hook, linked_hooks, other_hooks, quoted_hooks, included, linked_settings]
)
def test_what_steering_files_lead_to_is_closed_from_the_start(
    w: Watched, place: Callable[[Watched], Path]
) -> None:
    repository(w)
    target = place(w)
    assert str(target) in w.begin()


def test_a_repository_that_a_link_leads_to_is_looked_after(w: Watched) -> None:
    repository(w, "store")
    (w.top / "p").mkdir()
    (w.top / "p/.git").symlink_to("../store")
    assert {str(w.top / "store/config"), str(w.top / "store/hooks")} <= {*w.begin()}


def test_a_closed_file_that_is_written_under_another_name_is_put_back(w: Watched) -> None:
    repository(w)
    (w.top / "other").hardlink_to(w.put(".git/config", "[core]\n\tbare = false\n"))
    w.begin()
    w.put("other", EVIL)
    # As a program that touches something beside it makes the kernel tell.
    w.put(".git/index")
    assert len(w.look()) == 1
    assert (w.top / ".git/config").read_text() == "[core]\n\tbare = false\n"


# --- what cannot be looked into


@pytest.fixture
def as_nobody() -> Iterator[Watched]:
    with tempfile.TemporaryDirectory(dir="/var/tmp", ignore_cleanup_errors=True) as place:
        was_root = os.geteuid() == 0
        Path(place).chmod(0o777)
        if was_root:
            os.seteuid(NOBODY)
        try:
            watched = made(Path(place).resolve())
            yield watched
            watched.lookout.close()
        finally:
            if was_root:
                os.seteuid(0)


@pytest.mark.parametrize("mode", [0o000, 0o300, 0o311, 0o400])
def test_a_directory_that_is_closed_to_us_hides_nothing(as_nobody: Watched, mode: int) -> None:
    w = as_nobody
    w.begin()
    hook = w.put("shut/deep/.git/hooks/post-commit")
    (w.top / "shut").chmod(mode)
    assert len(w.look()) == 1
    (w.top / "shut").chmod(0o700)
    assert not hook.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root looks into a directory that is closed")
def test_a_directory_that_root_looks_into_keeps_its_mode(w: Watched) -> None:
    w.begin()
    hook = w.put("shut/deep/.git/hooks/post-commit")
    (w.top / "shut").chmod(0o311)
    assert (len(w.look()), hook.exists()) == (1, False)
    assert stat.S_IMODE((w.top / "shut").stat().st_mode) == 0o311


def test_a_directory_on_the_way_that_we_may_only_pass_is_no_hindrance(as_nobody: Watched) -> None:
    if os.getuid() != 0:
        pytest.skip("only root makes a directory of another user")
    w = as_nobody
    w.begin()
    hook = w.put("new/.git/hooks/pre-commit")
    os.seteuid(0)
    w.top.parent.chmod(0o711)
    os.chown(w.top.parent, 0, 0)
    os.seteuid(NOBODY)
    assert len(w.look()) == 1
    assert not hook.exists()


def test_a_module_that_is_closed_to_us_is_taken_away(as_nobody: Watched) -> None:
    w = as_nobody
    repository(w)
    w.begin()
    w.put(".git/modules/a/b/HEAD")
    w.put(".git/modules/a/b/hooks/post-checkout")
    (w.top / ".git/modules/a").chmod(0o311)
    w.look()
    assert not any(one.is_file() for one in (w.top / ".git/modules/a").rglob("*"))


@pytest.mark.parametrize(
    "name", [".mcp.json", "deep/.mcp.json", ".cursor/mcp.json", ".VSCode/MCP.json"]
)
def test_a_file_that_names_servers_to_start_is_taken_away(w: Watched, name: str) -> None:
    w.begin()
    file = w.put(name)
    assert len(w.look()) == 1
    assert not file.exists()


def test_what_was_there_moves_with_the_directory_that_holds_it(w: Watched) -> None:
    repository(w, "a/.git")
    w.put("a/.git/hooks/pre-commit")
    w.put("a/.vscode/tasks.json")
    w.put("a/.mcp.json")
    w.begin()
    (w.top / "a").rename(w.top / "b")
    assert w.look() == []
    assert (w.top / "b/.git/hooks/pre-commit").exists()


def test_the_users_own_hooks_settings_and_pointers_stay_what_they_were(w: Watched) -> None:
    """Beyond the files that sandboxes close, and once the user's git has replaced one."""
    for name in (".git", "other"):
        repository(w, name)
    guard = w.put(".git/hooks/pre-push", "guard")
    guard.chmod(0o755)
    pointer = w.put("tree/.git", "gitdir: ../.git\n")
    w.begin()
    w.lookout.closed_files.clear()
    guard.chmod(0o644)
    pointer.write_text("gitdir: ../other\n")
    (w.top / ".git/config").unlink()
    assert len(w.look()) == 3
    assert (guard.stat().st_mode & 0o777, pointer.read_text()) == (0o755, "gitdir: ../.git\n")
    assert (w.top / ".git/config").exists()
    shutil.rmtree(guard.parent)
    guard.parent.write_text("no directory")
    assert (len(w.look()), guard.read_text()) == (1, "guard")
    (w.top / ".git").rename(w.top / "aside")
    assert w.look() == []
    repository(w)
    assert (len(w.look()), guard.read_text()) == (1, "guard")
    assert w.look() == []


def test_a_repository_in_the_place_of_the_users_has_no_other_remote(w: Watched) -> None:
    repository(w)
    url = '[remote "origin"]\n\turl = https://example.com/{}\n'
    (w.top / ".git/config").write_text(url.format("ours"))
    w.begin()
    (w.top / ".git").rename(w.top / "aside")
    repository(w)
    for name, left in (("ours", 0), ("x", 1)):
        (w.top / ".git/config").write_text(url.format(name))
        assert len(w.look()) == left


FORGE = """
import hashlib, os, struct
content = bytearray(open(".git/index", "rb").read()[:-20])
file = os.stat("a.txt")
times = (file.st_ctime_ns, file.st_mtime_ns)
struct.pack_into(">IIII", content, 12, *[part for one in times for part in divmod(one, 10**9)])
struct.pack_into(">II", content, 28, file.st_dev & 0xFFFFFFFF, file.st_ino & 0xFFFFFFFF)
open(".git/index", "wb").write(content + hashlib.sha1(content).digest())
os.utime(".git/index", (4e9, 4e9))
"""


@pytest.mark.parametrize(
    ("attack", "said"),
    [
        ("git update-index --assume-unchanged a.txt; echo evil > a.txt", 1),
        ("git update-index --skip-worktree a.txt; echo evil > a.txt; touch .git/index.lock", 1),
        ("git update-index --skip-worktree a.txt; rm a.txt", 1),
        ("echo evil > a.txt; git update-index --split-index --assume-unchanged a.txt", 1),
        ('echo "3vil" > a.txt; python3 -c "$FORGE"', 0),
        ("mv .git aside; cp -a aside .git; git update-index --assume-unchanged a.txt; >a.txt", 1),
    ],
)
def test_git_shows_what_a_call_changed_though_its_index_says_otherwise(
    w: Watched, attack: str, said: int
) -> None:
    def run(script: str) -> str:
        script = f"{script}; git status --porcelain -- a.txt b.txt"
        words, home = ["sh", "-c", script], {**os.environ, "FORGE": FORGE, "HOME": str(w.state)}
        return subprocess.run(
            words, cwd=w.top, env=home, check=True, capture_output=True
        ).stdout.decode()

    commit = "git -c user.name=a -c user.email=b commit -qm x"
    run(f"git init -q; echo mine > a.txt; >b.txt; git add -A; {commit}")
    run("git update-index --skip-worktree b.txt; rm b.txt")
    w.begin()
    assert run(attack) == ""
    assert len([one for one in w.look() if "index" in one]) == said
    assert run("true").split()[1:] == (
        ["a.txt"] if "aside" not in attack else ["a.txt", "D", "b.txt"]
    )
    assert w.look() == []


def test_a_file_that_names_servers_and_was_there_is_closed_and_restored(w: Watched) -> None:
    mine = [w.put(".mcp.json", "mine"), w.put(".cursor/mcp.json", "mine").parent]
    assert set(map(str, mine)) <= set(w.begin())


def test_a_directory_that_the_user_closed_stays_closed_until_a_server_has_touched_it(
    w: Watched,
) -> None:
    hook = "shut/r/.git/hooks/pre-commit"
    (w.top / "shut").mkdir(0)
    w.begin()
    w.look()
    assert (w.top / "shut").stat().st_mode & 0o777 == 0
    (w.top / "shut").chmod(0o700)
    w.put(hook, EVIL)
    (w.top / "shut").chmod(0)
    w.look()
    (w.top / "shut").chmod(0o700)
    assert not (w.top / hook).exists()


def test_what_lies_too_deep_for_a_path_is_taken_away_for_every_user(
    w: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    w.begin()
    monkeypatch.setattr(os, "geteuid", lambda: NOBODY)
    name = "n" * 250
    here = os.open(w.top, os.O_RDONLY)
    for _ in range(20):
        os.mkdir(name, dir_fd=here)
        inner = os.open(name, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.mkdir(".claude", dir_fd=here)
    assert len(w.look()) == 1
    os.close(here)
    deepest = max(len(path) for path, _, _ in os.walk(w.top))
    assert deepest < 4096
    assert w.look() == []
    shutil.rmtree(w.top / name)


def test_a_link_that_comes_and_goes_hides_nothing_beside_it(
    w: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    w.begin()
    (w.top / "d").mkdir()
    link, file = w.top / "d/link", w.put("d/.mcp.json")
    link.symlink_to("x")
    read = os.readlink

    def gone(path: str) -> str:
        link.unlink(missing_ok=True)
        return read(path)

    monkeypatch.setattr(os, "readlink", gone)
    assert len(w.look()) == 1
    assert not file.exists()
