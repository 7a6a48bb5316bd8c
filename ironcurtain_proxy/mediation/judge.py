"""The judgement of a call before anyone is asked: the policy and the operator's other reasons.

`Overlay` collects what is known of the tool, and `approval.overlay` decides whether somebody is
asked besides the policy. Mediator and `explain` share `judge`, so that an explanation always shows
what `serve` does.
"""

from collections.abc import Callable, Mapping
from functools import cached_property
from operator import attrgetter, is_
from typing import Final, TypeAlias

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from ironcurtain_proxy.approval.capabilities import HINT_CAPABILITIES, Profile
from ironcurtain_proxy.approval.overlay import (
    DANGEROUS_ROLES,
    OverlayDecision,
    OverlayRules,
    Subject,
)
from ironcurtain_proxy.approval.overlay import judge as with_overlay
from ironcurtain_proxy.decision.authorizer import authorize, prior_consent_of, quorums_of, unasked
from ironcurtain_proxy.decision.rules import gravest_first, with_omitted
from ironcurtain_proxy.model.annotation import (
    ArgumentCapabilities,
    ArgumentRole,
    Capability,
    ToolDeclaration,
    capabilities_by_argument,
    spoken_of,
)
from ironcurtain_proxy.model.case import Case, Judgement
from ironcurtain_proxy.model.decision import (
    Allow,
    Decision,
    Deny,
    Escalate,
    Ground,
    PriorConsent,
    effect_of,
)
from ironcurtain_proxy.model.escalation import OriginReason, and_more, short_name
from ironcurtain_proxy.model.operation import TOOL_CALL, Method, Operation
from ironcurtain_proxy.model.policy import Policy, PolicyInForce
from ironcurtain_proxy.model.request import (
    AccessRequest,
    CommandPlace,
    Facts,
    Gathered,
    NamedBy,
    ParsedCommand,
    lasting,
)
from ironcurtain_proxy.model.values import Json
from ironcurtain_proxy.ports import FactGatherer, ToolFinder

# --- the operator's other reasons to ask


def with_questions(judged: Judgement, facts: Facts) -> Judgement:
    """Return the judgement with what the facts themselves ask. A denial stays."""
    if isinstance(judged.decision, Deny):
        return judged
    judged = _with_secrets(judged, facts) if facts.secrets else judged
    if isinstance(judged.decision, Escalate) or not (facts.client_asks or facts.acts_by_itself):
        return judged
    ground = Ground("client-question", "The agent's client asks its user before this call")
    if facts.acts_by_itself:
        ground = Ground("control-place", acting_by_itself(facts))
    reasons = (OriginReason(origin="policy", ground=ground),)
    return replace(judged, decision=Escalate(ground), reasons=reasons)


def acting_by_itself(facts: Facts) -> str:
    """Return why a change of a control place is asked about."""
    return f"Your editor, shell, git or agent acts by itself on {short_name(facts.acts_by_itself)}"


def _with_secrets(judged: Judgement, facts: Facts) -> Judgement:
    said = ", ".join([f'"{one.argument}" ({one.kind})' for one in facts.secrets])
    ground = Ground("secret-in-arguments", f"What is sent holds a secret: {said}")
    reason = OriginReason(origin="secrets", ground=ground)
    decision = Escalate(ground) if isinstance(judged.decision, Allow) else judged.decision
    return replace(judged, decision=decision, reasons=(*judged.reasons, reason))


TARGET_RULE: Final = "target-named-by"
"""The rule of a question about who named a target."""


def with_targets(
    judged: Judgement, request: AccessRequest, ask_when: frozenset[NamedBy]
) -> Judgement:
    """Return the judgement with the question about targets that were named so. A denial stays."""
    if not ask_when or isinstance(judged.decision, Deny):
        return judged
    found = [
        one
        for one in request.targets
        if one.named_by in ask_when and one.reaches_out(request.effect)
    ]
    if not found:
        return judged
    # Who named it is not said here: another result may name it, too, while a person is asked.
    said = and_more(list(dict.fromkeys([short_name(one.text) for one in found])))
    ground = Ground(TARGET_RULE, f"Neither you nor your own records named: {said}")
    reason = OriginReason(origin="target", ground=ground)
    decision = Escalate(ground) if isinstance(judged.decision, Allow) else judged.decision
    return replace(judged, decision=decision, reasons=(*judged.reasons, reason))


