"""Walks over a file tree without following any link."""

import os
import stat
from collections.abc import Collection
from typing import Final

from ironcurtain_proxy.snapshots.contents import ContentReader, changing, unread
from ironcurtain_proxy.snapshots.faults import SnapshotError
from ironcurtain_proxy.snapshots.places import (
    LISTED,
    MISLEADING,
    Parts,
    opened_directory,
)
from ironcurtain_proxy.snapshots.tree import SnapshotEntry, SnapshotEntryKind

_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_DEEPEST: Final = 200
"""Directories one in another; each is an open descriptor while its content is walked over."""
_LABELS: Final = frozenset({"security.selinux", "com.apple.provenance"})
"""Extended attributes that the system gives every file by itself."""


class Walk:
    """One walk over one or more places."""

    def __init__(
        self,
        reader: ContentReader,
        max_files: int,
        *,
        strict: bool,
        skip: Collection[Parts] = (),
        ignored_name: str | None = None,
    ) -> None:
        """Say how.

        Args:
            reader: what to do with the content of files.
            max_files: how many paths may be found.
            strict: whether what could not be put back as it is ends the walk; else it is noted.
            skip: places that are left out with all below them.
            ignored_name: files of this name are not seen; they are in `ignored`.
        """
        self._reader = reader
        self._left = max_files
        self._strict = strict
        self._skip = frozenset(skip)
        self._ignored_name = ignored_name
        self.found: dict[Parts, SnapshotEntry] = {}
        self.ignored: list[Parts] = []
        self.unlisted: list[Parts] = []
        """Directories that could not be looked into."""
        self.nested: list[Parts] = []
        """Repositories within: left out, if the walk is one over a repository."""

    def over(self, root: Parts, *, repository: bool = False) -> None:
        """Walk over a place, which need not exist.

        Args:
            root: not `/`.
            repository: it is a work tree: repositories within it are left out.

        Raises:
            SnapshotError: it has too much in it; or, if strict, something that cannot be held.
        """
        try:
            with opened_directory(root[:-1]) as parent:
                self._one(parent, root, 0, nested=repository)
        except FileNotFoundError:
            return
        except OSError as error:
            if self._strict:
                raise _unreadable(error) from None
            if error.errno not in MISLEADING:
                raise SnapshotError("a place cannot be reached any more") from None

    def _one(self, parent: int, path: Parts, depth: int, *, nested: bool) -> None:
        try:
            found = os.stat(path[-1], dir_fd=parent, follow_symlinks=False)
        except FileNotFoundError:
            if self._strict and depth:
                raise changing() from None
            return
        self._left -= 1
        if self._left < 0:
            raise SnapshotError("the call may change too many files")
        if self._strict:
            _refuse_unusual(found)
        if stat.S_ISDIR(found.st_mode):
            self._directory(parent, path, depth, nested=nested)
        elif stat.S_ISREG(found.st_mode):
            self._file(parent, path, found)
        elif stat.S_ISLNK(found.st_mode):
            target = os.readlink(path[-1], dir_fd=parent)
            self.found[path] = _entry("link", found, target)
        else:
            self.found[path] = _entry("other", found, unread(found))

    def _file(self, parent: int, path: Parts, expected: os.stat_result) -> None:
        try:
            descriptor = os.open(path[-1], _READ, dir_fd=parent)
        except OSError as error:
            if self._strict:
                raise _unreadable(error) from None
            self.found[path] = _entry("file", expected, unread(expected))
            return
        try:
            found = os.fstat(descriptor)
            if self._strict:
                _refuse_unusual(found)
                _refuse_attributes(descriptor)
                _refuse_changed(expected, found)
            content = self._reader.read(descriptor, found)
            if self._strict:
                _refuse_changed(found, os.fstat(descriptor))
        finally:
            os.close(descriptor)
        self.found[path] = _entry("file", found, content)

    def _directory(self, parent: int, path: Parts, depth: int, *, nested: bool) -> None:
        try:
            descriptor = os.open(path[-1], LISTED, dir_fd=parent)
        except OSError as error:
            if self._strict:
                raise _unreadable(error) from None
            found = os.stat(path[-1], dir_fd=parent, follow_symlinks=False)
            self.found[path] = _entry("directory", found, "")
            self.unlisted.append(path)
            return
        try:
            self._content(descriptor, path, depth, nested=nested)
        finally:
            os.close(descriptor)

    def _content(self, descriptor: int, path: Parts, depth: int, *, nested: bool) -> None:
        names = sorted(os.listdir(descriptor))
        if nested and depth and ".git" in names:
            self.nested.append(path)
            return
        if depth >= _DEEPEST:
            raise SnapshotError("what the call may change has too many directories in directories")
        before = os.fstat(descriptor)
        if self._strict:
            _refuse_attributes(descriptor)
        self.found[path] = _entry("directory", before, "")
        for name in names:
            below = (*path, name)
            if name == self._ignored_name:
                self.ignored.append(below)
            elif below not in self._skip:
                self._one(descriptor, below, depth + 1, nested=nested)
        if self._strict:
            _refuse_changed(before, os.fstat(descriptor))


def _entry(kind: SnapshotEntryKind, found: os.stat_result, content: str) -> SnapshotEntry:
    return SnapshotEntry(
        kind=kind,
        mode=0 if kind == "link" else stat.S_IMODE(found.st_mode),
        group=found.st_gid,
        modified_ns=found.st_mtime_ns,
        size=found.st_size if kind == "file" else 0,
        content=content,
    )


def _refuse_unusual(found: os.stat_result) -> None:
    """Refuse what could not be put back exactly."""
    if stat.S_IFMT(found.st_mode) not in (stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK):
        raise SnapshotError("the call may change a socket, a pipe or a device")
    if stat.S_ISREG(found.st_mode) and found.st_nlink > 1:
        # Written under one of its names it changes under all of them.
        raise SnapshotError("the call may change a file that has several names (hard links)")
    if found.st_uid != os.geteuid():
        raise SnapshotError("the call may change files of another user")
    if os.geteuid() and found.st_gid not in (os.getegid(), *os.getgroups()):
        raise SnapshotError("the call may change files of another group")


def _refuse_attributes(descriptor: int) -> None:
    listing = getattr(os, "listxattr", None)
    try:
        names = set(listing(descriptor)) if listing is not None else set()
    except OSError:
        return
    if names - _LABELS:
        raise SnapshotError("the call may change a file with extended attributes or an access list")


def _refuse_changed(before: os.stat_result, after: os.stat_result) -> None:
    if _version(before) != _version(after):
        raise changing()


def _version(found: os.stat_result) -> tuple[int, ...]:
    return (
        found.st_dev,
        found.st_ino,
        found.st_mode,
        found.st_size,
        found.st_mtime_ns,
        found.st_ctime_ns,
    )


def _unreadable(error: OSError) -> SnapshotError:
    if error.errno in MISLEADING:
        return changing()
    return SnapshotError("what the call may change cannot be read or kept: " + str(error.strerror))
