"""What a dead proxy has left of its sandboxes goes, and nothing else does."""

import fcntl
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from ironcurtain_proxy.sandbox import directory as directories
from ironcurtain_proxy.sandbox.directory import make_directory, remove_abandoned
from tests.program import PATIENCE

NAME: Final = "ironcurtain-srt-abcdefgh"


@pytest.fixture
def base(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path]:
    """The temporary directory of this test, with a short name, and the only place looked at."""
    tmp_path_factory.getbasetemp()  # made by whoever is first, in whatever is the place then
    with tempfile.TemporaryDirectory(prefix="b", dir="/tmp") as short:
        monkeypatch.setattr(tempfile, "tempdir", short)
        monkeypatch.setattr(directories, "_SHORT", short)
        yield Path(short)


def bind(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))


def abandoned(place: Path, name: str = NAME) -> Path:
    """A directory as a killed srt leaves it."""
    made = place / name
    made.mkdir(mode=0o700)
    bind(made / "claude-http-0123456789abcdef.sock")
    bind(made / "srt-mux-4711-0.sock")
    (made / "claude-empty-aB3dEf").mkdir()
    (made / "empty").mkdir()
    return made


def test_what_nobody_has_locked_is_removed(base: Path) -> None:
    abandoned(base)
    abandoned(base, "ironcurtain-srt-0_______")
    remove_abandoned()
    assert list(base.iterdir()) == []
    remove_abandoned()


def test_both_places_are_looked_at(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = base / "other"
    other.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(other))
    left = [abandoned(base), abandoned(other)]
    remove_abandoned()
    assert [one for one in left if one.exists()] == []


def test_what_we_have_is_not_touched_until_it_is_removed(base: Path) -> None:
    ours = make_directory()
    remove_abandoned()
    assert Path(ours.path).exists()
    ours.remove()
    assert list(base.iterdir()) == []


OWNER: Final = """
import sys, tempfile
tempfile.tempdir = sys.argv[1]
from ironcurtain_proxy.sandbox.directory import make_directory
made = make_directory()
print(made.path, flush=True)
sys.stdin.read()
"""


def test_a_living_owners_is_left_alone_and_a_killed_ones_is_removed(base: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", OWNER, str(base)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as owner:
        assert owner.stdout is not None
        path = Path(owner.stdout.readline().decode().strip())
        bind(path / "claude-http-0123456789abcdef.sock")
        remove_abandoned()
        assert path.exists()
        owner.send_signal(signal.SIGKILL)
        owner.wait()
        remove_abandoned()
        assert not path.exists()


def wide_open(place: Path) -> None:
    abandoned(place).chmod(0o755)


def of_another_name(place: Path) -> None:
    for name in ("ironcurtain-srt-", "ironcurtain-srt-abcdefghi", "ironcurtain-srt-ABCDEFGH"):
        abandoned(place, name)
    abandoned(place, f"x{NAME}")


def with_a_file(place: Path) -> None:
    (abandoned(place) / "precious").write_text("precious")


def with_a_file_named_as_a_socket(place: Path) -> None:
    (abandoned(place) / "srt-mux-1-0.sock").write_text("precious")


def with_a_folder(place: Path) -> None:
    (abandoned(place) / "precious").mkdir()


def with_another_socket(place: Path) -> None:
    bind(abandoned(place) / "agent.sock")


def with_a_link_to_a_folder(place: Path) -> None:
    (place / "precious").mkdir()
    (abandoned(place) / "claude-empty-link").symlink_to(place / "precious")


def a_link(place: Path) -> None:
    (place / NAME).symlink_to(abandoned(place, "precious"))


def a_file(place: Path) -> None:
    (place / NAME).write_text("precious")


@pytest.mark.parametrize(
    "make",
    [
        *(wide_open, of_another_name, with_a_file, with_a_file_named_as_a_socket),
        *(with_a_folder, with_another_socket, with_a_link_to_a_folder, a_link, a_file),
    ],
    ids=lambda make: make.__name__,
)
def test_what_may_be_anybodys_is_not_touched(base: Path, make: Callable[[Path], None]) -> None:
    make(base)
    before = sorted(base.rglob("*"))
    remove_abandoned()
    assert sorted(base.rglob("*")) == before


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make what is another user's")
def test_another_users_is_not_touched(base: Path) -> None:
    os.chown(abandoned(base), 65534, 65534)
    remove_abandoned()
    assert (base / NAME).exists()


def test_a_link_within_is_not_followed(base: Path) -> None:
    """The folders in which srt was tried may hold anything."""
    precious = base / "precious"
    precious.mkdir()
    (precious / "file").touch()
    (abandoned(base) / "empty/link").symlink_to(precious)
    remove_abandoned()
    assert not (base / NAME).exists()
    assert (precious / "file").exists()


def test_what_still_runs_with_it_is_killed_and_nothing_else(base: Path) -> None:
    left = abandoned(base)
    others = [str(base), f"{left}x", f"{left}/empty"]
    processes = [
        subprocess.Popen(["sleep", "60"], env={"PATH": os.environ["PATH"], "TMPDIR": place})
        for place in (str(left), *others)
    ]
    first, *rest = processes
    try:
        remove_abandoned()
        assert first.wait(PATIENCE) == -signal.SIGKILL
        assert [process.poll() for process in rest] == [None] * len(rest)
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert not left.exists()


def test_nothing_that_runs_with_a_locked_one_is_killed(base: Path) -> None:
    ours = make_directory()
    with subprocess.Popen(["sleep", "60"], env={**os.environ, "TMPDIR": ours.path}) as process:
        remove_abandoned()
        assert process.poll() is None
        process.kill()
    ours.remove()


def test_a_place_that_is_not_there_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directories, "_SHORT", "/no/such/place")
    monkeypatch.setattr(tempfile, "tempdir", "/no/such/place")
    remove_abandoned()


def test_starts_at_the_same_time_remove_each_thing_once_and_nothing_that_is_new(base: Path) -> None:
    for number in range(20):
        abandoned(base, f"ironcurtain-srt-{number:08}")
    script = (
        "import sys, tempfile; tempfile.tempdir = sys.argv[1]\n"
        "from ironcurtain_proxy.sandbox import directory\n"
        "directory._SHORT = sys.argv[1]\n"
        "from ironcurtain_proxy.sandbox.directory import remove_abandoned\n"
        "import os\n"
        "for _ in range(50):\n"
        "    made = directory.make_directory()\n"
        "    remove_abandoned()\n"
        "    assert os.path.isdir(made.path), made.path\n"
        "    made.remove()\n"
    )
    starts = [
        subprocess.Popen([sys.executable, "-c", script, str(base)], stderr=subprocess.PIPE)
        for _ in range(3)
    ]
    said = [start.communicate(timeout=PATIENCE)[1] for start in starts]
    assert said == [b""] * len(starts)
    assert list(base.iterdir()) == []


def test_a_lock_that_a_reader_holds_keeps_a_directory(base: Path) -> None:
    """As a guardian's does, which outlives the proxy while it ends the server."""
    left = abandoned(base)
    lock = os.open(left, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_SH)
    remove_abandoned()
    assert left.exists()
    os.close(lock)
    remove_abandoned()
    assert not left.exists()
