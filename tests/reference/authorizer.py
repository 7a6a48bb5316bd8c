"""The decision procedure again, as naively as it can be said: the specification.

Nothing of `ironcurtain_proxy.decision` is used. No index, no early exit that the text does not
demand, no cleverness: every rule is looked at for every role. Slow, and meant to be read.
"""

import fnmatch
import re

from ironcurtain_proxy.model.annotation import ROLE_TRAITS, ArgumentRole
from ironcurtain_proxy.model.conditions import ListCondition, NameCondition
from ironcurtain_proxy.model.decision import Allow, Decision, Deny, Escalate, Ground
from ironcurtain_proxy.model.policy import Policy, Rule
from ironcurtain_proxy.model.request import (
    AccessRequest,
    NamedBy,
    PathValue,
    SqlValue,
    UrlValue,
    Value,
)
from tests.reference.hosts import domains, leads_to


def reference_authorize(request: AccessRequest, policy: Policy) -> Decision:
    """May the session use this tool on these resources?"""
    decision = decide(request, policy)
    by_invariant = ("trusted-server", "structural-introspection-allow")
    if not isinstance(decision, Allow) or decision.ground.rule in by_invariant:
        return decision
    for protected in policy.protected_paths:
        if (
            protected.anchored
            and request.repository is not None
            and protected.path.parts[: len(request.repository.parts)] == request.repository.parts
        ):
            ground = Ground(
                "structural-protected-repository",
                "The repository holds a protected path, which git can read",
            )
            asked = [r for f in request.arguments for r in f.roles]
            resources = [r for r in asked if ROLE_TRAITS[r].category != "opaque"]
            return Escalate(ground, tuple(dict.fromkeys(resources)))
    return decision


def decide(request: AccessRequest, policy: Policy) -> Decision:
    if request.server in policy.trusted_servers:
        return Allow(Ground("trusted-server", f'Server "{request.server}" is trusted'))
    for fact in request.arguments:
        for value in fact.values:
            if isinstance(value, PathValue) and is_protected(value, fact.roles, policy):
                return Deny(
                    Ground(
                        "structural-protected-path",
                        f"Access to protected path is forbidden: {value.text}",
                    )
                )
    if (
        (request.server, request.tool) == ("filesystem", "list_allowed_directories")
        and request.annotated
        and not request.has_arguments
    ):
        return Allow(
            Ground("structural-introspection-allow", "Introspection tool is always allowed")
        )
    gate = policy.domain_allowlists.get(request.server, frozenset())
    if gate:
        for fact in request.arguments:
            url_roles = [role for role in fact.roles if ROLE_TRAITS[role].category == "url"]
            for value in fact.values:
                if url_roles and not leads_to(value, gate):
                    shown = ", ".join(domains(value))
                    return Escalate(
                        Ground(
                            "structural-domain-escalate",
                            f'URL domain "{shown}" is not in the allowlist for server '
                            f'"{request.server}"',
                        ),
                        (url_roles[0],),
                    )
    if not request.annotated and policy.unknown_tools == "ask":
        return about_unknown(request, policy)
    if not request.annotated:
        return Deny(
            Ground("structural-unknown-tool", f"Unknown tool: {request.server}/{request.tool}")
        )
    roles: list[ArgumentRole] = []
    for fact in request.arguments:
        for role in fact.roles:
            if ROLE_TRAITS[role].category != "opaque" and role not in roles:
                roles.append(role)
    if not roles:
        for rule in policy.rules:
            if unscoped_rule_matches(rule, request):
                return says(rule)
        return default()
    asked = [role for role in roles if not settled_by_workspace(role, request, policy)]
    if not asked:
        return Allow(
            Ground("structural-sandbox-allow", "All path roles resolved by sandbox containment")
        )
    answers = [(role, answer_for(role, request, policy)) for role in asked]
    for _, answer in answers:
        if isinstance(answer, Deny):
            return answer
    escalations = [(role, a) for role, a in answers if isinstance(a, Escalate)]
    if escalations:
        return Escalate(
            escalations[0][1].ground,
            tuple(role for role, _ in escalations),
            tuple(answer.ground for _, answer in escalations),
        )
    return answers[0][1]


def about_unknown(request: AccessRequest, policy: Policy) -> Decision:
    """Escalate, unless a rule denies something that the arguments look like."""
    every = [role for fact in request.arguments for role in fact.roles]
    roles = [r for r in dict.fromkeys(every) if ROLE_TRAITS[r].category != "opaque"]
    for role in roles:
        for rule in policy.rules:
            if rule.effect == "deny" and speaks_of(rule, role):
                for value in values_with({role}, request):
                    if denies(rule, value, request, role):
                        return says(rule)
    for rule in policy.rules:
        if rule.effect == "deny" and unscoped_rule_matches(rule, request):
            return says(rule)
    said = f"Nobody has described the tool {request.server}/{request.tool}"
    return Escalate(Ground("structural-unknown-tool", said), tuple(roles))


