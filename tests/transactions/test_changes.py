"""What a command changed in its view reaches the workspace by our own hand, whole or not."""

import ctypes
import os
import stat
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from ironcurtain_proxy.transactions import files
from ironcurtain_proxy.transactions.changes import RefusedChangesError
from ironcurtain_proxy.transactions.control import Control
from ironcurtain_proxy.transactions.transaction import commit, discard, take_back
from ironcurtain_proxy.transactions.walking import Walk
from tests.tables import table
from tests.transactions.bench import Workbench, names_in, said, steps

_ORDINARY = os.getuid() or 65534
"""A user who is not root."""


def test_the_workspace_sees_nothing_of_a_command_until_its_changes_are_brought_in(
    w: Workbench,
) -> None:
    w.write("a")
    before = w.picture()
    view = w.view("cd $PWD; echo new > a; mkdir d; echo x > d/y; rm -f a; git init -q r")
    assert w.picture() == before
    view.prepare(Control())
    assert w.picture() == before
    view.close()
    discard(view.directory)
    assert w.picture() == before
    assert names_in(w.session.directory) == ["lock"]


def test_each_kind_of_change_comes_in(each: Workbench) -> None:
    w = each
    for name in ("changed", "gone", "tree/a", "tree/deep/b", "emptied/a", "kind", "times"):
        w.write(name)
    w.write("run", mode=0o644)
    w.write("kept")
    (w.ws / "link").symlink_to("kept")
    found = w.run(
        """
        echo new > changed; rm gone; rm -r tree; rm emptied/a; chmod 755 run
        rm kind; mkdir kind; echo in > kind/in; ln -sfn changed link; touch -d @7 times
        mkdir -p new/deep; echo deep > new/deep/file; ln -s / new/out; mkdir empty
        mkdir closed; echo x > closed/x; chmod 500 closed; : > none
        """
    )
    assert steps(found) == [
        *("swap changed", "make closed", "remove emptied/a", "make empty", "remove gone"),
        *("swap kind", "swap link", "make new", "make none", "swap run", "swap times"),
        "remove tree",
    ]
    assert (w.ws / "changed").read_text() == "new\n"
    assert not (w.ws / "gone").exists()
    assert not (w.ws / "tree").exists()
    assert (w.ws / "kind/in").read_text() == "in\n"
    assert str((w.ws / "link").readlink()) == "changed"
    assert stat.S_IMODE((w.ws / "run").stat().st_mode) == 0o755
    assert (w.ws / "times").stat().st_mtime == 7
    assert (w.ws / "new/deep/file").read_text() == "deep\n"
    assert str((w.ws / "new/out").readlink()) == "/"
    assert stat.S_IMODE((w.ws / "closed").stat().st_mode) == 0o500
    assert (w.ws / "none").read_bytes() == b""
    (w.ws / "closed").chmod(0o700)
    for path in w.picture():
        names = os.listxattr(w.ws / os.fsdecode(path), follow_symlinks=False)
        assert not [one for one in names if "overlay" in one], path


@pytest.mark.parametrize(
    "script",
    [
        "true",
        "cat a > /dev/null; ls -lR",
        ": >> a",
        "chmod 600 a; chmod 644 a; touch -d @5 a",
        "echo new > new; rm new",
        "mkdir d; rmdir d",
        "ln a b; rm b",
    ],
)
def test_a_command_that_left_everything_as_it_was_changed_nothing(
    each: Workbench, script: str
) -> None:
    w = each
    os.utime(w.write("a"), (5, 5))
    before = w.picture()
    assert w.run(script).is_nothing
    assert w.picture() == before


