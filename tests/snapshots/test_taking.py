"""A snapshot holds all that a call may change, or there is none."""

import os
import resource
import signal
import socket
import stat
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from ironcurtain_proxy.snapshots.faults import SnapshotError
from ironcurtain_proxy.snapshots.rollback import listed, restore
from ironcurtain_proxy.snapshots.snapshot import SnapshotLimits, finish, forget
from tests.snapshots.dying_processes import in_a_child, kill_at
from tests.snapshots.snapshot_fixture import Scene, names_in, seen

pytestmark = pytest.mark.requirement("B-62")


def test_what_did_not_exist_is_gone_again(place: Scene) -> None:
    snapshot = place.take(place.work / "new" / "deep" / "file.txt")
    (place.work / "new" / "deep").mkdir(parents=True)
    (place.work / "new" / "deep" / "file.txt").write_text("made")
    (place.work / "new" / "other.txt").write_text("made too")
    finish(snapshot)
    restore("one", place.snapshots)
    assert names_in(place.work) == []


def test_a_path_that_never_came_to_exist_is_nothing_to_do(place: Scene) -> None:
    finish(place.take(place.work / "never"))
    assert restore("one", place.snapshots).changes == ()


def test_a_file_in_another_comes_back_once(place: Scene) -> None:
    (place.work / "d").mkdir()
    (place.work / "d" / "f").write_text("before")
    snapshot = place.take(place.work / "d" / "f", place.work / "d", place.work / "d")
    assert [root[-1] for root in snapshot.manifest.roots] == ["d"]


def test_nobody_else_can_read_what_is_kept(place: Scene) -> None:
    (place.work / "secret").write_text("key")
    old = os.umask(0)
    try:
        finish(place.take(place.work / "secret"))
    finally:
        os.umask(old)
    modes = {
        stat.S_IMODE(path.lstat().st_mode) for path in place.snapshots.rglob("*") if path.is_file()
    }
    assert modes == {0o600}
    directories = [place.snapshots, *[p for p in place.snapshots.rglob("*") if p.is_dir()]]
    assert {stat.S_IMODE(path.lstat().st_mode) for path in directories} == {0o700}


def test_a_directory_that_others_could_read_is_closed_to_them(place: Scene) -> None:
    place.snapshots.mkdir(parents=True)
    place.snapshots.chmod(0o755)
    place.take(place.work / "f")
    assert stat.S_IMODE(place.snapshots.stat().st_mode) == 0o700


def pipe(path: Path) -> None:
    os.mkfifo(path)


def hard_link(path: Path) -> None:
    path.write_text("x")
    path.with_name("other name").hardlink_to(path)


def local_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        os.chdir(path.parent)
        server.bind(path.name)


def attributes(path: Path) -> None:
    path.write_text("x")
    os.setxattr(path, "user.mark", b"1")


def other_user(path: Path) -> None:
    if os.geteuid():
        pytest.skip("only root can give a file away")
    path.write_text("x")
    os.chown(path, 12345, -1)


def unreadable(path: Path) -> None:
    if not os.geteuid():
        pytest.skip("root can read everything")
    path.write_text("x")
    path.chmod(0)


