"""A process that a call left behind works against the rollback, on two file systems.

It knows the rollback, watches the workspace, and exchanges what is being put back.
"""

import mmap
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ironcurtain_proxy.snapshots.keeper import Limits
from ironcurtain_proxy.snapshots.opening import OpenedRoot
from ironcurtain_proxy.snapshots.reading import IsExpected, StagedName, Staging
from tests.snapshots.timeline.workspace_fixture import Timelined, words
from tests.tables import table

NOBODY = 65534
SHM = Path("/dev/shm")
LIMITS = Limits(caches=frozenset({"node_modules"}))


@pytest.fixture(params=["ext4", "tmpfs", "apart"])
def w(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Timelined]:
    """A workspace; `apart`: the timeline lies on another file system."""
    if request.param != "ext4" and not os.access(SHM, os.W_OK):
        pytest.skip("there is no tmpfs")
    with tempfile.TemporaryDirectory(dir=SHM if request.param != "ext4" else tmp_path) as made:
        store = tmp_path if request.param == "apart" else Path(made)
        yield Timelined(Path(made) / "w", store / "s", LIMITS)


@pytest.fixture
def ordinary() -> Iterator[None]:
    """Whoever is not root has no way around modes."""
    was_root = os.geteuid() == 0
    if was_root:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if was_root:
            os.seteuid(0)


def test_a_write_through_an_earlier_mapping_is_found_and_taken_back(w: Timelined) -> None:
    """Only the first write to a page may set a time."""
    if not OpenedRoot(str(w.top)).sets_times:
        w("a").write_text("precious")
        with w("a").open("r+b") as file, mmap.mmap(file.fileno(), 8) as mapped:
            mapped[:8] = b"precious"
            w.call(lambda: None)
            # A file that has just changed is read again in any case.
            while w.keeper.scanner._again:
                w.call(lambda: None)
            before = w.picture()
            point = w.mark()
            mapped[:8] = b"scribble"
            assert words(w.keeper.end_call(point)) == ["changed a"]
        w.back(point, force=True)
        assert w.picture() == before


CREATED: dict[str, tuple[str, ...]] = table(
    "snapshots/timeline/exchanges.created", dict[str, tuple[str, ...]]
)


def do(w: Timelined, deed: str) -> None:
    word, _, name = deed.partition(" ")
    match word:
        case "remove":
            shutil.rmtree(w(name)) if w(name).is_dir() else w(name).unlink()
        case "mkdir":
            w(name).mkdir(parents=True)
        case "touch":
            w(name).touch()
        case "link":
            w(name).symlink_to("/")
        case "pipe":
            os.mkfifo(w(name))
        case _:
            w(name).chmod(0)


@pytest.mark.parametrize("who", ["root", "ordinary"])
@pytest.mark.parametrize("what", CREATED)
def test_nothing_that_a_call_creates_keeps_it_from_being_taken_back(
    who: str, what: str, request: pytest.FixtureRequest
) -> None:
    if who == "ordinary":
        request.getfixturevalue("ordinary")
    with tempfile.TemporaryDirectory(dir="/var/tmp", ignore_cleanup_errors=True) as made:
        w = Timelined(Path(made) / "w", Path(made) / "s", LIMITS)
        w("d/e").mkdir(parents=True)
        w("d/e/f").write_text("in it")
        w("imp.txt").write_text("precious")
        before = w.picture()
        point = w.mark()
        for deed in CREATED[what]:
            do(w, deed)
        w.keeper.end_call(point)
        done = w.back(point)
        assert not done.failed
        left = w.picture()
        assert {path: left.get(path) for path in before} == before, what
        assert all(path.startswith(".ironcurtain-rollback.tmp") for path in left.keys() - before)


