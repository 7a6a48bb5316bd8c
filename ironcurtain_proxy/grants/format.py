"""The encoding of kept grants.

Reading is strict: an entry counts only if this program wrote it exactly so. Each has a digest over
its content, so that entries changed by a torn write, a failing disk or an editor are ignored. The
digest is no secret: a program that may write the file can add grants.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from math import isfinite
from typing import Final, Literal, TypeAlias, cast, get_args

import orjson

from ironcurtain_proxy.grants.book import Remembered
from ironcurtain_proxy.grants.family_format import families_of, family_fields
from ironcurtain_proxy.grants.fields import (
    MalformedError,
    any_text,
    line_of,
    moment_of,
    object_of,
    path_of,
    text_of,
)
from ironcurtain_proxy.grants.patterns import HISTORY
from ironcurtain_proxy.model.annotation import ROLE_TRAITS, ArgumentRole, RoleCategory
from ironcurtain_proxy.model.boot_moment import BootMoment, boot_moment
from ironcurtain_proxy.model.grant import (
    CallPattern,
    CapabilityPattern,
    Constraint,
    ExactValue,
    FamilyPattern,
    Grant,
    GrantId,
    GrantPattern,
    OnHost,
    Pattern,
    SameFlag,
    ToolPattern,
    WithinDirectory,
)
from ironcurtain_proxy.model.json import Json
from ironcurtain_proxy.model.path import RealPath
from ironcurtain_proxy.strict_json import strict_json

KeptScope: TypeAlias = Literal["project", "user"]
"""The scope: sessions of one workspace, or all sessions of this user."""

VERSION: Final = 1
_FILE_KEYS: Final = frozenset({"version", "grants"})
_ENTRY_KEYS: Final = frozenset(
    {"id", "scope", "workspace", "policyVersion", "serverDigest", "createdAt", "expiresAt"}
    | {"uses", "lastUsed", "source", "reason", "pattern", "digest"}
)
_ENDS: Final = "expiresInBoot"
_BASIS: Final = "basis"
_LATER_KEYS: Final = frozenset({_ENDS, _BASIS})
"""Keys that are left out for unknown values, as by earlier versions."""
_TOOL_KEYS: Final = frozenset({"kind", "server", "tool", "definition", "description"})
_PATTERN_KEYS: Final = _TOOL_KEYS | {"constraints"}
_FAMILY_PATTERN_KEYS: Final = _TOOL_KEYS | {"workspace", "families", "phrases", "beside"}
_REPOSITORY: Final = "repository"
_CONSTRAINT_KEYS: Final[Mapping[str, frozenset[str]]] = {
    "within": frozenset({"kind", "role", "directory"}),
    "host": frozenset({"kind", "role", "domain"}),
    "exact": frozenset({"kind", "role", "value"}),
    "flag": frozenset({"kind", "argument", "value"}),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptGrant:
    """A grant that outlives its session, with its scope."""

    remembered: Remembered
    """The remembered grant, which has an expiry."""
    scope: KeptScope
    workspace: RealPath | None
    """The workspace, for the scope `project`; else None."""
    policy_version: str
    """The version of its policy. Without a `basis` the grant is void under any other."""
    server_digest: str
    """SHA-256 of how its server was started: another program or database under the same name is
    another server."""
    ends: BootMoment | None = None
    """The expiry independent of the clock; None: unknown."""
    basis: str = ""
    """SHA-256 of the rules about its tool and of the tool's annotation: the grant is void under any
    other. Empty: an earlier version kept it."""

    @property
    def id(self) -> GrantId:
        """The grant's id."""
        return self.remembered.grant.id


@dataclass(frozen=True, slots=True)
class ReadGrants:
    """The content of a file."""

    grants: tuple[KeptGrant, ...] = ()
    """Each id once."""
    problems: tuple[str, ...] = ()
    """The ignored entries with the reasons, one line each."""
    is_foreign: bool = False
    """Whether another version of this program wrote it: it is neither read nor replaced."""


# --- writing -------------------------------------------------------------------------------------


def grants_file_bytes(grants: Iterable[KeptGrant]) -> bytes:
    """The file.

    Raises:
        TypeError: a grant cannot be written; see `can_be_kept`.
    """
    entries = [_entry(kept) for kept in grants]
    return orjson.dumps({"version": VERSION, "grants": entries}, option=orjson.OPT_INDENT_2)


def can_be_kept(kept: KeptGrant) -> bool:
    """Whether a grant reads back as it was written.

    A name that is no text, a number that JSON cannot hold, or a capability, does not.
    """
    try:
        return read_grants_file(grants_file_bytes([kept])).grants == (kept,)
    except (TypeError, ValueError):
        return False


