"""Atomic replacement of an operator's file, with a copy of the old content.

At every moment, whatever fails, the file is complete: either the old or the new one.
"""

import errno
import grp
import os
import pwd
import tempfile
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Final

from ironcurtain_proxy.private_files import make_private_directory, sync_directory

_MAX_BACKUPS: Final = 100
"""The largest number of copies in one second."""


def rewrite(file: Path, before: bytes, after: bytes, now: datetime) -> Path:
    """Replace the content `before` by `after`. Mode, owner and a symbolic link are kept.

    Returns:
        The copy: beside the file's own name, not beside what a link leads to, since that place is
        protected from the agent.

    Raises:
        OSError: it could not be written, or was changed meanwhile; the file is as it was, and
            there is no copy.
    """
    status = Path(os.path.realpath(file)).stat()
    backup = _backup(file, before, status, now)
    try:
        exchange(file, before, after)
    except OSError:
        backup.unlink(missing_ok=True)
        raise
    return backup


def exchange(file: Path, before: bytes, after: bytes) -> None:
    """Replace the content of a file as `rewrite` does, without a copy.

    Raises:
        OSError: as above.
    """
    real = Path(os.path.realpath(file))
    new = _written(real, after, real.stat())
    try:
        _refuse_if_changed(real, before)
        new.replace(real)
    finally:
        new.unlink(missing_ok=True)
    # The file is replaced already, so a file system without fsync of directories is no failure.
    sync_directory(real.parent)


def why_not_exchanged(file: Path) -> str:
    """Return why `exchange` would fail, as far as that can be told before; empty if it would not.

    A new file takes the owner and the group of the old one, which only they can give it.
    """
    real = Path(os.path.realpath(file))
    try:
        status = real.stat()
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    if not os.access(real.parent, os.W_OK | os.X_OK):
        return f"cannot be replaced, because {real.parent} is not writable for you"
    if os.geteuid() == 0:
        return ""
    if status.st_uid != os.geteuid():
        return f"belongs to {_named(pwd.getpwuid, status.st_uid)}"
    if status.st_gid not in {os.getegid(), *os.getgroups()}:
        group = _named(grp.getgrgid, status.st_gid)
        return f"belongs to the group {group}, of which you are no member"
    return ""


def _named(look_up: Callable[[int], Sequence[object]], number: int) -> str:
    try:
        return str(look_up(number)[0])
    except KeyError:
        return str(number)


def create(file: Path, content: bytes) -> None:
    """Write a new file completely, for this user only; a file created meanwhile is kept.

    Raises:
        OSError: it could not be written.
    """
    make_private_directory(file.parent)
    descriptor, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
    try:
        with os.fdopen(descriptor, "wb") as out:
            out.write(content)
            out.flush()
            os.fsync(out.fileno())
        # A link instead of a rename, which would replace a file that another process created.
        os.link(name, file)
    finally:
        Path(name).unlink()


def _refuse_if_changed(real: Path, before: bytes) -> None:
    if real.read_bytes() != before:
        raise OSError(errno.EBUSY, "it was changed meanwhile")


def _written(real: Path, content: bytes, status: os.stat_result) -> Path:
    descriptor, name = tempfile.mkstemp(dir=real.parent, prefix=f".{real.name}.")
    return _filled(descriptor, Path(name), content, status)


def _backup(file: Path, content: bytes, status: os.stat_result, now: datetime) -> Path:
    stem = f"{file.name}.bak-{now:%Y%m%d%H%M%S}"
    for number in range(_MAX_BACKUPS):
        path = file.with_name(f"{stem}-{number}" if number else stem)
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            continue
        return _filled(descriptor, path, content, status)
    raise FileExistsError(errno.EEXIST, "no name is left for a copy")


def _filled(descriptor: int, path: Path, content: bytes, status: os.stat_result) -> Path:
    """Write a new file with the mode and owner of another; remove it again on failure."""
    try:
        with os.fdopen(descriptor, "wb") as out:
            out.write(content)
            out.flush()
            own = os.fstat(descriptor)
            if (own.st_uid, own.st_gid) != (status.st_uid, status.st_gid):
                os.fchown(descriptor, status.st_uid, status.st_gid)
            # After the content, so that nobody else can use the file before it is complete.
            os.fchmod(descriptor, status.st_mode & 0o7777)
            os.fsync(descriptor)
    except OSError:
        path.unlink(missing_ok=True)
        raise
    return path
