"""The decision on a call: invariants that no rule can override, then the compiled rules.

The invariants are asked in order. Then the rules are, for each argument role that the workspace did
not settle: deny overrides escalate overrides allow, and what nothing matches is denied. Layers that
only restrict are asked last.

What else depends on the rules is decided here, too: which calls stay with reviewers although
containment could undo them, how many persons must sign an approval, and whether a person has
already consented to exactly this call, by the workspace or by a rule. Consent changes no decision;
approval modes ask less because of it.
"""

from collections.abc import Callable, Iterator
from typing import Final, TypeAlias, assert_never

from msgspec.structs import replace

from ironcurtain_proxy.decision.rules import (
    DEFAULT_DENY,
    answering_rules,
    asked_everywhere,
    combine,
    decide_role,
    decide_unannotated,
    decide_without_roles,
    decision_of,
    resource_roles,
)
from ironcurtain_proxy.model.annotation import (
    PATH_ROLES,
    RESOURCE_ROLES,
    ROLE_TRAITS,
    URL_ROLES,
    ArgumentRole,
    RoleSpec,
    ToolAnnotation,
)
from ironcurtain_proxy.model.condition_reading import host_matches
from ironcurtain_proxy.model.conditions import leads_only_to
from ironcurtain_proxy.model.decision import (
    UNKNOWN_TOOL,
    Allow,
    Decision,
    Deny,
    Escalate,
    Ground,
    PriorConsent,
)
from ironcurtain_proxy.model.policy import Floor, Policy, ProtectedName, Rule, RuleBook
from ironcurtain_proxy.model.request import AccessRequest, PathValue, ServerQuestion, UrlValue
from ironcurtain_proxy.model.signing import Quorum
from ironcurtain_proxy.model.values import RealPath

# --- invariants


MAX_TOKENS: Final = 4096
"""The most tokens that a server may ask of the agent's model at once."""


def unsafe_question(request: AccessRequest, policy: Policy) -> Decision | None:
    """Deny questions that no setting allows: credentials, strange pages, too much of the model."""
    asked = request.question
    reason = None if asked is None else _fault(asked, request.server, policy)
    return None if reason is None else Deny(Ground("structural-server-question", reason))


def _fault(asked: ServerQuestion, server: str, policy: Policy) -> str | None:
    match asked.kind:
        case "form":
            credential = asked.asks_for
            return f'The form asks for a credential: "{credential}"' if credential else None
        case "url":
            return _fault_of_page(asked.host, server, policy)
        case "sampling":
            if asked.tokens > MAX_TOKENS:
                return f"The server asks for more than {MAX_TOKENS} tokens"
            may_use_tools = "sampling-tools" in policy.may_ask.get(server, ())
            strange = asked.with_tools and not may_use_tools
            return "The server wants to hand tools to the model" if strange else None
        case _:
            assert_never(asked.kind)


def _fault_of_page(host: str, server: str, policy: Policy) -> str | None:
    if not host:
        return "The page to open is no plain https URL"
    if host_matches(host, policy.domain_allowlists.get(server, frozenset())):
        return None
    return (
        f'The page to open is on "{host}", which is not among the allowed domains of server '
        f'"{server}"'
    )


def decide_question(request: AccessRequest, asked: ServerQuestion, policy: Policy) -> Decision:
    """Return the decision on a question that is not unsafe."""
    decision = decide_without_roles(request, policy)
    if decision == DEFAULT_DENY and asked.kind in policy.may_ask.get(request.server, ()):
        decision = Allow(
            Ground("server-may-ask", f'Server "{request.server}" may ask this ({asked.kind})')
        )
    if decision == DEFAULT_DENY:
        return Deny(
            Ground(
                "server-asks",
                f'Server "{request.server}" wants to ask something ({asked.kind}), which no '
                "setting allows",
            )
        )
    if isinstance(decision, Allow) and asked.kind == "sampling":
        # What the model is told, and what becomes of its answer, is for a person to see.
        return Escalate(Ground("server-sampling", f'Server "{request.server}" asks the model'))
    return decision