def huge(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


def deep(path: Path) -> None:
    path.mkdir()
    descriptor = os.open(path, os.O_RDONLY)
    for _ in range(220):
        os.mkdir("d", dir_fd=descriptor)
        below = os.open("d", os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = below
    os.close(descriptor)


@pytest.mark.parametrize(
    "make",
    [pipe, hard_link, local_socket, attributes, other_user, unreadable, huge, deep],
    ids=lambda make: make.__name__,
)
def test_what_could_not_be_put_back_makes_no_snapshot(
    place: Scene, make: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place.root)
    (place.work / "held").mkdir()
    make(place.work / "held" / "odd")
    with pytest.raises(SnapshotError) as raised:
        place.take(place.work / "held")
    assert "odd" not in str(raised.value), "the message may reach the agent"
    assert names_in(place.snapshots) == []


@pytest.mark.parametrize(
    ("limits", "fits"),
    [
        (SnapshotLimits(bytes=20, files=4), True),
        (SnapshotLimits(bytes=19), False),
        (SnapshotLimits(files=3), False),
    ],
)
def test_no_more_than_the_limits_is_held(place: Scene, limits: SnapshotLimits, fits: bool) -> None:
    (place.work / "held").mkdir()
    for name in ("a", "b"):
        (place.work / "held" / name).write_text("0123456789")
    (place.work / "held" / "link").symlink_to("a")
    if fits:
        place.take(place.work / "held", limits=limits)
        return
    with pytest.raises(SnapshotError):
        place.take(place.work / "held", limits=limits)
    assert names_in(place.snapshots) == []


def test_a_directory_that_became_a_link_makes_no_snapshot(place: Scene) -> None:
    outside = place.root / "outside"
    outside.mkdir()
    (outside / "f").write_text("of others")
    (place.work / "d").symlink_to(outside)
    with pytest.raises(SnapshotError):
        place.take(place.work / "d" / "f")
    with pytest.raises(SnapshotError):
        place.take(place.work / "d" / "not there")


def test_a_link_is_held_as_a_link(place: Scene) -> None:
    (place.work / "link").symlink_to("/etc/passwd")
    snapshot = place.take(place.work / "link")
    (entry,) = snapshot.manifest.before.values()
    assert (entry.kind, entry.content) == ("link", "/etc/passwd")


@pytest.mark.parametrize("inside", ["", "state", "state/snapshots/x", "state/config.json"])
def test_our_own_state_is_never_held(place: Scene, inside: str) -> None:
    with pytest.raises(SnapshotError):
        place.take(place.root / inside)


def test_the_whole_disk_is_never_held(place: Scene) -> None:
    with pytest.raises(SnapshotError):
        place.take(Path("/"))


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/b", "a\nb", "-f", "a.lock", "x" * 200])
def test_an_id_that_could_mean_another_place_makes_no_snapshot(place: Scene, name: str) -> None:
    with pytest.raises(SnapshotError):
        place.take(place.work / "f", name=name)


def test_a_snapshot_is_never_taken_over(place: Scene) -> None:
    (place.work / "f").write_text("first")
    finish(place.take(place.work / "f"))
    with pytest.raises(SnapshotError):
        place.take(place.work / "f")
    (place.work / "f").write_text("first")
    assert [one.manifest.id for one in listed(place.snapshots)] == ["one"]


def test_a_directory_of_snapshots_that_is_a_link_is_refused(place: Scene) -> None:
    (place.root / "state").mkdir()
    (place.root / "elsewhere").mkdir()
    place.snapshots.symlink_to(place.root / "elsewhere")
    with pytest.raises(SnapshotError):
        place.take(place.work / "f")
    assert names_in(place.root / "elsewhere") == []


def test_a_snapshot_that_is_not_needed_can_be_forgotten(place: Scene) -> None:
    forget(place.take(place.work / "f"))
    assert names_in(place.snapshots) == []


@pytest.mark.parametrize("limit", [0, 100, 5000, 60_000])
def test_a_full_disk_makes_no_snapshot(place: Scene, limit: int) -> None:
    (place.work / "big").write_bytes(b"x" * 64_000)
    before = seen(place.work)

    def fill() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        place.take(place.work / "big")

    assert in_a_child(fill) == 3
    assert names_in(place.snapshots) == []
    assert seen(place.work) == before


def test_a_kill_while_it_is_taken_leaves_no_snapshot(place: Scene) -> None:
    (place.work / "held").mkdir()
    for count in range(5):
        (place.work / "held" / f"{count}").write_text(f"{count}")
    before = seen(place.work)
    killed = 0
    for nth in range(1, 200):
        code = in_a_child(partial(kill_at, nth, partial(take_and_end, place, f"x{nth}")))
        assert seen(place.work) == before
        if code == 0:
            break
        killed += 1
        assert code == -signal.SIGKILL
        assert listed(place.snapshots) == [], "the manifest comes last"
    assert killed > 10
    assert restore(f"x{nth}", place.snapshots, dry_run=True).changes == ()


def take_and_end(place: Scene, name: str) -> None:
    place.take(place.work / "held", name=name)