def denies(rule: Rule, value: Value, request: AccessRequest, role: ArgumentRole) -> bool:
    if rule.domains is None:
        return conditions_hold(rule, request, role) and single_paths_hold(rule, value)
    for_server = rule.servers is None or request.server in rule.servers
    for_tool = rule.tools is None or request.tool in rule.tools
    is_led = isinstance(value, UrlValue) and leads_to(value, rule.domains.allowed)
    return for_server and for_tool and is_led


def default() -> Decision:
    return Deny(Ground("default-deny", "No matching policy rule -- denied by default"))


def says(rule: Rule) -> Decision:
    ground = Ground(rule.name, rule.reason)
    if rule.effect == "allow":
        return Allow(ground)
    return Escalate(ground) if rule.effect == "escalate" else Deny(ground)


def inside(value: Value, directory: object) -> bool:
    """Text, not components: another way to say it than the engine's."""
    if not isinstance(value, PathValue):
        return False
    wanted = str(directory).rstrip("/")
    return value.text == (wanted or "/") or value.text.startswith(wanted + "/")


def is_protected(value: PathValue, roles: tuple[ArgumentRole, ...], policy: Policy) -> bool:
    for protected in policy.protected_paths:
        above = protected.path.parts[: len(value.path.parts)] == value.path.parts
        if protected.anchored and above and "delete-path" in roles:
            return True
        exempt = protected.unless_within is not None and inside(value, protected.unless_within)
        if inside(value, protected.path) and not exempt:
            return True
    for name in policy.protected_names:
        pattern = "/".join(re.escape(p).replace(r"\*", "[^/]*") for p in name.parts)
        if set(roles) & name.roles and re.search(
            f"/{pattern}" + ("$" if name.whole else "(/|$)"), value.text, re.IGNORECASE
        ):
            return True
    return False


def values_with(
    roles: set[ArgumentRole] | frozenset[ArgumentRole], request: AccessRequest
) -> list[Value]:
    return [v for fact in request.arguments if set(fact.roles) & roles for v in fact.values]


def settled_by_workspace(role: ArgumentRole, request: AccessRequest, policy: Policy) -> bool:
    values = values_with({role}, request)
    return (
        policy.workspace is not None
        and request.server in ("filesystem", "git")
        and role in ("read-path", "write-path", "delete-path", "write-history", "delete-history")
        and len(values) > 0
        and all(inside(v, policy.workspace) for v in values)
        and not any(asked_by_name(v, role, request, policy) for v in values)
    )


def asked_by_name(value: Value, role: ArgumentRole, request: AccessRequest, policy: Policy) -> bool:
    return any(
        (rule.names is not None or rule.everywhere)
        and rule.effect != "allow"
        and speaks_of(rule, role)
        and conditions_hold(rule, request, role)
        and single_paths_hold(rule, value)
        for rule in policy.rules
    )


def single_paths_hold(rule: Rule, value: Value) -> bool:
    if rule.paths is not None and not inside(value, rule.paths.within):
        return False
    if rule.excepting is not None and named(value, rule.excepting):
        return False
    return rule.names is None or named(value, rule.names)


def named(value: Value, condition: NameCondition) -> bool:
    return like(value, condition.matching) and not like(value, condition.unless)


def like(value: Value, patterns: frozenset[str]) -> bool:
    """Name by name from the end: another way to say it than the engine's."""
    ends = value.text.lower().split("/")[1:] if isinstance(value, PathValue) else []
    for pattern in patterns:
        wanted = pattern.removesuffix("/**").split("/")
        if pattern.endswith("/**"):
            spans = [ends[at : at + len(wanted)] for at in range(len(ends) - len(wanted) + 1)]
            if any(all(map(fnmatch.fnmatchcase, span, wanted)) for span in spans):
                return True
            continue
        last = ends[-len(wanted) :]
        if len(last) == len(wanted) and all(map(fnmatch.fnmatchcase, last, wanted)):
            return True
    return False


