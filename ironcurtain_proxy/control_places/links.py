"""Links of a workspace that lead to where servers may write and nobody looks.

A server has directories of its own in the proxy's, such as its `/tmp`, which are not looked after
as the workspace is. Through a link a repository there would be one of the workspace. This module
reads links and changes nothing.
"""

import os
from collections.abc import Collection
from typing import Final

_KERNELS: Final = "/proc"
"""Its links lead each process to another file, also into the mounts of a sandbox."""
_MOST: Final = 100
"""Links that are followed, more than the kernel does."""


def stays_below(depth: int, target: str) -> bool:
    """Return whether a link stays in a tree, whatever other links there are in it.

    Each link of the tree is judged by itself, so that only the text counts.

    Args:
        depth: how many directories of the tree lie above the link.
        target: what the link says.
    """
    if target.startswith("/"):
        return False
    parts = [one for one in target.split("/") if one not in {"", "."}]
    upwards = next((at for at, one in enumerate(parts) if one != ".."), len(parts))
    return upwards <= depth and ".." not in parts[upwards:]


def leads_into(link: str, target: str, places: Collection[str]) -> bool:
    """Return whether a link leads into one of some directories, now or once they hold more.

    Args:
        link: its path, absolute and with no link above it. It need not be there yet.
        target: what it says.
        places: absolute and real.
    """
    here, waiting, left = link.rpartition("/")[0], _parts(target), _MOST
    while waiting:
        here, more = _step(here, waiting.pop())
        left -= bool(more)
        if not left or here == _KERNELS or here in places:
            return True
        waiting += more
    return False


def _parts(path: str) -> list[str]:
    """Return the steps of a path, the last one first; `/` is the step to the root."""
    parts = [one for one in path.split("/")[::-1] if one not in {"", "."}]
    return [*parts, "/"] if path.startswith("/") else parts


def _step(here: str, part: str) -> tuple[str, list[str]]:
    """Return where a step leads, and the steps that come first where it is a link."""
    match part:
        case "/":
            return "", []
        case "..":
            return here.rpartition("/")[0], []
        case _:
            one = f"{here}/{part}"
            try:
                return here, _parts(os.readlink(one))  # noqa: PTH115  text
            except OSError:
                return one, []
