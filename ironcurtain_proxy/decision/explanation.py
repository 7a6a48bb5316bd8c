"""Explanations: why a decision was made, and the smallest change that would allow the call.

It retraces the authorizer's steps with the authorizer's own parts and puts each into a sentence.
"""

from collections.abc import Iterator
from typing import Final, assert_never

from msgspec import Struct
from msgspec.structs import replace

from ironcurtain_proxy.decision.authorizer import (
    CONTAINED,
    INVARIANTS,
    authorize,
    contained_roles,
    restrictions,
)
from ironcurtain_proxy.decision.rules import (
    covers,
    decide_role,
    decision_of,
    denying_rule,
    gravest_first,
    resource_roles,
    restricts_everything,
)
from ironcurtain_proxy.model.annotation import ROLE_TRAITS, ArgumentRole, RoleCategory
from ironcurtain_proxy.model.conditions import (
    DomainCondition,
    ListCondition,
    PathCondition,
    UriCondition,
    values_of,
)
from ironcurtain_proxy.model.decision import Allow, Decision, Escalate, effect_of
from ironcurtain_proxy.model.operation import TOOL_CALL, named_in
from ironcurtain_proxy.model.policy import LayerName, Policy, Rule
from ironcurtain_proxy.model.request import (
    AccessRequest,
    PathValue,
    SqlValue,
    TextValue,
    UrlValue,
    Value,
)
from ironcurtain_proxy.model.values import RealPath, gravest


class Trial(Struct, frozen=True):
    """One rule that was evaluated."""

    rule: str
    holds: bool
    why: str
    layer: LayerName = "user"
    is_about: bool = True
    """Whether the rule speaks of the call's role at all."""


class RoleTrace(Struct, frozen=True, kw_only=True):
    """The evaluation of one role; `role` is None for a tool that names no resource."""

    role: ArgumentRole | None
    values: tuple[str, ...]
    contained: bool
    """The workspace settled the role; no rule was evaluated."""
    trials: tuple[Trial, ...]
    answer: Decision


class Explanation(Struct, frozen=True, kw_only=True):
    """A decision with the steps that led to it."""

    decision: Decision
    layer: LayerName | None
    """The layer of the rule that it rests on, or None if the rule is built in."""
    invariants: tuple[tuple[str, str], ...]
    """Each invariant that was evaluated, with its answer."""
    roles: tuple[RoleTrace, ...]
    restrictions: tuple[Trial, ...]
    """The rules of other layers that restrict the call whatever the rules allow."""
    other_rules: int
    """The number of rules that are only about other servers and tools."""
    change: tuple[Rule, ...]
    """Rules that would allow the call if they stood first; empty: it is allowed already, or no rule
    can allow it."""
    advice: str
    """Any other change that is needed, or an empty string."""


_WITHOUT_CONDITION: Final[frozenset[RoleCategory]] = frozenset({"command", "unclear"})
"""Categories of roles whose values no condition of a rule can name."""
_SILENT: Final = "does not decide"
"""The answer of an invariant that leaves the decision to the next one."""


def explain(request: AccessRequest, policy: Policy) -> Explanation:
    """Repeat one decision and collect its steps."""
    decision = authorize(request, policy)
    asked = tuple(_ask_invariants(request, policy))
    settled_early = asked[-1][1] != _SILENT
    trace = _trace_roles if request.annotated else _trace_denial
    roles = () if settled_early else tuple(trace(request, policy))
    mine = sum(1 for rule in policy.rules if _is_about(rule, request))
    change = _smallest_change(request, policy)
    return Explanation(
        decision=decision,
        layer=deciding_layer(gravest_first(decision), policy),
        invariants=asked,
        roles=roles,
        restrictions=_restrictions(request, policy),
        other_rules=len(policy.rules) - mine,
        change=change,
        advice="" if change or isinstance(decision, Allow) else _advice(decision, request, policy),
    )


def _restrictions(request: AccessRequest, policy: Policy) -> tuple[Trial, ...]:
    found = restrictions(request, policy) if policy.floors else ()
    trials = [
        Trial(
            rule.name,
            holds=True,
            why=f"says {rule.effect} for {role or 'the call'}",
            layer=rule.layer,
        )
        for role, rule in found
    ]
    return tuple(dict.fromkeys(trials))


def deciding_layer(decision: Decision, policy: Policy) -> LayerName | None:
    """Return the layer of the rule that a decision rests on, or None if the rule is built in."""
    floors = [rule for floor in policy.floors if floor.asks for rule in floor.rules]
    for rule in (*policy.rules, *floors):
        if rule.name == decision.ground.rule and rule.reason == decision.ground.reason:
            return rule.layer
    return None


