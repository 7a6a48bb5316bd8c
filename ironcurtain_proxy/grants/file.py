"""The file of kept grants: read, and changed under a lock.

Every proxy of this user shares it. `format` has its content, and `kept` the choice of its grants.
"""

import os
import stat
from collections.abc import Callable, Collection, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from ironcurtain_proxy.errors import IronCurtainError
from ironcurtain_proxy.grants.format import (
    KeptGrant,
    ReadGrants,
    grants_file_bytes,
    read_grants_file,
)
from ironcurtain_proxy.private_directory import UnacceptableFileError, content
from ironcurtain_proxy.private_files import (
    Stamp,
    held_lock,
    make_private_directory,
    stamp_of,
    write_whole,
)

KEPT_NAME: Final = "grants.json"
"""The name of the file in the state directory."""
MAX_KEPT_BYTES: Final = 16 * 1024 * 1024

_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH
_SAFE: Final = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_LOCK_SECONDS: Final = 2.0

GrantsUpdate: TypeAlias = Callable[[tuple[KeptGrant, ...]], Iterable[KeptGrant]]
"""Gets the content of the file, and returns the new content."""


class GrantsFileError(IronCurtainError):
    """The file cannot be used: its grants do not count, and none can be kept."""


@dataclass(frozen=True, slots=True)
class GrantsContent:
    """The content of the file at one moment."""

    read: ReadGrants
    stamp: Stamp

    @property
    def grants(self) -> tuple[KeptGrant, ...]:
        """The valid grants."""
        return self.read.grants


class GrantsFile:
    """One file of kept grants, opened on use."""

    def __init__(self, path: Path, *, lock_seconds: float = _LOCK_SECONDS) -> None:
        self.path = path
        self._lock_seconds = lock_seconds

    def stamp(self) -> Stamp:
        """The current stamp of the file, read in microseconds.

        Raises:
            GrantsFileError: the disk does not answer.
        """
        try:
            return stamp_of(self.path.lstat())
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise self._unusable(f"cannot be read: {error.strerror}") from None

    def read(self) -> GrantsContent:
        """The valid content; a missing file is empty.

        Raises:
            GrantsFileError: it is not trustworthy, or cannot be read.
        """
        try:
            descriptor = os.open(self.path, os.O_RDONLY | _SAFE)
        except FileNotFoundError:
            return GrantsContent(ReadGrants(), ())
        except OSError as error:
            link = self.path.is_symlink()
            what = "is a symbolic link" if link else f"cannot be read: {error.strerror}"
            raise self._unusable(what) from None
        try:
            found = os.fstat(descriptor)
            self._refuse_what_is_not_ours(found)
            raw = content(descriptor, MAX_KEPT_BYTES)
        except OSError as error:
            raise self._unusable(f"cannot be read: {error.strerror}") from None
        except UnacceptableFileError as error:
            raise self._unusable(str(error)) from None
        finally:
            os.close(descriptor)
        return GrantsContent(read_grants_file(raw), stamp_of(found))

    def update(self, change: GrantsUpdate) -> GrantsContent:
        """Change the content under the lock, in a few milliseconds.

        Raises:
            GrantsFileError: it cannot be changed, and is unchanged.
        """
        try:
            make_private_directory(self.path.parent)
            self._refuse_another_s_directory()
            with self._locked():
                before = self.read()
                if before.read.is_foreign:
                    raise self._unusable("was written by another version")
                after = tuple(change(before.grants))
                if after == before.grants and not before.read.problems:
                    return before
                self._replace(after)
                return GrantsContent(ReadGrants(after), self.stamp())
        except OSError as error:
            raise self._unusable(f"cannot be written: {error.strerror}") from None

    def remove(self, identifiers: Collection[str]) -> GrantsContent:
        """Revoke grants for all sessions.

        Raises:
            GrantsFileError: they are still in the file.
        """
        return self.update(lambda grants: [kept for kept in grants if kept.id not in identifiers])

    def _replace(self, grants: tuple[KeptGrant, ...]) -> None:
        raw = grants_file_bytes(grants)
        if len(raw) > MAX_KEPT_BYTES:
            raise self._unusable(f"would be larger than {MAX_KEPT_BYTES} bytes")
        write_whole(self.path, raw, locked=True)

    def _locked(self) -> AbstractContextManager[None]:
        """Hold the lock of all proxies."""
        path = self.path.with_name(f"{self.path.name}.lock")
        return held_lock(path, self._lock_seconds, self._unusable("is in use by another process"))

    def _refuse_another_s_directory(self) -> None:
        found = self.path.parent.stat()
        if found.st_uid != os.geteuid() or found.st_mode & _OTHERS_WRITE:
            raise self._unusable("lies in a directory that others can write: chmod go-w")

    def _refuse_what_is_not_ours(self, found: os.stat_result) -> None:
        if not stat.S_ISREG(found.st_mode):
            raise self._unusable("is not a regular file")
        if found.st_uid != os.geteuid():
            raise self._unusable("belongs to another user")
        if found.st_mode & _OTHERS_WRITE:
            raise self._unusable("can be written by other users")
        self._refuse_another_s_directory()

    def _unusable(self, what: str) -> GrantsFileError:
        return GrantsFileError(f"remembered approvals: {self.path} {what}")
