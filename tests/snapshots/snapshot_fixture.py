"""Places, trees and repositories, and a look at them that owes nothing to the code under test."""

import os
import stat
import subprocess
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from ironcurtain_proxy.model.path import RealPath
from ironcurtain_proxy.snapshots.snapshot import Snapshot, SnapshotLimits, take

NOW = datetime(2026, 2, 21, 12, 0, tzinfo=UTC)

Seen = dict[Path, tuple[str, int, int, bytes]]


@dataclass(frozen=True, slots=True)
class Scene:
    """A workspace, and our own state beside it."""

    root: Path

    @property
    def work(self) -> Path:
        return self.root / "work"

    @property
    def snapshots(self) -> Path:
        return self.root / "state" / "snapshots"

    def take(
        self,
        *paths: Path,
        name: str = "one",
        repository: Path | None = None,
        limits: SnapshotLimits | None = None,
        now: datetime = NOW,
    ) -> Snapshot:
        return take(
            name,
            [real(path) for path in paths],
            None if repository is None else real(repository),
            self.snapshots,
            now,
            limits or SnapshotLimits(),
        )


def scene(root: Path) -> Scene:
    found = Scene(root.resolve())
    found.work.mkdir(parents=True)
    return found


def real(path: Path) -> RealPath:
    return RealPath.from_text(str(path))


def names_in(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def seen(top: Path, *, leave_out: tuple[str, ...] = ()) -> Seen:
    """Everything at and below a place: kind, mode, time, and content or target."""
    found: Seen = {}
    waiting = [top]
    while waiting:
        path = waiting.pop()
        if path.name in leave_out or not os.path.lexists(path):
            continue
        state = path.lstat()
        mode, time = stat.S_IMODE(state.st_mode), state.st_mtime_ns
        if stat.S_ISLNK(state.st_mode):
            found[path] = ("link", 0, time, os.fsencode(path.readlink()))
        elif stat.S_ISDIR(state.st_mode):
            found[path] = ("directory", mode, time, b"")
            waiting += path.iterdir()
        elif stat.S_ISREG(state.st_mode):
            found[path] = ("file", mode, time, path.read_bytes())
        else:
            found[path] = ("other", mode, time, b"")
    return found


def git(top: Path, *arguments: str) -> str:
    """Git as a person has it."""
    return subprocess.run(
        ("git", "-c", "user.name=A", "-c", "user.email=a@example.org", *arguments),
        cwd=top,
        env={"PATH": os.environ["PATH"], "GIT_CONFIG_NOSYSTEM": "1", "HOME": "/nonexistent"},
        check=True,
        capture_output=True,
    ).stdout.decode(errors="surrogateescape")


def repository(top: Path) -> Path:
    """One with two branches, a staged, a changed, an untracked and an ignored file."""
    top.mkdir(parents=True, exist_ok=True)
    git(top, "init", "-q", "-b", "main")
    (top / "src").mkdir()
    (top / "src" / "a.py").write_text("a = 1\n")
    (top / "run.sh").write_text("#!/bin/sh\n")
    (top / "run.sh").chmod(0o755)
    (top / "link").symlink_to("src/a.py")
    (top / ".gitignore").write_text("build/\n*.log\n")
    git(top, "add", "-A")
    git(top, "commit", "-q", "-m", "first")
    git(top, "branch", "feature")
    git(top, "tag", "v1")
    (top / "staged.txt").write_text("staged\n")
    git(top, "add", "staged.txt")
    (top / "src" / "a.py").write_text("a = 2\n")
    (top / "untracked.txt").write_text("untracked\n")
    (top / "notes.log").write_text("ignored, but not a directory\n")
    (top / "build").mkdir()
    (top / "build" / "out.o").write_bytes(b"\x7fELF")
    return top


def history(top: Path) -> tuple[str, ...]:
    """What a person sees of where things stand."""
    return (
        git(top, "status", "--porcelain=v1", "-z", "--branch"),
        git(top, "for-each-ref", "refs/heads", "refs/tags"),
        git(top, "ls-files", "-s"),
    )