def _ask_invariants(request: AccessRequest, policy: Policy) -> Iterator[tuple[str, str]]:
    for invariant in INVARIANTS:
        name = invariant.__name__.replace("_", " ")
        decision = invariant(request, policy)
        if decision is not None:
            yield name, f"{effect_of(decision)}: {decision.ground.reason}"
            return
        yield name, _SILENT


def _trace_roles(request: AccessRequest, policy: Policy) -> Iterator[RoleTrace]:
    roles = resource_roles(request)
    if not roles:
        answer = authorize(request, policy)
        trials = tuple(_trials(request, policy, None, set()))
        yield RoleTrace(role=None, values=(), contained=False, trials=trials, answer=answer)
    settled = contained_roles(request, policy)
    for role in roles:
        values = values_of(request, (role,))
        contained = role in settled
        answer = CONTAINED if contained else decide_role(request, policy, role)
        yield RoleTrace(
            role=role,
            values=tuple(shown(value) for value in values),
            contained=contained,
            trials=() if contained else tuple(_trials(request, policy, role, set(values))),
            answer=answer,
        )


def _trace_denial(request: AccessRequest, policy: Policy) -> Iterator[RoleTrace]:
    """Yield the rule that denies a tool that nobody described.

    No rule allows one, and none is asked.
    """
    found = denying_rule(request, policy)
    if found is None:
        return
    role, rule = found
    values = tuple([shown(value) for value in values_of(request, (role,))]) if role else ()
    said = f"says deny for {', '.join(values) or 'the call'}"
    yield RoleTrace(
        role=role,
        values=values,
        contained=False,
        trials=(Trial(rule.name, holds=True, why=said, layer=rule.layer),),
        answer=decision_of(rule),
    )


def _trials(
    request: AccessRequest, policy: Policy, role: ArgumentRole | None, remaining: set[Value]
) -> Iterator[Trial]:
    had_values = bool(remaining)
    for rule in policy.rules:
        if not _is_about(rule, request):
            continue
        if had_values and not remaining:
            unasked = "not asked: every value has its answer"
            yield Trial(rule.name, holds=False, why=unasked, layer=rule.layer)
            continue
        why = _mismatch(rule, request, role)
        if why is not None:
            speaks = role is None or rule.is_about(role)
            yield Trial(rule.name, holds=False, why=why, layer=rule.layer, is_about=speaks)
            continue
        covered = {value for value in remaining if covers(rule, value)}
        if not covered and (why := _uncovered(rule, role, had_values=had_values)):
            yield Trial(rule.name, holds=False, why=why, layer=rule.layer)
            continue
        remaining = remaining - covered
        about = ", ".join(sorted(shown(value) for value in covered)) or "the call"
        said = f"says {rule.effect} for {about}"
        yield Trial(rule.name, holds=True, why=said, layer=rule.layer)
        if not had_values:
            return


def _uncovered(rule: Rule, role: ArgumentRole | None, *, had_values: bool) -> str:
    """Say why a rule covers no value of the role; an empty text if it needs none."""
    if rule.excepting is not None and had_values:
        return rule.excepting.why_not()
    wanted = [one for one in rule.of_value if one.narrows]
    if not wanted or (role is not None and restricts_everything(rule)):
        return ""
    if rule.uris is not None:
        return rule.uris.why_not()
    start = "no path " if had_values else "the call has no path that "
    return start + " and ".join([one.why_not() for one in wanted])


def _is_about(rule: Rule, request: AccessRequest) -> bool:
    """Return whether the rule may speak of this server and of this tool, prompt or method."""
    return (
        (rule.servers is None or request.server in rule.servers)
        and (rule.tools is None or request.tool in rule.tools)
        and (rule.methods is None or request.method in rule.methods)
        and (rule.prompts is None or named_in(request.tool) in rule.prompts)
    )


def _mismatch(rule: Rule, request: AccessRequest, role: ArgumentRole | None) -> str | None:
    """Return why a rule on this tool does not apply to the role, apart from its paths."""
    if role is None:
        every = {r for fact in request.arguments for r in fact.roles}
        if rule.roles is not None and rule.roles.isdisjoint(every):
            return "is about argument roles that the tool does not have"
    elif not rule.is_about(role):
        return f"is not about {role}"
    if not rule.speaks_of(request.method, request.tool, role):
        return f"does not speak of {request.method}"
    return next((one.why_not() for one in rule.of_call if not one.holds(request, role)), None)


