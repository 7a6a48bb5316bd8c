"""The patterns that a reviewer may remember of one call, and whether one covers another call.

A pattern is as narrow as is useful: the named directory, not its parent; the host of a remote, not
its name; and every argument that changes the call's effect, unchanged. A call without such a
pattern cannot be remembered. A grant settles escalations of its own kind only, and is void when its
tool's definition changes.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Final, assert_never

from msgspec import Struct
from msgspec.structs import replace

from ironcurtain_proxy.model.annotation import (
    IGNORES_CASE,
    PATH_ROLES,
    RESOURCE_ROLES,
    ROLE_TRAITS,
    ArgumentRole,
    ToolsAlike,
    in_one_case,
    same_scalar,
)
from ironcurtain_proxy.model.escalation import as_json, visible
from ironcurtain_proxy.model.grant import (
    NOTHING_OPENED,
    CallPattern,
    CapabilityPattern,
    Constraint,
    ExactValue,
    FamilyPattern,
    Grant,
    GrantPattern,
    OnHost,
    Pattern,
    SameFlag,
    SandboxOpening,
    ToolPattern,
    WithinDirectory,
)
from ironcurtain_proxy.model.request import (
    NOWHERE,
    AccessRequest,
    ArgumentFact,
    CommandPlace,
    ParsedCommand,
    PathValue,
    SqlValue,
    TextValue,
    UrlValue,
    Value,
)
from ironcurtain_proxy.model.values import Arguments, Json, RealPath, lazy, words

HISTORY: Final[frozenset[ArgumentRole]] = frozenset({"write-history", "delete-history"})
"""Never remembered."""

PINNED: Final[frozenset[ArgumentRole]] = frozenset(
    {"branch-name", "email-address", "share-permission"}
)
"""Opaque roles that determine the target of a call: such an argument is remembered unchanged."""

FLAGS: Final = frozenset(
    {"access", "action", "all", "amend", "append", "command", "confirm", "confirmed", "delete"}
    | {"directories", "dryrun", "event", "force", "forcewithlease", "hard", "ignored", "keepindex"}
    | {"mergemethod", "method", "mirror", "mode", "noverify", "op", "operation", "overwrite"}
    | {"permission", "permissions", "private", "prune", "public", "rebase", "recursive", "replace"}
    | {"scope", "setupstream", "state", "strategy", "subcommand", "tags", "verb", "visibility"}
)
"""Arguments of any type that change a call's effect, in lower case without `_` and `-`. Every
argument that is true or false counts, too."""
_STEERS: Final = lazy(
    r"(?:\A|[_-]|(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z]))"
    r"(?i:actions?|command|method|mode|op|operation|permissions?|verb|visibility)(?![a-z])"
)
"""Words that make an argument one of these wherever they stand in its name: `http_method`."""


class EscalatedCall(Struct, frozen=True, kw_only=True):
    """A call that needs an approval, as grants see it."""

    server: str
    """The operator's name."""
    tool: str
    definition: str
    """SHA-256 of the tool's current definition, or empty if it is unknown."""
    request: AccessRequest
    arguments: Arguments
    roles: tuple[ArgumentRole, ...]
    """The roles that escalated. It is empty if the rule was not about a role, so all of them
    count."""
    command: ParsedCommand | None = None
    """The shell command in the arguments, if any."""
    place: CommandPlace = NOWHERE
    """The place of that command."""
    held: bool = False
    """A sandbox holds the local parts of the command, and the timeline can undo them."""
    opening: SandboxOpening | None = None
    """The access beyond the sandbox that the call needs and that an approval must name."""
    goes_by_name: bool = False
    """A rule asks about a file of the call by its name, such as `.env`: only an approval of that
    very path covers it."""

    @property
    def open_roles(self) -> tuple[ArgumentRole, ...]:
        """The roles that an approval must cover, each once."""
        if self.roles:
            return tuple(dict.fromkeys(self.roles))
        found = (role for fact in self.request.arguments for role in fact.roles)
        return tuple(dict.fromkeys(role for role in found if role in RESOURCE_ROLES))

    def values(self, role: ArgumentRole) -> tuple[Value, ...]:
        """Return every value that has the role."""
        return tuple(
            value for fact in self.request.arguments if role in fact.roles for value in fact.values
        )

    def flags(self) -> tuple[str, ...]:
        """Return the arguments that change the call's effect, present or omitted."""
        annotated = {fact.name: fact.roles for fact in self.request.arguments}
        names = dict.fromkeys((*annotated, *self.arguments))
        return tuple(
            name
            for name in names
            if isinstance(self.arguments.get(name), bool)
            or _steers(name, self.arguments.get(name))
            or not PINNED.isdisjoint(annotated.get(name, ()))
        )


