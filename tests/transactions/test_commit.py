"""A commit is done as a whole: killed, refused or on a full disk, it leaves the workspace alone."""

import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ironcurtain_proxy.transactions import files
from ironcurtain_proxy.transactions.availability import NoViews, store_for, why_no_views
from ironcurtain_proxy.transactions.control import Control
from ironcurtain_proxy.transactions.transaction import CommandView, SessionViews, commit, discard
from tests.transactions.bench import Workbench, names_in, recover, said, steps

_DEEDS = """
    echo call > a; rm b; rm -r tree; mkdir new; echo x > new/x; chmod 700 d; echo y > d/y
    rm -r again; mkdir again; echo z > again/z; rm kind; mkdir kind; mkdir shut; chmod 500 shut
    rm hard; rm -r linked
"""


@pytest.fixture
def prepared(w: Workbench) -> Iterator[tuple[Workbench, CommandView]]:
    for name in ("a", "b", "tree/deep/f", "d/f", "again/f", "kind"):
        w.write(name)
    (w.ws / "hard").hardlink_to(w.write("linked/f"))
    view = w.view(_DEEDS)
    view.prepare(Control())
    yield w, view
    view.close()


def _kill_at(view: CommandView, number: int) -> bool:
    """Commit in another process, which is killed before its nth rename. False: it got through."""
    child = os.fork()
    if child == 0:
        left = [number]
        real = files._rename

        def counted(*args: object) -> None:
            left[0] -= 1
            if left[0] < 0:
                os.kill(os.getpid(), signal.SIGKILL)
            real(*args)  # type: ignore[arg-type]  # as they came

        files._rename = counted  # type: ignore[assignment]  # counts, and does it
        try:
            commit(view.directory)
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0


def test_the_next_start_takes_back_what_a_killed_commit_left_half_done(
    prepared: tuple[Workbench, CommandView],
) -> None:
    w, first = prepared
    before, number = w.picture(), 0
    view = first
    while _kill_at(view, number):
        # The lock of the killed process's session is let go by the kernel.
        os.close(w.session._lock)
        assert recover(w.store) == []
        assert w.picture() == before, number
        assert not any(w.store.iterdir())
        w.session = SessionViews(w.store)
        if view is not first:
            view.close()
        view = w.view(_DEEDS)
        view.prepare(Control())
        number += 1
    assert number == len(_renames())
    assert (w.ws / "again/z").exists()


def _renames() -> list[str]:
    """The renames of `_DEEDS`: each step but the mode of `d`."""
    return [
        *("swap a", "swap again", "remove b", "make d/y", "swap kind"),
        *("remove hard", "remove linked", "make new", "make shut", "remove tree"),
    ]


@pytest.mark.parametrize(
    ("path", "edit"),
    [
        ("a", lambda file: file.write_text("by the user")),
        ("a", lambda file: (file.unlink(), file.write_text("by the user"))),
        ("new", lambda new: (new / "more").write_text("by the user")),
        ("again", lambda again: (again / "z").write_text("by the user")),
        ("shut", lambda shut: shut.chmod(0o711)),
    ],
)
def test_what_the_user_changed_after_a_killed_commit_is_not_taken_back(
    prepared: tuple[Workbench, CommandView], path: str, edit: Callable[[Path], object]
) -> None:
    w, view = prepared
    before = w.picture()
    assert _kill_at(view, len(_renames()) - 1)
    edit(w.ws / path)
    mine = {p: v for p, v in w.picture().items() if (p + b"/").startswith(path.encode() + b"/")}
    os.close(w.session._lock)
    for _ in range(2):
        stays = recover(w.store)
        assert said(stays) == [path]
        assert str(view.directory) in stays[0].why
        after = w.picture()
        assert {p: v for p, v in after.items() if p in mine} == mine
        others = {
            p: v for p, v in before.items() if not (p + b"/").startswith(path.encode() + b"/")
        }
        assert {p: v for p, v in after.items() if p in others} == others
    if path in {"a", "again"}:
        kept = view.directory / "upper" / path
        assert kept.is_dir() or kept.read_text() == "old"
    w.session = SessionViews(w.store)


def test_a_commit_that_cannot_be_taken_back_at_once_is_by_the_next_start(
    prepared: tuple[Workbench, CommandView], monkeypatch: pytest.MonkeyPatch
) -> None:
    w, view = prepared
    before, left, real = w.picture(), [4], files._rename

    def failing(*args: object) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(28, "No space left on device")
        real(*args)  # type: ignore[arg-type]  # as they came

    with monkeypatch.context() as patched:
        patched.setattr(files, "_rename", failing)
        with pytest.raises(OSError, match="No space"):
            commit(view.directory)
    discard(view.directory)
    w.session.close()
    assert view.directory.exists()
    assert recover(w.store) == []
    assert (w.picture(), list(w.store.iterdir())) == (before, [])
    w.session = SessionViews(w.store)


def test_a_view_that_was_never_committed_is_removed_by_the_next_start(
    prepared: tuple[Workbench, CommandView],
) -> None:
    w, view = prepared
    before = w.picture()
    assert recover(w.store) == []
    assert view.directory.exists()
    os.close(w.session._lock)
    assert recover(w.store) == []
    assert (w.picture(), list(w.store.iterdir())) == (before, [])
    w.session = SessionViews(w.store)


