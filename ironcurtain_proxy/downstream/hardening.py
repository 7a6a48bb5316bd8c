"""Protection of the proxy's process against servers of the same user."""

from typing import Final

from ironcurtain_proxy.downstream.guardian import prctl

_PR_SET_DUMPABLE: Final = 4


def hide_from_debuggers() -> None:
    """Prevent processes of the same user from reading our memory and environment.

    Variables removed from `os.environ` remain in `/proc/PID/environ`. Only root can read the files
    of a process that is not dumpable there, or attach to it. Linux only.
    """
    prctl(_PR_SET_DUMPABLE, 0)
