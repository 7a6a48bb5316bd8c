"""The git repository of a workspace that keeps its data outside it.

A worktree made by `git worktree add` keeps its index and branches in the repository it was made of,
and a directory of a larger repository in the directory above. A sandbox writes in the workspace
alone, and the timeline holds nothing else, so there git reads and cannot commit.
"""

from pathlib import Path
from typing import Final

from ironcurtain_proxy.model.path import RealPath

_MOST: Final = 4096
"""Bytes of a `.git` file; a longer one is none."""
_PREFIX: Final = "gitdir:"


def outer_repository(workspace: RealPath, home: Path) -> str | None:
    """What git cannot do in a sandbox of this workspace, and what to do; None: it can do all."""
    place = Path(str(workspace))
    data = _data(place)
    if data is None or RealPath.from_text(str(data)).is_within(workspace):
        return None
    around = data.parent if _is_above(data.parent, place) else None
    if around is not None:
        what, then = f"lies in a larger one, {around}", f"make {around} the workspace"
    else:
        what = f"keeps its data outside, in {data}"
        both = _above_both(place, data)
        joined = f"make {both} the workspace, which holds both" if both not in (home, None) else ""
        apart = "make the worktree inside the repository that it belongs to, and that the workspace"
        then = joined or apart
    return (
        f"the git repository of the workspace {what}: in a sandbox git reads it, and cannot add, "
        f"commit or fetch; {then} (allowedDirectory)"
    )


def _data(place: Path) -> Path | None:
    """The directory with branches and objects of the repository that a directory is in."""
    for directory in (place, *place.parents):
        found = directory / ".git"
        try:
            if found.is_dir():
                return found.resolve()
            if found.is_file() and found.stat().st_size <= _MOST:
                text = found.read_text(encoding="utf-8", errors="surrogateescape").strip()
                if text.startswith(_PREFIX):
                    return _common((directory / text.removeprefix(_PREFIX).strip()).resolve())
        except (OSError, RuntimeError, ValueError):
            return None
    return None


def _common(data: Path) -> Path:
    """What all worktrees of a repository share."""
    pointer = data / "commondir"
    if not pointer.is_file() or pointer.stat().st_size > _MOST:
        return data
    text = pointer.read_text(encoding="utf-8", errors="surrogateescape").strip()
    return (data / text).resolve()


def _above_both(one: Path, other: Path) -> Path | None:
    """The nearest directory around both; None: the root."""
    above = next(path for path in one.parents if _is_above(path, other))
    return None if above == above.parent else above


def _is_above(path: Path, below: Path) -> bool:
    return below.is_relative_to(path)