class Places(Struct, frozen=True, kw_only=True):
    """The knowledge about paths that patterns need."""

    directories: frozenset[RealPath]
    """The paths of the call that are, or may be, directories."""
    home: RealPath | None = None
    protected: tuple[RealPath, ...] = ()
    """Never part of a pattern; neither is a directory that contains one."""
    ending: str = ""
    """The end of the grant, in words, or empty if it is unknown."""
    alone: bool = False
    """Whether only the paths themselves are remembered, never their directories."""

    def constraints(self, role: ArgumentRole, path: RealPath) -> tuple[Constraint, ...]:
        """Return the constraints of one path.

        For a file its directory's content, for a directory itself and its content; where that would
        be too much, the path alone.
        """
        is_directory = path in self.directories
        directory = path if is_directory else RealPath(path.parts[:-1])
        itself = ExactValue(role, str(path))
        if self.alone or not directory.parts or self._holds_too_much(directory):
            return (itself,)
        below = WithinDirectory(role, directory)
        return (itself, below) if is_directory else (below,)

    def _holds_too_much(self, directory: RealPath) -> bool:
        """Return whether a directory is the system's, a home, or holds one or a protected path."""
        home = self.home
        closed = self.protected if home is None else (*self.protected, home)
        if any(path.is_within(directory) for path in closed):
            return True
        parts = directory.parts
        if home is not None and directory.is_within(home):
            # `~/.config` and its like steer programs and hold credentials.
            return len(parts) == len(home.parts) + 1 and parts[-1].startswith(".")
        return (
            parts[0] in _OF_THE_SYSTEM
            or parts in _SHARED
            or (parts[0] in _HOMES and len(parts) <= 2)  # noqa: PLR2004  /home/NAME
            or (parts[0] in _HOMES and parts[2].startswith(".") and len(parts) == 3)  # noqa: PLR2004
        )


_OF_THE_SYSTEM: Final = frozenset(
    {"etc", "boot", "dev", "proc", "sys", "run", "bin", "sbin", "lib", "lib32", "lib64", "root",
     "System", "Library"}
)  # fmt: skip
"""Top directories that are the system's with all that lies below them."""
_SHARED: Final = frozenset(
    tuple(path.split("/"))
    for path in words(
        """
        usr usr/bin usr/sbin usr/lib usr/lib64 usr/libexec usr/share usr/include usr/src usr/etc
        usr/local usr/local/bin usr/local/sbin usr/local/lib usr/local/etc usr/local/share var
        var/lib var/log var/run var/spool var/cache var/mail var/tmp var/www opt srv mnt media
        Volumes Applications nix nix/store snap private private/etc private/var private/tmp
        """
    )
)
"""Directories of which only a part belongs to one matter."""
_HOMES: Final = frozenset({"home", "Users"})


_MOST_ALIKE: Final = 12
"""The most other tools that a question names. Nobody reads a list of hundreds."""


def candidates(
    call: EscalatedCall, places: Places, alike: ToolsAlike = MappingProxyType({})
) -> tuple[GrantPattern, ...]:
    """Return the candidates of a call: one pattern, or none if it cannot be remembered.

    Args:
        call: what is asked.
        places: what is known of its paths.
        alike: other tools of the server that the pattern may be of, too.
    """
    constraints = _constraints(call, replace(places, alone=call.goes_by_name))
    if constraints is None or not call.definition:
        return ()
    # INVARIANT: of a place that the call left out, no other tool is approved by the way.
    is_named = all(map(call.values, call.open_roles))
    of_tools = {call.tool: (call.definition, constraints)}
    also = alike if is_named and len(alike) <= _MOST_ALIKE else {}
    for tool, (definition, roles) in also.items():
        held = tuple([one for one in constraints if isinstance(one, SameFlag) or one.role in roles])
        if not all(isinstance(one, SameFlag) for one in held):
            of_tools[tool] = (definition, held)
    whole = " and ".join(", ".join(of_tools).rsplit(", ", 1))
    made = [
        GrantPattern(
            server=call.server,
            tool=tool,
            definition=of_tools[tool][0],
            constraints=(held := of_tools[tool][1]),
            description=describe(call.server, said, held, home=places.home, ending=places.ending),
        )
        for said, tool in ((whole, call.tool), *zip(of_tools, of_tools, strict=True))
    ]
    return (replace(made[0], parts=tuple(made[1:] if len(of_tools) > 1 else ())),)