def shown(value: Value) -> str:
    """Return a value in the spelling that was judged."""
    match value:
        case PathValue(text=text):
            return text
        case UrlValue(text=text, domains=domains):
            return f"{text} (leads to {', '.join(domains)})"
        case SqlValue(text=text, effect=effect, reason=reason):
            return f"{text} ({effect}{reason and f': {reason}'})"
        case TextValue(text=text):
            return text
        case _:
            assert_never(value)


def _smallest_change(request: AccessRequest, policy: Policy) -> tuple[Rule, ...]:
    """Return one narrow allow rule for each role that is not allowed.

    Empty if rules would not help.
    """
    if isinstance(authorize(request, policy), Allow):
        return ()
    roles: list[ArgumentRole | None] = [*resource_roles(request)] or [None]
    settled = contained_roles(request, policy)
    added: list[Rule] = []
    for role in roles:
        if role in settled:
            continue
        if role is not None and isinstance(decide_role(request, policy, role), Allow):
            continue
        if role is not None and ROLE_TRAITS[role].category in _WITHOUT_CONDITION:
            # A rule without a condition would allow every command, not this one.
            return ()
        added.append(_narrow_rule(request, role))
    changed = replace(policy, rules=(*added, *policy.rules))
    return tuple(added) if isinstance(authorize(request, changed), Allow) else ()


def _narrow_rule(request: AccessRequest, role: ArgumentRole | None) -> Rule:
    method, named = request.method, named_in(request.tool)
    by_method = method not in {TOOL_CALL, "prompts/get"}
    rule = Rule(
        name=f"allow-{request.tool}" + (f"-{role}" if role is not None else ""),
        effect="allow",
        reason=f"Allowed for {request.server}/{request.tool}",
        roles=None if role is None else frozenset({role}),
        servers=frozenset({request.server}),
        tools=frozenset({request.tool}) if method == TOOL_CALL else None,
        prompts=frozenset({named}) if method == "prompts/get" else None,
        methods=frozenset({method}) if by_method else None,
    )
    values = values_of(request, (role,)) if role is not None else []
    if role is None or not values:
        return rule
    return _narrowed(rule, role, values)


def _narrowed(rule: Rule, role: ArgumentRole, values: list[Value]) -> Rule:
    """Return the rule for these values of the role, which a condition can name."""
    roles = frozenset({role})
    match ROLE_TRAITS[role].category:
        case "path":
            within = _common_directory([v.path for v in values if isinstance(v, PathValue)])
            return replace(rule, paths=PathCondition(roles=roles, within=within))
        case "uri":
            uris = frozenset([value.text for value in values])
            return replace(rule, uris=UriCondition(patterns=uris))
        case "url":
            domains = frozenset(d for v in values if isinstance(v, UrlValue) for d in v.domains)
            return replace(rule, domains=DomainCondition(roles=roles, allowed=domains))
        case "sql":
            effect = gravest(*[v.effect for v in values if isinstance(v, SqlValue)])
            return replace(rule, sql=None if effect == "runs" else effect)
        case _:
            names = frozenset(value.text for value in values)
            entry = ListCondition(roles=roles, allowed=names, kind="identifiers")
            return replace(rule, lists=(entry,))


def _common_directory(paths: list[RealPath]) -> RealPath:
    """Return the deepest directory that contains all of these paths.

    Of one path, the path itself.
    """
    first, *rest = [path.parts for path in paths]
    length = len(first)
    for parts in rest:
        same = 0
        while same < min(length, len(parts)) and parts[same] == first[same]:
            same += 1
        length = same
    return RealPath(first[:length])


def _advice(decision: Decision, request: AccessRequest, policy: Policy) -> str:
    for _, rule in restrictions(request, policy):
        if rule.name == decision.ground.rule or isinstance(decision, Escalate):
            return (
                f"The rule {rule.name} of the {rule.layer} layer restricts this call. No rule of "
                "another layer opens it."
            )
    match decision.ground.rule:
        case "structural-protected-path":
            return (
                "No rule can open a protected path. It is protected by the program itself or by "
                "PROTECTED_PATHS."
            )
        case "structural-domain-escalate":
            return f"Add the host to sandbox.network.allowedDomains of the server {request.server}."
        case "structural-unknown-tool":
            until = "asked about each time" if policy.unknown_tools == "ask" else "denied"
            return (
                f"Describe the tool {request.server}/{request.tool} with "
                f"`ironcurtain-proxy annotate`: until then it is {until}."
            )
        case _ if any(
            ROLE_TRAITS[role].category == "command"
            for fact in request.arguments
            for role in fact.roles
        ):
            return (
                "A rule could allow every command of this tool, not only this one. Approve the "
                "call in `ironcurtain-proxy review` and remember its kind (key r) instead."
            )
        case _:
            return "No single rule for each argument role would allow it."