_HINTS: Final = ("readOnlyHint", *HINT_CAPABILITIES)
_NO_HINT: Final = (False,) * len(_HINTS)
_TRUE: Final = (True,) * len(_HINTS)
_roles_of: Final = attrgetter("roles")
_BY_VALUE: Final = DANGEROUS_ROLES | {"sql", "command"}
"""Roles whose values decide on the level of a call."""
_MOST_KNOWN: Final = 4096


class NamedTool(Struct, frozen=True):
    """A tool with all names that the operator may use for it."""

    server: str
    tool: str
    names: frozenset[str]
    """The names under which lists may mention the tool."""


_Roles: TypeAlias = tuple[tuple[ArgumentRole, ...], ...]
_JudgementKey: TypeAlias = tuple[NamedTool, _Roles, bool, tuple[bool, ...] | None]


class Overlay(Struct, frozen=True, kw_only=True, dict=True):
    """Capability profile and approval mode, with the operator's declarations of tools."""

    rules: OverlayRules | None = None
    """The rules of the overlay; None: the policy alone decides."""
    ask_when_named_by: frozenset[NamedBy] = frozenset()
    """A call needs a person, whatever else settles it, if one of its targets was named by one of
    these."""
    declarations: Mapping[str, ToolDeclaration] = field(default_factory=dict)
    """The declarations, by the tool's name as the operator wrote it."""
    by_argument: Mapping[str, tuple[ArgumentCapabilities, ...]] = field(default_factory=dict)

    @cached_property
    def _known(self) -> dict[_JudgementKey, OverlayDecision]:
        """Cached judgements of harmless calls, which do not depend on what the arguments name."""
        return {}

    def judge(
        self,
        kernel: Decision,
        facts: Facts,
        tool: NamedTool,
        standing: Callable[[], PriorConsent],
    ) -> Judgement:
        """Return the judgement of a call.

        Args:
            kernel: the policy's decision.
            facts: what the call names.
            tool: what it calls.
            standing: finds out what a person had settled beforehand; asked only if it matters.
        """
        if self.rules is None:
            return by_policy_alone(kernel)
        overlaid = self._overlaid(kernel, facts, tool, standing, self.rules)
        decision = kernel
        if overlaid.denied is not None:
            decision = Deny(overlaid.denied)
        elif overlaid.origins and not isinstance(kernel, Escalate):
            decision = Escalate(overlaid.origins[0].ground)
        return Judgement(
            decision=decision, reasons=overlaid.origins, capabilities=overlaid.capabilities
        )

    def _overlaid(
        self,
        kernel: Decision,
        facts: Facts,
        tool: NamedTool,
        standing: Callable[[], PriorConsent],
        rules: OverlayRules,
    ) -> OverlayDecision:
        is_harmless = (
            isinstance(kernel, Allow)
            and facts.command is None
            and not facts.pushes
            and not self.by_argument
        )
        request = facts.request
        roles = tuple(map(_roles_of, request.arguments))
        key = (tool, roles, request.annotated, _hinted(facts.hints))
        known = self._known.get(key) if is_harmless else None
        if known is None:
            if not is_harmless or not all(map(_BY_VALUE.isdisjoint, roles)):
                return with_overlay(kernel, self._subject(facts, tool, standing()), rules)
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            # No role of the call is dangerous, so earlier consent cannot lower its level.
            known = with_overlay(kernel, self._subject(facts, tool, PriorConsent()), rules)
            if not self._runs_commands(tool):
                self._known[key] = known
        return known

    def _runs_commands(self, tool: NamedTool) -> bool:
        declared = self.declared(tool.names)
        return declared is not None and (
            declared.command_argument is not None or bool(declared.capabilities)
        )

    def _subject(self, facts: Facts, tool: NamedTool, standing: PriorConsent) -> Subject:
        needed, only_reads = _needs_of_command(facts.command, facts.place)
        profile = None if self.rules is None else self.rules.profile
        return Subject(
            server=tool.server,
            tool=tool.tool,
            names=tool.names,
            request=facts.request,
            declared=self.declared(tool.names),
            by_arguments=frozenset(
                [
                    capability
                    for name in spoken_of(tool.names)
                    for capability in capabilities_by_argument(
                        self.by_argument.get(name, ()), facts.arguments
                    )
                ]
            ),
            command=needed,
            only_reads_command=only_reads,
            blocked_programs=_blocked(facts.command, profile),
            hints=facts.hints,
            pushes=facts.pushes,
            standing=standing,
        )

    def declared(self, names: frozenset[str]) -> ToolDeclaration | None:
        """Return the operator's declaration of a tool with these names.

        It is None if there is none.
        """
        if not self.declarations:
            return None
        # The longer name first: a declaration of `server/tool` precedes one of the bare name.
        for name in sorted(spoken_of(names), key=len, reverse=True):
            if name in self.declarations:
                found = self.declarations[name]
                # A declaration may lower the level, so it must be bound to a name that is certain.
                return found if name in names else replace(found, safety_level=None)
        return None