def _entry(kept: KeptGrant) -> dict[str, Json]:
    grant = kept.remembered.grant
    fields: dict[str, Json] = {
        "id": grant.id,
        "scope": kept.scope,
        "workspace": None if kept.workspace is None else str(kept.workspace),
        "policyVersion": kept.policy_version,
        "serverDigest": kept.server_digest,
        "createdAt": grant.created.isoformat(),
        "expiresAt": None if grant.expires is None else grant.expires.isoformat(),
        "uses": kept.remembered.uses,
        "lastUsed": _moment_text(kept.remembered.last_used),
        "source": grant.source,
        "reason": grant.reason,
        "pattern": _pattern_fields(grant.pattern),
    }
    if kept.ends is not None:
        fields[_ENDS] = kept.ends.as_json()
    if kept.basis:
        fields[_BASIS] = kept.basis
    return {**fields, "digest": _digest(fields)}


def _moment_text(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()


def _digest(fields: Mapping[str, Json]) -> str:
    said = {name: value for name, value in fields.items() if name != "digest"}
    return sha256(orjson.dumps(said, option=orjson.OPT_SORT_KEYS)).hexdigest()


def _pattern_fields(pattern: Pattern) -> dict[str, Json]:
    if isinstance(pattern, CapabilityPattern | CallPattern):
        # Both are approved for a session, whatever the settings say.
        raise TypeError("it is not kept")
    fields: dict[str, Json] = {
        "kind": _KINDS[type(pattern)],
        "server": pattern.server,
        "tool": pattern.tool,
        "definition": pattern.definition,
        "description": pattern.description,
    }
    if isinstance(pattern, GrantPattern):
        fields["constraints"] = [_constraint_fields(found) for found in pattern.constraints]
    if isinstance(pattern, FamilyPattern):
        fields["workspace"] = str(pattern.workspace)
        fields["families"] = [family_fields(one) for one in pattern.families]
        fields["phrases"] = [*pattern.phrases]
        fields["beside"] = [_constraint_fields(found) for found in pattern.beside]
        if pattern.repository is not None:
            fields[_REPOSITORY] = str(pattern.repository)
    return fields


_KINDS: Final[Mapping[type, str]] = {
    GrantPattern: "pattern", ToolPattern: "tool", FamilyPattern: "family",
}  # fmt: skip


def _constraint_fields(constraint: Constraint) -> dict[str, Json]:
    match constraint:
        case WithinDirectory(role=role, directory=directory):
            return {"kind": "within", "role": role, "directory": str(directory)}
        case OnHost(role=role, domain=domain):
            return {"kind": "host", "role": role, "domain": domain}
        case ExactValue(role=role, value=value):
            return {"kind": "exact", "role": role, "value": value}
        case SameFlag(argument=argument, value=flag):
            return {"kind": "flag", "argument": argument, "value": flag}


# --- reading -------------------------------------------------------------------------------------


def read_grants_file(raw: bytes) -> ReadGrants:
    """The valid part of a file's content. Never raises; invalid entries grant nothing."""
    try:
        document = strict_json(raw)
    except orjson.JSONDecodeError:
        return ReadGrants(problems=("it is not JSON, as after a torn write: nothing is read",))
    if not isinstance(document, dict) or document.keys() != _FILE_KEYS:
        return ReadGrants(problems=("it is no file of grants: nothing is read",))
    version, entries = document["version"], document["grants"]
    if not isinstance(entries, list) or not isinstance(version, int) or isinstance(version, bool):
        return ReadGrants(problems=("it is no file of grants: nothing is read",))
    if version != VERSION:
        return ReadGrants(
            problems=("another version wrote it: it is not read, and left as it is",),
            is_foreign=True,
        )
    return _read_entries(entries)


def _read_entries(entries: list[Json]) -> ReadGrants:
    found: dict[GrantId, KeptGrant] = {}
    problems: list[str] = []
    for number, entry in enumerate(entries, 1):
        try:
            kept = _kept(entry)
        except MalformedError as error:
            problems.append(f"grant {number} is ignored: {error}")
            continue
        if found.setdefault(kept.id, kept) is not kept:
            problems.append(f"grant {number} is ignored: its id stands there twice")
    return ReadGrants(tuple(found.values()), tuple(problems))


def _kept(entry: Json) -> KeptGrant:
    later = _LATER_KEYS & entry.keys() if isinstance(entry, dict) else frozenset()
    fields = object_of(entry, _ENTRY_KEYS | later)
    if _digest(fields) != fields["digest"]:
        raise MalformedError("it was changed")
    scope = fields["scope"]
    if scope not in get_args(KeptScope):
        raise MalformedError("its scope is unknown")
    created, expires = moment_of(fields["createdAt"]), moment_of(fields["expiresAt"])
    if expires < created:
        raise MalformedError("it expires before it was given")
    return KeptGrant(
        remembered=_remembered(fields, created, expires),
        scope=cast("KeptScope", scope),
        workspace=_workspace(fields["workspace"], of_project=scope == "project"),
        policy_version=text_of(fields["policyVersion"]),
        server_digest=text_of(fields["serverDigest"]),
        ends=_ends(fields[_ENDS]) if _ENDS in fields else None,
        basis=text_of(fields[_BASIS]) if _BASIS in fields else "",
    )


def _ends(value: Json) -> BootMoment:
    found = boot_moment(value)
    if found is None:
        raise MalformedError("its end in this boot is none")
    return found


def _remembered(fields: Mapping[str, Json], created: datetime, expires: datetime) -> Remembered:
    uses, last = fields["uses"], fields["lastUsed"]
    if not isinstance(uses, int) or isinstance(uses, bool) or uses < 0:
        raise MalformedError("its uses are no number")
    if (uses == 0) != (last is None):
        raise MalformedError("its uses and its last use contradict each other")
    grant = Grant(
        id=GrantId(text_of(fields["id"])),
        pattern=_pattern(fields["pattern"]),
        created=created,
        source=text_of(fields["source"]),
        reason=any_text(fields["reason"]),
        expires=expires,
    )
    return Remembered(grant=grant, uses=uses, last_used=None if last is None else moment_of(last))


def _workspace(value: Json, *, of_project: bool) -> RealPath | None:
    if not of_project:
        if value is not None:
            raise MalformedError("a grant for the user names a workspace")
        return None
    return path_of(value)


def _pattern(value: Json) -> GrantPattern | ToolPattern | FamilyPattern:
    kind = value.get("kind") if isinstance(value, dict) else None
    if kind == "tool":
        fields = object_of(value, _TOOL_KEYS)
        return ToolPattern(
            server=text_of(fields["server"]),
            tool=text_of(fields["tool"]),
            definition=text_of(fields["definition"]),
            description=line_of(fields["description"]),
        )
    if kind == "family":
        later = {_REPOSITORY} & value.keys() if isinstance(value, dict) else frozenset()
        fields = object_of(value, _FAMILY_PATTERN_KEYS | later)
        families, phrases = families_of(fields)
        beside = fields["beside"]
        return FamilyPattern(
            server=text_of(fields["server"]),
            tool=text_of(fields["tool"]),
            definition=text_of(fields["definition"]),
            workspace=path_of(fields["workspace"]),
            families=families,
            phrases=phrases,
            beside=tuple([_flag_of(one) for one in beside] if isinstance(beside, list) else ()),
            description=line_of(fields["description"]),
            repository=path_of(fields[_REPOSITORY]) if _REPOSITORY in fields else None,
        )
    if kind != "pattern":
        raise MalformedError("its kind is unknown")
    fields = object_of(value, _PATTERN_KEYS)
    return GrantPattern(
        server=text_of(fields["server"]),
        tool=text_of(fields["tool"]),
        definition=text_of(fields["definition"]),
        constraints=_constraints(fields["constraints"]),
        description=line_of(fields["description"]),
    )


def _constraints(value: Json) -> tuple[Constraint, ...]:
    found = tuple([_constraint(one) for one in value]) if isinstance(value, list) else ()
    # INVARIANT: without a role it would speak of every call.
    if all(isinstance(one, SameFlag) for one in found):
        raise MalformedError("it names nothing")
    return found


def _constraint(value: Json) -> Constraint:
    kind = value.get("kind") if isinstance(value, dict) else None
    read = _READERS.get(kind) if isinstance(kind, str) else None
    if read is None or not isinstance(kind, str):
        raise MalformedError("a condition is of no known kind")
    return read(object_of(value, _CONSTRAINT_KEYS[kind]))


def _within(fields: Mapping[str, Json]) -> Constraint:
    directory = path_of(fields["directory"])
    if not directory.parts:
        raise MalformedError("it speaks of everything")
    return WithinDirectory(_role(fields["role"], "path"), directory)


def _host(fields: Mapping[str, Json]) -> Constraint:
    return OnHost(_role(fields["role"], "url"), text_of(fields["domain"]))


def _exact(fields: Mapping[str, Json]) -> Constraint:
    return ExactValue(_role(fields["role"], "path", "identifier"), text_of(fields["value"]))


def _flag_of(value: Json) -> SameFlag:
    return _flag(object_of(value, _CONSTRAINT_KEYS["flag"]))


def _flag(fields: Mapping[str, Json]) -> SameFlag:
    value = fields["value"]
    if isinstance(value, list | dict) or (isinstance(value, float) and not isfinite(value)):
        raise MalformedError("an argument is no single value")
    return SameFlag(any_text(fields["argument"]), value)


_READERS: Final[Mapping[str, Callable[[Mapping[str, Json]], Constraint]]] = {
    "within": _within,
    "host": _host,
    "exact": _exact,
    "flag": _flag,
}


def _role(value: Json, *categories: RoleCategory) -> ArgumentRole:
    for role, traits in ROLE_TRAITS.items():
        if role == value and role not in HISTORY and traits.category in categories:
            return role
    raise MalformedError("a role cannot be remembered so")
