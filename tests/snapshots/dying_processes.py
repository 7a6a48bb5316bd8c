"""Processes that end in the middle of something, or may do less than we."""

import os
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from ironcurtain_proxy.snapshots.faults import SafeguardError
from tests.snapshots.snapshot_fixture import Scene, scene

FAILED: Final = 3
_NOBODY: Final = 65534
_CHANGES: Final = frozenset(
    {
        "os.rename",
        "os.remove",
        "os.mkdir",
        "os.rmdir",
        "os.symlink",
        "os.chmod",
        "os.chown",
        "os.utime",
        "shutil.rmtree",
        "subprocess.Popen",
    }
)
"""Audit events (PEP 578); each is raised before it happens."""


def in_a_child(action: Callable[[], object]) -> int:
    """Run it in a process of its own.

    Returns:
        0; 3 if it raised a fault of ours; the negative number of the signal that ended it.
    """
    child = os.fork()
    if child == 0:
        code = 70
        try:
            action()
            code = 0
        except SafeguardError:
            code = FAILED
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def kill_at(nth: int, action: Callable[[], object]) -> None:
    """Carry it out and be killed before the nth change of the disk."""
    count = 0

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal count
        creates = event == "open" and isinstance(arguments[2], int) and arguments[2] & os.O_CREAT
        if event in _CHANGES or creates:
            count += 1
            if count == nth:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)
    action()


def without_privileges(action: Callable[[Scene], object]) -> int:
    """Run it in a process that permissions apply to, at a place of its own; as `in_a_child`."""

    def act() -> None:
        if not os.geteuid():
            os.setgroups([])
            os.setgid(_NOBODY)
            os.setuid(_NOBODY)
        action(scene(Path(directory) / "scene"))

    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o777)
        return in_a_child(act)
