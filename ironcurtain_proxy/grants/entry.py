"""The form of an entry in the file of kept grants, as msgspec reads and writes it."""

from typing import Annotated, Literal, TypeAlias

from msgspec import UNSET, Meta, Struct, UnsetType

from ironcurtain_proxy.model.annotation import ArgumentRole
from ironcurtain_proxy.model.boot_moment import BootMoment

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
