"""The branches that a git operation changes.

Every possible name counts: the current branch, and both sides of every refspec. An unreadable name
makes the branch unknown, and an unknown branch is treated as `main`.
"""

import re
from collections.abc import Iterator
from typing import Final

from ironcurtain_proxy.auto_confirm.engine.interaction import Interaction

_NAME: Final = re.compile(r"(?!.*\.\.)(?!.*//)[A-Za-z0-9_][A-Za-z0-9._/-]*", re.ASCII)
UNREADABLE: Final = "?"
"""Stands for a branch whose name cannot be read. No branch can have this name."""


def branches_of(interaction: Interaction) -> tuple[str, ...]:
    """The branches in short names; empty: nothing is known.

    The current branch says nothing about a call to a forge. It always counts for a local
    repository, so that an agent cannot make a call look better by naming another branch.
    """
    current = interaction.branch
    at_hand = interaction.request.server != "github"
    named = [name for text in _named(interaction) for name in _sides(text, current)]
    if at_hand:
        named.insert(0, UNREADABLE if current is None else _short(current))
        named += _of_command(interaction)
    return tuple(dict.fromkeys(named))


def _of_command(interaction: Interaction) -> Iterator[str]:
    if interaction.command_operation not in {"git-commit", "git-push", "git-force-push"}:
        return
    if interaction.command_branches is None:
        # It may work in another repository, or push anywhere.
        yield UNREADABLE
        return
    for refspec in interaction.command_branches:
        yield from _sides(refspec, interaction.branch)


def are_feature_branches(branches: tuple[str, ...], prefixes: tuple[str, ...]) -> bool:
    """Whether all of them are. None at all is not."""
    return bool(branches) and all(
        branch.startswith(prefixes) and branch not in prefixes for branch in branches
    )


def _named(interaction: Interaction) -> Iterator[str]:
    for fact in interaction.request.arguments:
        if "branch-name" in fact.roles:
            yield from (value.text for value in fact.values)
    annotated = {f.name for f in interaction.request.arguments if "branch-name" in f.roles}
    for name, value in interaction.arguments.items():
        plain = name.lower()
        if name not in annotated and ("branch" in plain or "ref" in plain):
            yield from _texts(value)


def _texts(value: object) -> Iterator[str]:
    match value:
        case None | bool():
            return
        case str():
            yield value
        case list():
            for item in value:
                yield from _texts(item)
        case _:
            yield UNREADABLE


def _sides(text: str, current: str | None) -> Iterator[str]:
    for side in text.removeprefix("+").split(":"):
        if side in {"HEAD", "@"}:
            yield UNREADABLE if current is None else _short(current)
        else:
            yield _short(side)


def _short(name: str) -> str:
    short = name.removeprefix("refs/heads/")
    return short if _NAME.fullmatch(short) else UNREADABLE
