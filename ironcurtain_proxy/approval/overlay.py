"""The decision on whether someone is asked besides the policy.

The overlay only makes decisions stricter: an allowed call may be asked about or denied, an
escalated call may be denied, and a denied call is not examined.
"""

from dataclasses import dataclass, field
from typing import assert_never

from msgspec import Struct

from ironcurtain_proxy.approval.capabilities import (
    Profile,
    ProfileAnswer,
    capabilities_of,
    described,
    effective_profile,
    verdict,
)
from ironcurtain_proxy.approval.modes import (
    AskedBecause,
    InterceptorConfig,
    RatedTool,
    is_gate_on,
    why_asked,
)
from ironcurtain_proxy.approval.safety import safety_level_of
from ironcurtain_proxy.approval.subject import Subject
from ironcurtain_proxy.model.capability import Capability, Isolation, SafetyLevel
from ironcurtain_proxy.model.decision import Allow, Decision, Deny, Effect, Escalate, Ground
from ironcurtain_proxy.model.escalation import OriginReason


@dataclass(frozen=True, slots=True, kw_only=True)
class OverlayRules:
    """The operator's reasons to ask besides the policy."""

    interceptor: InterceptorConfig = field(default_factory=InterceptorConfig)
    profile: Profile | None = None
    """The operator's profile; None: capabilities are not checked."""
    isolation: Isolation = "unknown"


class OverlayDecision(Struct, frozen=True, kw_only=True):
    """The decision on a call after all reasons to ask were evaluated."""

    origins: tuple[OriginReason, ...] = ()
    """The origins that ask, without duplicates: the policy, a capability, the approval mode."""
    denied: Ground | None = None
    """The ground of a denial that no approval overrides; None: not denied."""
    capabilities: frozenset[Capability] = frozenset()
    """All capabilities that the call needs; empty if the policy denied it."""
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
    needed = capabilities_of(
        subject.declared, subject.by_arguments, subject.roles, subject.hints, subject.command
    )
    level = safety_level_of(subject, rules.interceptor)
    profile = rules.profile
    by_profile = None if profile is None else _by_profile(profile, rules.isolation, subject, needed)
    if isinstance(by_profile, Ground):
        return OverlayDecision(denied=by_profile, capabilities=needed, level=level)
    found = (_by_policy(kernel), by_profile, _by_mode(subject, level, rules.interceptor))
    origins = tuple([reason for reason in found if reason is not None])
    return OverlayDecision(origins=origins, capabilities=needed, level=level)


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
    """The profile's answer: an origin that asks, a ground of denial, or neither."""
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
    """The reason of a profile that asks before a call has these capabilities.

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
