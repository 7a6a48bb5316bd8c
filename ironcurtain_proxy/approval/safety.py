"""The safety level of a call: how much harm a mistake does.

The operator's declared level holds as written. Otherwise the level is computed from the argument
roles, and is at most moderate where a person has consented to exactly what makes the call
dangerous. A server's hints can only mark a tool as read-only.
"""

from typing import Final, assert_never

from ironcurtain_proxy.approval.capabilities import capabilities_of, refined
from ironcurtain_proxy.approval.modes import InterceptorConfig
from ironcurtain_proxy.approval.subject import Subject
from ironcurtain_proxy.model.annotation import ROLE_TRAITS, ArgumentRole
from ironcurtain_proxy.model.capability import SafetyLevel
from ironcurtain_proxy.model.request import sql_of
from ironcurtain_proxy.model.sql import SqlEffect

DANGEROUS_ROLES: Final[frozenset[ArgumentRole]] = frozenset(
    {"delete-path", "write-history", "delete-history"}
)
"""Roles whose loss may be permanent. A push is dangerous, too: see `Subject.pushes`."""

_PUSHED_TO: Final[ArgumentRole] = "git-remote-url"
_GRAVE: Final[frozenset[SqlEffect]] = frozenset({"destroys", "runs"})
"""Effects of a tool, or of SQL, that may not be taken back."""

_NEEDED_BY_READERS: Final = frozenset({"fs.read"})


def safety_level_of(subject: Subject, config: InterceptorConfig) -> SafetyLevel:
    """The safety level of a call.

    Args:
        subject: the call.
        config: its `approval_contained` and `approval_allowed` turn the two caps off.
    """
    declared = subject.declared
    if declared is not None and declared.safety_level is not None:
        return declared.safety_level
    if not subject.request.annotated:
        return SafetyLevel.DANGEROUS
    if _is_grave(subject):
        by_name = subject.standing.names_tool and not config.approval_allowed
        return SafetyLevel.MODERATE if by_name else SafetyLevel.DANGEROUS
    runs_commands = _runs_commands(subject)
    roles = subject.roles & DANGEROUS_ROLES
    if subject.pushes:
        roles |= {_PUSHED_TO}
    if runs_commands or roles:
        settled = not runs_commands and all(_is_settled(r, subject, config) for r in roles)
        by_name = subject.standing.names_tool and not config.approval_allowed
        return SafetyLevel.MODERATE if settled or by_name else SafetyLevel.DANGEROUS
    return SafetyLevel.SAFE if _only_reads(subject) else SafetyLevel.MODERATE


def _is_grave(subject: Subject) -> bool:
    """Whether the effect of the tool, or of its SQL, may be one that cannot be taken back."""
    sql = sql_of(subject.request)
    if sql is not None:
        return sql.effect in _GRAVE
    match subject.request.effect:
        case "destroys":
            # The paths that are deleted say more, where they are known.
            return DANGEROUS_ROLES.isdisjoint(subject.roles)
        case "runs":
            # So does the command.
            return not subject.command and "command" not in subject.roles
        case "reads" | "writes" | "sends":
            return False
        case None:
            return "unclear" in subject.roles
        case _:
            assert_never(subject.request.effect)


def _runs_commands(subject: Subject) -> bool:
    declared = subject.declared
    takes_command = "command" in subject.roles or (
        declared is not None and declared.command_argument is not None
    )
    if not subject.only_reads_command and (subject.command or takes_command):
        return True
    said = capabilities_of(declared, subject.by_arguments, (), None, subject.command)
    return any(refined(capability) == "proc.exec" for capability in said)


def _is_settled(role: ArgumentRole, subject: Subject, config: InterceptorConfig) -> bool:
    """Whether a person has consented to what makes the role dangerous."""
    if role in subject.standing.names_roles and not config.approval_allowed:
        return True
    # Containment covers paths. The target of a push is not in the workspace.
    paths = {found for found in subject.roles if ROLE_TRAITS[found].category == "path"}
    return not config.approval_contained and role in paths and paths <= subject.standing.contained


def _only_reads(subject: Subject) -> bool:
    """Whether the server's hints say that the tool only reads, and nothing contradicts it."""
    hints = subject.hints
    if hints is None or hints.get("readOnlyHint") is not True:
        return False
    needed = capabilities_of(
        subject.declared, subject.by_arguments, subject.roles, hints, subject.command
    )
    return {refined(capability) for capability in needed} <= _NEEDED_BY_READERS
