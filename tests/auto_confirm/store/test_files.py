"""Where the store may be, and who may read it."""

import os
import stat
from pathlib import Path

import pytest

from ironcurtain_proxy.auto_confirm.store.rows import StoreError
from ironcurtain_proxy.auto_confirm.store.store import open_store
from tests.auto_confirm.store.specimens import auto_approved
from tests.fakes import FakeClock

NOBODY = 65534
CLOCK = FakeClock()


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_only_the_owner_can_read_the_store(tmp_path: Path, umask: int) -> None:
    directory = tmp_path / "home" / "state"
    before = os.umask(umask)
    try:
        with open_store(None, directory, CLOCK) as store:
            auto_approved(store)
            names = sorted(path.name for path in directory.iterdir())
            assert names == ["interactions.db", "interactions.db-shm", "interactions.db-wal"]
            assert {mode(path) for path in directory.iterdir()} == {0o600}
            assert mode(directory) == 0o700
    finally:
        os.umask(before)


def test_what_was_open_to_others_is_closed(tmp_path: Path) -> None:
    directory = tmp_path / "state"
    open_store(None, directory, CLOCK).close()
    directory.chmod(0o755)
    (directory / "interactions.db").chmod(0o644)
    (directory / "interactions.db-wal").touch(0o666)
    with open_store(None, directory, CLOCK):
        assert mode(directory) == 0o700
        assert mode(directory / "interactions.db") == 0o600
        assert mode(directory / "interactions.db-wal") == 0o600


@pytest.mark.parametrize("suffix", ["", "-wal", "-shm", "-journal"])
def test_a_link_in_the_stores_place_is_refused(tmp_path: Path, suffix: str) -> None:
    directory = tmp_path / "state"
    open_store(None, directory, CLOCK).close()
    place = directory / f"interactions.db{suffix}"
    place.unlink(missing_ok=True)
    victim = tmp_path / "victim"
    victim.write_bytes(b"")
    victim.chmod(0o644)
    place.symlink_to(victim)
    with pytest.raises(StoreError, match="symbolic link"):
        open_store(None, directory, CLOCK)
    assert victim.read_bytes() == b""
    assert mode(victim) == 0o644


def test_a_pipe_in_the_stores_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    os.mkfifo(tmp_path / "state" / "interactions.db")
    with pytest.raises(StoreError, match="not a regular file"):
        open_store(None, tmp_path / "state", CLOCK)


def test_a_directory_in_the_stores_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "state" / "interactions.db").mkdir(parents=True)
    with pytest.raises(StoreError, match="Is a directory"):
        open_store(None, tmp_path / "state", CLOCK)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
@pytest.mark.parametrize("name", ["state", "state/interactions.db", "state/interactions.db-wal"])
def test_what_belongs_to_another_user_is_refused(tmp_path: Path, name: str) -> None:
    open_store(None, tmp_path / "state", CLOCK).close()
    place = tmp_path / name
    if not place.exists():
        place.touch()
    os.chown(place, NOBODY, NOBODY)
    with pytest.raises(StoreError, match="another user"):
        open_store(None, tmp_path / "state", CLOCK)


def test_a_store_that_is_only_read_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no such store"):
        open_store(None, tmp_path / "state", CLOCK, create=False)
    assert not (tmp_path / "state").exists()


def test_a_file_named_by_url_leaves_its_directory_alone(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    with open_store(f"sqlite:///{tmp_path}/other.db", tmp_path / "state", CLOCK) as store:
        auto_approved(store)
    assert mode(tmp_path / "other.db") == 0o600
    assert mode(tmp_path) == 0o755
    assert not (tmp_path / "state").exists()


WRONG = {
    "another database": "mysql://me:secret@host/db",
    "a relative file": "sqlite:///here.db",
    "in memory": "sqlite://",
    "with options": "sqlite:////tmp/x.db?mode=memory",
    "no URL": "secret somewhere",
    "a wrong port": "postgresql://me:secret@host:port/db",
}


@pytest.mark.parametrize("url", WRONG.values(), ids=WRONG.keys())
def test_a_url_that_cannot_be_used_is_refused_without_its_password(
    tmp_path: Path, url: str
) -> None:
    with pytest.raises(StoreError) as caught:
        open_store(url, tmp_path, CLOCK)
    assert "secret" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_server_that_is_not_there_is_said_without_the_password(tmp_path: Path) -> None:
    url = f"postgresql://me:secret@/db?host={tmp_path}"
    with pytest.raises(StoreError) as caught:
        open_store(url, tmp_path, CLOCK)
    assert "secret" not in str(caught.value)
    assert "me:***@" in str(caught.value)
    assert "\n" not in str(caught.value)