Invariant: TypeAlias = Callable[[AccessRequest, Policy], Decision | None]
"""An invariant returns a decision, or None if it does not apply."""

INTROSPECTION: Final = "list_allowed_directories"
"""The tool of the filesystem server that says what the policy allows it."""

CONTAINED_SERVERS: Final = frozenset({"filesystem", "git"})
"""Servers whose path arguments name all files that a call touches, so that a path in the workspace
is settled by its location."""


def trusted_server(request: AccessRequest, policy: Policy) -> Decision | None:
    """Allow every call of a server that the operator trusts as a whole."""
    if request.server in policy.trusted_servers and request.question is None:
        return Allow(Ground("trusted-server", f'Server "{request.server}" is trusted'))
    return None


def protected_path(request: AccessRequest, policy: Policy) -> Decision | None:
    """Deny access to the proxy's own files, keys and hooks."""
    for fact in request.arguments:
        if PATH_ROLES.isdisjoint(fact.roles):
            continue
        for value in fact.values:
            if isinstance(value, PathValue) and _is_protected(value.path, fact.roles, policy):
                return Deny(
                    Ground(
                        "structural-protected-path",
                        f"Access to protected path is forbidden: {value.text}",
                    )
                )
    return None


def protected_repository(request: AccessRequest, policy: Policy) -> Decision | None:
    """Ask about git calls in a repository that contains a protected path, which git can read."""
    if request.repository is None:
        return None
    for protected in policy.protected_paths:
        if protected.anchored and protected.path.is_within(request.repository):
            return Escalate(
                Ground(
                    "structural-protected-repository",
                    "The repository holds a protected path, which git can read",
                ),
                tuple(resource_roles(request)),
            )
    return None


def introspection(request: AccessRequest, _policy: Policy) -> Decision | None:
    """Allow questions about the policy itself."""
    if (
        request.server == "filesystem"
        and request.tool == INTROSPECTION
        and request.annotated
        and not request.has_arguments
    ):
        return Allow(
            Ground("structural-introspection-allow", "Introspection tool is always allowed")
        )
    return None


def domain_gate(request: AccessRequest, policy: Policy) -> Decision | None:
    """Ask before a server with an allowlist of hosts reaches any other host."""
    allowed = policy.domain_allowlists.get(request.server)
    if not allowed:
        return None
    for fact in request.arguments:
        role = next((r for r in fact.roles if r in URL_ROLES), None)
        if role is None:
            continue
        for value in fact.values:
            if not leads_only_to(value, allowed):
                shown = ", ".join(value.domains) if isinstance(value, UrlValue) else value.text
                return Escalate(
                    Ground(
                        "structural-domain-escalate",
                        f'URL domain "{shown}" is not in the allowlist '
                        f'for server "{request.server}"',
                    ),
                    (role,),
                )
    return None


def unknown_tool(request: AccessRequest, policy: Policy) -> Decision | None:
    """Deny tools without an annotation, unless the operator wants to be asked about them."""
    if request.annotated or policy.unknown_tools == "ask":
        return None
    return Deny(Ground(UNKNOWN_TOOL, f"Unknown tool: {request.server}/{request.tool}"))


INVARIANTS: Final[tuple[Invariant, ...]] = (
    trusted_server,
    protected_path,
    introspection,
    domain_gate,
    unknown_tool,
    unsafe_question,
)
"""The invariants in the order of evaluation; the first that returns a decision wins."""


