"""Two changes of git's index at once are merged path by path."""

import random
import subprocess
from pathlib import Path

import pytest

from ironcurtain_proxy.control_places.git_files import UnreadableIndexError, merged
from tests.control_places.test_git_index import git, gitlinks, repository
from tests.transactions.bench import Workbench, said


def staged(top: Path) -> list[str]:
    """What git lists as staged, with its own check of the index."""
    git(top, "fsck", "--no-dangling")
    return git(top, "diff", "--cached", "--name-status").splitlines()


def at_work(w: Workbench, *options: str) -> Path:
    w.ws.rmdir()
    top = repository(w.ws, *options)
    for name in ("one", "two", "sub/three"):
        w.write(name, name)
    return top


@pytest.mark.parametrize("form", ["sha1", "sha256"])
def test_commands_that_stage_different_files_at_once_are_no_conflict(
    w: Workbench, form: str
) -> None:
    top = at_work(w, f"--object-format={form}")
    other = w.view("git add sub/three")
    found = w.run("git add one", meanwhile=lambda: git(top, "add", "two"))
    assert (found.conflicts, w.late) == ((), [])
    assert w.bring_in(other) == []
    assert staged(top) == ["A\tone", "A\tsub/three", "A\ttwo"]
    assert git(top, "status", "--porcelain").splitlines() == staged_lines(top)


def staged_lines(top: Path) -> list[str]:
    return [line.replace("\t", "  ") for line in staged(top)]


def test_the_user_s_git_may_look_at_the_files_meanwhile(w: Workbench) -> None:
    top = at_work(w)

    def look() -> None:
        (top / "a").touch()
        git(top, "status")

    found = w.run("git add one && git -c user.name=a -c user.email=b commit -qm one", last=look)
    assert (found.conflicts, w.late) == ((), [])
    assert staged(top) == []
    assert git(top, "log", "--format=%s").splitlines() == ["one", "a"]


@pytest.mark.parametrize("when", ["meanwhile", "last"])
def test_the_same_entry_changed_by_both_stays_the_user_s_and_is_said(
    w: Workbench, when: str
) -> None:
    top = at_work(w)

    def users() -> None:
        (top / "one").write_text("the user's")
        git(top, "add", "one")

    at = {when: users}
    w.run(
        f"echo other > one; git add one sub; {AS_SOMEBODY[:-7]} commit -qm b; echo x > two",
        meanwhile=at.get("meanwhile"),
        last=at.get("last"),
    )
    assert said(w.late).count(".git/index") == 1
    assert git(top, "show", ":one") == "the user's"
    assert git(top, "log", "--format=%s").split() == ["a"]
    assert (top / "two").read_text() == "x\n"


