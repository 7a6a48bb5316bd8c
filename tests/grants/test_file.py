"""The file of kept grants: private, whole, shared by proxies, and never believed blindly."""

import fcntl
import multiprocessing
import os
import stat
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest

from ironcurtain_proxy.grants import kept as grants_file
from ironcurtain_proxy.grants.format import KeptGrant, grants_file_bytes
from ironcurtain_proxy.grants.kept import GrantsFile, GrantsFileError
from tests.grants.kept_grants import a_kept

pytestmark = pytest.mark.requirement("X-12")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "grants.json"


@pytest.fixture
def file(path: Path) -> GrantsFile:
    return GrantsFile(path, lock_seconds=0.05)


def adding(*added: KeptGrant) -> Callable[[tuple[KeptGrant, ...]], tuple[KeptGrant, ...]]:
    return lambda grants: (*grants, *added)


def ids(file: GrantsFile) -> list[str]:
    return [kept.id for kept in file.read().grants]


def names(directory: Path) -> list[str]:
    return sorted(entry.name for entry in directory.iterdir())


def test_a_file_that_is_not_there_holds_nothing_and_is_not_made_by_reading(
    file: GrantsFile, path: Path
) -> None:
    assert file.read().grants == ()
    assert file.stamp() == ()
    file.update(lambda grants: grants)
    assert not path.exists()


def test_what_is_written_is_ours_alone_and_leaves_nothing_else_behind(
    file: GrantsFile, path: Path
) -> None:
    file.update(adding(a_kept("g1")))
    file.update(adding(a_kept("g2")))
    assert ids(file) == ["g1", "g2"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert names(path.parent) == ["grants.json", "grants.json.lock"]


def test_every_change_of_the_file_changes_its_stamp_and_nothing_else_does(file: GrantsFile) -> None:
    first = file.update(adding(a_kept("g1"))).stamp
    assert file.read().stamp == file.stamp() == first
    assert file.update(lambda grants: grants).stamp == first
    assert file.update(adding(a_kept("g2"))).stamp != first


def test_grants_are_removed_by_id(file: GrantsFile) -> None:
    file.update(adding(a_kept("g1"), a_kept("g2"), a_kept("g3")))
    file.remove({"g1", "g3", "other"})
    assert ids(file) == ["g2"]


def test_a_temporary_file_that_a_crash_left_is_no_obstacle_and_goes(
    file: GrantsFile, path: Path
) -> None:
    path.parent.mkdir(mode=0o700)
    path.with_name(".grants.json.tmp").write_bytes(b"{")
    file.update(adding(a_kept()))
    assert names(path.parent) == ["grants.json", "grants.json.lock"]


def test_a_malformed_entry_is_told_and_gone_with_the_next_change(
    file: GrantsFile, path: Path
) -> None:
    file.update(adding(a_kept("g1"), a_kept("g2")))
    document = orjson.loads(path.read_bytes())
    document["grants"][0]["uses"] = 9
    path.write_bytes(orjson.dumps(document))
    assert file.read().read.problems == ("grant 1 is ignored: it was changed",)
    file.update(lambda grants: grants)
    assert ids(file) == ["g2"]
    assert file.read().read.problems == ()


def link(path: Path) -> None:
    other = path.with_name("other.json")
    path.rename(other)
    path.symlink_to(other)


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (link, "is a symbolic link"),
        (pipe, "is not a regular file"),
        (directory, "is not a regular file"),
        (lambda path: path.chmod(0o620), "can be written by other users"),
        (lambda path: path.chmod(0o602), "can be written by other users"),
        (lambda path: path.parent.chmod(0o770), "lies in a directory that others can write"),
        (
            lambda path: path.write_bytes(b" " * (grants_file.MAX_KEPT_BYTES + 1)),
            f"is larger than {grants_file.MAX_KEPT_BYTES} bytes",
        ),
    ],
)
def test_a_file_that_others_may_have_written_is_neither_read_nor_changed(
    file: GrantsFile, path: Path, spoil: Callable[[Path], None], said: str
) -> None:
    file.update(adding(a_kept()))
    spoil(path)
    before = path.lstat()
    for attempt in (
        file.read,
        lambda: file.update(adding(a_kept("g2"))),
        lambda: file.remove({"g1"}),
    ):
        with pytest.raises(GrantsFileError, match=said):
            attempt()
    assert (path.lstat().st_ino, path.lstat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_a_file_of_another_user_is_not_believed(
    file: GrantsFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.update(adding(a_kept()))
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(GrantsFileError, match="belongs to another user"):
        file.read()


def test_the_file_of_another_version_stays_as_it_is(file: GrantsFile, path: Path) -> None:
    path.parent.mkdir(mode=0o700)
    path.write_bytes(b'{"version":2,"grants":[]}')
    path.chmod(0o600)
    with pytest.raises(GrantsFileError, match="was written by another version"):
        file.update(adding(a_kept()))
    assert path.read_bytes() == b'{"version":2,"grants":[]}'


def test_a_directory_that_cannot_be_made_is_one_error_with_its_place(tmp_path: Path) -> None:
    (tmp_path / "state").write_bytes(b"")
    path = tmp_path / "state" / "deep" / "grants.json"
    with pytest.raises(GrantsFileError) as caught:
        GrantsFile(path).update(adding(a_kept()))
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_would_be_too_large_is_not_written(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = len(grants_file_bytes([a_kept("g1")]))
    monkeypatch.setattr(grants_file, "MAX_KEPT_BYTES", size)
    file = GrantsFile(path)
    file.update(adding(a_kept("g1")))
    with pytest.raises(GrantsFileError, match="would be larger than"):
        file.update(adding(a_kept("g2")))
    assert ids(file) == ["g1"]


def test_a_change_that_fails_leaves_the_file_whole(file: GrantsFile, path: Path) -> None:
    file.update(adding(a_kept("g1")))

    def failing(_: tuple[KeptGrant, ...]) -> tuple[KeptGrant, ...]:
        raise OSError(28, "No space left on device")

    with pytest.raises(GrantsFileError, match="cannot be written: No space left on device"):
        file.update(failing)
    assert ids(file) == ["g1"]
    file.update(adding(a_kept("g2")))
    assert ids(file) == ["g1", "g2"]


def test_a_lock_that_is_held_for_ever_is_given_up_on(file: GrantsFile, path: Path) -> None:
    file.update(adding(a_kept("g1")))
    with path.with_name("grants.json.lock").open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(GrantsFileError, match="is in use by another process"):
            file.remove({"g1"})
        assert ids(file) == ["g1"]
    file.remove({"g1"})
    assert ids(file) == []


def _add_many(path: Path, name: str) -> None:
    file = GrantsFile(path, lock_seconds=30)
    for number in range(10):
        file.update(adding(a_kept(f"{name}-{number}")))


def test_processes_that_write_at_once_lose_nothing_of_each_other(path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_add_many, args=(path, f"w{n}")) for n in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0, 0, 0]
    assert sorted(ids(GrantsFile(path))) == sorted(
        f"w{n}-{number}" for n in range(3) for number in range(10)
    )
