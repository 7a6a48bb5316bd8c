"""A workspace with a timeline, and what it looks like byte for byte."""

import os
import random
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from ironcurtain_proxy.model.reply import Change, NotHeld, PointId
from ironcurtain_proxy.model.values import RealPath
from ironcurtain_proxy.own_process import SystemClock
from ironcurtain_proxy.private_files import is_closed
from ironcurtain_proxy.snapshots.keeper import Keeper, Limits
from ironcurtain_proxy.snapshots.rewinding import (
    RollbackOutcome,
    RollbackRequest,
    roll_back,
)

Picture = dict[str, tuple[object, ...]]


def _all_below(top: Path, opened: ExitStack) -> Iterator[tuple[Path, os.stat_result]]:
    """Yield all there is. What is closed to its owner is open until the end of `opened`."""
    for path in sorted(top.iterdir()):
        status = path.lstat()
        if os.geteuid() and not path.is_symlink() and is_closed(status.st_mode):
            path.chmod(status.st_mode | stat.S_IRWXU)
            opened.callback(path.chmod, stat.S_IMODE(status.st_mode))
        yield path, status
        if stat.S_ISDIR(status.st_mode):
            yield from _all_below(path, opened)


def picture(top: Path) -> Picture:
    """All there is below a directory: kinds, modes, contents, targets, shared files, attributes."""
    found: Picture = {}
    names: dict[int, list[str]] = {}
    with ExitStack() as opened:
        for path, status in _all_below(top, opened):
            key, mode = str(path.relative_to(top)), stat.S_IMODE(status.st_mode)
            if path.is_symlink():
                found[key] = ("link", str(path.readlink()))
            elif path.is_dir():
                found[key] = ("directory", mode)
            elif path.is_file():
                names.setdefault(status.st_ino, []).append(key)
                attributes = tuple((a, os.getxattr(path, a)) for a in sorted(os.listxattr(path)))
                found[key] = ("file", mode, path.read_bytes(), attributes)
            else:
                found[key] = ("other", status.st_mode)
    for shared in names.values():
        for key in shared:
            found[key] = (*found[key], tuple(sorted(shared)))
    return found


@dataclass
class Timelined:
    """A workspace, its timeline in a directory beside it, and calls that are made up."""

    top: Path
    store: Path
    limits: Limits = field(default_factory=Limits)
    keeper: Keeper = field(init=False)
    count: int = 0

    def __post_init__(self) -> None:
        self.top.mkdir(exist_ok=True)
        self.store.mkdir(exist_ok=True)
        self.reopen()

    @property
    def workspace(self) -> RealPath:
        return RealPath.from_text(str(self.top))

    def reopen(self) -> None:
        """As a new session does."""
        self.keeper = Keeper(
            self.store, self.workspace, self.limits, session="s", now=SystemClock().now
        )

    def mark(self, call: str = "") -> PointId:
        self.count += 1
        point = self.keeper.mark(call or f"call-{self.count}.", "shell", "run")
        assert not isinstance(point, NotHeld), point
        return point

    def call(self, what: Callable[[], object], call: str = "") -> tuple[PointId, list[str]]:
        """A call that does something; gives what it changed in words such as `created a`."""
        point = self.mark(call)
        what()
        return point, words(self.keeper.end_call(point))

    def back(self, point: PointId | str, *, rewind: bool = False, **how: bool) -> RollbackOutcome:
        """A rollback, as another process does it."""
        return self.request(int(point), rewind=rewind, **how)

    def request(self, number: int, **how: bool) -> RollbackOutcome:
        held = self.keeper.log.read()
        assert held is not None
        point = held.point(number)
        assert point is not None
        return roll_back(
            RollbackRequest(directory=self.store, workspace=self.workspace, point=point, **how),
            self.limits,
            SystemClock().now,
            lambda _: True,
        )

    def picture(self) -> Picture:
        return picture(self.top)

    def __call__(self, name: str) -> Path:
        return self.top / name


def words(changes: tuple[Change, ...] | NotHeld) -> list[str]:
    if isinstance(changes, NotHeld):
        return [changes.reason]
    return [f"{change.kind} {change.path}" for change in changes]


class Vandal:
    """Does things to a directory at random."""

    def __init__(self, top: Path, seed: int) -> None:
        self.top = top
        self.random = random.Random(seed)  # noqa: S311  repeatable chance

    def run(self, count: int) -> None:
        deeds = (
            self.write, self.write, self.write_in_place, self.append, self.remove, self.directory,
            self.link, self.hard_link, self.rename, self.mode, self.swap, self.hole, self.attribute,
        )  # fmt: skip
        for _ in range(count):
            try:
                self.random.choice(deeds)()
            except OSError:
                continue

    def _all(self) -> list[Path]:
        return sorted(self.top.rglob("*"))

    def _any(self, *, of_files: bool = False) -> Path:
        found = [p for p in self._all() if not of_files or (p.is_file() and not p.is_symlink())]
        return self.random.choice(found) if found else self.top / "first"

    def _new(self) -> Path:
        places = [self.top, *[p for p in self._all() if p.is_dir() and not p.is_symlink()]]
        name = self.random.choice(["a", "b", "c", "x y", "new\nline", "\udcff\udc80", "é", ".env"])
        return self.random.choice(places) / name

    def _new_file(self) -> Path:
        """A name that is no link: what is written stays in the workspace."""
        place = self._new()
        if place.is_symlink():
            place.unlink()
        return place

    def _bytes(self) -> bytes:
        return self.random.randbytes(self.random.choice([0, 1, 10, 5000]))

    def write(self) -> None:
        self._new_file().write_bytes(self._bytes())

    def write_in_place(self) -> None:
        with self._any(of_files=True).open("r+b") as file:
            file.write(self._bytes())

    def append(self) -> None:
        with self._any(of_files=True).open("ab") as file:
            file.write(self._bytes())

    def remove(self) -> None:
        place = self._any()
        if place.is_dir() and not place.is_symlink():
            shutil.rmtree(place)
        else:
            place.unlink()

    def directory(self) -> None:
        self._new().mkdir()

    def link(self) -> None:
        # Nothing outside that could be written: tests run as root, too.
        self._new().symlink_to(self.random.choice(["a", "/proc/version", "../..", "nothing"]))

    def hard_link(self) -> None:
        self._new().hardlink_to(self._any(of_files=True))

    def rename(self) -> None:
        self._any().rename(self._new())

    def mode(self) -> None:
        place = self._any()
        if not place.is_symlink():
            place.chmod(self.random.choice([0o644, 0o600, 0o755, 0o700, 0o500]))

    def swap(self) -> None:
        """A file for a directory, and the reverse."""
        place = self._any()
        if place.is_dir() and not place.is_symlink():
            shutil.rmtree(place)
            place.write_bytes(b"was a directory")
        else:
            place.unlink()
            place.mkdir()
            (place / "in").write_bytes(b"was a file")

    def hole(self) -> None:
        with self._new_file().open("wb") as file:
            file.seek(300_000)
            file.write(b"end")
            file.truncate(700_000)

    def attribute(self) -> None:
        os.setxattr(self._any(of_files=True), b"user.colour", self._bytes()[:20] or b"red")
