"""Whether the conditions of a rule hold for the values of a request.

A condition on zero values does not hold: vacuous truth must not make a rule apply to values that
were never examined.
"""

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final, assert_never

from ironcurtain_proxy.credentials.names import compiled
from ironcurtain_proxy.model.annotation import (
    IGNORES_CASE,
    RESOURCE_ROLES,
    ROLE_TRAITS,
    ArgumentRole,
)
from ironcurtain_proxy.model.path import RealPath
from ironcurtain_proxy.model.policy import (
    DomainCondition,
    ListCondition,
    NameCondition,
    PathCondition,
    Rule,
    RuleBook,
    UriCondition,
)
from ironcurtain_proxy.model.request import (
    AccessRequest,
    PathValue,
    SqlValue,
    TextValue,
    UrlValue,
    Value,
)
from ironcurtain_proxy.model.sql import SqlEffect, is_at_most
from ironcurtain_proxy.model.vocabulary import words

_IP_V4: Final = re.compile(r"\d+\.\d+\.\d+\.\d+", re.ASCII)
_NUMBER: Final = re.compile(r"\d+|0x[0-9a-f]*", re.ASCII)
_AMBIGUOUS: Final = re.compile(r"(?:^|[/:])\.\.?(?:[/?#]|$)|%(?:2[ef]|5c|00|25)|\\", re.IGNORECASE)
_LABEL: Final = re.compile(r"[a-z0-9_-]{1,63}", re.ASCII)

SPECIAL_ENDINGS: Final = words(
    """
    corp home home.arpa internal intranet invalid lan local localdomain localhost onion private svc
    test
    """
)
"""Names that lead to this machine, this network or nowhere (RFC 6761, RFC 6762, RFC 8375, the
metadata hosts of clouds under `.internal`, services of clusters under `.svc`)."""

REBINDING_ENDINGS: Final = frozenset(
    {"lacolhost.com", "localtest.me", "lvh.me", "nip.io", "sslip.io", "vcap.me", "xip.io"}
)
"""Public names that resolve to the address written in them (`127.0.0.1.nip.io`)."""


def is_ip_address(host: str) -> bool:
    """Whether a host is written as an address."""
    return ":" in host or _IP_V4.fullmatch(host) is not None


def is_public_host(host: str) -> bool:
    """Whether `*` matches this host: a well-formed name on the public internet."""
    if is_ip_address(host):
        return False
    labels = host.removesuffix(".").lower().split(".")
    if len(labels) == 1 or not all(map(_LABEL.fullmatch, labels)):
        return False
    if _NUMBER.fullmatch(labels[-1]):
        # Some programs take `127.1`, `0x7f.1` and `127.0.0.1.` for addresses; no name ends that
        # way.
        return False
    return not any(
        ".".join(labels[start:]) in SPECIAL_ENDINGS | REBINDING_ENDINGS
        for start in range(len(labels))
    )


def host_matches(domain: str, allowed: frozenset[str]) -> bool:
    """Whether a `host` or `host/path` matches one of the patterns.

    `host` matches any path on it, `*.host` the host and all its subdomains, `host/path` exactly
    itself, `*` every public host. Patterns are looked up by key, so the cost does not grow with
    the list.
    """
    if domain in allowed:
        return True
    host, slash, _ = domain.partition("/")
    if slash and host in allowed:
        return True
    if "*" in allowed and is_public_host(host):
        return True
    if "*." + host in allowed:
        return True
    dot = host.find(".")
    while dot >= 0:
        if "*" + host[dot:] in allowed:
            return True
        dot = host.find(".", dot + 1)
    return False


def resource_roles(request: AccessRequest) -> list[ArgumentRole]:
    """Every resource role of the tool once, in annotation order.

    Roles without a value in this call are included: the server may fill in a missing argument.
    """
    roles: dict[ArgumentRole, None] = {}
    for fact in request.arguments:
        for role in fact.roles:
            if role in RESOURCE_ROLES:
                roles[role] = None
    return list(roles)


def values_of(request: AccessRequest, roles: Iterable[ArgumentRole]) -> list[Value]:
    """The values of all arguments with one of the roles, in annotation order."""
    return [
        value
        for fact in request.arguments
        if any(role in fact.roles for role in roles)
        for value in fact.values
    ]


def is_inside(value: Value, condition: PathCondition) -> bool:
    """Whether a value is a path within the condition's directory."""
    return isinstance(value, PathValue) and value.path.is_within(condition.within)


def is_named(value: Value, condition: NameCondition) -> bool:
    """Whether the condition describes the name of a path value, or of the link it came from."""
    if not isinstance(value, PathValue):
        return False
    places = [value.path] if value.link is None else [value.path, value.link]
    return any(_is_described(place, condition) for place in places)


def _is_described(path: RealPath, condition: NameCondition) -> bool:
    text = str(path)
    return compiled(condition.matching).match(text) and not compiled(condition.unless).match(text)