def contained_roles(
    request: AccessRequest, policy: Policy, book: RuleBook | None = None
) -> frozenset[ArgumentRole]:
    """Return the path roles whose paths all lie in the workspace.

    A role without a path does not count.

    They are skipped when rules are evaluated, unless a rule restricts one of these paths by its
    name or everywhere.

    Args:
        request: what is asked.
        policy: names the workspace.
        book: the rules of one layer; None: those of the policy.
    """
    workspace, book = policy.workspace, book or policy.book
    if workspace is None or request.server not in CONTAINED_SERVERS:
        return frozenset()
    inside: set[ArgumentRole] = set()
    outside: set[ArgumentRole] = set()
    for fact in request.arguments:
        if not fact.values:
            continue
        contained = all(
            isinstance(value, PathValue) and value.path.is_within(workspace)
            for value in fact.values
        )
        (inside if contained else outside).update(fact.roles)
    return frozenset(
        r
        for r in inside
        if r not in outside and ROLE_TRAITS[r].contained and not asked_everywhere(request, book, r)
    )


def _is_protected(path: RealPath, roles: tuple[ArgumentRole, ...], policy: Policy) -> bool:
    for protected in policy.protected_paths:
        if protected.anchored and "delete-path" in roles and protected.path.is_within(path):
            return True
        exempt = protected.unless_within
        if path.is_within(protected.path) and not (exempt is not None and path.is_within(exempt)):
            return True
    # Lower case on both sides: on a case-insensitive file system `.GIT/config` is the same file.
    components = tuple(map(str.lower, path.parts))
    return any(
        not name.roles.isdisjoint(roles) and _contains_name(components, name)
        for name in policy.protected_names
    )


def _contains_name(components: tuple[str, ...], name: ProtectedName) -> bool:
    first = name.parts[0]
    if first not in components and not first.endswith("*"):
        # Nearly every path ends here for nearly every name.
        return False
    length = len(name.parts)
    last = len(components) - length
    return any(
        all(map(_component_is, components[start : start + length], name.parts))
        for start in range(last if name.whole else 0, last + 1)
        if start >= 0
    )


def _component_is(component: str, wanted: str) -> bool:
    if wanted.endswith("*"):
        return component.startswith(wanted[:-1])
    return component == wanted


# --- authorizer


def unasked(decision: Decision) -> Decision:
    """Return the decision on a completion, from the one on what it completes."""
    if not isinstance(decision, Escalate):
        return decision
    asked = decision.ground.reason
    reason = (
        f"Nobody is asked about completions, and what it completes would be asked about: {asked}"
    )
    return Deny(Ground("completion-of-asked", reason))


def narrowed(request: AccessRequest, policy: Policy, decision: Decision) -> Decision:
    """Return the decision after every floor was asked."""
    if isinstance(decision, Deny):
        return decision
    found = list(restrictions(request, policy))
    for _, rule in found:
        if rule.effect == "deny":
            return decision_of(rule)
    asking = [(role, Ground(rule.name, rule.reason)) for role, rule in found]
    return _asked(decision, asking) if asking else decision


def restrictions(
    request: AccessRequest, policy: Policy
) -> Iterator[tuple[ArgumentRole | None, Rule]]:
    """Yield each rule of a floor that restricts the call, with the role that it was asked about."""
    for floor in policy.floors:
        settled = contained_roles(request, policy, floor.book)
        for role in resource_roles(request) or (None,):
            if role not in settled:
                for rule in answering_rules(request, policy, role, floor.book):
                    if _holds(rule, floor):
                        yield role, rule


def _holds(rule: Rule, floor: Floor) -> bool:
    return rule.effect == "deny" or (floor.asks and rule.effect == "escalate")


def _asked(
    decision: Allow | Escalate, asking: list[tuple[ArgumentRole | None, Ground]]
) -> Escalate:
    """Return an escalation that names what the rules and the floors ask about."""
    by_role: dict[ArgumentRole, Ground] = {}
    ground = asking[0][1]
    if isinstance(decision, Escalate):
        ground = decision.ground
        grounds = decision.by_role or (ground,) * len(decision.roles)
        by_role.update(zip(decision.roles, grounds, strict=True))
    for role, reason in asking:
        if role is not None:
            by_role.setdefault(role, reason)
    return Escalate(ground, tuple(by_role), tuple(by_role.values()))


