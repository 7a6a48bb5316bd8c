"""Changed descriptions of servers, one line each, for `status`, `doctor` and `review`."""

from collections.abc import Sequence
from pathlib import Path

from ironcurtain_proxy.cli.output import counted
from ironcurtain_proxy.mailbox.display import visible
from ironcurtain_proxy.pins.difference import changes
from ironcurtain_proxy.pins.store import PinsFileError
from ironcurtain_proxy.wiring.pins import pin_store


def pins_warnings(state_dir: Path) -> Sequence[str]:
    """One line for each server. Each line ends with the command to run."""
    lines: list[str] = []
    for one in pin_store(state_dir).all():
        if isinstance(one, PinsFileError):
            lines.append(f"{visible(str(one))}; its server is held: ironcurtain-proxy pins list")
        elif waiting := changes(one):
            count = counted(len(waiting), "change")
            name = visible(one.server)
            lines.append(
                f'server "{name}": {count} of what it says of itself must be accepted: '
                f"ironcurtain-proxy pins diff {name}"
            )
    return lines
