"""What the proxy does to itself so that servers of the same user see less of it."""

from typing import Final

from ironcurtain_proxy.downstream.guardian import prctl

_PR_SET_DUMPABLE: Final = 4


def hide_from_debuggers() -> None:
    """Keep processes of the same user from reading our memory and environment.

    Variables taken out of `os.environ` still stand in `/proc/PID/environ`, as the process was
    started. A process that is not dumpable has files there that only root can read, and cannot be
    attached to. Linux only.
    """
    prctl(_PR_SET_DUMPABLE, 0)