def describe(
    server: str,
    tool: str,
    constraints: tuple[Constraint, ...],
    *,
    home: RealPath | None = None,
    ending: str = "",
) -> str:
    """Return a pattern in one line, everything in it visible: parts of it are the agent's words.

    `Let edit_file change files below ~/other until this session ends (server files)`

    Args:
        server: the operator's name.
        tool: the server's name of it.
        constraints: what holds.
        home: is written `~`.
        ending: until when, if that is sure.
    """
    doing = ", ".join(_phrases(constraints, home))
    flags = [found for found in constraints if isinstance(found, SameFlag)]
    detail = [f"server {server}"]
    detail += [f"{one.argument}={_short(one.value)}" for one in flags if one.value is not None]
    if absent := [one.argument for one in flags if one.value is None]:
        detail.append(f"without {' or '.join(absent)}")
    return visible(f"Let {tool} {doing}{f' {ending}' if ending else ''} ({', '.join(detail)})")


_DOES: Final[Mapping[str, str]] = MappingProxyType(
    {"read-path": "read", "write-path": "change", "delete-path": "delete"}
)
_USES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "fetch-url": "fetch from",
        "git-remote-url": "use the git remote",
        "github-owner": "use the GitHub owner",
        "github-repo": "use the GitHub repository",
    }
)


def _phrases(constraints: tuple[Constraint, ...], home: RealPath | None) -> list[str]:
    """Return the allowed actions as phrases, grouped by place."""
    places: dict[str, list[str]] = {}
    others: list[str] = []
    for found in constraints:
        match found:
            case WithinDirectory(role=role, directory=directory):
                place = f"files below {short_path(str(directory), home)}"
                places.setdefault(place, []).append(_DOES.get(role, role))
            case ExactValue(role=role, value=value) if role in PATH_ROLES:
                place = short_path(value, home)
                places.setdefault(place, []).append(_DOES.get(role, role))
            case OnHost(role=role, domain=name) | ExactValue(role=role, value=name):
                others.append(f"{_USES.get(role, f'use the {role}')} {name}")
            case SameFlag():
                pass
            case _:
                assert_never(found)
    return [*[f"{_verbs(does)} {place}" for place, does in places.items()], *others]


def _verbs(does: list[str]) -> str:
    # Permission to change a file includes its reading.
    names = [one for one in does if one != _DOES["read-path"] or len(set(does)) == 1]
    return " or ".join(dict.fromkeys(names))


def short_path(path: str, home: RealPath | None) -> str:
    """Return a path as a person writes it: below the home with `~`."""
    inside = None if home is None or not home.parts else f"{home}/"
    return f"~/{path.removeprefix(inside)}" if inside and path.startswith(inside) else path


def _constraints(call: EscalatedCall, places: Places) -> tuple[Constraint, ...] | None:
    named = _of_roles(call, places)
    if not named or ("git-remote-url" in call.open_roles and _has_history_only(call)):
        return None
    if "git-remote-url" in call.open_roles:
        named.update(dict.fromkeys(_of_repository(call, places)))
    left_out = (
        fact.name
        for role in call.open_roles
        if not call.values(role)
        for fact in call.request.arguments
        if role in fact.roles
    )
    # An omitted argument may have escalated; its omission is then part of the pattern.
    pinned = dict.fromkeys((*left_out, *call.flags()))
    flags = [SameFlag(name, call.arguments.get(name)) for name in pinned]
    if any(isinstance(flag.value, list | dict) for flag in flags):
        return None
    return (*named, *flags)


def _of_roles(call: EscalatedCall, places: Places) -> dict[Constraint, None]:
    """Return the constraints of the escalated values, each once.

    It is empty if they cannot be remembered.
    """
    found: dict[Constraint, None] = {}
    for role in call.open_roles:
        if role in HISTORY or role not in RESOURCE_ROLES:
            return {}
        for value in call.values(role):
            constraints = _of_value(role, value, places)
            if not constraints:
                return {}
            found.update(dict.fromkeys(constraints))
    return found


