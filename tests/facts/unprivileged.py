"""Processes that may do less than we."""

import os
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Final

_NOBODY: Final = 65534


def without_privileges(action: Callable[[Path], object]) -> int:
    """Run it in a process that permissions apply to, at a place of its own; its exit code."""
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o777)
        child = os.fork()
        if child == 0:
            code = 70
            try:
                if not os.geteuid():
                    os.setgroups([])
                    os.setgid(_NOBODY)
                    os.setuid(_NOBODY)
                place = Path(directory).resolve() / "place"
                place.mkdir()
                action(place)
                code = 0
            except BaseException:
                traceback.print_exc()
                raise
            finally:
                os._exit(code)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
