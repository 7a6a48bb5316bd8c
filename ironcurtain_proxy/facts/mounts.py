"""Whether access to the file system may hang.

Reads the kernel's table of mounts and keeps it open, because the kernel reports its changes.

A mount that is served over a network or by another program (NFS, FUSE) can block a system call for
as long as its server likes. Where there is none, a path is looked up faster than a thread is asked
to do it.
"""

import os
import select
from contextlib import suppress
from pathlib import Path
from typing import Final

_DISKS: Final = frozenset(
    {"bcachefs", "btrfs", "erofs", "exfat", "ext2", "ext3", "ext4", "f2fs", "iso9660", "jfs"}
    | {"ntfs3", "squashfs", "vfat", "xfs", "zfs"}
)
_MEMORY: Final = frozenset({"devtmpfs", "hugetlbfs", "overlay", "ramfs", "rootfs", "tmpfs"})
_KERNEL: Final = frozenset(
    {"binfmt_misc", "bpf", "cgroup", "cgroup2", "configfs", "debugfs", "devpts", "efivarfs"}
    | {"fusectl", "mqueue", "nsfs", "proc", "pstore", "resctrl", "securityfs", "selinuxfs"}
    | {"sysfs", "tracefs"}
)
_LOCAL_TYPES: Final = _DISKS | _MEMORY | _KERNEL
"""File systems on local memory or disks. Any other type counts as one that can hang."""

_MOUNT_POINT: Final = 4
"""The field of a line that holds where it is mounted; the type follows a lone hyphen."""


class MountTable:
    """Watches the mounts of this process. Not thread-safe."""

    def __init__(self, table: str = "/proc/self/mountinfo") -> None:
        """Open the table; where there is none (not Linux), everything may block."""
        self._descriptor: int | None = None
        self._poll = select.poll()
        self._table = table
        try:
            self._descriptor = os.open(table, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._may_block = True
            return
        self._poll.register(self._descriptor, select.POLLPRI | select.POLLERR)
        self._may_block = self._read()

    def may_block(self) -> bool:
        """Whether any mount could block a system call. Takes a third of a microsecond."""
        if self._descriptor is not None and self._poll.poll(0):
            self._may_block = self._read()
        return self._may_block

    def close(self) -> None:
        """Stop watching: from now on everything may block."""
        if self._descriptor is not None:
            os.close(self._descriptor)
        self._descriptor = None
        self._may_block = True

    def __del__(self) -> None:
        """A table that nobody holds any more keeps no descriptor."""
        with suppress(OSError, AttributeError):
            self.close()

    def _read(self) -> bool:
        try:
            lines = Path(self._table).read_text(errors="replace").splitlines()
        except OSError:
            return True
        return not lines or not all(map(_is_local, lines))


def _is_local(line: str) -> bool:
    fields = line.split()
    if "-" not in fields[:-1]:
        return False
    # The doors of systemd's automounter below /proc and /sys lead to this kernel again.
    if fields[_MOUNT_POINT].startswith(("/proc/", "/sys/")):
        return True
    return fields[fields.index("-") + 1] in _LOCAL_TYPES
