"""The restrictions of one command, as arguments of bubblewrap.

srt takes a third of a second for each start, most of it for a network proxy. A command of our own
shell reaches nothing, so it is started by bubblewrap alone, with the restrictions that srt and our
wrapper would give it (`wrapper`, `bwrap`, `inside`). What srt's own helper does is done by the
filter: no socket but of the internet, whose network has no way out, and no namespace of users.
"""

import os
import platform
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from ironcurtain_proxy.sandbox.private_tmp import PrivateTmp
from ironcurtain_proxy.sandbox.profile import SandboxProfile, is_in, refused_in_closure

_HIDDEN_BYTES: Final = "16777216"
_SHARED_BYTES: Final = "1073741824"
_NAMESPACES: Final = ("--unshare-user", "--unshare-pid", "--unshare-ipc")
_OPEN_TO_SRT: Final = "/proc/sys/user"


def closure(
    profile: SandboxProfile,
    private: PrivateTmp | None,
    lent: Sequence[str] = (),
    *,
    network: bool = True,
) -> tuple[str, ...]:
    """Return the arguments of bubblewrap that confine a command by a profile.

    Args:
        profile: what it may touch. Hosts play no part: it reaches none.
        private: what is mounted over the places for temporary files.
        lent: mounts of what an approval opens. What the profile says counts more.
        network: make a network namespace; else the command stays in the one that it starts in,
            which must be closed.

    A directory that does not exist cannot be closed, and nothing can be made in its place either,
    unless it lies in one that may be written.
    """
    words = ["bwrap", "--new-session", "--die-with-parent", *_NAMESPACES]
    words += ["--unshare-net"] if network else []
    words += ["--ro-bind", "/", "/"]
    if private is not None:
        words += private.mounts("/")[: 3 * len(private.places)]
        words += [w for shown in private.shown for w in ("--ro-bind-try", shown, shown)]
    words += [*lent, *_opened_or_closed(profile)]
    words += ["--dev", "/dev", "--size", _SHARED_BYTES, "--perms", "1777", "--tmpfs", "/dev/shm"]  # noqa: S108  inside
    words += ["--remount-ro", "/dev", "--proc", "/proc"]
    if os.geteuid() == 0:
        # Root may write the settings of the kernel, capabilities or not.
        words += [w for name in _kernel_settings() for w in ("--ro-bind", name, name)]
    return (*words, "--cap-drop", "ALL")


def filter_of_calls() -> bytes | None:
    """Return the seccomp filter for a command in the closure, or None on an unknown machine."""
    return refused_in_closure(platform.machine(), is_root=os.geteuid() == 0)


def _opened_or_closed(profile: SandboxProfile) -> Iterator[str]:
    """Yield the mounts of a profile. Of nested directories the innermost counts."""
    closed = set(profile.deny_read)
    opened = dict.fromkeys(profile.allow_write, "--bind")
    opened = {**dict.fromkeys(profile.allow_read, "--ro-bind"), **opened}
    for path in sorted({*closed, *opened}, key=lambda one: (one.count("/"), one)):
        if path in closed:
            yield from _closed(path)
        elif os.path.lexists(path) and path != "/":
            yield from (opened[path], path, path)
    for path in profile.deny_write:
        if path not in closed and os.path.lexists(path) and is_in(path, *opened):
            yield from ("--ro-bind", path, path)


def _closed(path: str) -> Iterator[str]:
    if Path(path).is_symlink() or not os.path.lexists(path):
        return  # what it leads to is closed by its own name
    if Path(path).is_dir():
        yield from ("--perms", "0500", "--size", _HIDDEN_BYTES, "--tmpfs", path)
    else:
        yield from ("--ro-bind", "/dev/null", path)


def _kernel_settings() -> Iterator[str]:
    for entry in sorted(Path("/proc/sys").iterdir()):
        if str(entry) != _OPEN_TO_SRT:
            yield str(entry)
