"""Shaped generators: small worlds in which every kind of decision comes up.

Unshaped ones lie: with random paths and rules nine of ten decisions are denials, and a bug in how
directories are compared survives.
"""

from datetime import UTC, datetime
from itertools import combinations, cycle, islice
from typing import TypeVar

from hypothesis import strategies as st
from msgspec.structs import replace

from ironcurtain_proxy.model.annotation import ROLE_TRAITS, ArgumentRole
from ironcurtain_proxy.model.conditions import (
    DomainCondition,
    ExceptingNames,
    ListCondition,
    NameCondition,
    NamedByCondition,
    PathCondition,
)
from ironcurtain_proxy.model.decision import Effect
from ironcurtain_proxy.model.policy import Floor, Policy, ProtectedName, ProtectedPath, Rule
from ironcurtain_proxy.model.request import (
    NAMED_BY,
    AccessRequest,
    ArgumentFact,
    ByNobody,
    ByUser,
    InResult,
    Own,
    PathValue,
    SqlValue,
    Target,
    TargetOrigin,
    TextValue,
    UrlValue,
    Value,
)
from ironcurtain_proxy.model.values import SQL_EFFECTS, RealPath

# Half of them "web", which has an allowlist of hosts: else its gate is met once in 600 calls.
SERVERS = ("filesystem", "filesystem", "git", "web", "web", "web")
TOOLS = ("read", "move", "push", "list_allowed_directories")
PATH_ROLES: tuple[ArgumentRole, ...] = ("read-path", "write-path", "delete-path", "write-history")
URL_ROLES: tuple[ArgumentRole, ...] = ("fetch-url", "git-remote-url")
NAME_ROLES: tuple[ArgumentRole, ...] = ("github-owner", "github-repo")
OTHER_ROLES: tuple[ArgumentRole, ...] = ("sql", "unclear")
OPAQUE_ROLES: tuple[ArgumentRole, ...] = ("none", "email-address", "branch-name")
ROLES = PATH_ROLES + URL_ROLES + NAME_ROLES + OTHER_ROLES + OPAQUE_ROLES

# `/ab` must not be taken to lie in `/a`, nor `/a-old`; `/` contains everything.
DIRECTORIES = ("/", "/a", "/ab", "/a/b", "/a/b/c", "/a-old", "/work", "/work/sub", "/work2")
FILES = (
    *DIRECTORIES[1:],
    *("/a/x", "/ab/x", "/work/x", "/work/y", "/work/sub/x", "/work/z"),
    *("/work/.git/config", "/work/.GIT/hooks/pre"),
)
DOMAINS = (
    "github.com/acme/w",
    "github.com",
    "api.github.com",
    "evil.example.net",
    "10.0.0.1",
    "[::1]",
    "localhost",
    "a.localhost",
    "127.0.0.1.nip.io",
    "notgithub.com",
    "",
    "a..b",
)
PATTERNS = ("*", "github.com", "*.github.com", "github.com/acme/w", "10.0.0.1", "*.example.net")
FILE_NAMES = ("x", "y", "*x*", "sub/x", "z*", "*/x", "work")
NAMES = ("acme", "Acme", "evil", "widgets", "a@b.io", "A@B.io")
ENTRIES = ("acme", "widgets", "a@b.io", "evil")


def path_value(text: str) -> PathValue:
    """The value a real path becomes."""
    return PathValue(text, RealPath.from_text(text))


def _values(role: ArgumentRole) -> st.SearchStrategy[Value]:
    match ROLE_TRAITS[role].category:
        case "path":
            return st.sampled_from(FILES).map(path_value)
        case "url":
            return st.lists(st.sampled_from(DOMAINS), min_size=1, max_size=2).map(
                lambda found: UrlValue("https://" + found[0], tuple(found), "/" not in found[-1])
            )
        case "identifier" | "uri":
            return st.sampled_from(NAMES).map(lambda text: TextValue(text.lower()))
        case "sql":
            return st.sampled_from(SQL_EFFECTS).map(lambda effect: SqlValue(effect, effect))
        case "opaque" | "command" | "unclear":
            return st.sampled_from(NAMES).map(TextValue)


