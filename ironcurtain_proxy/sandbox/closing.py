"""The program that closes files in sandboxes that run already.

    python -I -S closing.py PROCESS PATH ...

A file of credentials that appears after a sandbox started has no cover there. This program covers
it in each mount namespace below PROCESS that is not its own: an empty directory over a directory,
`/dev/null` over a file. The user namespace of a sandbox belongs to the user who made it, so that no
right of root is needed; a process in the sandbox has no right to take a cover away again. Nothing
relies on this program: `restrictions` looks afterwards.

It ends with 0 if each PATH is covered wherever it was seen. A process can be in one user namespace
after the other only by forking, so each mount namespace is entered by a child. It runs rarely, and
imports nothing of this package.
"""

import ctypes
import os
import stat
import sys

_NEW_USER, _NEW_MOUNTS = 0x10000000, 0x00020000
_OWNER = 0xB701
"""`NS_GET_USERNS`: the user namespace that another namespace belongs to."""
_BIND, _REMOUNT = 0x1000, 0x20
_EMPTY = b"mode=0500,size=16m"
_READ_ONLY, _NO_SUID, _NO_DEVICES, _NO_EXEC = 1, 2, 4, 8
_FORBIDS = _READ_ONLY | _NO_SUID | _NO_DEVICES | _NO_EXEC
_MOST_PROCESSES = 100_000


def main(arguments: list[str]) -> int:
    """Cover the paths. Returns the exit status."""
    root, paths = int(arguments[0]), arguments[1:]
    # What a path is outside: inside, only the same thing has to be covered.
    outside = {path: identity for path in paths if (identity := _identity(path)) is not None}
    own = _namespace(os.getpid(), "mnt")
    entered: set[str] = set()
    failed = False
    for process in _below(root):
        there = _namespace(process, "mnt")
        if there in entered or there in {own, ""}:
            continue
        entered.add(there)
        child = os.fork()
        if child == 0:
            try:
                os._exit(_cover(process, outside))
            finally:
                os._exit(1)
        gone = _namespace(process, "mnt") == ""
        failed |= os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0 and not gone
    return int(failed)


def _below(root: int) -> list[int]:
    """Return a process and all that it has started, as far as they live."""
    found = [root]
    for process in found:
        try:
            threads = os.listdir(f"/proc/{process}/task")  # noqa: PTH208  as below
        except OSError:
            continue
        for thread in threads:
            try:
                with open(f"/proc/{process}/task/{thread}/children", "rb") as file:  # noqa: PTH123  pathlib is slow to load
                    found += map(int, file.read().split())
            except OSError:
                continue
        if len(found) > _MOST_PROCESSES:
            break
    return found


def _namespace(process: int, kind: str) -> str:
    try:
        return os.readlink(f"/proc/{process}/ns/{kind}")  # noqa: PTH115  as above
    except OSError:
        return ""


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path, follow_symlinks=False)  # noqa: PTH116  as above
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _cover(process: int, outside: dict[str, tuple[int, int]]) -> int:
    """Cover the paths in the namespaces of a process. Return 1 if one could not be."""
    libc = ctypes.CDLL(None, use_errno=True)
    mounts = os.open(f"/proc/{process}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
    # The one that the mounts belong to: the process may be in another below it.
    user = libc.ioctl(mounts, _OWNER, 0)
    own = os.stat("/proc/self/ns/user")  # noqa: PTH116  as above
    if user < 0:
        return 1
    if os.fstat(user).st_ino != own.st_ino and libc.setns(user, _NEW_USER) != 0:
        return 1
    if libc.setns(mounts, _NEW_MOUNTS) != 0:
        return 1
    failed = 0
    for path, identity in outside.items():
        if _identity(path) == identity:
            failed |= _cover_one(libc, os.fsencode(path))
    return failed


def _cover_one(libc: ctypes.CDLL, path: bytes) -> int:
    """Cover what is there now. By its path: no `/proc` there knows this process."""
    if stat.S_ISDIR(os.stat(path, follow_symlinks=False).st_mode):  # noqa: PTH116  as above
        return int(libc.mount(b"tmpfs", path, b"tmpfs", _FORBIDS, _EMPTY) != 0)
    if libc.mount(b"/dev/null", path, None, _BIND, None) != 0:
        return 1
    # What a mount forbids already, it has to forbid as before.
    flags = os.statvfs(path).f_flag & _FORBIDS
    return int(libc.mount(None, path, None, _BIND | _REMOUNT | _READ_ONLY | flags, None) != 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