CONTAINED = Allow(
    Ground("structural-sandbox-allow", "All path roles resolved by sandbox containment")
)
"""The decision where the workspace settled every role of a call."""


def authorize(request: AccessRequest, policy: Policy) -> Decision:
    """Decide on one operation and the resources that it names."""
    decision = _decided(request, policy)
    return narrowed(request, policy, decision) if policy.floors else decision


def _decided(request: AccessRequest, policy: Policy) -> Decision:
    for invariant in INVARIANTS:
        decision = invariant(request, policy)
        if decision is not None:
            return decision
    decision = _by_rules(request, policy)
    if isinstance(decision, Allow):
        return protected_repository(request, policy) or decision
    return decision


def _by_rules(request: AccessRequest, policy: Policy) -> Decision:
    if request.question is not None:
        return decide_question(request, request.question, policy)
    if not request.annotated:
        return decide_unannotated(request, policy)
    roles = resource_roles(request)
    if not roles:
        return decide_without_roles(request, policy)
    settled = contained_roles(request, policy)
    answers = [(role, decide_role(request, policy, role)) for role in roles if role not in settled]
    return combine(answers) if answers else CONTAINED


# --- tools whose calls are all denied


def is_always_denied(
    server: str, tool: str, annotation: ToolAnnotation | None, policy: Policy
) -> bool:
    """Return whether every call of a tool is denied, whatever its arguments are.

    False where that is not certain: such tools are not shown, and one that works would be missed.

    Args:
        server: its name in the policy.
        tool: the server's own name.
        annotation: the operator's, or None if there is none.
        policy: decides.
    """
    if server in policy.trusted_servers:
        return False
    everything = policy.book.about(server, tool, None)
    if policy.unknown_tools == "ask" and not any(_denies_all(rule) for rule in everything):
        return False
    if annotation is None:
        return True
    specs = annotation.arguments.values()
    roles = RESOURCE_ROLES & {role for spec in specs for role in spec.every_role()}
    asks_by_host = not URL_ROLES.isdisjoint(roles)
    if (asks_by_host and policy.domain_allowlists.get(server)) or tool == INTROSPECTION:
        return False
    sure = RESOURCE_ROLES & {role for spec in specs for role in _in_every_call(spec)}
    if sure:
        return any(_is_closed(server, tool, role, policy) for role in sure)
    return all(_is_closed(server, tool, role, policy) for role in (*roles, None))


def _in_every_call(spec: RoleSpec) -> frozenset[ArgumentRole]:
    """Return the roles that an argument has in each call."""
    if spec.inside:
        return frozenset()
    return frozenset(spec.default).intersection(*[case.roles for case in spec.cases])


def _denies_all(rule: Rule) -> bool:
    return rule.effect == "deny" and not rule.conditions and rule.roles is None


def _is_closed(server: str, tool: str, role: ArgumentRole | None, policy: Policy) -> bool:
    """Return whether all values of a role are denied, and its absence is, too."""
    is_contained = role is not None and ROLE_TRAITS[role].contained
    may_settle = policy.workspace is not None and server in CONTAINED_SERVERS and is_contained
    for book in (policy.book, *[floor.book for floor in policy.floors]):
        for rule in book.about(server, tool, role):
            if _denies_all(rule) and (rule.restricts_workspace or not may_settle):
                return True
            if rule.effect != "deny" or may_settle:
                break
        else:
            if book is policy.book and not may_settle:
                return True
    return False


# --- containment


_READ: Final[ArgumentRole] = "read-path"


