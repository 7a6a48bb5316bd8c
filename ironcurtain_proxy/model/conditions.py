"""The conditions of rules: each kind is one class.

Theory of operation. A rule holds for a call if all its conditions do. Some conditions speak of the
call as a whole (hosts, lists, SQL): `holds`. Others speak of one value at a time (paths, names,
URIs), so that two paths of one call can be answered by two rules: `covers`. A condition on zero
values does not hold: vacuous truth must not make a rule apply to values that were never examined.

    paths:  {roles: [read-path], within: /srv}     covers(/srv/a) is True
    lists:  [{roles: [github-owner], …}]           holds(request, "github-owner")

To add a kind, write a class here with its key, its reading and its words, add it to
`VALUE_CONDITIONS`, and give `Rule` a field of its name. Matching, explanation, printing and the
checks of a policy take it from there.
"""

# ruff: noqa: D102  The base class says what each method of a kind does.

import re
from collections.abc import Collection, Iterable, Iterator
from functools import lru_cache
from typing import ClassVar, Final, Literal, TypeAlias, get_args

from msgspec import Struct, field, structs

from ironcurtain_proxy.credentials import compiled
from ironcurtain_proxy.model.annotation import (
    IGNORES_CASE,
    ROLE_TRAITS,
    URL_ROLES,
    ArgumentRole,
    in_one_case,
)
from ironcurtain_proxy.model.condition_reading import (
    ConditionReader,
    ConditionSpot,
    host_matches,
    host_patterns,
    read_patterns,
    read_roles,
    read_scheme,
    read_uri,
)
from ironcurtain_proxy.model.request import (
    NAMED_BY,
    TEXT_ROLES,
    AccessRequest,
    NamedBy,
    PathValue,
    SqlValue,
    TextValue,
    UrlValue,
    Value,
)
from ironcurtain_proxy.model.values import Json, RealPath, SqlEffect, is_at_most, lazy

ListComparison: TypeAlias = Literal["domains", "emails", "identifiers"]
"""The comparison of list entries: as host patterns, or as text without regard to case."""

SqlBound: TypeAlias = Literal["reads", "writes", "destroys"]
"""The effects that a condition may name. `runs` would bound nothing, so it is left out."""

_RoleSet: TypeAlias = frozenset[ArgumentRole]


def values_of(request: AccessRequest, roles: Iterable[ArgumentRole]) -> list[Value]:
    """Return the values of all arguments with one of the roles, in annotation order."""
    facts = [fact for fact in request.arguments if not {*fact.roles}.isdisjoint(roles)]
    return [value for fact in facts for value in fact.values]


def leads_only_to(value: Value, allowed: frozenset[str]) -> bool:
    """Return whether all hosts of a value are allowed. A value that is no URL stands for itself."""
    domains = value.domains if isinstance(value, UrlValue) else (value.text,)
    if isinstance(value, UrlValue) and not value.ordinary:
        allowed -= {"*"}
    return bool(domains) and not [one for one in domains if not host_matches(one, allowed)]