def _hinted(hints: Mapping[str, Json] | None) -> tuple[bool, ...] | None:
    """Return the hints that count. A server may send others, which change nothing."""
    if not hints:
        return None if hints is None else _NO_HINT
    return tuple(map(is_, map(hints.get, _HINTS), _TRUE))


def _needs_of_command(
    command: ParsedCommand | None, place: CommandPlace
) -> tuple[frozenset[Capability], bool]:
    """Return the capabilities that a shell command needs, and whether it only reads.

    A command whose programs are all known readers needs what it reads; a question about each
    `ls` would tire reviewers out.
    """
    if command is None:
        return frozenset(), False
    # These modules hold tables of programs; only tools that run commands need them.
    from ironcurtain_proxy.shell.effects import effect_of  # noqa: PLC0415
    from ironcurtain_proxy.shell.operations import needs_of  # noqa: PLC0415

    found = effect_of(command, place)
    return needs_of(command, found), found.effect == "reads"


def _blocked(command: ParsedCommand | None, profile: Profile | None) -> tuple[str, ...]:
    if command is None or profile is None or not profile.blocked_programs:
        return ()
    from ironcurtain_proxy.shell.wrappers import any_program  # noqa: PLC0415  as above

    names = sorted(profile.blocked_programs)
    return tuple([name for name in names if any_program(command, frozenset({name}))])


def by_policy_alone(kernel: Decision) -> Judgement:
    """Return the policy's decision without any overlay."""
    if isinstance(kernel, Escalate):
        reason = OriginReason(origin="policy", ground=kernel.ground)
        return Judgement(decision=kernel, reasons=(reason,))
    return Judgement(decision=kernel)


# --- policy and overlay joined

BLOCKED: Final = "sandbox-host"
"""The rule of a question about an allowed call that the sandbox kept from a host."""


class Attempts(Struct):
    """The hosts that calls of one session were kept from, and those opened for allowed calls."""

    tried: dict[str, str] = field(default_factory=dict)
    """The host that a call tried to reach, or a word for it, by the call's fingerprint."""
    opened: dict[str, dict[str, None]] = field(default_factory=dict)
    """By server, the hosts that a person has opened to the calls that the policy allows."""

    def asked_host(self, server: str, fingerprint: str) -> str:
        """Return the host that an allowed call is to be asked about, or empty if there is none."""
        host = self.tried.get(fingerprint, "")
        return "" if host in self.opened.get(server, ()) else host

    def open(self, server: str, host: str) -> None:
        """Let the calls of a server that the policy allows reach a host from now on."""
        self.opened.setdefault(server, {})[host] = None


