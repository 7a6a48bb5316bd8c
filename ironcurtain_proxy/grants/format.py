"""The form of an entry in the file of kept grants, as msgspec reads and writes it.

Reading is strict: an entry counts only if this program wrote it exactly so. Each has a digest over
its content, so that entries changed by a torn write, a failing disk or an editor are ignored. The
digest is no secret: a program that may write the file can add grants.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Annotated, Final, Literal, TypeAlias, assert_never

import orjson
from msgspec import UNSET, Meta, Struct, UnsetType, ValidationError, convert, to_builtins

from ironcurtain_proxy.grants.book import Remembered
from ironcurtain_proxy.grants.patterns import HISTORY
from ironcurtain_proxy.model.annotation import ROLE_TRAITS, ArgumentRole, RoleCategory
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
    SandboxOpening,
    ToolPattern,
    WithinDirectory,
)
from ironcurtain_proxy.model.request import Family
from ironcurtain_proxy.model.values import BootMoment, Json, RealPath
from ironcurtain_proxy.strict_json import strict_json

# --- entry


KeptScope: TypeAlias = Literal["project", "user"]
"""The scope: sessions of one workspace, or all sessions of this user."""

NonEmpty: TypeAlias = Annotated[str, Meta(min_length=1)]
"""Never empty, because two empty texts would be equal."""


class _Form(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """A part of an entry, with exactly these keys."""


class WithinForm(_Form, frozen=True, tag_field="kind", tag="within"):
    """A condition on paths."""

    role: ArgumentRole
    directory: NonEmpty


class HostForm(_Form, frozen=True, tag_field="kind", tag="host"):
    """A condition on hosts."""

    role: ArgumentRole
    domain: NonEmpty


class ExactForm(_Form, frozen=True, tag_field="kind", tag="exact"):
    """A condition on a value."""

    role: ArgumentRole
    value: NonEmpty


class FlagForm(_Form, frozen=True, tag_field="kind", tag="flag"):
    """An argument that stays as it was."""

    argument: str
    value: str | int | float | bool | None


class FamilyForm(_Form, frozen=True, rename={"is_of_remote": "ofRemote"}):
    """A general family with a known meaning."""

    program: Annotated[tuple[str, ...], Meta(min_length=1)]
    kept: tuple[str, ...]
    around: tuple[str, ...]
    directory: NonEmpty | None
    meaning: str
    # Grants that were kept by earlier versions have none of these.
    hosts: tuple[str, ...] = ()
    is_of_remote: bool = False


class ToolForm(_Form, frozen=True, tag_field="kind", tag="tool"):
    """A grant of a tool, and what all grants have."""

    server: NonEmpty
    tool: NonEmpty
    definition: NonEmpty
    description: NonEmpty


class PatternForm(ToolForm, frozen=True, tag="pattern"):
    """A grant with conditions."""

    constraints: list[WithinForm | HostForm | ExactForm | FlagForm]


class FamiliesForm(ToolForm, frozen=True, tag="family"):
    """A grant of families of shell commands."""

    workspace: NonEmpty
    families: list[FamilyForm]
    phrases: list[NonEmpty]
    """A phrase for each family; without a family, one phrase that says so."""
    beside: list[FlagForm]
    # Left out for a workspace that shares its repository with no other worktree.
    repository: NonEmpty | UnsetType = UNSET


class GrantEntry(_Form, frozen=True):
    """One grant."""

    id: NonEmpty
    scope: KeptScope
    workspace: NonEmpty | None
    policy_version: NonEmpty
    server_digest: NonEmpty
    created_at: str
    expires_at: str
    uses: Annotated[int, Meta(ge=0)]
    last_used: str | None
    source: NonEmpty
    reason: str
    pattern: ToolForm | PatternForm | FamiliesForm
    # Left out for unknown values, as by earlier versions.
    expires_in_boot: BootMoment | UnsetType = UNSET
    basis: NonEmpty | UnsetType = UNSET
    # Left out where the question named no access beyond the sandbox, as by earlier versions.
    opened_hosts: Annotated[list[NonEmpty], Meta(min_length=1)] | UnsetType = UNSET
    opened_reads: Annotated[list[NonEmpty], Meta(min_length=1)] | UnsetType = UNSET
    opened_paths: Annotated[list[NonEmpty], Meta(min_length=1)] | UnsetType = UNSET
    digest: str = ""


# --- format


VERSION: Final = 1
_FILE_KEYS: Final = frozenset({"version", "grants"})


class KeptGrant(Struct, frozen=True, kw_only=True):
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
    """The expiry independent of the clock, or None if it is unknown."""
    basis: str = ""
    """SHA-256 of the rules about its tool and of the tool's annotation: the grant is void under any
    other. Empty: an earlier version kept it."""

    @property
    def id(self) -> GrantId:
        """The grant's id."""
        return self.remembered.grant.id