def _of_value(role: ArgumentRole, value: Value, places: Places) -> tuple[Constraint, ...]:
    """Return the constraints of one value, or empty if it cannot be remembered."""
    match (ROLE_TRAITS[role].category, value):
        case ("path", PathValue(path=path)):
            return places.constraints(role, path)
        case ("url", UrlValue(domains=domains, ordinary=True)) if domains and all(domains):
            return tuple([OnHost(role, place) for place in places_of(role, value)])
        case ("identifier", TextValue(text=text)) if text:
            return (ExactValue(role, in_one_case(text) if role in IGNORES_CASE else text),)
        case _:
            return ()


def places_of(role: ArgumentRole, value: UrlValue) -> tuple[str, ...]:
    """Return the target of a URL as narrowly as it is remembered, or empty if it is unknown.

    The scheme and the port of a URL count: another port is another service, and others can read
    what goes by http. For a git remote, git says where it leads, and the repository counts, too.
    """
    if role == "git-remote-url":
        return value.domains
    found = _ORIGIN.match(value.text)
    if found is None:
        return ()
    return tuple([f"{found[1].lower()}://{domain}{found[2]}" for domain in value.domains])


_ORIGIN: Final = lazy(
    r"([A-Za-z][A-Za-z0-9+.-]*)://(?:[^/?#@]*@)?(?:\[[^\]/]*\]|[^:/?#@\[\]]+)((?::[0-9]+)?)(?=[/?#]|\Z)",
    re.ASCII,
)


def _of_repository(call: EscalatedCall, places: Places) -> Iterator[Constraint]:
    """Bind an approved remote to the repository it was approved for.

    Otherwise another repository could be pushed to it unasked.
    """
    for fact in call.request.arguments:
        role = _lasting_path_role(fact)
        for value in fact.values:
            if role is not None and isinstance(value, PathValue):
                # Another repository may lie below this one, so only this directory counts.
                yield places.constraints(role, value.path)[0]


def _has_history_only(call: EscalatedCall) -> bool:
    """Return whether a path of the call has no role but those that are never remembered."""
    return any(
        _lasting_path_role(fact) is None
        for fact in call.request.arguments
        if any(isinstance(value, PathValue) for value in fact.values)
    )


def _lasting_path_role(fact: ArgumentFact) -> ArgumentRole | None:
    paths = (role for role in fact.roles if role in PATH_ROLES)
    return next((role for role in paths if role not in HISTORY), None)


def _steers(name: str, value: Json) -> bool:
    """Return whether an argument, or a member inside it, is one that changes a call's effect."""
    open_: list[tuple[str, Json]] = [(name, value)]
    while open_:
        name, value = open_.pop()
        if name.replace("_", "").replace("-", "").lower() in FLAGS or _STEERS.search(name):
            return True
        if isinstance(value, dict):
            open_ += [one for one in value.items() if one[1] is not None]
        elif isinstance(value, list):
            open_ += [("", one) for one in value]
    return False


def _short(value: Json) -> str:
    return value if isinstance(value, str) else as_json(value)


# --- matching


def covers(grant: Grant, call: EscalatedCall, now: datetime) -> bool:
    """Return whether a grant approves what the policy escalated.

    Args:
        grant: the grant.
        call: the escalated call.
        now: aware, UTC.
    """
    pattern = grant.pattern
    # INVARIANT: only a pattern approves what the policy escalated.
    if not isinstance(pattern, GrantPattern) or not is_of(pattern, call):
        return False
    # INVARIANT: the directory of a command does not determine its effect.
    if call.command is not None or has_expired(grant, now):
        return False
    flags = {found.argument: found for found in pattern.constraints if isinstance(found, SameFlag)}
    # INVARIANT: a directory that was approved for ordinary files does not open its `.env`.
    constraints = tuple(
        found
        for found in pattern.constraints
        if not (call.goes_by_name and isinstance(found, WithinDirectory))
    )
    return _flags_hold(flags, call) and _roles_hold(constraints, flags, call)