@st.composite
def _facts(draw: st.DrawFn, name: str) -> ArgumentFact:
    family = draw(
        st.sampled_from(
            (PATH_ROLES, PATH_ROLES, PATH_ROLES, URL_ROLES, NAME_ROLES, OTHER_ROLES, OPAQUE_ROLES)
        )
    )
    count = 1 if family is OTHER_ROLES else 2
    roles = draw(st.lists(st.sampled_from(family), min_size=1, max_size=count, unique=True))
    values = draw(st.lists(_values(roles[0]), max_size=3))
    return ArgumentFact(name, tuple(roles), tuple(values))


REPOSITORIES = st.sampled_from(
    [None] * (2 * len(FILES)) + [RealPath.from_text(text) for text in FILES]
)


IN_RESULT = InResult("s", "t", "", datetime(2026, 1, 1, tzinfo=UTC))
ORIGINS: st.SearchStrategy[TargetOrigin] = st.sampled_from((ByUser(), Own(), IN_RESULT, ByNobody()))


@st.composite
def requests(draw: st.DrawFn) -> AccessRequest:
    """A call to one of a few tools."""
    count = draw(st.sampled_from((0, 1, 1, 1, 2, 2, 3)))
    arguments = tuple(draw(_facts(f"arg{i}")) for i in range(count))
    origins = draw(st.lists(ORIGINS, max_size=2))
    named = [(fact, value) for fact in arguments for value in fact.values]
    return AccessRequest(
        server=draw(st.sampled_from(SERVERS)),
        tool=draw(st.sampled_from(TOOLS)),
        annotated=draw(st.integers(0, 12)) > 0,
        has_arguments=any(fact.values for fact in arguments),
        arguments=arguments,
        repository=draw(REPOSITORIES),
        targets=tuple(
            Target(fact.name, value.text, fact.roles, origin)
            for (fact, value), origin in zip(named, origins, strict=False)
        ),
    )


Set = TypeVar("Set", bound=str)


def _sets(items: tuple[Set, ...], least: int, most: int) -> st.SearchStrategy[frozenset[Set]]:
    """Each size as often. One draw takes a third of the time of one for each member."""
    return st.sampled_from(_all_sets(items, least, most))


def _maybe(items: tuple[Set, ...], most: int) -> st.SearchStrategy[frozenset[Set] | None]:
    """A set of at least one; twice as often none."""
    found = _all_sets(items, 1, most)
    return st.sampled_from([None] * (2 * len(found)) + found)


def _all_sets(items: tuple[Set, ...], least: int, most: int) -> list[frozenset[Set]]:
    distinct = tuple(dict.fromkeys(items))
    sizes = [list(combinations(distinct, size)) for size in range(least, most + 1)]
    longest = max(map(len, sizes))
    return [frozenset(one) for sets in sizes for one in islice(cycle(sets), longest)]


KINDS = ("plain", "plain", "plain", "paths", "paths", "domains", "lists", "names", "sql", "namedBy")
EFFECTS: st.SearchStrategy[Effect] = st.sampled_from(("allow", "allow", "escalate", "deny"))
PLACES = st.sampled_from([RealPath.from_text(text) for text in DIRECTORIES])
SOME_PATH_ROLES, SOME_URL_ROLES = _sets(PATH_ROLES, 1, 3), _sets(URL_ROLES, 1, 2)
MAYBE_ROLES = {roles: _maybe(roles, 3) for roles in (ROLES, PATH_ROLES)} | {
    URL_ROLES: _maybe(URL_ROLES, 2)
}
MAYBE_SERVERS, MAYBE_TOOLS = _maybe(SERVERS, 2), _maybe(TOOLS, 2)
ALLOWED_DOMAINS = _sets(PATTERNS, 0, 3)
MATCHING, UNLESS = _sets(FILE_NAMES, 0, 2), _sets(FILE_NAMES, 0, 1)
SOME_FILE_NAMES, SOME_PATTERNS = _sets(FILE_NAMES, 1, 2), _sets(PATTERNS, 0, 2)
TARGETS: tuple[ArgumentRole, ...] = ("read-path", "fetch-url", "email-address", "github-owner")
SOME_TARGET_ROLES = _sets(TARGETS, 1, 2)
NAMED = _sets(NAMED_BY, 0, 3)
LISTS = st.lists(
    st.builds(
        ListCondition,
        roles=_sets((*NAME_ROLES, "email-address"), 1, 3),
        allowed=_sets(ENTRIES, 0, 3),
        kind=st.sampled_from(("emails", "identifiers")),
    )
    | st.builds(
        ListCondition, roles=SOME_URL_ROLES, allowed=ALLOWED_DOMAINS, kind=st.just("domains")
    ),
    min_size=1,
    max_size=2,
).map(tuple)


