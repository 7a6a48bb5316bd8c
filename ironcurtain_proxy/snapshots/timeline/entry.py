"""The scanned state of one path, and the comparison of two states."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Literal, NamedTuple, TypeAlias

from ironcurtain_proxy.model.timeline import ChangeKind

EntryKind: TypeAlias = Literal["file", "directory", "link", "pipe", "special", "lost"]
"""`special`: a socket or a device, which holds nothing and is not made again. `lost`: it is there
and is not held, such as a file that cannot be read."""


class Entry(NamedTuple):
    """A path. A tuple, because a workspace has many of them."""

    kind: EntryKind
    mode: int
    """Permissions, with setuid, setgid and sticky."""
    size: int
    """Bytes that its copy takes."""
    inode: int
    names: int
    """The number of hard links, including those outside of the workspace."""
    ctime_ns: int
    """Set by the kernel only, unlike the time of modification."""
    mtime_ns: int
    content: str
    """The digest of a file, the target of a link, why a `lost` one is not held."""
    attributes: tuple[tuple[str, str], ...] = ()
    """Extended ones of a file or directory: names, and values in hexadecimal."""


Tree: TypeAlias = Mapping[str, Entry]
"""The entries by path below the workspace, such as `src/a.py`."""


def without(tree: Tree, left_out: frozenset[str]) -> Tree:
    """The tree without these paths and all below them."""
    if not left_out:
        return tree
    return {path: entry for path, entry in tree.items() if not is_among(path, left_out)}


def is_among(path: str, places: frozenset[str]) -> bool:
    """Return whether a path is one of these, or below one."""
    return path in places or any(above in places for above in directories_above(path))


def parent_of(path: str) -> str:
    """The directory that a path is in; empty: the workspace itself."""
    return path.rpartition("/")[0]


def directories_above(path: str) -> Iterator[str]:
    """Yield all directories that a path is in below the workspace, the nearest first."""
    above = parent_of(path)
    while above:
        yield above
        above = parent_of(above)


def kind_of_change(before: Entry | None, after: Entry | None) -> ChangeKind | None:
    """The change of a path; None: none that counts.

    The time of modification does not count. Another inode does where hard links are concerned: one
    of them may have been cut.
    """
    if before is None or after is None:
        gone: ChangeKind | None = "deleted" if after is None else "created"
        return None if before is after else gone
    if before.kind == "lost" and (before.inode, before.ctime_ns) == (after.inode, after.ctime_ns):
        return None  # it is held by now, or still not
    if _is_another(before, after):
        return "changed"
    return "mode" if before.mode != after.mode else None


def _is_another(before: Entry, after: Entry) -> bool:
    was_cut = before.inode != after.inode and max(before.names, after.names) > 1
    # Only its time of change shows whether a file that is not held was written to.
    return was_cut or before.kind == "lost" or _substance(before) != _substance(after)


def _substance(entry: Entry) -> tuple[object, ...]:
    if entry.kind == "directory":
        return entry.kind, entry.attributes
    return entry.kind, entry.size, entry.content, entry.attributes


def mates(tree: Iterable[tuple[str, Entry]]) -> dict[str, frozenset[str]]:
    """The names in the workspace that share a file, for each of them."""
    # A plan joins what was with what is, where a number may have become another file's meanwhile.
    alike: dict[tuple[int, str], list[str]] = {}
    shared: set[tuple[int, str]] = set()
    for path, entry in tree:
        if entry.kind == "file":
            key = entry.inode, entry.content
            alike.setdefault(key, []).append(path)
            if entry.names > 1:
                shared.add(key)
    groups = [frozenset(alike[key]) for key in shared]
    return {path: together for together in groups if len(together) > 1 for path in together}