def rule_for_reviewers(request: AccessRequest, policy: Policy) -> Rule | None:
    """Return the first rule that decides on the call and says `contained: false`.

    It is None if there is none.

    Every role of the call counts, also one that the workspace settles, and every layer.
    """
    for role in resource_roles(request) or (None,):
        for rule in answering_rules(request, policy, role):
            if not rule.contained:
                return rule
    kept = (rule for _, rule in restrictions(request, policy) if not rule.contained)
    return next(kept, None)


def quorums_of(request: AccessRequest, policy: Policy) -> tuple[Quorum, ...]:
    """Return what the rules that ask about a call demand of its approval, of every layer.

    A call that nobody has described is decided without rules. A rule of its tool counts all the
    same: otherwise a server would lose it by adding an argument.
    """
    if not policy.has_quorums:
        return ()
    roles: tuple[ArgumentRole | None, ...] = tuple(resource_roles(request)) or (None,)
    if not request.annotated and None not in roles:
        roles = (*roles, None)
    asking = [rule for role in roles for rule in answering_rules(request, policy, role)]
    asking += [rule for _, rule in restrictions(request, policy)]
    found = [one.quorum for one in asking if one.effect == "escalate" and one.quorum is not None]
    return tuple(dict.fromkeys(found))


def is_asked_to_read(request: AccessRequest, policy: Policy) -> bool:
    """Return whether a rule keeps the reading of a call for reviewers.

    A rule with `contained_reads` asks about its tool as a whole: it does not, where all other rules
    would allow the same paths to be read.
    """
    if not any(rule.contained_reads for rule in answering_rules(request, policy, _READ)):
        return True
    others = tuple([rule for rule in policy.rules if not rule.contained_reads])
    if not isinstance(decide_role(request, replace(policy, rules=others), _READ), Allow):
        return True
    return any(role == _READ for role, _ in restrictions(request, policy))


# --- prior consent


def prior_consent_of(request: AccessRequest, policy: Policy, decision: Decision) -> PriorConsent:
    """Return the earlier consent behind a decision.

    Args:
        request: what was asked.
        policy: what it was decided by.
        decision: what `authorize` said of the two.
    """
    contained = contained_roles(request, policy)
    if not isinstance(decision, Allow) or _is_settled_early(request, policy):
        return PriorConsent(contained=contained)
    answers: dict[ArgumentRole | None, tuple[Rule, ...]] = {
        role: answering_rules(request, policy, role)
        for role in (resource_roles(request) or (None,))
        if role not in contained
    }
    rules = [rule for found in answers.values() for rule in found]
    return PriorConsent(
        contained=contained,
        # INVARIANT: no rule at all is not a rule that names the tool.
        names_tool=bool(rules) and all(rule.tools is not None for rule in rules),
        names_roles=frozenset(
            role
            for role, found in answers.items()
            if role is not None and found and all(_is_meant(rule, role) for rule in found)
        ),
    )


def goes_by_name(request: AccessRequest, policy: Policy) -> bool:
    """Return whether a rule that asks or denies describes a file's name, such as `.env`.

    An approval of such a call speaks of this file. One that was given for another file of the
    directory does not speak of it.
    """
    layers = (policy.rules, *[floor.rules for floor in policy.floors])
    conditions = [
        rule.names
        for rules in layers
        for rule in rules
        if rule.names is not None and rule.effect != "allow"
    ]
    return any(
        condition.covers(value)
        for fact in request.arguments
        for condition in conditions
        if not condition.roles.isdisjoint(fact.roles)
        for value in fact.values
    )


def _is_settled_early(request: AccessRequest, policy: Policy) -> bool:
    """Return whether an invariant decided, so that no rule was evaluated."""
    return any(invariant(request, policy) is not None for invariant in INVARIANTS)


def _is_meant(rule: Rule, role: ArgumentRole) -> bool:
    """Return whether the rule names this tool or this role explicitly."""
    named = (rule.roles or (), *[one.named for one in rule.conditions])
    return rule.tools is not None or any(role in roles for roles in named)