class ReadGrants(Struct, frozen=True):
    """The content of a file."""

    grants: tuple[KeptGrant, ...] = ()
    """Each id once."""
    problems: tuple[str, ...] = ()
    """The ignored entries with the reasons, one line each."""
    is_foreign: bool = False
    """Whether another version of this program wrote it: it is neither read nor replaced."""


def _digest(fields: Mapping[str, Json]) -> str:
    said = {name: value for name, value in fields.items() if name != "digest"}
    return sha256(orjson.dumps(said, option=orjson.OPT_SORT_KEYS)).hexdigest()


# --- writing -------------------------------------------------------------------------------------


def grants_file_bytes(grants: Iterable[KeptGrant]) -> bytes:
    """Return the file.

    Raises:
        TypeError: a grant cannot be written; see `can_be_kept`.
    """
    entries = []
    for kept in grants:
        fields = to_builtins(_entry(kept))
        entries.append({**fields, "digest": _digest(fields)})
    return orjson.dumps({"version": VERSION, "grants": entries}, option=orjson.OPT_INDENT_2)


def can_be_kept(kept: KeptGrant) -> bool:
    """Return whether a grant reads back as it was written.

    A name that is no text, a number that JSON cannot hold, or a capability, does not.
    """
    try:
        return read_grants_file(grants_file_bytes([kept])).grants == (kept,)
    except (TypeError, ValueError):
        return False


def _entry(kept: KeptGrant) -> GrantEntry:
    grant, last_used = kept.remembered.grant, kept.remembered.last_used
    if grant.expires is None:
        raise TypeError("it ends with its session")
    return GrantEntry(
        id=grant.id,
        scope=kept.scope,
        workspace=None if kept.workspace is None else str(kept.workspace),
        policy_version=kept.policy_version,
        server_digest=kept.server_digest,
        created_at=grant.created.isoformat(),
        expires_at=grant.expires.isoformat(),
        uses=kept.remembered.uses,
        last_used=None if last_used is None else last_used.isoformat(),
        source=grant.source,
        reason=grant.reason,
        pattern=_pattern_form(grant.pattern),
        expires_in_boot=UNSET if kept.ends is None else kept.ends,
        basis=kept.basis or UNSET,
        opened_hosts=[*grant.opened.hosts] or UNSET,
        opened_reads=[str(path) for path in grant.opened.reads] or UNSET,
        opened_paths=[str(path) for path in grant.opened.paths] or UNSET,
    )


def _pattern_form(pattern: Pattern) -> ToolForm | PatternForm | FamiliesForm:
    if isinstance(pattern, CapabilityPattern | CallPattern):
        # Both are approved for a session, whatever the settings say.
        raise TypeError("it is not kept")
    tool = _tool(pattern)
    match pattern:
        case ToolPattern():
            return ToolForm(**tool)
        case GrantPattern():
            return PatternForm(
                **tool, constraints=[_constraint_form(c) for c in pattern.constraints]
            )
        case FamilyPattern():
            return FamiliesForm(
                **tool,
                workspace=str(pattern.workspace),
                repository=UNSET if pattern.repository is None else str(pattern.repository),
                families=[_family_form(one) for one in pattern.families],
                phrases=[*pattern.phrases],
                beside=[
                    FlagForm(argument=f.argument, value=_single(f.value)) for f in pattern.beside
                ],
            )
        case _:
            assert_never(pattern)


def _tool(one: ToolForm | ToolPattern | GrantPattern | FamilyPattern) -> dict[str, str]:
    return {key: getattr(one, key) for key in ("server", "tool", "definition", "description")}


def _constraint_form(constraint: Constraint) -> WithinForm | HostForm | ExactForm | FlagForm:
    match constraint:
        case WithinDirectory(role=role, directory=directory):
            return WithinForm(role=role, directory=str(directory))
        case OnHost(role=role, domain=domain):
            return HostForm(role=role, domain=domain)
        case ExactValue(role=role, value=value):
            return ExactForm(role=role, value=value)
        case SameFlag(argument=argument, value=flag):
            return FlagForm(argument=argument, value=_single(flag))
        case _:
            assert_never(constraint)


def _single(value: Json) -> str | float | bool | None:
    if isinstance(value, list | dict):
        raise TypeError("an argument is no single value")
    return value


def _family_form(family: Family) -> FamilyForm:
    if not family.is_general or family.meaning is None or family.defined_in:
        raise TypeError("it is not kept")
    return convert(family, FamilyForm, from_attributes=True)


# --- reading -------------------------------------------------------------------------------------


class _MalformedError(ValueError):
    """An invalid entry, with the reason."""


