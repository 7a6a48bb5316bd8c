"""Whether the approval mode asks about a tool.

A mode asks for a person who wants to see what is done; it guards against mistakes. The policy
still decides on calls that the mode does not ask about.
"""

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from ironcurtain_proxy.model.capability import SafetyLevel, spoken_of

ApprovalPolicy: TypeAlias = str
"""The approval mode. An empty value stands for `dangerous`; an unknown one asks about every tool.
"""

APPROVAL_POLICY_DANGEROUS: Final[ApprovalPolicy] = "dangerous"
APPROVAL_POLICY_ALL: Final[ApprovalPolicy] = "all"
APPROVAL_POLICY_CONFIGURED: Final[ApprovalPolicy] = "configured"
APPROVAL_POLICY_NONE: Final[ApprovalPolicy] = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class InterceptorConfig:
    """`security.interceptor`, as the operator wrote it."""

    enabled: bool = True
    approval_policy: ApprovalPolicy = APPROVAL_POLICY_DANGEROUS
    exempt_tools: tuple[str, ...] = ()
    """Never asked about; `server/tool`, or a bare name if one server has it."""
    sensitive_tools: tuple[str, ...] = ()
    """Always asked about, unless exempt."""
    approval_contained: bool = False
    """Ask also about calls that can harm only the workspace."""
    approval_allowed: bool = False
    """Ask also about calls that a rule allows by name."""

    @property
    def mode(self) -> ApprovalPolicy:
        """The mode in force."""
        return self.approval_policy or APPROVAL_POLICY_DANGEROUS


class RatedTool(Struct, frozen=True, kw_only=True):
    """A tool with its names and its safety level."""

    names: frozenset[str]
    safety_level: SafetyLevel | int | None
    """The declared level. None and any number that is no level count as dangerous."""


AskedBecause: TypeAlias = Literal["sensitive", "all", "dangerous", "unknown-policy"]
"""The reason for which a mode asks."""


def why_asked(tool: RatedTool, config: InterceptorConfig) -> AskedBecause | None:
    """The reason why a tool needs approval; None: it needs none."""
    if not tool.names.isdisjoint(config.exempt_tools):
        return None
    if not spoken_of(tool.names).isdisjoint(config.sensitive_tools):
        return "sensitive"
    match config.mode:
        case "dangerous":
            return "dangerous" if counts_as(tool.safety_level) == SafetyLevel.DANGEROUS else None
        case "all":
            return "all"
        case "configured" | "none":
            return None
        case _:
            return "unknown-policy"


def is_gate_on(config: InterceptorConfig) -> bool:
    """Whether the mode asks about any tool at all."""
    return config.enabled and config.mode != APPROVAL_POLICY_NONE


def counts_as(level: SafetyLevel | int | None) -> SafetyLevel:
    """The level that a number stands for; an unknown number is dangerous."""
    if level is None or isinstance(level, bool) or level not in _LEVELS:
        return SafetyLevel.DANGEROUS
    return SafetyLevel(level)


_LEVELS: Final = frozenset(SafetyLevel)
