"""Whatever a call does to what was held, a rollback brings back what was there: to the byte."""

import os
import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ironcurtain_proxy.snapshots.rollback import restore
from ironcurtain_proxy.snapshots.snapshot import finish
from tests.snapshots.snapshot_fixture import Seen, repository, scene, seen

NAMES = ["a", "b", "c", "line\nbreak", "\udcff\udcfe", "-rf", ' "quoted"\\', "\u202e", "%2F"]
"""Two are no text, as the system gives such names."""
CONTENTS = [b"", b"x", b"hello\n", bytes(range(256)), b"z" * 70_000]
MODES = [0o644, 0o600, 0o755, 0o444, 0o4755, 0o000]

Deed = tuple[str, tuple[str, ...], int]


def write(path: Path, number: int) -> None:
    if path.is_fifo():
        return  # it would wait for a reader
    path.write_bytes(CONTENTS[number % len(CONTENTS)])
    path.chmod(MODES[number % len(MODES)])


def remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


DEEDS: dict[str, Callable[[Path, int], object]] = {
    "file": write,
    "directory": lambda path, n: path.mkdir(MODES[n % len(MODES)] | 0o700, parents=True),
    "link": lambda path, n: path.symlink_to(NAMES[n % len(NAMES)]),
    "remove": lambda path, _: remove(path),
    "mode": lambda path, n: path.chmod(MODES[n % len(MODES)] | 0o700),
    "move": lambda path, n: path.rename(path.with_name(NAMES[n % len(NAMES)])),
    "touch": lambda path, n: os.utime(path, ns=(n, n), follow_symlinks=False),
    "pipe": lambda path, _: os.mkfifo(path),
}


def do(top: Path, deed: Deed) -> None:
    """One change, or none where it cannot be made."""
    what, parts, number = deed
    if what == "move" and not parts:
        return
    with suppress(OSError):
        DEEDS[what](top.joinpath(*parts), number)


paths = st.lists(st.sampled_from(NAMES), min_size=0, max_size=3).map(tuple)
deeds = st.lists(
    st.tuples(
        st.sampled_from(sorted(DEEDS)),
        paths,
        st.integers(0, 1 << 16),
    ),
    max_size=12,
)


@pytest.mark.requirement("B-62")
@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(st.just("file"), paths, st.integers(0, 99)), max_size=6), deeds, deeds)
def test_what_a_call_did_to_a_tree_is_undone_exactly(
    files: list[Deed],
    more: list[Deed],
    call: list[Deed],
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        here = scene(Path(directory))
        held = here.work / "held"
        for deed in [("directory", (), 0), *files, *more]:
            if deed[0] != "pipe":
                do(held, deed)
        before = seen(held)
        snapshot = here.take(held)
        assert seen(held) == before, "taking it changes nothing"
        for deed in call:
            do(held, deed)
        changed = seen(held)
        finished = finish(snapshot)
        assert finished.problem == ""
        dry = restore("one", here.snapshots, dry_run=True)
        assert seen(held) == changed
        restored = restore("one", here.snapshots)
        assert seen(held) == before
        assert restored.changes == dry.changes
        assert {Path(name) for name in finished.changed} == differing(before, changed)
        assert restore("one", here.snapshots).changes == ()


@pytest.mark.requirement("B-62")
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(deeds)
def test_what_a_call_did_to_a_work_tree_is_undone_exactly(
    call: list[Deed],
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        here = scene(Path(directory))
        top = repository(here.work)
        (top / "empty").mkdir()
        do(top, ("file", ("line\nbreak",), 3))
        do(top, ("link", ("\udcff\udcfe",), 4))
        before = seen(top, leave_out=(".git",))
        snapshot = here.take(repository=top)
        assert seen(top, leave_out=(".git",)) == before
        for deed in call:
            if deed[1]:
                do(top, deed)
        assert finish(snapshot).problem == ""
        restore("one", here.snapshots)
        assert without_times_above(seen(top, leave_out=(".git",)), top) == without_times_above(
            before, top
        )


def without_times_above(found: Seen, top: Path) -> Seen:
    """Git itself works in the top directory, so its time is not ours to say."""
    kind, mode, _, content = found[top]
    return {**found, top: (kind, mode, 0, content)}


def differing(before: Seen, after: Seen) -> set[Path]:
    def essence(found: Seen, path: Path) -> object:
        entry = found.get(path)
        return None if entry is None else (entry[0], entry[1], entry[3])

    return {path for path in before | after if essence(before, path) != essence(after, path)}