def read_grants_file(raw: bytes) -> ReadGrants:
    """Return the valid part of a file's content. Never raises; invalid entries grant nothing."""
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
        except _MalformedError as error:
            problems.append(f"grant {number} is ignored: {error}")
            continue
        if found.setdefault(kept.id, kept) is not kept:
            problems.append(f"grant {number} is ignored: its id occurs twice")
    return ReadGrants(tuple(found.values()), tuple(problems))


def _kept(value: Json) -> KeptGrant:
    if not isinstance(value, dict) or _digest(value) != value.get("digest"):
        raise _MalformedError("it was changed")
    try:
        entry = convert({**value, "digest": ""}, GrantEntry)
    except ValidationError as error:
        raise _MalformedError(f"it is not of the form of a grant: {error}") from None
    if (entry.scope == "project") != (entry.workspace is not None):
        raise _MalformedError("its scope and its workspace contradict each other")
    kept = KeptGrant(
        remembered=_remembered(entry),
        scope=entry.scope,
        workspace=None if entry.workspace is None else _path(entry.workspace),
        policy_version=entry.policy_version,
        server_digest=entry.server_digest,
        ends=entry.expires_in_boot or None,
        basis=entry.basis or "",
    )
    # One way to write it: paths without empty names, times in UTC in our own letters.
    if _entry(kept) != entry:
        raise _MalformedError("it is not written as grants are")
    return kept


def _remembered(entry: GrantEntry) -> Remembered:
    created, expires = _moment(entry.created_at), _moment(entry.expires_at)
    if expires < created:
        raise _MalformedError("it expires before it was given")
    if (entry.uses == 0) != (entry.last_used is None):
        raise _MalformedError("its uses and its last use contradict each other")
    grant = Grant(
        id=GrantId(entry.id),
        pattern=_pattern(entry.pattern),
        created=created,
        source=entry.source,
        reason=entry.reason,
        expires=expires,
        opened=SandboxOpening(
            hosts=tuple(entry.opened_hosts or ()),
            paths=tuple([_path(text) for text in entry.opened_paths or ()]),
            reads=tuple([_path(text) for text in entry.opened_reads or ()]),
        ),
    )
    last_used = None if entry.last_used is None else _moment(entry.last_used)
    return Remembered(grant=grant, uses=entry.uses, last_used=last_used)


def _pattern(form: ToolForm) -> GrantPattern | ToolPattern | FamilyPattern:
    tool = _tool(form) | {"description": _line(form.description)}
    if isinstance(form, PatternForm):
        # INVARIANT: without a role it would speak of every call.
        if all(isinstance(one, FlagForm) for one in form.constraints):
            raise _MalformedError("it names nothing")
        constraints = tuple([_constraint(c) for c in form.constraints])
        return GrantPattern(**tool, constraints=constraints, parts=())
    if not isinstance(form, FamiliesForm):
        return ToolPattern(**tool)
    if len(form.phrases) != max(len(form.families), 1):
        raise _MalformedError("its families and their words differ")
    return FamilyPattern(
        **tool,
        workspace=_path(form.workspace),
        repository=_path(form.repository) if form.repository else None,
        families=tuple([_family(one) for one in form.families]),
        phrases=tuple([_line(one) for one in form.phrases]),
        beside=tuple([SameFlag(one.argument, one.value) for one in form.beside]),
    )


def _constraint(form: WithinForm | HostForm | ExactForm | FlagForm) -> Constraint:
    match form:
        case WithinForm():
            directory = _path(form.directory)
            if not directory.parts:
                raise _MalformedError("it speaks of everything")
            return WithinDirectory(_role(form.role, "path"), directory)
        case HostForm():
            return OnHost(_role(form.role, "url"), form.domain)
        case ExactForm():
            return ExactValue(_role(form.role, "path", "identifier"), form.value)
        case FlagForm():
            return SameFlag(form.argument, form.value)
        case _:
            assert_never(form)


def _family(form: FamilyForm) -> Family:
    if form.directory is not None and str(_path(form.directory)) != form.directory:
        raise _MalformedError("a path is not a real one")
    return convert(form, Family, from_attributes=True)


def _role(role: ArgumentRole, *categories: RoleCategory) -> ArgumentRole:
    if role in HISTORY or ROLE_TRAITS[role].category not in categories:
        raise _MalformedError("a role cannot be remembered so")
    return role


def _path(text: str) -> RealPath:
    path = RealPath.from_text(text)
    if not {".", ".."}.isdisjoint(path.parts):
        raise _MalformedError("a path is not a real one")
    return path


def _line(text: str) -> str:
    if not text.isprintable():
        raise _MalformedError("its description is no line")
    return text


def _moment(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise _MalformedError("a time is no time") from None
    if moment.utcoffset() != timedelta(0):
        raise _MalformedError("a time is not in UTC")
    return moment
