"""The final table: what happens to unanswered questions.

They are refused. The operator may change this only for operations that the matrix approves anyway.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from ironcurtain_proxy.auto_confirm.engine.decision import EngineDecision
from ironcurtain_proxy.auto_confirm.engine.operations import OperationKind
from ironcurtain_proxy.auto_confirm.engine.risk import LOW_AT_MOST
from ironcurtain_proxy.auto_confirm.engine.settings import AutoConfirmSettings, TimeoutAction
from ironcurtain_proxy.model.annotation import ArgumentRole
from ironcurtain_proxy.model.escalation import Origin

APPROVABLE: Final[frozenset[OperationKind]] = frozenset(
    {"edit", "read", "list", "git-pull", "git-fetch", "shell-safe"}
)
"""Operations of which every row of the matrix is Auto-approve, with a base of at most 0.4. The
row of tests is left out: a test is known only by the name of its command, which is no proof."""

_HARMLESS: Final[frozenset[ArgumentRole]] = frozenset({"read-path", "write-path"})


def is_policy_critical(origins: tuple[Origin, ...], roles: tuple[ArgumentRole, ...]) -> bool:
    """Whether the policy itself asked, for more than reading or writing files.

    Args:
        origins: what asked for a review.
        roles: the argument roles that escalated. None: the rule was about the whole call.
    """
    return "policy" in origins and (not roles or not _HARMLESS.issuperset(roles))


def check_on_timeout(table: Mapping[OperationKind, TimeoutAction]) -> tuple[str, ...]:
    """The mistakes in a configured table, one line for each operation; empty: none."""
    return tuple(
        f"auto_confirm.on_timeout.{operation}: cannot be approved without an answer; "
        f"only {', '.join(sorted(APPROVABLE))} can"
        for operation, action in table.items()
        if action == "approve" and operation not in APPROVABLE
    )


def on_timeout(
    decision: EngineDecision, settings: AutoConfirmSettings, *, policy_critical: bool
) -> TimeoutAction:
    """The action for a call after the last reviewer's deadline."""
    table = settings.on_timeout if settings.enabled else MappingProxyType({})
    wanted = table.get(decision.operation) == "approve"
    may_be = (
        decision.operation in APPROVABLE
        and decision.verdict == "approve"
        and decision.risk <= LOW_AT_MOST
        and decision.action == "escalate"
        and not policy_critical
    )
    return "approve" if wanted and may_be else "deny"