def is_of(
    pattern: GrantPattern | ToolPattern | FamilyPattern | CallPattern, call: EscalatedCall
) -> bool:
    """Return whether a pattern was approved for this tool in its current definition."""
    # INVARIANT: a tool whose definition has changed is asked about again.
    return (pattern.server, pattern.tool) == (call.server, call.tool) and (
        bool(call.definition) and pattern.definition == call.definition
    )


def has_expired(grant: Grant, now: datetime) -> bool:
    """Return whether a grant's time is over; `now` is aware, UTC."""
    return grant.expires is not None and now >= grant.expires


def names_opening(grants: Sequence[Grant], call: EscalatedCall) -> bool:
    """Return whether grants that cover a call name all that it needs beyond its sandbox."""
    needed = call.opening
    if needed is None:
        return True
    named = [one for grant in grants for one in (grant.opened, _named(grant.pattern, call))]
    return SandboxOpening(
        hosts=tuple([host for one in named for host in one.hosts]),
        paths=tuple([path for one in named for path in one.paths]),
        reads=tuple([path for one in named for path in one.reads]),
    ).names(needed)


def _named(pattern: Pattern, call: EscalatedCall) -> SandboxOpening:
    """Return the hosts and paths that the words of a pattern name in a call that it covers."""
    match pattern:
        case FamilyPattern(families=families):
            return SandboxOpening(hosts=tuple([host for one in families for host in one.hosts]))
        case GrantPattern(constraints=constraints):
            roles = {one.role for one in constraints if not isinstance(one, SameFlag)}
            values = [value for role in roles for value in call.values(role)]
            urls = [one for one in values if isinstance(one, UrlValue)]
            return SandboxOpening(
                hosts=tuple([domain.partition("/")[0] for one in urls for domain in one.domains]),
                paths=tuple([one.path for one in values if isinstance(one, PathValue)]),
            )
        case ToolPattern() | CapabilityPattern() | CallPattern():
            return NOTHING_OPENED
        case _:
            assert_never(pattern)


def _flags_hold(flags: dict[str, SameFlag], call: EscalatedCall) -> bool:
    # Both ways: no argument has changed, and none was added.
    return all(name in flags or call.arguments.get(name) is None for name in call.flags()) and all(
        same_scalar(call.arguments.get(name), flag.value) for name, flag in flags.items()
    )


def _roles_hold(
    constraints: tuple[Constraint, ...], flags: dict[str, SameFlag], call: EscalatedCall
) -> bool:
    by_role: dict[ArgumentRole, list[Constraint]] = {}
    for constraint in constraints:
        if not isinstance(constraint, SameFlag):
            by_role.setdefault(constraint.role, []).append(constraint)
    open_roles = call.open_roles
    if not by_role or not open_roles or not HISTORY.isdisjoint(open_roles):
        return False
    return all(_values_hold(call.values(role), found) for role, found in by_role.items()) and all(
        role in by_role or _is_left_out(role, flags, call) for role in open_roles
    )


def _values_hold(values: tuple[Value, ...], constraints: list[Constraint]) -> bool:
    """Return whether each value fulfils one of the constraints, and there is a value."""
    return bool(values) and all(_one_holds(value, constraints) for value in values)


def _one_holds(value: Value, constraints: list[Constraint]) -> bool:
    if isinstance(value, UrlValue):
        # A value may lead to several hosts, and reaches all of them.
        hosts = [found for found in constraints if isinstance(found, OnHost)]
        roles = {found.role for found in hosts}
        wanted = {place for role in roles for place in places_of(role, value)}
        return value.ordinary and bool(wanted) and {one.domain for one in hosts} >= wanted
    return any(_holds(value, constraint) for constraint in constraints)


def _holds(value: PathValue | SqlValue | TextValue, constraint: Constraint) -> bool:
    match (constraint, value):
        case (WithinDirectory(directory=directory), PathValue(path=path)):
            return path != directory and path.is_within(directory)
        case (ExactValue(value=wanted), PathValue(path=path)):
            return str(path) == wanted
        case (ExactValue(role=role, value=wanted), TextValue(text=text)):
            return (in_one_case(text) if role in IGNORES_CASE else text) == wanted
        case _:
            return False


def _is_left_out(role: ArgumentRole, flags: dict[str, SameFlag], call: EscalatedCall) -> bool:
    """Return whether the call omits the role's arguments, as the approved one did."""
    facts = [fact for fact in call.request.arguments if role in fact.roles]
    return bool(facts) and all(not fact.values and fact.name in flags for fact in facts)