def test_an_index_that_the_user_s_git_is_writing_is_left_to_it(
    w: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ironcurtain_proxy.transactions.merging._PATIENCE", 0.0)
    top = at_work(w)
    (top / ".git/index.lock").write_text("")
    found = w.run("rm .git/index.lock; git add one")
    assert ".git/index" in said((*found.conflicts, *w.late))
    (top / ".git/index.lock").unlink(missing_ok=True)
    assert staged(top) == []


def test_objects_of_both_come_into_a_directory_that_neither_began_with(w: Workbench) -> None:
    top = at_work(w)
    # Two contents whose objects lie in one directory, which is not there yet.
    by_directory: dict[str, str] = {}
    pair: list[str] = []
    for number in range(2000):
        text = f"text {number}"
        (top / "probe").write_text(text)
        name = git(top, "hash-object", "probe")[:2]
        if (
            not (top / ".git/objects" / name).exists()
            and by_directory.setdefault(name, text) != text
        ):
            pair = [by_directory[name], text]
            break
    w.write("one", pair[0])
    w.write("two", pair[1])
    w.run("git add one", last=lambda: git(top, "add", "two"))
    assert w.late == []
    assert [git(top, "show", f":{name}") for name in ("one", "two")] == pair
    assert staged(top) == ["A\tone", "A\ttwo"]


BELOW = {"plain": "lib/.git", "submodule": ".git/modules/lib", "worktree": ".git/worktrees/lib"}
AS_SOMEBODY = "git -c user.name=a -c user.email=b -C lib"


def below(w: Workbench, kind: str) -> Path:
    """A repository `lib` in the workspace."""
    top, lib = at_work(w), w.ws / "lib"
    if kind == "plain":
        repository(lib)
    elif kind == "submodule":
        source = repository(w.base / "source")
        allowed = ("-c", "protocol.file.allow=always")
        git(top, *allowed, "submodule", "--quiet", "add", str(source), "lib")
    else:
        git(top, "worktree", "add", "-q", "lib")
    for name in ("one", "two"):
        w.write(f"lib/{name}", name)
    return lib


@pytest.mark.parametrize("kind", BELOW)
def test_both_may_stage_and_commit_in_a_repository_below_the_workspace(
    w: Workbench, kind: str
) -> None:
    lib = below(w, kind)
    w.repositories = (BELOW[kind],)
    found = w.run(
        f"cd {w.ws}; {AS_SOMEBODY} add one && {AS_SOMEBODY} commit -qm one",
        meanwhile=lambda: git(lib, "add", "two"),
    )
    assert (found.kept_back, found.conflicts, w.late) == ((), (), [])
    assert staged(lib) == ["A\ttwo"]
    assert git(lib, "log", "-1", "--format=%s").strip() == "one"


@pytest.mark.parametrize("kind", BELOW)
@pytest.mark.parametrize("is_known", [True, False])
def test_an_index_that_cannot_be_merged_leaves_its_repository_as_the_user_has_it(
    w: Workbench, kind: str, is_known: bool
) -> None:
    lib = below(w, kind)
    w.repositories = (BELOW[kind],) if is_known else ()

    def users() -> None:
        if is_known:
            w.write("lib/one", "the user's")
            git(lib, "add", "one")
        else:
            git(lib, "add", "two")

    w.write("lib/three")
    words = f"{AS_SOMEBODY} add one three && {AS_SOMEBODY} commit -qm one"
    found = w.run(f"cd {w.ws}; echo other > lib/one; {words}; echo x > made", meanwhile=users)
    (late,) = [one for one in w.late if one.path.endswith(b"/index")]
    assert late.path.decode() == f"{BELOW[kind]}/index"
    assert "nothing of this repository came in" in late.why
    assert (found.kept_back, (w.ws / "made").read_text()) == ((), "x\n")
    # As the user left it: nothing of the commit, and nothing that it would have taken away.
    assert git(lib, "log", "--format=%s").split() == ["a"]
    assert staged(lib) == ["A\tone" if is_known else "A\ttwo"]


def index_of(top: Path) -> bytes:
    return (top / ".git/index").read_bytes()


@pytest.mark.parametrize("version", ["2", "3", "4"])
@pytest.mark.parametrize(("form", "length"), [("sha1", 20), ("sha256", 32)])
def test_a_merge_is_what_git_makes_of_both_changes_one_after_the_other(
    tmp_path: Path, version: str, form: str, length: int
) -> None:
    top = repository(tmp_path / "top", f"--object-format={form}")
    source = random.Random(f"{version}{form}")  # noqa: S311  test data
    names = [f"d{n % 5}/{'x' * (n % 11)}{n}" for n in range(60)]
    for name in names:
        (top / name).parent.mkdir(exist_ok=True)
        (top / name).write_text(name)
    git(top, "add", "-A")
    if version == "3":
        (top / "later").write_text("x")
        git(top, "add", "--intent-to-add", "later")
    git(top, "update-index", "--index-version", version)
    base = index_of(top)
    source.shuffle(names)

    def change(some: list[str], word: str) -> bytes:
        for number, name in enumerate(some):
            (top / name).write_text(f"{word} {name}")
            act = ("add", "rm --cached -qf", "update-index --chmod=+x")[number % 3].split()
            git(top, *act, name)
        (top / word).write_text(word)
        git(top, "add", word)
        return index_of(top)

    ours = change(names[:9], "ours")
    (top / ".git/index").write_bytes(base)
    theirs = change(names[9:18], "theirs")
    change(names[:9], "ours")
    expected = git(top, "ls-files", "--stage")
    found = merged(base, ours, theirs, hash_length=length)
    assert found is not None
    (top / ".git/index").write_bytes(found)
    assert git(top, "ls-files", "--stage") == expected
    git(top, "fsck", "--no-dangling")
    assert merged(ours, base, theirs, hash_length=length) is not None


def test_a_torn_index_merges_with_nothing(tmp_path: Path) -> None:
    top = repository(tmp_path / "top")
    whole = index_of(top)
    for end in range(1, len(whole) - 20, 7):
        with pytest.raises(UnreadableIndexError):
            merged(whole, whole[:end], whole)
    assert gitlinks(whole) == frozenset()
    assert subprocess.run(["git", "-C", str(top), "status"], check=False).returncode == 0


@pytest.mark.parametrize("option", ["--assume-unchanged", "--skip-worktree"])
def test_a_command_hides_no_file_from_the_user_s_git(w: Workbench, option: str) -> None:
    top = at_work(w)
    found = w.run(f"git update-index {option} a; echo evil > a")
    assert ".git/index" in said(found.kept_back)
    assert git(top, "status", "--porcelain", "-uno") == " M a\n"
    # What the user hides stays hidden, and hinders no command.
    git(top, "update-index", option, "a")
    assert not w.run("git add one").kept_back


LIAR = """
import hashlib, os, struct
index = bytearray(open('.git/index', 'rb').read()[:-20])
open('a', 'w').write('b')
one = os.stat('a')
os.utime('a', (1000000000, 1000000000))
struct.pack_into('>2I', index, 12 + 8, 1000000000, 0)
struct.pack_into('>I', index, 12 + 20, one.st_ino & 0xFFFFFFFF)
open('.git/new', 'wb').write(index + hashlib.sha1(index).digest())
os.rename('.git/new', '.git/index')
"""


@pytest.mark.parametrize("first", ["", "rm .git/index", "cp -a .git g; rm -r .git; mv g .git"])
def test_an_index_that_says_a_changed_file_is_as_before_is_not_believed(
    w: Workbench, first: str
) -> None:
    """The user's git is one that does not look at times of change, such as on a network's disk."""
    top = at_work(w)
    kept = (top / ".git/index").read_bytes()
    w.write("kept").write_bytes(kept)
    if first.startswith("rm"):
        w.run(first)
        first = ""
    script = LIAR.replace("'.git/index', 'rb'", "'kept', 'rb'")
    found = w.run(f"{first}\ncat > liar.py <<'END'{script}END\npython3 liar.py; rm liar.py kept")
    assert not found.kept_back
    assert (top / "a").read_text() == "b"
    said_ = git(top, "-c", "core.trustctime=false", "-c", "core.checkStat=minimal", "status", "-s")
    assert " M a" in said_.splitlines()
    assert git(top, "fsck") == ""
