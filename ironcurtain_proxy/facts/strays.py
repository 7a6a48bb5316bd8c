"""Links of the workspace that lead out of it, among the files that a command names."""

import os
from collections.abc import Iterable, Iterator
from typing import Final

_MAX_PATHS: Final = 500
"""The most paths of one command that are checked. With more, none counts as inside."""
_MAX_ENTRIES: Final = 5000
"""The most entries of directories of which a pattern names files."""


def strays_among(
    paths: Iterable[str], workspace: str, *, globs: Iterable[str] = ()
) -> tuple[str, ...]:
    """Links that lead out of the workspace, each as the path to the link itself.

    Args:
        paths: below the workspace, as text.
        workspace: free of links.
        globs: directories of which a pattern may name any file.
    """
    found: dict[str, None] = {}
    for count, path in enumerate(dict.fromkeys([*paths, *globs])):
        if count >= _MAX_PATHS:
            return (workspace,)
        for link in _ancestors(path, workspace):
            if _leads_out(link, workspace):
                found[link] = None
                break
    left = _MAX_ENTRIES
    for directory in globs:
        links, seen = _links_in(directory, left)
        left -= seen
        if left <= 0:
            return (workspace,)
        found |= dict.fromkeys(link for link in links if _leads_out(link, workspace))
    return tuple(found)


def _leads_out(link: str, workspace: str) -> bool:
    try:
        real = os.path.realpath(link)
    except (OSError, ValueError):
        real = ""
    return real != workspace and not real.startswith(f"{workspace.rstrip('/')}/")


def _links_in(directory: str, most: int) -> tuple[list[str], int]:
    """The links of a directory, and how many entries were looked at."""
    links: list[str] = []
    seen = 0
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                seen += 1
                if seen >= most:
                    break
                if entry.is_symlink():
                    links.append(entry.path)
    except (OSError, ValueError):
        return [], seen
    return links, seen


def _ancestors(path: str, workspace: str) -> Iterator[str]:
    """The links on the way from the workspace to a path."""
    at = workspace.rstrip("/")
    for name in path.removeprefix(at).split("/"):
        if name:
            at = f"{at}/{name}"
            if os.path.islink(at):  # noqa: PTH114  microseconds
                yield at
