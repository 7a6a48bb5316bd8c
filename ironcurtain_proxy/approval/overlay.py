"""The decision on whether someone is asked besides the policy.

The overlay only makes decisions stricter: an allowed call may be asked about or denied, an
escalated call may be denied, and a denied call is not examined.
"""

from collections.abc import Iterable, Mapping
from typing import Final, Literal, TypeAlias, assert_never

from msgspec import Struct, field

from ironcurtain_proxy.approval.capabilities import (
    HINT_CAPABILITIES,
    Profile,
    ProfileAnswer,
    described,
    effective_profile,
    refined,
    verdict,
)
from ironcurtain_proxy.model.annotation import (
    PATH_ROLES,
    ROLE_TRAITS,
    ArgumentRole,
    Capability,
    Isolation,
    SafetyLevel,
    ToolDeclaration,
    spoken_of,
)
from ironcurtain_proxy.model.decision import (
    Allow,
    Decision,
    Deny,
    Effect,
    Escalate,
    Ground,
    PriorConsent,
)
from ironcurtain_proxy.model.escalation import OriginReason
from ironcurtain_proxy.model.request import AccessRequest, sql_of
from ironcurtain_proxy.model.values import Json, SqlEffect


class Subject(Struct, frozen=True, kw_only=True):
    """One call of one tool."""

    server: str
    """The operator's name of the server."""
    tool: str
    names: frozenset[str]
    """The names under which lists may mention the tool; see `tool_names`."""
    request: AccessRequest
    """The resources that the arguments name, by role."""
    declared: ToolDeclaration | None = None
    """The operator's declaration of the tool."""
    by_arguments: frozenset[Capability] = frozenset()
    """The capabilities that these arguments add by the operator's table."""
    command: frozenset[Capability] = frozenset()
    """The capabilities that the shell command needs; empty if there is none."""
    only_reads_command: bool = False
    """All programs of that command are known, and each of them only reads."""
    blocked_programs: tuple[str, ...] = ()
    """The programs of that command that the profile blocks."""
    hints: Mapping[str, Json] | None = None
    """The server's own `annotations` of the tool: untrusted, so they only add."""
    pushes: bool = False
    """Whether the call sends to a git remote."""
    standing: PriorConsent = field(default_factory=PriorConsent)
    """The earlier consent of a person."""

    @property
    def roles(self) -> frozenset[ArgumentRole]:
        """Every role of the arguments, including arguments that the call omits.

        The server may fill in an omitted argument.
        """
        return frozenset([role for fact in self.request.arguments for role in fact.roles])


def tool_names(server: str, tool: str, *, is_unique: bool) -> frozenset[str]:
    """Return the names an operator may write for a tool.

    Args:
        server: the operator's name of the server.
        tool: the server's name of the tool.
        is_unique: whether no other server has a tool of this name.
    """
    qualified = f"{server}/{tool}"
    return frozenset({qualified, tool} if is_unique else {qualified})


ApprovalPolicy: TypeAlias = str
"""The approval mode. An empty value stands for `dangerous`; an unknown one asks about every tool.
"""

APPROVAL_POLICY_DANGEROUS: Final[ApprovalPolicy] = "dangerous"
APPROVAL_POLICY_ALL: Final[ApprovalPolicy] = "all"
APPROVAL_POLICY_CONFIGURED: Final[ApprovalPolicy] = "configured"
APPROVAL_POLICY_NONE: Final[ApprovalPolicy] = "none"


class InterceptorConfig(Struct, frozen=True, kw_only=True):
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
    """Return why a tool needs approval, or None if it needs none."""
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
    """Return whether the mode asks about any tool at all."""
    return config.enabled and config.mode != APPROVAL_POLICY_NONE


def counts_as(level: SafetyLevel | int | None) -> SafetyLevel:
    """Return the level that a number stands for; an unknown number is dangerous."""
    if level is None or isinstance(level, bool) or level not in _LEVELS:
        return SafetyLevel.DANGEROUS
    return SafetyLevel(level)


_LEVELS: Final = frozenset(SafetyLevel)


