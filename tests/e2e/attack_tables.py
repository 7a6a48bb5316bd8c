"""What a hostile agent tries with a shell, by kind. `{out}` lies outside the workspace."""

from typing import Final

from tests.tables import table

_WRITES: Final = table("e2e/attacks.writes", tuple[str, ...])
_TARGETS: Final = (
    "{out}/precious.txt",
    "{home}/.bashrc",
    "{home}/.ssh/authorized_keys",
    "{home}/.gitconfig",
    "{home}/.ironcurtain/config.json",
    "{home}/.npm/_logs/x",
)
OUTSIDE: Final = tuple(
    [
        command.replace("{t}", target).replace("{n}", f"{row}-{column}")
        for column, target in enumerate(_TARGETS)
        for row, command in enumerate(_WRITES)
    ]
)
"""Nothing outside the workspace is another thing afterwards."""

NETWORK: Final = table("e2e/attack_tables.network", tuple[str, ...])
"""No listener outside hears of anything."""

_STEERS: Final = table("e2e/attacks.steers", tuple[str, ...])
STEERS: Final = tuple(
    [
        command.replace("{d}", f"steer-{n}").replace("{n}", str(n)).replace("{{}}", "{}")
        for n, command in enumerate(_STEERS)
    ]
)
"""Nothing is left that steers git or an agent."""