def covers(rule: Rule, value: Value) -> bool:
    """Whether a rule's conditions on single paths and URIs hold for a value."""
    return (
        (rule.paths is None or is_inside(value, rule.paths))
        and (rule.names is None or is_named(value, rule.names))
        and (rule.uris is None or is_described(value, rule.uris))
        and (rule.excepting is None or not is_named(value, rule.excepting))
    )


def is_described(value: Value, condition: UriCondition) -> bool:
    """Whether a value is a URI that the condition describes.

    A scheme stands for everything that its server has. A pattern with `*` stands for no URI that a
    server may read as another one: `note://a/../b` and `note://a/%2e%2e/b` are described by none.
    """
    if not isinstance(value, TextValue):
        return False
    text = value.text
    if text in condition.patterns or text.partition(":")[0] in condition.schemes:
        return True
    stars = [pattern for pattern in condition.patterns if "*" in pattern]
    return any(_uri_pattern(one).fullmatch(text) for one in stars) and not _AMBIGUOUS.search(text)


@lru_cache(maxsize=256)
def _uri_pattern(pattern: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, pattern.split("*"))), re.DOTALL)


def asked_everywhere(
    request: AccessRequest, book: RuleBook, role: ArgumentRole
) -> frozenset[Value]:
    """The values of a role that a rule restricts by name or everywhere.

    No directory settles these.
    """
    rules = book.restricting(request.server, request.tool, role, request.method)
    return frozenset(
        [
            value
            for rule in rules
            if applies_to_call(rule, request, role)
            for value in values_of(request, (role,))
            if covers(rule, value)
        ]
    )


def paths_hold(condition: PathCondition, request: AccessRequest, role: ArgumentRole | None) -> bool:
    """Whether every path of the role (or of the condition's roles) lies within the directory."""
    values = values_of(request, condition.roles if role is None else (role,))
    return bool(values) and all(is_inside(value, condition) for value in values)


def restricts_everything(rule: Rule) -> bool:
    """Whether a rule that does not allow covers the root directory.

    The server fills in a path that the call omits, and any such path lies within `/`. This holds
    for restricting rules only: no unseen path is ever allowed.
    """
    return (
        rule.effect != "allow"
        and rule.names is None
        and rule.paths is not None
        and not rule.paths.within.parts
    )


def domains_hold(
    condition: DomainCondition, request: AccessRequest, role: ArgumentRole | None
) -> bool:
    """Whether every URL of the role (or of the condition's roles) leads only to allowed hosts."""
    roles = condition.roles if role is None else (role,)
    values = values_of(request, [role for role in roles if ROLE_TRAITS[role].category == "url"])
    return bool(values) and all(leads_only_to(value, condition.allowed) for value in values)


def leads_only_to(value: Value, allowed: frozenset[str]) -> bool:
    """Whether all hosts of a value are allowed. A value that is no URL stands for itself."""
    domains = value.domains if isinstance(value, UrlValue) else (value.text,)
    if isinstance(value, UrlValue) and not value.ordinary:
        allowed -= {"*"}
    return bool(domains) and all(host_matches(domain, allowed) for domain in domains)


def list_holds(condition: ListCondition, request: AccessRequest, role: ArgumentRole | None) -> bool:
    """Whether every value is on the list; case is ignored for roles whose service ignores it.

    A rule on pairs (owner and repository) is evaluated for each of the two roles: the condition
    that names the role is held against that role, the others against theirs.
    """
    roles = (role,) if role is not None and role in condition.roles else condition.roles
    return bool(values_of(request, roles)) and all(
        _is_listed(value, condition, one) for one in roles for value in values_of(request, (one,))
    )


def sql_holds(bound: SqlEffect, request: AccessRequest) -> bool:
    """Whether every SQL text of the call does at most this, and there is one."""
    values = values_of(request, ("sql",))
    return bool(values) and all(
        isinstance(value, SqlValue) and is_at_most(value.effect, bound) for value in values
    )


def _is_listed(value: Value, condition: ListCondition, role: ArgumentRole) -> bool:
    match condition.kind:
        case "domains":
            return leads_only_to(value, condition.allowed)
        case "emails" | "identifiers" if role in IGNORES_CASE:
            return value.text.lower() in condition.folded
        case "emails" | "identifiers":
            return value.text in condition.allowed
        case _:
            assert_never(condition.kind)


def applies_to_call(rule: Rule, request: AccessRequest, role: ArgumentRole | None) -> bool:
    """Whether all conditions hold except the path condition, which is evaluated for each value.

    The rule comes from `RuleBook.about`, which already selected by server, tool and role.
    """
    if role is None and rule.roles is not None and not _has_any_role(request, rule.roles):
        return False
    if rule.domains is not None and not domains_hold(rule.domains, request, role):
        return False
    if rule.sql is not None and not sql_holds(rule.sql, request):
        return False
    return not rule.lists or all(list_holds(one, request, role) for one in rule.lists)


def _has_any_role(request: AccessRequest, roles: frozenset[ArgumentRole]) -> bool:
    return any(not roles.isdisjoint(fact.roles) for fact in request.arguments)
