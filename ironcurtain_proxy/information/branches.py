"""Which branch a repository is on, as its files say. Reads two small files; starts no git."""

import os
from typing import Final

from ironcurtain_proxy.model.path import RealPath

_HEADS: Final = "ref: refs/heads/"
_MAX_BYTES: Final = 4096


def current_branch(root: RealPath) -> str | None:
    """The branch that a commit would go to; None: none, or it cannot be found out.

    Args:
        root: what holds `.git`: a directory, or the file that a worktree has in its place.
    """
    git = f"{root}/.git"
    pointer = _first_line(git)
    if pointer is not None:
        kind, _, where = pointer.partition(": ")
        if kind != "gitdir" or not where:
            return None
        git = os.path.normpath(os.path.join(str(root), where))  # noqa: PTH118  a text of git's
    head = _first_line(f"{git}/HEAD")
    if head is None or not head.startswith(_HEADS):
        return None
    return head.removeprefix(_HEADS) or None


def _first_line(path: str) -> str | None:
    """The first line of a small regular file; None: it is none."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        data = os.read(descriptor, _MAX_BYTES)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    line = data.split(b"\n", 1)[0]
    try:
        return line.decode().strip()
    except UnicodeDecodeError:
        return None
