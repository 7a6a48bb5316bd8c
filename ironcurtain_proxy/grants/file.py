"""The file of kept grants: read, and changed under a lock.

Every proxy of this user shares it. `format` has its content, and `kept` the choice of its grants.
"""

import os
import stat
from collections.abc import Callable, Collection, Iterable
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
from ironcurtain_proxy.private_files import KeptFile, Stamp, make_private_directory

KEPT_NAME: Final = "grants.json"
"""The name of the file in the state directory."""
MAX_KEPT_BYTES: Final = 16 * 1024 * 1024

_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH
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
        self._file = KeptFile(path, MAX_KEPT_BYTES, self._unusable)
        self._lock = path.with_name(f"{path.name}.lock")
        self._lock_seconds = lock_seconds

    def stamp(self) -> Stamp:
        """The current stamp of the file, read in microseconds.

        Raises:
            GrantsFileError: the disk does not answer.
        """
        return self._file.stamp()

    def read(self) -> GrantsContent:
        """The valid content; a missing file is empty.

        Raises:
            GrantsFileError: it is not trustworthy, or cannot be read.
        """
        found = self._file.read()
        if found is None:
            return GrantsContent(ReadGrants(), ())
        self._refuse_another_s_directory()
        raw, stamp = found
        return GrantsContent(read_grants_file(raw), stamp)

    def update(self, change: GrantsUpdate) -> GrantsContent:
        """Change the content under the lock, in a few milliseconds.

        Raises:
            GrantsFileError: it cannot be changed, and is unchanged.
        """
        try:
            make_private_directory(self.path.parent)
            self._refuse_another_s_directory()
            with self._file.locked(self._lock, self._lock_seconds):
                before = self.read()
                if before.read.is_foreign:
                    raise self._unusable("was written by another version")
                after = tuple(change(before.grants))
                if after == before.grants and not before.read.problems:
                    return before
                stamp = self._file.replace(grants_file_bytes(after))
                return GrantsContent(ReadGrants(after), stamp)
        except OSError as error:
            raise self._unusable(f"cannot be written: {error.strerror}") from None

    def remove(self, identifiers: Collection[str]) -> GrantsContent:
        """Revoke grants for all sessions.

        Raises:
            GrantsFileError: they are still in the file.
        """
        return self.update(lambda grants: [kept for kept in grants if kept.id not in identifiers])

    def _refuse_another_s_directory(self) -> None:
        found = self.path.parent.stat()
        if found.st_uid != os.geteuid() or found.st_mode & _OTHERS_WRITE:
            raise self._unusable("lies in a directory that others can write: chmod go-w")

    def _unusable(self, what: str) -> GrantsFileError:
        return GrantsFileError(f"remembered approvals: {self.path} {what}")
