"""Structural invariants: decisions that no rule can override, in order."""

from collections.abc import Callable
from typing import Final, TypeAlias, assert_never

from ironcurtain_proxy.decision.rules import (
    DEFAULT_DENY,
    asked_everywhere,
    decide_without_roles,
    resource_roles,
)
from ironcurtain_proxy.model.annotation import ROLE_TRAITS, ArgumentRole
from ironcurtain_proxy.model.condition_reading import host_matches
from ironcurtain_proxy.model.conditions import leads_only_to
from ironcurtain_proxy.model.decision import UNKNOWN_TOOL, Allow, Decision, Deny, Escalate, Ground
from ironcurtain_proxy.model.policy import Policy, ProtectedName, RuleBook
from ironcurtain_proxy.model.request import AccessRequest, PathValue, ServerQuestion, UrlValue
from ironcurtain_proxy.model.values import RealPath

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
    """The decision on a question that is not unsafe."""
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
        if _PATH_ROLES.isdisjoint(fact.roles):
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
        role = next((r for r in fact.roles if ROLE_TRAITS[r].category == "url"), None)
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
    """The path roles whose paths all lie in the workspace; a role without a path does not count.

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


_PATH_ROLES: Final = frozenset(
    role for role, traits in ROLE_TRAITS.items() if traits.category == "path"
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