def judge(
    gathered: Gathered,
    policy: Policy,
    overlay: Overlay,
    tool: NamedTool,
    method: Method = TOOL_CALL,
) -> Judgement:
    """Join the policy's decision with the operator's other reasons to ask.

    Args:
        gathered: the facts of the call, or why there are none.
        policy: decides.
        overlay: may only make the decision more severe.
        tool: what is called, by all its names.
        method: of the operation.
    """
    judged = _judged(gathered, policy, overlay, tool)
    if isinstance(gathered, Facts):
        if gathered.secrets or gathered.client_asks or gathered.acts_by_itself:
            judged = with_questions(judged, gathered)
        if overlay.ask_when_named_by:
            judged = with_targets(judged, gathered.request, overlay.ask_when_named_by)
        if policy.has_quorums:
            judged = replace(judged, quorums=quorums_of(gathered.request, policy))
    if method != "completion/complete" or not isinstance(judged.decision, Escalate):
        return judged
    return Judgement(decision=unasked(judged.decision))


def _judged(gathered: Gathered, policy: Policy, overlay: Overlay, tool: NamedTool) -> Judgement:
    if not isinstance(gathered, Facts):
        return Judgement(decision=Deny(gathered.ground))
    request = gathered.request
    kernel = authorize(request, policy)
    if isinstance(kernel, Escalate):
        kernel = with_omitted(gravest_first(kernel), request)
    if overlay.rules is None:
        return by_policy_alone(kernel)
    return overlay.judge(kernel, gathered, tool, lambda: prior_consent_of(request, policy, kernel))


class Judge(Struct, frozen=True, kw_only=True):
    """Judges the calls of one session."""

    tools: ToolFinder
    facts: FactGatherer
    in_force: PolicyInForce
    overlay: Overlay
    attempts: Attempts = msgspec.field(default_factory=Attempts)

    def judge(self, call: Operation, gathered: Gathered) -> Judgement:
        """Return the judgement of a call by its facts."""
        judged = judge(gathered, self.in_force.policy, self.overlay, self._named(call), call.method)
        if not self.attempts.tried or not isinstance(gathered, Facts):
            return judged
        return self._with_blocked_host(call, gathered, judged)

    def _named(self, call: Operation) -> NamedTool:
        return NamedTool(call.server, call.tool, self.tools.names(call.server, call.tool))

    def _with_blocked_host(self, call: Operation, facts: Facts, judged: Judgement) -> Judgement:
        """Return the judgement of a call that the sandbox kept from a host when it was made before.

        What the policy allows and the sandbox forbids would fail again and again unasked.
        """
        if not isinstance(judged.decision, Allow) or call.method != TOOL_CALL:
            return judged
        fingerprint = self.facts.fingerprint(call, facts.arguments)
        host = self.attempts.asked_host(call.server, fingerprint)
        if not host:
            return judged
        ground = Ground(
            BLOCKED,
            f"The server's sandbox keeps this call from {host}. An approval opens {host} to all "
            "calls of this server that the policy allows, until the session ends",
        )
        reason = OriginReason(origin="policy", ground=ground)
        return replace(judged, decision=Escalate(ground), reasons=(*judged.reasons, reason))

    def shadow(self, case: Case, gathered: Gathered, judged: Judgement, candidate: Policy) -> None:
        """Note the decision of the candidate policy for the record, where it is another one."""
        other = judge(gathered, candidate, self.overlay, self._named(case.call), case.call.method)
        if effect_of(other.decision) != effect_of(judged.decision):
            decision, rule = effect_of(other.decision), other.decision.ground.rule
            told: Json = {"policy": candidate.version, "decision": decision, "rule": rule}
            case.note_instead("shadow", told)

    async def examine(self, call: Operation) -> tuple[Gathered, Judgement]:
        """Return the current facts of a call, and the judgement. Nothing is recorded."""
        gathered = await self.facts.gather(call)
        return gathered, self.judge(call, gathered)

    async def is_still(self, call: Operation, gathered: Gathered, judged: Judgement) -> bool:
        """Return whether the answer to a call rests on what is still so.

        What the call names must be the same, and the policy must answer the same by the facts of
        this moment. A fact that changed by itself and that no rule asked for changes nothing.
        """
        now, again = await self.examine(call)
        if isinstance(now, Facts) and isinstance(gathered, Facts):
            return again == judged and lasting(now) == lasting(gathered)
        return again == judged and now == gathered
