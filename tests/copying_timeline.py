"""A timeline that copies the whole workspace before each call: slow, and easy to believe."""

import filecmp
import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from ironcurtain_proxy.model.call import RequestId
from ironcurtain_proxy.model.path import RealPath
from ironcurtain_proxy.model.timeline import Change, NotHeld, PointId

UNHELD = "too-large"
"""A file of this name cannot be held."""


@dataclass
class CopyingTimeline:
    """Points of a workspace, as copies in a directory."""

    workspace: Path
    store: Path
    refuses: str = ""
    """Why no point can be made; empty: it can."""
    settled: list[PointId] = field(default_factory=list)

    async def mark(self, call: RequestId, server: str, tool: str) -> PointId | NotHeld:
        del call, server, tool
        if self.refuses:
            return NotHeld(self.refuses)
        point = PointId(str(len(list(self.store.iterdir())) if self.store.is_dir() else 0))
        shutil.copytree(self.workspace, self.store / point, symlinks=True)
        return point

    async def settle(self, point: PointId) -> tuple[Change, ...]:
        self.settled.append(point)
        before, after = _files(self.store / point), _files(self.workspace)
        both = sorted(before & after)
        other = [
            name for name in both if not _same(self.store / point / name, self.workspace / name)
        ]
        return (
            *[Change(name, "created") for name in sorted(after - before)],
            *[Change(name, "deleted") for name in sorted(before - after)],
            *[Change(name, "changed") for name in other],
        )

    async def holds(self, path: RealPath) -> bool:
        place = Path(str(path))
        return not any(UNHELD in name for name in (place.name, *_files(place)))


def _files(root: Path) -> set[str]:
    return {
        os.path.relpath(Path(directory, name), root)
        for directory, _, names in os.walk(root)
        for name in names
    }


def _same(one: Path, other: Path) -> bool:
    if one.is_symlink() or other.is_symlink():
        return one.is_symlink() and other.is_symlink() and one.readlink() == other.readlink()
    return filecmp.cmp(one, other, shallow=False)