def test_what_is_set_back_in_time_is_changed_nevertheless(each: Workbench) -> None:
    w = each
    for name in ("a", "b", "noted"):
        w.write(name, "old")
    (w.ws / "link").symlink_to("old")
    found = w.run(
        """
        for f in a b; do cp -p $f kept; printf new > $f; touch -r kept $f; rm kept; done
        python3 -c 'import os; os.setxattr("noted", "user.x", b"1")'
        touch -hr link /tmp 2> /dev/null; ln -sfn new link2; touch -hr link link2; mv link2 link
        """
    )
    assert steps(found)[:2] == ["swap a", "swap b"]
    assert [(w.ws / one).read_text() for one in ("a", "b")] == ["new", "new"]
    assert os.getxattr(w.ws / "noted", "user.x") == b"1"
    assert str((w.ws / "link").readlink()) == "new"


def test_a_cache_counts_as_any_directory(w: Workbench) -> None:
    w.write(".venv/bin/python", "real", 0o755)
    w.write("node_modules/.bin/eslint", "real", 0o755)
    found = w.run("echo evil > .venv/bin/python; rm -r node_modules")
    assert steps(found) == ["swap .venv/bin/python", "remove node_modules"]


def test_names_in_any_bytes_come_in(w: Workbench) -> None:
    names = [b"a\nb", b"\xff\xfe", b"-rf", b" ", b"x" * 255, "é".encode(), b"a\\b", b"$(id)"]
    script = "cd .; " + "; ".join(f"printf x > $'./{_quoted(one)}'" for one in names)
    found = w.run(script)
    assert sorted(one.path for one in found.steps) == sorted(names)
    assert sorted(map(os.fsencode, names_in(w.ws))) == sorted(names)


def _quoted(name: bytes) -> str:
    return "".join(f"\\x{byte:02x}" for byte in name)


def test_a_file_with_a_name_outside_keeps_its_mode_when_a_view_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = tmp_path / "outside"
    outside.write_text("mine")
    place = tmp_path / "view/upper/closed"
    for number in range(1200):
        (place / "d").mkdir(parents=True)
        if number % 400 == 0:
            (place / "file").hardlink_to(outside)
        monkeypatch.chdir(place)
        place = Path("d")
    outside.chmod(0o400)
    monkeypatch.chdir(tmp_path)
    subprocess.run(["chown", "-R", str(_ORDINARY), "."], check=True)
    for closed in ("view/upper/closed/d", "view/upper/closed"):
        Path(closed).chmod(0)
    if (child := os.fork()) == 0:
        # Root removes anything without a change of modes.
        with suppress(PermissionError):
            os.setuid(_ORDINARY)
        discard(Path("view"))
        os._exit(0)
    os.waitpid(child, 0)
    assert not Path("view").exists()
    assert stat.S_IMODE(outside.stat().st_mode) == 0o400