@pytest.mark.parametrize("number", [0, 3, 6])
def test_a_step_that_fails_takes_the_others_back(
    prepared: tuple[Workbench, CommandView], monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    w, view = prepared
    before, left, real = w.picture(), [number], files._rename

    def failing(*args: object) -> None:
        left[0] -= 1
        if left[0] == -1:
            raise OSError(28, "No space left on device")
        real(*args)  # type: ignore[arg-type]  # as they came

    monkeypatch.setattr(files, "_rename", failing)
    with pytest.raises(OSError, match="No space"):
        commit(view.directory)
    assert w.picture() == before


def test_a_full_disk_refuses_before_anything_is_brought_in(tmp_path: Path) -> None:
    base = tmp_path / "small"
    base.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "none", str(base)]
    if subprocess.run(mount, check=False, capture_output=True).returncode != 0:
        pytest.skip("only root makes a small file system")
    try:
        w = Workbench(base)
        w.write("a", "x" * 1000)
        before = w.picture()
        view = w.view("echo call > a; echo b > b; ln b c; head -c 9M /dev/zero > fill || true")
        with pytest.raises(OSError, match="space"):
            view.prepare(Control())
        view.close()
        discard(view.directory)
        assert w.picture() == before
    finally:
        subprocess.run(["umount", "-l", str(base)], check=True)


def test_another_directory_in_the_place_of_the_workspace_is_left_alone(
    prepared: tuple[Workbench, CommandView],
) -> None:
    w, view = prepared
    w.ws.rename(w.base / "away")
    w.write("a", "of another project")
    before = w.picture()
    with pytest.raises(OSError, match="another directory"):
        commit(view.directory)
    assert w.picture() == before


def test_many_files_come_in_by_one_rename(w: Workbench) -> None:
    script = "mkdir n; cd n; python3 -c 'for i in range(12000): open(str(i), \"x\").close()'"
    found = w.run(f"{script}; echo x > .claude; rm 77")
    assert steps(found) == ["make n"]
    assert [one.path for one in found.kept_back] == [b"n/.claude"]
    assert len(names_in(w.ws / "n")) == 11_999


def test_a_place_for_views_is_on_the_file_system_of_the_workspace_and_private(
    w: Workbench, tmp_path: Path
) -> None:
    other = Path("/proc") if w.base == tmp_path else tmp_path
    place = w.base / "mine"
    assert store_for(str(w.ws), [other / "theirs", place]) == place
    assert place.stat().st_mode & 0o777 == 0o700
    place.chmod(0o755)
    refused = store_for(str(w.ws), [place])
    assert isinstance(refused, NoViews)
    assert "open to other users" in refused.why
    below = store_for("/", [place])
    assert isinstance(below, NoViews)
    assert "mounted in the workspace" in below.why


def test_a_machine_without_views_is_recognised(w: Workbench) -> None:
    why = why_no_views(w.session.directory, python="/bin/false")
    assert why is not None
    assert names_in(w.session.directory) == ["lock"]


def test_an_ordinary_user_has_views(tmp_path: Path) -> None:
    python = shutil.which("python3", path="/usr/bin:/usr/local/bin")
    if os.geteuid() != 0 or python is None:
        pytest.skip("the other tests run as an ordinary user")
    base = Path("/dev/shm", f"txn-{os.getpid()}")
    layers = [base / name for name in ("ws", "upper", "work")]
    try:
        for one in layers:
            one.mkdir(parents=True)
        (base / "ws/a").write_text("old")
        shutil.copy(Path(files.__file__).with_name("mounting.py"), base / "mounting.py")
        subprocess.run(["chown", "-R", "nobody:nogroup", str(base)], check=True)
        script = 'cd "$0"; echo new > a; mkdir d; id -u'
        ran = subprocess.run(
            [
                *("runuser", "-u", "nobody", "--", python, "-I", "-S"),
                *(str(base / "mounting.py"), "-", "-", "2", *map(str, layers)),
                *("--", "/bin/sh", "-c", script, str(base / "ws")),
            ],
            capture_output=True,
            check=False,
        )
        if b"no view: namespace" in ran.stderr:
            pytest.skip("ordinary users have no user namespaces here")
        assert (ran.returncode, ran.stderr) == (0, b"0")
        assert (base / "ws/a").read_text() == "old"
        assert names_in(base / "upper") == ["a", "d"]
    finally:
        shutil.rmtree(base)


def test_hooks_that_settings_name_are_kept_back_by_any_name_that_a_file_system_takes_for_theirs(
    w: Workbench,
) -> None:
    w.run("git init -q .")
    w.write(".git/config", "[core]\n\thooksPath = tools/hooks\n")
    found = w.run("mkdir -p Tools/HOOKS; echo id > Tools/HOOKS/pre-commit; ln -s o TOOLS; echo > o")
    assert said(found.kept_back) == ["TOOLS", "Tools/HOOKS"]
    assert (w.ws / "o").exists()
