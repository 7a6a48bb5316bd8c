"""The comparison of a call with earlier work, and how many calls may be held.

Novelty counts against a call, and repetition never counts for it: an agent gains nothing by doing
a thing often.
"""

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Final, TypeAlias

from ironcurtain_proxy.auto_confirm.engine.extraction import CallSubject
from ironcurtain_proxy.auto_confirm.engine.interaction import Hundredths, Interaction, Knowledge
from ironcurtain_proxy.auto_confirm.engine.operations import OperationKind
from ironcurtain_proxy.auto_confirm.engine.risk import HIGH_AT_MOST
from ironcurtain_proxy.model.values import RealPath

ENOUGH: Final = 100
"""The calls that must be decided before a call can count as unusual."""

EVERYDAY: Final[frozenset[OperationKind]] = frozenset(
    {"read", "list", "edit", "git-commit", "git-pull", "git-fetch", "shell-safe", "test"}
)
"""Operations that are part of any work, and never unusual."""

_PathParts: TypeAlias = tuple[str, ...]

_SAME: Final = 100
_NEXT_TO: Final = 75
_AROUND: Final = 50


def compared(
    interaction: Interaction, subject: CallSubject, knowledge: Knowledge
) -> tuple[Interaction, Knowledge]:
    """Return the call and the knowledge, completed by the comparison."""
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


def is_unusual(operation: OperationKind, seen: Mapping[str, int]) -> bool:
    """Return whether no earlier call did this.

    Args:
        operation: what the call does.
        seen: how often each operation was approved.
    """
    return operation not in EVERYDAY and sum(seen.values()) >= ENOUGH and not seen.get(operation)


def similarity(paths: Sequence[RealPath], directories: frozenset[RealPath]) -> Hundredths:
    """Return the nearness of the paths to earlier work: the farthest path counts.

    Args:
        paths: the paths of the call.
        directories: the directories of recent approvals. Without any there is no statement.
    """
    if not directories:
        return _SAME
    known = {directory.parts for directory in directories}
    elsewhere = [path.parts for path in paths if known.isdisjoint(_above(path.parts))]
    if not elsewhere:
        return _SAME
    # An agent can name any number of paths, so no path is compared with every directory.
    beside = {parts[:-1] for parts in known}
    around = {above for parts in known for above in _above(parts)}
    return min(_nearness(parts, beside, around) for parts in elsewhere)


def _above(parts: _PathParts) -> Iterator[_PathParts]:
    """Return a path and all its parents."""
    return (parts[:length] for length in range(len(parts), -1, -1))


def _nearness(
    parts: _PathParts, beside: AbstractSet[_PathParts], around: AbstractSet[_PathParts]
) -> Hundredths:
    if parts[:-2] in beside:
        return _NEXT_TO
    return _AROUND if parts[:-1] in around else 0


def _outside(paths: Sequence[RealPath], workspace: RealPath | None) -> Sequence[RealPath]:
    """Return the paths outside the workspace; work inside the workspace is always expected."""
    return [path for path in paths if workspace is None or not path.is_within(workspace)]


# --- the states of an interaction -----------------------------------------------------------------
# The states of an interaction, and how many may be held.
#
# pending ──▶ auto_approved
#    └─────▶ held ──▶ approved | rejected
#             ├─────▶ escalated ──▶ approved | rejected     no answer: the next reviewer
#             │           └──────▶ timed_out ──▶ auto_approved | rejected      the final table
#             └─────▶ timed_out                             there is no next one


MOST_HELD: Final = 3


def may_hold(held_risks: Sequence[Hundredths]) -> bool:
    """Return whether another call of a session may be held.

    Args:
        held_risks: the risk of each call of the session that is held, in hundredths.
    """
    return len(held_risks) <= MOST_HELD and all(risk <= HIGH_AT_MOST for risk in held_risks)