@pytest.mark.parametrize("when", ["before the look", "before the commit"])
def test_what_the_user_saves_after_the_clock_was_set_back_stays(
    w: Workbench, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    for name in ("file", "tree/file"):
        w.write(name)
    view = w.view("cd $PWD; echo call > file; rm -r tree; echo x > new")
    # An hour in which all that anybody writes looks older than the command.
    hour = 3600 * 10**9
    view._started_ns += hour
    view._booted_ns += hour
    now = time.time_ns
    if when == "before the commit":
        monkeypatch.setattr(time, "time_ns", lambda: now() + hour)
        assert not view.prepare(Control()).conflicts
        monkeypatch.setattr(time, "time_ns", now)
    for name in ("file", "tree/file"):
        w.write(name, "user")
    late = w.bring_in(view) if when == "before the look" else commit(view.directory)
    assert said(late) == ["file", "tree"]
    assert [(w.ws / one).read_text() for one in ("file", "tree/file")] == ["user", "user"]
    assert (w.ws / "new").exists()


def held_by_modes(is_held: bool) -> None:
    """Let the modes of files bind root as they bind everybody else, or no more."""
    libc, head, data = ctypes.CDLL(None), (ctypes.c_uint * 2)(0x20080522, 0), (ctypes.c_uint * 6)()
    assert libc.capget(head, data) == 0
    over_modes = 0b110
    data[0] = data[0] & ~over_modes if is_held else data[0] | (data[1] & over_modes)
    assert libc.capset(head, data) == 0


@pytest.mark.parametrize("script", table("transactions/control.closed", list[str]))
def test_what_is_closed_to_its_owner_comes_in_for_an_ordinary_user_as_it_does_for_root(
    tmp_path: Path, script: str
) -> None:
    pictures: list[object] = []
    for is_held in (False, True):
        w = Workbench(tmp_path / str(is_held))
        for name in ("f", "d/g", "read-only/g", "shut/in/f"):
            w.write(name)
        w.write("closed", mode=0)
        w.write("shut/closed", mode=0)
        for place in ("shut/in", "shut"):
            (w.ws / place).chmod(0)
        (w.ws / "read-only").chmod(0o555)
        view = w.view(script)
        held_by_modes(is_held)
        try:
            found = view.prepare(Control())
            late = commit(view.directory)
        finally:
            held_by_modes(is_held=False)
            view.close()
        discard(view.directory)
        picture: list[object] = [said(found.kept_back), said(found.left_out), late]
        waiting = [w.ws]
        for one in waiting:
            mode = stat.S_IMODE(one.lstat().st_mode)
            if not one.is_symlink():
                one.chmod(0o700)
                assert not [note for note in os.listxattr(one) if "overlay" in note]
            waiting += sorted(one.iterdir()) if one.is_dir() else ()
            picture.append((one.relative_to(w.ws), mode))
        pictures.append(picture)
        w.session.close()
    assert pictures[0] == pictures[1]


def test_what_the_user_saves_in_a_new_directory_after_the_clock_was_set_back_is_not_taken_back(
    w: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = w.view("mkdir new; echo call > new/file")
    hour, now = 3600 * 10**9, time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: now() + hour)
    view._booted_ns += hour
    view.prepare(Control())
    assert commit(view.directory) == []
    monkeypatch.setattr(time, "time_ns", now)
    for record in ("ended", "prepared"):
        os.utime(view.directory / record, ns=(now() + hour, now() + hour))
    w.write("new/file", "user")
    assert said(take_back(view.directory)) == ["new"]
    assert (w.ws / "new/file").read_text() == "user"


def test_the_clock_is_not_taken_as_set_back_in_a_pause_between_two_readings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real, paused = time.clock_gettime_ns, [10**9]

    def late(clock: int) -> int:
        return real(clock) + (paused.pop() if paused else 0)

    monkeypatch.setattr(time, "clock_gettime_ns", late)
    booted = files.booted_ns()
    assert files.sure_time(7, booted) == 7
    # It may be set forward, or the machine may have slept.
    assert files.sure_time(7, booted - 10**12) == 7
    # What was changed earlier than the clock was set back by counts as old all the same.
    assert -11 * 10**9 < files.sure_time(7, booted + 10**10) < -8 * 10**9


def test_a_second_name_of_a_file_becomes_a_file_of_its_own(w: Workbench) -> None:
    w.write("old")
    os.link(w.ws / "old", w.ws / "other")
    found = w.run("ln old third; echo x > n; ln n m; mkdir d; ln n d/n; echo more >> other")
    assert sorted(found.copied) == [b"m", b"n"]
    for name in ("n", "m", "d/n", "third"):
        assert (w.ws / name).stat().st_nlink == 1, name
    assert (w.ws / "d/n").read_text() == "x\n"
    assert (w.ws / "old").read_text() == "old"
    assert (w.ws / "other").read_text() == "oldmore\n"


def test_a_file_goes_together_with_a_directory_that_has_another_name_of_it(w: Workbench) -> None:
    (w.ws / "hard").hardlink_to(w.write("src/a"))
    w.run("rm -rf hard src")
    assert list(w.ws.iterdir()) == []
    assert w.late == []


def test_holes_and_attributes_stay(w: Workbench) -> None:
    w.run("truncate -s 50M big; printf end >> big; ln big second")
    for name in ("big", "second"):
        status = (w.ws / name).stat()
        assert (status.st_size, status.st_blocks * 512 < 1 << 20) == ((50 << 20) + 3, True), name
    w.write("noted")
    os.setxattr(w.ws / "noted", "user.note", b"mine")
    w.run("echo more >> noted")
    assert os.getxattr(w.ws / "noted", "user.note") == b"mine"


@pytest.mark.parametrize(
    ("script", "path"),
    table("transactions/control.other_users", list[tuple[str, str]]),
)
def test_no_other_user_of_the_machine_can_write_what_a_command_left(
    w: Workbench, script: str, path: str
) -> None:
    w.write("there")
    w.write("held/f")
    found = w.run(script)
    assert path in said(found.left_out)
    assert not (w.ws / path).stat().st_mode & stat.S_IWOTH
    assert (w.ws / path).exists()
    # What others could write before stays so.
    (w.ws / path).chmod(0o777)
    found = w.run(f"touch {path}; chmod 777 {path}")
    assert not found.left_out
    assert (w.ws / path).stat().st_mode & stat.S_IWOTH


@pytest.mark.parametrize(
    ("first", "second", "late"),
    [
        ("mkdir -p d/e; echo 1 > d/a; echo 1 > d/e/a", "mkdir -p d/e; echo 2 > d/e/b", []),
        ("mkdir d; echo 1 > d/same", "mkdir d; echo 1 > d/same; echo 2 > d/b", []),
        ("mkdir d; echo 1 > d/a", "mkdir d; echo 2 > d/a; echo 2 > d/b", ["d/a"]),
        ("mkdir -p d/e", "mkdir d; echo 2 > d/e", ["d/e"]),
        ("mkdir d; echo 1 > d/a", "ln -s / d", ["d"]),
        ("git init -q d", "git init -q d; echo 2 > d/b", ["d/.git"]),
        (
            "mkdir -p d/objects d/refs; echo ref: refs/heads/main > d/HEAD",
            "mkdir -p d/hooks; echo id > d/hooks/pre-commit; echo > d/config",
            ["d/config", "d/hooks"],
        ),
    ],
)
def test_commands_that_make_the_same_directory_at_once_fill_it_together(
    w: Workbench, first: str, second: str, late: list[str]
) -> None:
    views = [w.view(script) for script in (first, second)]
    for view in views:
        assert not view.prepare(Control()).conflicts
    assert [said(commit(view.directory)) for view in views] == [[], late]
    assert (w.ws / "d/b").exists() == ("d/b" in second)
    for view in views:
        view.close()
        discard(view.directory)


@pytest.mark.parametrize("script", ["mkdir d; echo 2 > d/a", "ln -s / d", "echo 2 > d"])
def test_what_came_into_the_workspace_in_a_directory_meanwhile_is_not_replaced(
    w: Workbench, script: str
) -> None:
    old = w.write("../other/a")

    def move() -> None:
        old.parent.rename(w.ws / "d")

    assert said(w.run(script, meanwhile=move).conflicts) in (["d/a"], ["d"])
    assert (w.ws / "d/a").read_text() == "old"


@pytest.mark.parametrize(
    ("script", "left_out"),
    [
        ("mkfifo a", ["a"]),
        ("mkdir d; mkfifo d/a; echo x > d/b", ["d/a"]),
        ("python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"s\")'", ["s"]),
        ("mknod dev c 1 3 || mkfifo dev", ["dev"]),
        ("cp /bin/true t; chmod 4755 t", ["t"]),
        ("cp /bin/true t; chmod 2755 t; mkdir d; cp -p t d", ["d/t", "t"]),
        ("chmod 4777 there", ["there"]),
    ],
)
def test_what_no_file_system_may_hold_for_others_is_left_out(
    w: Workbench, script: str, left_out: list[str]
) -> None:
    w.write("there")
    found = w.run(script)
    assert sorted(said(found.left_out)) == left_out
    for name in left_out:
        if name != "there":
            assert not os.path.lexists(w.ws / name)
    assert stat.S_IMODE((w.ws / "there").stat().st_mode) == 0o644


@pytest.mark.parametrize(
    ("script", "edit", "conflict"),
    [
        ("echo call > a", lambda w: w.write("a", "user"), "a"),
        ("rm a", lambda w: w.write("a", "user"), "a"),
        ("rm a; mkdir a; echo x > a/x", lambda w: w.write("a", "user"), "a"),
        ("echo call > new", lambda w: w.write("new", "user"), "new"),
        ("mkdir new; echo call > new/a", lambda w: w.write("new", "user"), "new"),
        ("rm -r d", lambda w: w.write("d/deep/f", "user"), "d"),
        ("rm -r d", lambda w: w.write("d/more", "user"), "d"),
        ("rm -r d; mkdir d; echo call > d/x", lambda w: w.write("d/deep/f", "user"), "d"),
        ("echo call > d/f", lambda w: w.write("d/f", "user", 0o600), "d/f"),
    ],
)
@pytest.mark.parametrize("when", ["meanwhile", "last"])
def test_what_the_user_changed_meanwhile_is_a_conflict_and_stays(
    each: Workbench, script: str, edit: Callable[[Workbench], object], conflict: str, when: str
) -> None:
    w = each
    for name in ("a", "d/f", "d/deep/f"):
        w.write(name)
    later: dict[str, object] = {}

    def by_the_user() -> None:
        edit(w)
        later.update({"picture": w.picture()})

    found = w.run(
        f"echo beside > beside; {script}",
        meanwhile=by_the_user if when == "meanwhile" else None,
        last=by_the_user if when == "last" else None,
    )
    assert said([*found.conflicts, *w.late]) == [conflict]
    assert (w.ws / "beside").read_text() == "beside\n"
    (w.ws / "beside").unlink()
    assert w.picture() == later["picture"]


def test_a_link_in_place_of_a_directory_leads_nothing_outside(w: Workbench) -> None:
    w.write("d/f")
    outside = w.base / "outside"
    outside.mkdir()

    def swap() -> None:
        (w.ws / "d").rename(w.ws / "moved")
        (w.ws / "d").symlink_to(outside)

    found = w.run("echo call > d/f; echo call > d/new", last=swap)
    assert sorted(said(w.late)) == ["d/f", "d/new"]
    assert names_in(outside) == []
    assert (w.ws / "moved/f").read_text() == "old"
    assert steps(found) == ["swap d/f", "make d/new"]


def test_links_in_the_workspace_are_not_followed_by_what_brings_changes_in(w: Workbench) -> None:
    outside = w.base / "outside"
    outside.mkdir()
    (outside / "f").write_text("outside")
    (w.ws / "out").symlink_to(outside)
    (w.ws / "d").mkdir()
    (w.ws / "in").symlink_to("d")
    w.run("rm out; mkdir out; echo call > out/f; echo call > in/f")
    assert (outside / "f").read_text() == "outside"
    assert not (w.ws / "out").is_symlink()
    assert (w.ws / "d/f").read_text() == "call\n"
    assert (w.ws / "in").is_symlink()


def test_a_bound_that_is_reached_refuses_everything(w: Workbench) -> None:
    view = w.view("head -c 20000 /dev/zero > 1; ln 1 2; ln 1 3; mkdir d; touch d/1")
    upper, host, aside = [
        os.open(one, files.DIRECTORY)
        for one in (view.directory / "upper", w.ws, view.directory / "aside")
    ]
    try:
        with pytest.raises(RefusedChangesError, match="too many names"):
            Walk(upper, host, aside, 0, Control(), left_to_copy=10_000).changes()
        with pytest.raises(RefusedChangesError, match="more entries"):
            Walk(upper, host, aside, 0, Control(), left=4).changes()
    finally:
        for one in (upper, host, aside):
            os.close(one)
        view.close()
    deep = w.view("for i in $(seq 300); do mkdir d; cd d; done; touch x")
    with pytest.raises(RefusedChangesError):
        deep.prepare(Control())
    deep.close()
    discard(deep.directory)
    assert not deep.directory.exists()
    assert names_in(w.ws) == []