@st.composite
def rules(draw: st.DrawFn, name: str) -> Rule:
    """One rule; most have one or two conditions."""
    kind = draw(st.sampled_from(KINDS))
    roles = {"paths": PATH_ROLES, "names": PATH_ROLES, "domains": URL_ROLES}.get(kind, ROLES)
    return Rule(
        name=name,
        effect=draw(EFFECTS),
        reason=f"because {name}",
        roles=draw(MAYBE_ROLES[roles]),
        servers=draw(MAYBE_SERVERS),
        tools=draw(MAYBE_TOOLS),
        paths=PathCondition(roles=draw(SOME_PATH_ROLES), within=draw(PLACES))
        if kind == "paths" or (kind == "names" and draw(st.booleans()))
        else None,
        names=NameCondition(
            roles=draw(SOME_PATH_ROLES), matching=draw(MATCHING), unless=draw(UNLESS)
        )
        if kind == "names"
        else None,
        excepting=ExceptingNames(
            roles=frozenset(PATH_ROLES), matching=draw(SOME_FILE_NAMES), unless=draw(UNLESS)
        )
        if kind == "paths" and draw(st.booleans())
        else None,
        domains=DomainCondition(roles=draw(SOME_URL_ROLES), allowed=draw(ALLOWED_DOMAINS))
        if kind == "domains"
        else None,
        sql=draw(st.sampled_from(("reads", "writes", "destroys"))) if kind == "sql" else None,
        lists=draw(LISTS) if kind == "lists" else (),
        namedBy=NamedByCondition(roles=draw(SOME_TARGET_ROLES), by=draw(NAMED))
        if kind == "namedBy"
        else None,
        everywhere=draw(st.sampled_from((False, False, True))),
    )


@st.composite
def layered_policies(draw: st.DrawFn) -> Policy:
    """A policy of several layers."""
    count = draw(st.integers(1, 2))
    added = tuple(draw(floors(f"floor{i}")) for i in range(count))
    return replace(draw(policies()), floors=added)


@st.composite
def floors(draw: st.DrawFn, name: str) -> Floor:
    """A layer that only restricts, of up to three rules."""
    count = draw(st.integers(1, 3))
    return Floor(
        rules=tuple(draw(rules(f"{name}-rule{i}")) for i in range(count)), asks=draw(st.booleans())
    )


@st.composite
def policies(draw: st.DrawFn) -> Policy:
    """A policy of up to eight rules over the same small world."""
    count = draw(st.integers(0, 6))
    workspace = draw(st.sampled_from((None, "/work", "/work", "/work/sub")))
    protected = draw(st.lists(st.sampled_from(DIRECTORIES[3:]), max_size=1))
    exempt = RealPath.from_text(workspace) if workspace is not None else None
    return Policy(
        rules=tuple(draw(rules(f"rule{i}")) for i in range(count)),
        workspace=exempt,
        protected_paths=tuple(
            ProtectedPath(
                path=RealPath.from_text(text),
                unless_within=exempt if draw(st.booleans()) else None,
                anchored=draw(st.booleans()),
            )
            for text in protected
        ),
        protected_names=(
            ProtectedName(
                parts=draw(st.sampled_from(((".git", "hooks"), (".git",), ("w*", "su*")))),
                roles=frozenset({"write-path"}),
                whole=draw(st.booleans()),
            ),
        )
        if draw(st.booleans())
        else (),
        domain_allowlists={"web": draw(SOME_PATTERNS)},
        unknown_tools=draw(st.sampled_from(("deny", "ask"))),
        trusted_servers=frozenset({"web"}) if draw(st.integers(0, 9)) == 0 else frozenset(),
    )
