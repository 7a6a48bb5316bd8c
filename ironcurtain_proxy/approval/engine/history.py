"""How a call compares with what was done before. Pure: no I/O, no clock, no log.

What is new counts against a call, and what is not new never counts for it: an agent that does a
thing often gains nothing by it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from ironcurtain_proxy.approval.engine.extraction import Subject
from ironcurtain_proxy.approval.engine.interaction import Hundredths, Interaction, Knowledge
from ironcurtain_proxy.approval.engine.operations import Operation
from ironcurtain_proxy.model.path import RealPath

ENOUGH: Final = 100
"""Calls. Before so many were decided, everything is done for the first time."""

EVERYDAY: Final[frozenset[Operation]] = frozenset(
    {"read", "list", "edit", "git-commit", "git-pull", "git-fetch", "shell-safe", "test"}
)
"""What is part of any work, and so never unusual."""

_SAME: Final = 100
_NEXT_TO: Final = 75
_AROUND: Final = 50


def compared(
    interaction: Interaction, subject: Subject, knowledge: Knowledge
) -> tuple[Interaction, Knowledge]:
    """The call and what is known, with what the comparison says."""
    past = knowledge.history
    return (
        replace(interaction, unusual=is_unusual(subject.operation, past.operations)),
        replace(
            knowledge,
            context_similarity=similarity(
                _outside(subject.paths, interaction.workspace), past.directories
            ),
        ),
    )


def is_unusual(operation: Operation, seen: Mapping[str, int]) -> bool:
    """Whether this was never done in all the calls that there were.

    Args:
        operation: what the call does.
        seen: how often each operation was approved.
    """
    return operation not in EVERYDAY and sum(seen.values()) >= ENOUGH and not seen.get(operation)


def similarity(paths: Sequence[RealPath], directories: frozenset[RealPath]) -> Hundredths:
    """How near the paths are to where work was done: the farthest of them counts.

    Args:
        paths: what the call names.
        directories: those of what was approved lately; none: nothing can be said.
    """
    if not directories:
        return _SAME
    return min((_nearness(path, directories) for path in paths), default=_SAME)


def _nearness(path: RealPath, directories: frozenset[RealPath]) -> Hundredths:
    if any(path.is_within(directory) for directory in directories):
        return _SAME
    if any(directory.parts[:-1] == path.parts[:-2] for directory in directories):
        return _NEXT_TO
    around = RealPath(path.parts[:-1])
    return _AROUND if any(directory.is_within(around) for directory in directories) else 0


def _outside(paths: Sequence[RealPath], workspace: RealPath | None) -> Sequence[RealPath]:
    """The workspace is where work is done, always."""
    return [path for path in paths if workspace is None or not path.is_within(workspace)]