def answer_for(role: ArgumentRole, request: AccessRequest, policy: Policy) -> Decision:
    values = values_with({role}, request)
    relevant = [rule for rule in policy.rules if speaks_of(rule, role)]
    if not values:
        for rule in relevant:
            everywhere = rule.paths is not None and str(rule.paths.within) == "/"
            if conditions_hold(rule, request, role) and (
                (rule.paths is None or (everywhere and rule.effect != "allow"))
                and rule.names is None
            ):
                return says(rule)
        return default()
    answers: list[Decision] = []
    left = []
    for value in values:
        if (
            policy.workspace is not None
            and request.server == "filesystem"
            and ROLE_TRAITS[role].contained
            and inside(value, policy.workspace)
            and not asked_by_name(value, role, request, policy)
        ):
            answers.append(
                Allow(
                    Ground(
                        "structural-sandbox-allow",
                        f"Path(s) within the sandbox directory: {policy.workspace}",
                    )
                )
            )
        else:
            left.append(value)
    by_rule: list[tuple[int, Decision]] = []
    for value in left:
        for place, rule in enumerate(relevant):
            if conditions_hold(rule, request, role) and single_paths_hold(rule, value):
                by_rule.append((place, says(rule)))
                break
        else:
            return default()
    by_rule.sort(key=lambda pair: pair[0])
    for kind in (Deny, Escalate, Allow):
        for _, answer in by_rule:
            if isinstance(answer, kind):
                return answer
    return answers[0]


def speaks_of(rule: Rule, role: ArgumentRole) -> bool:
    named = [
        rule.roles,
        rule.paths.roles if rule.paths else None,
        rule.names.roles if rule.names else None,
        rule.domains.roles if rule.domains else None,
    ]
    if any(roles is not None and role not in roles for roles in named):
        return False
    if rule.sql is not None and role != "sql":
        return False
    if rule.namedBy is not None and rule.effect == "allow" and role not in rule.namedBy.roles:
        return False
    return not rule.lists or any(role in condition.roles for condition in rule.lists)


def conditions_hold(rule: Rule, request: AccessRequest, role: ArgumentRole) -> bool:
    """All but the condition on paths."""
    if rule.servers is not None and request.server not in rule.servers:
        return False
    if rule.tools is not None and request.tool not in rule.tools:
        return False
    if rule.domains is not None:
        values = values_with({role}, request) if ROLE_TRAITS[role].category == "url" else []
        if not values or not all(leads_to(v, rule.domains.allowed) for v in values):
            return False
    if rule.sql is not None and not sql_does_at_most(rule.sql, request):
        return False
    if rule.namedBy is not None:
        asked = {role} if role in rule.namedBy.roles else rule.namedBy.roles
        if not named_by_one(rule.namedBy.by, request, frozenset(asked)):
            return False
    return all(
        on_list(c, request, frozenset({role}) if role in c.roles else c.roles) for c in rule.lists
    )


def unscoped_rule_matches(rule: Rule, request: AccessRequest) -> bool:
    if rule.servers is not None and request.server not in rule.servers:
        return False
    if rule.tools is not None and request.tool not in rule.tools:
        return False
    every_role = {role for fact in request.arguments for role in fact.roles}
    if rule.roles is not None and not rule.roles & every_role:
        return False
    if rule.paths is not None:
        values = values_with(rule.paths.roles, request)
        if not values or not all(inside(v, rule.paths.within) for v in values):
            return False
    if rule.names is not None:
        return False
    if rule.sql is not None and not sql_does_at_most(rule.sql, request):
        return False
    if rule.domains is not None:
        urls = frozenset(r for r in rule.domains.roles if ROLE_TRAITS[r].category == "url")
        values = values_with(urls, request)
        if not values or not all(leads_to(v, rule.domains.allowed) for v in values):
            return False
    if rule.namedBy is not None and not named_by_one(rule.namedBy.by, request, rule.namedBy.roles):
        return False
    return all(on_list(c, request, c.roles) for c in rule.lists)


def named_by_one(
    allowed: frozenset[NamedBy], request: AccessRequest, roles: frozenset[ArgumentRole]
) -> bool:
    """The target that the least speaks for decides."""
    found = {one.named_by for one in request.targets if set(one.roles) & roles}
    if not found and values_with(roles - {"message", "email-body"}, request):
        found = {"nobody"}
    worst_first: list[NamedBy] = ["nobody", "result", "own", "user"]
    return any(word in found for word in worst_first) and (
        next(word for word in worst_first if word in found) in allowed
    )


def sql_does_at_most(bound: str, request: AccessRequest) -> bool:
    order = ["reads", "writes", "destroys", "runs"]
    values = values_with({"sql"}, request)
    return len(values) > 0 and all(
        isinstance(v, SqlValue) and order.index(v.effect) <= order.index(bound) for v in values
    )


def on_list(
    condition: ListCondition, request: AccessRequest, roles: frozenset[ArgumentRole]
) -> bool:
    values = values_with(roles, request)
    if not values:
        return False
    if condition.kind == "domains":
        return all(leads_to(v, condition.allowed) for v in values)
    return all(
        any(same_name(v.text, entry, role) for entry in condition.allowed)
        for role in roles
        for v in values_with({role}, request)
    )


def same_name(said: str, listed: str, role: ArgumentRole) -> bool:
    """Owners, repositories, hosts and addresses of mail are the same in any case; nothing else."""
    if role in ("github-owner", "github-repo", "proxy-domain", "email-address"):
        return said.lower() == listed.lower()
    return said == listed