class _Written(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """A condition as it stands in `compiled-policy.json`: its keys and their types."""

    @classmethod
    def keys(cls) -> tuple[str, ...]:
        return cls.__struct_encode_fields__


class PathsWritten(_Written, frozen=True, kw_only=True):
    """A directory that the paths of these roles lie in."""

    roles: tuple[ArgumentRole, ...]
    within: str
    """Absolute, below `~/`, or `@workspace`."""


class NamesWritten(_Written, frozen=True, kw_only=True):
    """Names of files, such as `.env`, `*.pem` or `@secrets`."""

    roles: tuple[ArgumentRole, ...]
    matching: tuple[str, ...]
    unless: tuple[str, ...] = ()
    """Names that are exempt although `matching` describes them."""


class DomainsWritten(_Written, frozen=True, kw_only=True):
    """Hosts that the URLs of these roles lead to."""

    roles: tuple[ArgumentRole, ...]
    allowed: tuple[str, ...]
    """Hosts, `*.host`, `host/path`, or the `@name` of a list."""


class ListWritten(_Written, frozen=True, kw_only=True):
    """A list that every value of these roles is on."""

    roles: tuple[ArgumentRole, ...]
    allowed: tuple[str, ...]
    """Entries, or the `@name` of a list."""
    match_type: ListComparison


class UrisWritten(_Written, frozen=True, kw_only=True):
    """Resources that are neither files nor URLs."""

    schemes: tuple[str, ...] = ()
    """Schemes in lower case: everything that their server has."""
    patterns: tuple[str, ...] = ()
    """Whole URIs, in which `*` stands for any text."""


class NamedByWritten(_Written, frozen=True, kw_only=True):
    """Who named the targets of these roles."""

    roles: tuple[ArgumentRole, ...]
    by: tuple[NamedBy, ...]
    """Of several targets, the one that the least speaks for counts."""


class Condition(Struct, frozen=True, kw_only=True):
    """One condition of a rule. What is said here holds for a kind that says nothing else."""

    key: ClassVar[str]
    """Its name in `compiled-policy.json`."""
    written: ClassVar[object]
    """The type of its value there, for the JSON Schema of a policy."""
    is_of_value: ClassVar[bool] = False
    """Whether it is held against one value at a time."""
    narrows: ClassVar[bool] = True
    """Whether a rule with it alone is about less than everything."""
    settles: ClassVar[bool] = False
    """Whether a rule with it settles all that it speaks of, so that no later rule is asked."""

    @property
    def about(self) -> _RoleSet:
        """The argument roles that the condition is about."""
        raise NotImplementedError

    @property
    def named(self) -> _RoleSet:
        """The roles that the operator wrote into the condition."""
        return frozenset()

    def holds(self, _request: AccessRequest, _role: ArgumentRole | None) -> bool:
        """Return whether it holds for the values of a role, or of its own roles for None."""
        return True

    def covers(self, _value: Value) -> bool:
        """Return whether it holds for one value."""
        return True

    def holds_unseen(self, _request: AccessRequest, _role: ArgumentRole | None) -> bool:
        """Return whether a condition on single values holds where the role has none."""
        return False

    def may_hold(self, _role: ArgumentRole | None, _roles: _RoleSet) -> bool:
        """Return whether it may hold for a tool with these roles, when asked about one of them.

        A role of None stands for a tool without resource roles, which has no paths and no URLs.
        """
        return _role is not None

    def why_not(self) -> str:
        """Say why it does not hold: a clause about the rule, or about a path."""
        raise NotImplementedError

    def as_json(self) -> Json:
        """Return the condition as it stands in `compiled-policy.json`: its fields by their keys."""
        return {
            key: [*sorted(value)] if isinstance(value, frozenset) else str(value)
            for key, value in self._members()
        }

    def _members(self) -> Iterator[tuple[str, object]]:
        yield from zip(self.__struct_encode_fields__, structs.astuple(self), strict=True)

    def words(self) -> str:
        """Describe the condition in one line for people."""
        raise NotImplementedError

    def collections(self) -> Iterator[tuple[str, Collection[str]]]:
        """Yield the collections that match nothing where they are empty, with their keys."""
        for key, value in self._members():
            if isinstance(value, frozenset) and key != "unless":
                yield key, value


class _OfRoles(Condition, frozen=True, kw_only=True):
    """A condition on arguments of some roles."""

    roles: _RoleSet

    @property
    def about(self) -> _RoleSet:
        return self.roles

    @property
    def named(self) -> _RoleSet:
        return self.roles


class PathCondition(_OfRoles, frozen=True, kw_only=True):
    """Every path of these roles lies within a directory."""

    key: ClassVar[str] = "paths"
    written: ClassVar[object] = PathsWritten
    is_of_value: ClassVar[bool] = True
    settles: ClassVar[bool] = True

    within: RealPath

    def covers(self, value: Value) -> bool:
        return isinstance(value, PathValue) and value.path.is_within(self.within)

    def holds_unseen(self, request: AccessRequest, role: ArgumentRole | None) -> bool:
        values = values_of(request, self.roles if role is None else (role,))
        return bool(values) and all(map(self.covers, values))

    def why_not(self) -> str:
        return f"is within {self.within}"

    def words(self) -> str:
        return f"within {self.within}"

    @classmethod
    def read(cls, node: "ConditionSpot", reader: "ConditionReader") -> "PathCondition":
        """Read the condition."""
        members = node.object(PathsWritten.keys())
        return cls(
            roles=read_roles(members.required("roles")),
            within=reader.directory(members.required("within")),
        )


class NameCondition(_OfRoles, frozen=True, kw_only=True):
    """Every path of these roles has a name that one of the patterns describes.

    Such a rule that escalates or denies is evaluated before the workspace settles any path, so
    that a file of that name is asked about wherever it lies.
    """

    key: ClassVar[str] = "names"
    written: ClassVar[object] = NamesWritten
    is_of_value: ClassVar[bool] = True

    matching: frozenset[str]
    """The last names of a path, such as `.env`, `*.pem` or `.aws/credentials`, in lower case. `*`
    stands for any part of one name. Empty matches nothing.
    """
    unless: frozenset[str] = frozenset()
    """Names that are exempt although `matching` describes them."""

    def covers(self, value: Value) -> bool:
        """Return whether the name of a path, or of the link it came from, is described."""
        if not isinstance(value, PathValue):
            return False
        places = [value.path] if value.link is None else [value.path, value.link]
        return any(self._describes(place) for place in places)

    def _describes(self, path: RealPath) -> bool:
        text = str(path)
        return compiled(self.matching).match(text) and not compiled(self.unless).match(text)

    def why_not(self) -> str:
        return "has a name that it is about"

    def words(self) -> str:
        return f"named like {len(self.matching)} patterns"

    @classmethod
    def read(cls, node: "ConditionSpot", reader: "ConditionReader") -> "NameCondition":
        """Read the condition."""
        members = node.object(NamesWritten.keys())
        roles = read_roles(members.required("roles"))
        exempt = members.read("unless", read_patterns, frozenset())
        matching, unless = reader.names(members.required("matching").items(), exempt)
        return cls(roles=roles, matching=matching, unless=unless)


class ExceptingNames(NameCondition, frozen=True, kw_only=True):
    """No path has a name that one of the patterns describes, whatever its role.

    A path that has one is left to later rules. The short form alone can say this (`except`), so
    the reader of the long form refuses the key.
    """

    key: ClassVar[str] = "except"
    narrows: ClassVar[bool] = False

    @property
    def about(self) -> _RoleSet:
        return _EVERY_ROLE

    @property
    def named(self) -> _RoleSet:
        return frozenset()

    def covers(self, value: Value) -> bool:
        return not NameCondition.covers(self, value)

    def holds_unseen(self, _request: AccessRequest, _role: ArgumentRole | None) -> bool:
        return True

    def may_hold(self, _role: ArgumentRole | None, _roles: _RoleSet) -> bool:
        return True

    def why_not(self) -> str:
        return "leaves out files that usually hold secrets, or whose names it says"

    def words(self) -> str:
        return f"except {len(self.matching)} patterns"

    def collections(self) -> Iterator[tuple[str, Collection[str]]]:
        yield from ()


class DomainCondition(_OfRoles, frozen=True, kw_only=True):
    """Every URL of these roles leads to an allowed host."""

    key: ClassVar[str] = "domains"
    written: ClassVar[object] = DomainsWritten

    allowed: frozenset[str]
    """`host`, `*.host`, `host/path` or `*`; hosts in lower case. Empty matches nothing."""

    def holds(self, request: AccessRequest, role: ArgumentRole | None) -> bool:
        roles = self.roles if role is None else {role}
        values = values_of(request, roles & URL_ROLES)
        return bool(values) and not [one for one in values if not leads_only_to(one, self.allowed)]

    def why_not(self) -> str:
        return "a URL leads to a host that it does not name"

    def words(self) -> str:
        return f"hosts {', '.join(sorted(self.allowed))}"

    @classmethod
    def read(cls, node: "ConditionSpot", reader: "ConditionReader") -> "DomainCondition":
        """Read the condition."""
        members = node.object(DomainsWritten.keys())
        return cls(
            roles=read_roles(members.required("roles")),
            allowed=reader.hosts(members.required("allowed").items()),
        )


class ListCondition(_OfRoles, frozen=True, kw_only=True):
    """Every value of these roles is on a list."""

    key: ClassVar[str] = "lists"
    written: ClassVar[object] = tuple[ListWritten, ...]

    allowed: frozenset[str]
    """Entries as written (of `host/path` the host in lower case), with `@lists` expanded. Empty
    matches nothing."""
    kind: ListComparison = field(name="matchType")

    def holds(self, request: AccessRequest, role: ArgumentRole | None) -> bool:
        """Return whether every value is on the list.

        A rule on pairs (owner and repository) is evaluated for each of the two roles: the condition
        that names the role is held against that role, the others against theirs.
        """
        roles = (role,) if role is not None and role in self.roles else self.roles
        return bool(values_of(request, roles)) and all(
            self._lists(value, one) for one in roles for value in values_of(request, (one,))
        )

    def _lists(self, value: Value, role: ArgumentRole) -> bool:
        if self.kind == "domains":
            return leads_only_to(value, self.allowed)
        if role in IGNORES_CASE:
            return in_one_case(value.text) in _folded(self.allowed)
        return value.text in self.allowed

    def may_hold(self, role: ArgumentRole | None, roles: _RoleSet) -> bool:
        return role in self.roles or not self.roles.isdisjoint(roles)

    def why_not(self) -> str:
        return f"a value of {', '.join(sorted(self.roles))} is not on its list"

    def words(self) -> str:
        return f"{self.kind} {', '.join(sorted(self.allowed))}"

    @classmethod
    def read(cls, node: "ConditionSpot", reader: "ConditionReader") -> "tuple[ListCondition, ...]":
        """Read the lists of a rule."""
        return node.each(lambda one: cls._read_one(one, reader))

    @classmethod
    def _read_one(cls, node: "ConditionSpot", reader: "ConditionReader") -> "ListCondition":
        members = node.object(ListWritten.keys())
        kind = members.required("matchType").word(_LIST_KINDS)
        entries = reader.entries(members.required("allowed").items())
        return cls(
            roles=read_roles(members.required("roles")),
            allowed=host_patterns(entries) if kind == "domains" else frozenset(entries),
            kind=kind,
        )


class SqlCondition(Condition, frozen=True, kw_only=True):
    """Every text of the role `sql` does at most this: `writes` covers what reads, too."""

    key: ClassVar[str] = "sql"
    written: ClassVar[object] = SqlBound

    bound: SqlEffect

    @property
    def about(self) -> _RoleSet:
        return _SQL

    def holds(self, request: AccessRequest, _role: ArgumentRole | None) -> bool:
        values = values_of(request, _SQL)
        return bool(values) and all(
            isinstance(value, SqlValue) and is_at_most(value.effect, self.bound) for value in values
        )

    def why_not(self) -> str:
        return f"the SQL does more than the rule is about ({self.bound})"

    def as_json(self) -> Json:
        return self.bound

    def words(self) -> str:
        return f"SQL that at most {self.bound}"

    @classmethod
    def read(cls, node: "ConditionSpot", _reader: "ConditionReader") -> SqlEffect:
        """Read the most that the texts may do."""
        return node.word(_SQL_BOUNDS)


class UriCondition(Condition, frozen=True, kw_only=True):
    """Every URI is of one of these schemes, or one of the patterns describes it.

    A scheme stands for everything that its server has. A pattern with `*` stands for no URI that a
    server may read as another one: `note://a/../b` and `note://a/%2e%2e/b` are described by none.
    """

    key: ClassVar[str] = "uris"
    written: ClassVar[object] = UrisWritten
    is_of_value: ClassVar[bool] = True

    schemes: frozenset[str] = frozenset()
    """The schemes in lower case, without the colon."""
    patterns: frozenset[str] = frozenset()
    """Whole URIs; `*` stands for any text. Empty, with no scheme either, matches nothing."""

    @property
    def about(self) -> _RoleSet:
        return _URI

    def covers(self, value: Value) -> bool:
        if not isinstance(value, TextValue):
            return False
        text = value.text
        if text in self.patterns or text.partition(":")[0] in self.schemes:
            return True
        stars = [pattern for pattern in self.patterns if "*" in pattern]
        matches = any(_uri_pattern(one).fullmatch(text) for one in stars)
        return matches and not _AMBIGUOUS.search(text)

    def why_not(self) -> str:
        return "it describes no such URI"

    def words(self) -> str:
        schemes = [f"{scheme}:*" for scheme in sorted(self.schemes)]
        return f"resources {', '.join([*schemes, *sorted(self.patterns)])}"

    def collections(self) -> Iterator[tuple[str, Collection[str]]]:
        yield from ()

    @classmethod
    def read(cls, node: "ConditionSpot", _reader: "ConditionReader") -> "UriCondition":
        """Read the condition."""
        members = node.object(UrisWritten.keys())
        return cls(
            schemes=frozenset(members.read("schemes", lambda inner: inner.each(read_scheme), ())),
            patterns=frozenset(members.read("patterns", lambda inner: inner.each(read_uri), ())),
        )


class NamedByCondition(_OfRoles, frozen=True, kw_only=True):
    """The target of these roles that the least speaks for was named by one of these.

    So a value that the user named does not vouch for another one beside it: a rule that allows
    needs all of them named, and a rule that asks needs one that is not.
    """

    key: ClassVar[str] = "namedBy"
    written: ClassVar[object] = NamedByWritten

    by: frozenset[NamedBy]
    """Empty matches nothing."""

    def holds(self, request: AccessRequest, role: ArgumentRole | None) -> bool:
        roles = frozenset((role,)) if role in self.roles else self.roles
        words = [one.named_by for one in request.targets if not roles.isdisjoint(one.roles)]
        if not words and values_of(request, roles - TEXT_ROLES):
            # Where nobody looked, nobody is known to have named it.
            words = ["nobody"]
        return max(words, key=NAMED_BY.index, default=None) in self.by

    def why_not(self) -> str:
        return "somebody else named a target, or nobody did"

    def words(self) -> str:
        return f"named by {', '.join(sorted(self.by))}"

    @classmethod
    def read(cls, node: "ConditionSpot", _reader: "ConditionReader") -> "NamedByCondition":
        """Read the condition."""
        members = node.object(NamedByWritten.keys())
        by = members.required("by").each(lambda one: one.word(NAMED_BY))
        return cls(roles=read_roles(members.required("roles")), by=frozenset(by))


VALUE_CONDITIONS: Final = (
    PathCondition, NameCondition, DomainCondition, ListCondition, SqlCondition, UriCondition,
    NamedByCondition,
)  # fmt: skip
"""The kinds that a rule of `compiled-policy.json` may have, in the order in which they are asked.
`ExceptingNames` is of the short form alone."""

_SQL: Final[_RoleSet] = frozenset({"sql"})
_URI: Final[_RoleSet] = frozenset({"resource-uri"})
_EVERY_ROLE: Final[_RoleSet] = frozenset(ROLE_TRAITS)
_LIST_KINDS: Final[tuple[ListComparison, ...]] = get_args(ListComparison)
_SQL_BOUNDS: Final[tuple[SqlEffect, ...]] = get_args(SqlBound)


_AMBIGUOUS: Final = lazy(r"(?:^|[/:])\.\.?(?:[/?#]|$)|%(?:2[ef]|5c|00|25)|\\", re.IGNORECASE)


@lru_cache(maxsize=256)
def _uri_pattern(pattern: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, pattern.split("*"))), re.DOTALL)


@lru_cache(maxsize=256)
def _folded(entries: frozenset[str]) -> frozenset[str]:
    """Return entries in lower case, for roles that ignore case."""
    return frozenset(map(in_one_case, entries))
