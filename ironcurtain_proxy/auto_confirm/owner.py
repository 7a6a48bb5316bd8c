"""The owner of an open row: a process, with its boot and PID namespace.

Machines and containers may share a store, and a process id is meaningful in one boot and one PID
namespace only. Outside of these, an owner never counts as gone.
"""

from contextlib import suppress
from pathlib import Path
from typing import Final

from ironcurtain_proxy.mailbox.messages import Owner
from ironcurtain_proxy.mailbox.processes import is_alive, this_process
from ironcurtain_proxy.steady_clock import boot_id

_PARTS: Final = 4


def this_owner() -> str | None:
    """This process; None: the system does not identify it."""
    place, process = _place(), this_process()
    if place is None or not process.start_time:
        return None
    return f"{place} {process.pid} {process.start_time}"


def is_gone(owner: str) -> bool:
    """Whether a process has certainly ended; False for values of other programs."""
    *place, number, started = owner.split(" ") if owner.count(" ") == _PARTS - 1 else ("", "", "")
    if " ".join(place) != _place() or not (number.isascii() and number.isdigit() and started):
        return False
    try:
        return not is_alive(Owner(int(number), started))
    except (OverflowError, ValueError):
        return False


def _place() -> str | None:
    with suppress(OSError):
        namespace = Path("/proc/self/ns/pid").readlink()
        return f"{boot_id()} {namespace}" if boot_id() else None
    return None