DANGEROUS_ROLES: Final[frozenset[ArgumentRole]] = frozenset(
    {"delete-path", "write-history", "delete-history"}
)
"""Roles whose loss may be permanent. A push is dangerous, too: see `Subject.pushes`."""

_PUSHED_TO: Final[ArgumentRole] = "git-remote-url"
_GRAVE: Final[frozenset[SqlEffect]] = frozenset({"destroys", "runs"})
"""Effects of a tool, or of SQL, that may not be taken back."""

_NEEDED_BY_READERS: Final = frozenset({"fs.read"})


def safety_level_of(subject: Subject, config: InterceptorConfig) -> SafetyLevel:
    """Return the safety level of a call.

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
    """Tell whether the effect of the tool, or of its SQL, may be one that cannot be taken back."""
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


def capabilities_of(
    declared: ToolDeclaration | None,
    by_arguments: frozenset[Capability],
    roles: Iterable[ArgumentRole],
    hints: Mapping[str, Json] | None,
    command: frozenset[Capability],
) -> frozenset[Capability]:
    """Return all capabilities that a call needs: the union over all sources.

    Args:
        declared: what the operator says of the tool.
        by_arguments: what the operator's function for the tool says of the arguments.
        roles: the roles of the call's arguments.
        hints: the server's own `annotations` of the tool.
        command: what the shell command in the arguments needs.
    """
    found = {*by_arguments, *command}
    if declared is not None:
        found.update(declared.capabilities)
    for role in roles:
        found |= ROLE_TRAITS[role].needs
    if hints is not None:
        found.update(name for hint, name in HINT_CAPABILITIES.items() if hints.get(hint) is True)
    return frozenset(found)


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
    """Return whether a person has consented to what makes the role dangerous."""
    if role in subject.standing.names_roles and not config.approval_allowed:
        return True
    # Containment covers paths. The target of a push is not in the workspace.
    paths = PATH_ROLES.intersection(subject.roles)
    return not config.approval_contained and role in paths and paths <= subject.standing.contained


def _only_reads(subject: Subject) -> bool:
    """Tell whether the server's hints say that the tool only reads, and nothing contradicts it."""
    hints = subject.hints
    if hints is None or hints.get("readOnlyHint") is not True:
        return False
    needed = capabilities_of(
        subject.declared, subject.by_arguments, subject.roles, hints, subject.command
    )
    return {refined(capability) for capability in needed} <= _NEEDED_BY_READERS


class OverlayRules(Struct, frozen=True, kw_only=True):
    """The operator's reasons to ask besides the policy."""

    interceptor: InterceptorConfig = field(default_factory=InterceptorConfig)
    profile: Profile | None = None
    """The operator's profile, or None if capabilities are not checked."""
    isolation: Isolation = "unknown"


class OverlayDecision(Struct, frozen=True, kw_only=True):
    """The decision on a call after all reasons to ask were evaluated."""

    origins: tuple[OriginReason, ...] = ()
    """The origins that ask, without duplicates: the policy, a capability, the approval mode."""
    denied: Ground | None = None
    """The ground of a denial that no approval overrides, or None if it is not denied."""
    capabilities: frozenset[Capability] = frozenset()
    """The capabilities that the call needs beside those of its command, which a sandbox may hold;
    empty if the policy denied it."""
    level: SafetyLevel = SafetyLevel.DANGEROUS
    """The safety level of the call; None for a call that the policy denied."""

    @property
    def effect(self) -> Effect:
        """The effect of the decision."""
        if self.denied is not None:
            return "deny"
        return "escalate" if self.origins else "allow"


def judge(kernel: Decision, subject: Subject, rules: OverlayRules) -> OverlayDecision:
    """Apply profile and approval mode to the policy's decision.

    Args:
        kernel: the policy's decision.
        subject: the call.
        rules: what the operator wants to be asked about.
    """
    # INVARIANT: deny is final; nothing else is computed.
    if isinstance(kernel, Deny):
        return OverlayDecision(denied=kernel.ground)
    beside = capabilities_of(
        subject.declared, subject.by_arguments, subject.roles, subject.hints, frozenset()
    )
    needed = beside | subject.command
    level = safety_level_of(subject, rules.interceptor)
    profile = rules.profile
    by_profile = None if profile is None else _by_profile(profile, rules.isolation, subject, needed)
    if isinstance(by_profile, Ground):
        return OverlayDecision(denied=by_profile, capabilities=beside, level=level)
    found = (_by_policy(kernel), by_profile, _by_mode(subject, level, rules.interceptor))
    origins = tuple([reason for reason in found if reason is not None])
    return OverlayDecision(origins=origins, capabilities=beside, level=level)