def test_flags_that_root_set_do_not_keep_a_file_from_coming_back(tmp_path: Path) -> None:
    if os.geteuid() != 0 or shutil.which("chattr") is None:
        pytest.skip("only root sets them")
    w = Timelined(tmp_path / "w", tmp_path / "s")
    w("d").mkdir()
    w("d/a").write_text("precious")
    before = w.picture()

    def lock() -> None:
        w("d/a").write_text("spoilt")
        w("d/b").touch()
        for name in ("d/a", "d/b", "d"):
            subprocess.run(["chattr", "+i", w(name)], check=True, capture_output=True)

    point, _ = w.call(lock)
    assert not w.back(point).failed
    assert w.picture() == before


SWAPPERS = {
    "content": "os.replace('../evil', 'a') if os.path.exists('../evil') else evil('../evil')",
    "own names": "[swap(n) for n in os.listdir('.') if n.startswith('.ironcurtain')]",
    "kinds": "os.mkdir('x'), exchange('x', 'a'), gone('x')",
    "links": "os.symlink('/etc/passwd', 'x'), exchange('x', 'a'), gone('x')",
}
SWAPPER = """
import ctypes, os, shutil, sys
libc = ctypes.CDLL(None)
def exchange(a, b):
    libc.renameat2(-100, a.encode(), -100, b.encode(), 2)
def evil(name):
    open(name, 'w').write('evil')
def swap(name):
    evil('x'); os.replace('x', name)
def gone(name):
    shutil.rmtree(name) if os.path.isdir(name) and not os.path.islink(name) else os.unlink(name)
os.chdir(sys.argv[1])
print(flush=True)
while True:
    try:
        eval(sys.argv[2])
    except OSError:
        try: gone('x')
        except OSError: pass
"""


@pytest.mark.parametrize("kind", SWAPPERS)
def test_what_is_exchanged_meanwhile_is_told_and_never_called_done(
    w: Timelined, kind: str, tmp_path: Path
) -> None:
    w("d").mkdir()
    w("d/a").write_text("precious")
    for number in range(40):
        w(f"d/{number}").write_text("beside it")
    before = w.picture()
    passwd = Path("/etc/passwd").read_bytes()
    point, _ = w.call(lambda: [one.write_text("spoilt") for one in w("d").iterdir()])
    with subprocess.Popen(
        [sys.executable, "-c", SWAPPER, w("d"), SWAPPERS[kind]], stdout=subprocess.PIPE
    ) as swapper:
        try:
            assert swapper.stdout is not None
            swapper.stdout.readline()
            for _ in range(3):
                done = w.back(point, force=True)
                swapper.send_signal(signal.SIGSTOP)
                # The signal may arrive later than it is sent.
                os.waitid(os.P_PID, swapper.pid, os.WSTOPPED)
                present = {path: what for path, what in w.picture().items() if path in before}
                wrong = {path for path, what in present.items() if what != before[path]}
                # What was exchanged after the last look, nobody can tell: one file is exchanged.
                assert wrong <= {"d/a"} | {path for path, _ in done.failed}
                swapper.send_signal(signal.SIGCONT)
        finally:
            swapper.kill()
    assert not w.back(point, force=True).failed
    assert {path: what for path, what in w.picture().items() if path in before} == before
    assert Path("/etc/passwd").read_bytes() == passwd


def test_an_exchange_before_the_last_look_is_not_called_done(
    w: Timelined, monkeypatch: pytest.MonkeyPatch
) -> None:
    w("a").write_text("precious")
    w("b").write_text("precious, too")
    point = w.mark()
    for name in "ab":
        w(name).unlink()
    w.keeper.end_call(point)
    put = Staging.put

    def exchanged(
        self: Staging,
        staged: StagedName,
        made: os.stat_result,
        parent: int,
        name: str,
        expected: IsExpected,
    ) -> None:
        put(self, staged, made, parent, name, expected)
        if name == "a":
            w("evil").write_text("evil")
            w("evil").replace(w("a"))

    monkeypatch.setattr(Staging, "put", exchanged)
    done = w.back(point)
    assert [path for path, _ in done.failed] == ["a"]
    assert w("b").read_text() == "precious, too"
