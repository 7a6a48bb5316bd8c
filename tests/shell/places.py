"""The place of the commands in these tests, and whether approved families cover one."""

from collections.abc import Sequence
from typing import Final

from ironcurtain_proxy.model.request import CommandPlace, Family, ParsedCommand
from ironcurtain_proxy.shell.families import families_of
from ironcurtain_proxy.shell.kinds import wider

PROJECT: Final = CommandPlace(
    workspace="/home/u/project", directory="/home/u/project", home="/home/u", has_repository=True
)


def covers(
    granted: Sequence[Family], parsed: ParsedCommand, place: CommandPlace, *, held: bool = False
) -> bool:
    """Return whether every part of a command belongs to a family that was approved.

    See `families_of`.
    """
    needed = families_of(parsed, place, held=held)
    return needed is not None and all(
        any(one in granted for one in (family, *wider(family))) and family.meaning is not None
        for family in needed
    )
