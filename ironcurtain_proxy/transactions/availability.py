"""Whether a workspace can have views, and where their directories lie.

The directories of a view must be on the file system of the workspace, so that a rename brings them
there, and where no server can write. Whether a view works is not concluded from versions: one is
made, and its changes are looked at.
"""

import os
import stat
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from msgspec import Struct

from ironcurtain_proxy.private_files import closed_after
from ironcurtain_proxy.transactions import files
from ironcurtain_proxy.transactions.changes import RefusedChangesError
from ironcurtain_proxy.transactions.control import Control
from ironcurtain_proxy.transactions.forking import mounting_by
from ironcurtain_proxy.transactions.transaction import CommandView, discard

_SECONDS: Final = 10.0
_DEEDS: Final = (
    'echo new > "$0/file" && rm "$0/gone" && rm -r "$0/tree" && mkdir "$0/tree" '
    '&& echo new > "$0/tree/a" && mkdir "$0/made" && echo new > "$0/made/a"'
)
_EXPECTED: Final = {b"file": "swap", b"gone": "remove", b"tree": "swap", b"made": "make"}


class NoViews(Struct, frozen=True):
    """Commands cannot have views of this workspace."""

    why: str
    """One line for the operator."""


def store_for(workspace: str, candidates: Sequence[Path]) -> Path | NoViews:
    """Return the first directory in which the views of a workspace can lie.

    It is made, for this user alone, where it does not exist.

    Args:
        workspace: an absolute path without links.
        candidates: directories of ours, the best one first.
    """
    below = [point for point in _mount_points() if point.startswith(f"{workspace.rstrip('/')}/")]
    if below:
        return NoViews(f"another file system is mounted in the workspace: {below[0]}")
    owner = Path(workspace).lstat()
    if os.geteuid() != 0 and (owner.st_uid, owner.st_gid) != (os.geteuid(), os.getegid()):
        # In a user namespace of an ordinary user all others are unknown, and cannot be copied up.
        return NoViews("the workspace belongs to another user or group")
    why = "no place for the directories of a view"
    for place in candidates:
        try:
            place.mkdir(0o700, parents=True, exist_ok=True)
            found = place.lstat()
            if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
                why = f"{place} is not a directory of this user's"
            elif stat.S_IMODE(found.st_mode) & 0o077:
                why = f"{place} is open to other users"
            elif _mount_of(str(place)) != _mount_of(workspace):
                why = f"{place} is on another file system than the workspace"
            else:
                return place
        except OSError as error:
            why = f"{place}: {(error.strerror or 'cannot be used').lower()}"
    return NoViews(why)


def why_no_views(session: Path, python: str = sys.executable) -> str | None:
    """Return why no view can be made in a session's directory, or None if one was made.

    Blocks for about 30 ms.
    """
    lower = session / "probe"
    view: CommandView | None = None
    try:
        (lower / "tree").mkdir(parents=True)
        for name in ("file", "gone", "tree/a", "tree/b"):
            (lower / name).write_text("old")
        view = CommandView(session, str(lower))
        if (why := _why_not_done(view, str(lower), python)) is not None:
            return why
        if (lower / "file").read_text() != "old" or (lower / "made").exists():
            return "what happens in a view is seen outside of it"
        found = view.prepare(Control())
        if {one.path: one.act for one in found.steps} != _EXPECTED:
            return "the kernel notes changes in a way that is not read"
        return _why_no_exchange(session)
    except subprocess.TimeoutExpired:
        return f"it did not start within {_SECONDS:g} s"
    except (OSError, RefusedChangesError) as error:
        return str(error)
    finally:
        if view is not None:
            view.close()
            discard(view.directory)
        discard(lower)


def _why_not_done(view: CommandView, lower: str, python: str) -> str | None:
    """Do the deeds in a view. Return why that failed, or None if it did not."""
    read, write = os.pipe()
    try:
        ran = subprocess.run(  # noqa: S603  an argument list of ours
            [
                *mounting_by(python),
                *view.arguments(["/bin/sh", "-c", _DEEDS, lower], write),
            ],
            check=False,
            capture_output=True,
            timeout=_SECONDS,
            stdin=subprocess.DEVNULL,
            pass_fds=(write,),
        )
        os.close(write)
        write = -1
        said = os.read(read, 16)
    finally:
        os.close(read)
        if write >= 0:
            os.close(write)
    if said == b"0":
        return None
    words = " ".join(ran.stderr.decode(errors="replace").split())
    return words[-200:] or f"it ended with status {ran.returncode}"


def _why_no_exchange(session: Path) -> str | None:
    """Return why two files cannot change places, or None if they can."""
    directory = os.open(session / "probe", files.DIRECTORY)
    try:
        with closed_after(os.open("tree", files.DIRECTORY, dir_fd=directory)) as below:
            os.rename("file", "gone", src_dir_fd=directory, dst_dir_fd=below)
            files.exchange(directory, b"gone", below)
    except OSError as error:
        return f"the file system cannot exchange two files: {(error.strerror or '').lower()}"
    finally:
        os.close(directory)
    return None


def _mount_of(path: str) -> tuple[str, int]:
    """Return the mount and the device that a path lies in: a rename stays in one of each."""
    with closed_after(os.open(path, os.O_PATH | os.O_CLOEXEC)) as descriptor:
        text = Path(f"/proc/self/fdinfo/{descriptor}").read_text(encoding="ascii")
        device = os.fstat(descriptor).st_dev
    return next(line for line in text.splitlines() if line.startswith("mnt_id:")), device


def _mount_points() -> list[str]:
    with suppress(OSError):
        text = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
        return [_unescaped(line.split(" ")[4]) for line in text.splitlines()]
    return []


def _unescaped(text: str) -> str:
    for character in " \t\n\\":
        text = text.replace(f"\\{ord(character):03o}", character)
    return text