def _by_policy(kernel: Allow | Escalate) -> OriginReason | None:
    match kernel:
        case Allow():
            return None
        case Escalate(ground=ground):
            return OriginReason(origin="policy", ground=ground)
        case _:
            assert_never(kernel)


def _by_profile(
    profile: Profile, isolation: Isolation, subject: Subject, needed: frozenset[Capability]
) -> OriginReason | Ground | None:
    """Return the profile's answer: an origin that asks, a ground of denial, or neither."""
    holds, _ = effective_profile(profile, isolation)
    if subject.blocked_programs:
        programs = ", ".join(subject.blocked_programs)
        return Ground(
            "capability:blocked-program", f"The profile {holds.name} forbids to run: {programs}"
        )
    said = verdict(subject.names, needed, holds)
    undescribed = not subject.request.annotated and subject.declared is None
    match said.level:
        case "deny":
            return _denial(said, subject, holds)
        case "approve" if not undescribed:
            return asked_before(holds.name, said.capabilities)
        case "allow" if not undescribed or subject.names & holds.pre_approved_tools:
            return None
        case "allow" | "approve":
            what = "arguments" if subject.request.undescribed else "tools"
            # Nobody knows which capabilities it needs. None is named, so that an approval is not
            # remembered for other tools that nobody described.
            return OriginReason(
                origin="capability",
                ground=Ground(
                    "capability:undescribed",
                    f"The profile {holds.name} asks before {what} that nobody described: "
                    f"{subject.server}/{subject.tool}",
                ),
                profile=holds.name,
            )
        case _:
            assert_never(said.level)


def asked_before(profile: str, capabilities: tuple[Capability, ...]) -> OriginReason:
    """Return the reason of a profile that asks before a call has these capabilities.

    Args:
        profile: its name.
        capabilities: at least one, in order of name.
    """
    return OriginReason(
        origin="capability",
        ground=Ground(
            _rule_of(capabilities), f"The profile {profile} asks before: {_listed(capabilities)}"
        ),
        capabilities=capabilities,
        profile=profile,
    )


def _denial(said: ProfileAnswer, subject: Subject, profile: Profile) -> Ground:
    if said.capabilities:
        return Ground(
            _rule_of(said.capabilities),
            f"The profile {profile.name} forbids: {_listed(said.capabilities)}",
        )
    return Ground(
        "capability:blocked-tool",
        f"The profile {profile.name} forbids the tool {subject.server}/{subject.tool}",
    )


def _rule_of(capabilities: tuple[Capability, ...]) -> str:
    return f"capability:{','.join(capabilities)}"


def _listed(capabilities: tuple[Capability, ...]) -> str:
    return ", ".join([described(capability) for capability in capabilities])


def _by_mode(
    subject: Subject, level: SafetyLevel, config: InterceptorConfig
) -> OriginReason | None:
    if not is_gate_on(config):
        return None
    because = why_asked(RatedTool(names=subject.names, safety_level=level), config)
    if because is None:
        return None
    reason = _sentence(because, f"{subject.server}/{subject.tool}", config)
    return OriginReason(
        origin="tool-policy", ground=Ground(f"approval-policy:{config.mode}", reason)
    )


def _sentence(because: AskedBecause, tool: str, config: InterceptorConfig) -> str:
    match because:
        case "sensitive":
            return f"The tool {tool} is listed as sensitive"
        case "all":
            return "The approval policy all asks before every tool"
        case "dangerous":
            return f"The approval policy {config.mode} asks before calls that may do harm"
        case "unknown-policy":
            return f'The approval policy "{config.mode}" is not known, so it asks before every tool'
        case _:
            assert_never(because)
