"""The limits on a held workspace, and a check of them without copies."""

import os
import stat
from collections.abc import Collection, Iterator
from contextlib import suppress
from typing import Final

LARGEST_PART: Final = 4
"""A file that takes more than this part of all bytes is not held."""


def too_many(max_files: int) -> str:
    """The message about a workspace with more files, which is not held."""
    return f"the workspace has more than {max_files:,} files and directories"


def too_large(max_bytes: int) -> str:
    """The message about a workspace with more bytes, which is not held."""
    return f"the workspace holds more than {max_bytes / (1 << 20):,.0f} MiB"


def beyond_bounds(
    workspace: str, *, max_files: int, max_bytes: int, caches: Collection[str], state: str
) -> str | None:
    """The reason why a workspace is not held; None: it is within the bounds. Stops at the first.

    Args:
        workspace: where it is.
        max_files: the most files, directories and links.
        max_bytes: the most bytes.
        caches: names of directories that are left alone.
        state: the directory of the proxy's state, which is left alone as well.
    """
    try:
        device = os.stat(workspace).st_dev  # noqa: PTH116  pathlib is slow for so many
    except OSError as error:
        return f"the workspace or its timeline cannot be used: {error.strerror}"
    size = 0
    for files, taken in enumerate(_found(workspace, frozenset(caches), state, device), 1):
        size += taken if taken <= max_bytes // LARGEST_PART else 0
        if files > max_files:
            return too_many(max_files)
        if size > max_bytes:
            return too_large(max_bytes)
    return None


def _found(workspace: str, caches: frozenset[str], state: str, device: int) -> Iterator[int]:
    """All scanned entries, each with the bytes of its copy."""
    waiting = [workspace]
    while waiting:
        with suppress(OSError), os.scandir(waiting.pop()) as found:
            for entry in found:
                status = entry.stat(follow_symlinks=False)
                if not stat.S_ISDIR(status.st_mode):
                    is_file = stat.S_ISREG(status.st_mode)
                    yield min(status.st_size, status.st_blocks * 512) if is_file else 0
                elif entry.name not in caches and entry.path != state:
                    yield 0
                    if status.st_dev == device:
                        waiting.append(entry.path)
