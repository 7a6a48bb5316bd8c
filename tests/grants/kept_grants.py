"""Grants as they are kept: one to begin with, and any."""

from datetime import UTC, datetime, timedelta

from hypothesis import strategies as st

from ironcurtain_proxy.grants.book import Remembered
from ironcurtain_proxy.grants.format import KeptGrant
from ironcurtain_proxy.grants.patterns import describe
from ironcurtain_proxy.model.grant import (
    Constraint,
    ExactValue,
    FamilyPattern,
    Grant,
    GrantId,
    GrantPattern,
    OnHost,
    SameFlag,
    ToolPattern,
    WithinDirectory,
)
from ironcurtain_proxy.model.request import Family
from ironcurtain_proxy.model.values import RealPath

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
PROJECT = RealPath.from_text("/work/one")


def pattern(directory: str = "/srv/out", tool: str = "write_file") -> GrantPattern:
    constraints: tuple[Constraint, ...] = (
        WithinDirectory("write-path", RealPath.from_text(directory)),
        SameFlag("append", value=False),
    )
    return GrantPattern(
        server="files",
        tool=tool,
        definition="d" * 64,
        constraints=constraints,
        description=describe("files", tool, constraints),
    )


def a_grant(identifier: str = "g1", *, created: datetime = NOW) -> Grant:
    """As a reviewer's answer makes it: it ends with its session."""
    return Grant(
        id=GrantId(identifier),
        pattern=pattern(),
        created=created,
        source="e1",
        reason="outside the workspace",
    )


def a_kept(identifier: str = "g1", **words: str) -> KeptGrant:
    """One for the project, with 30 days to live."""
    grant = a_grant(identifier)
    expires = NOW + timedelta(days=30)
    return KeptGrant(
        remembered=Remembered(
            grant=Grant(
                id=grant.id,
                pattern=pattern(**words),
                created=NOW,
                source="e1",
                reason="outside the workspace",
                expires=expires,
            )
        ),
        scope="project",
        workspace=PROJECT,
        policy_version="p1",
        server_digest="s1",
        basis="b1",
    )


# --- any -----------------------------------------------------------------------------------------

texts = st.text(st.sampled_from('aB0 "\\/.\n\0é\u202e\U0001f600'), max_size=6)
names = texts.filter(bool)
components = names.filter(lambda text: "/" not in text and text not in (".", ".."))
paths = st.lists(components, min_size=1, max_size=3).map(lambda parts: RealPath(tuple(parts)))
moments = st.integers(0, 10**9).map(lambda microseconds: NOW + timedelta(microseconds=microseconds))
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts
)
naming = (
    st.builds(WithinDirectory, st.sampled_from(("read-path", "write-path", "delete-path")), paths)
    | st.builds(OnHost, st.sampled_from(("fetch-url", "git-remote-url")), names)
    | st.builds(ExactValue, st.sampled_from(("read-path", "github-owner")), names)
)
flags = st.builds(SameFlag, texts, scalars)
lines = names.filter(str.isprintable)
patterns = st.builds(
    GrantPattern,
    server=names,
    tool=names,
    definition=names,
    constraints=st.tuples(naming, st.lists(naming | flags, max_size=3)).map(
        lambda found: (found[0], *found[1])
    ),
    description=lines,
)
families = st.builds(
    Family,
    program=st.lists(texts, min_size=1, max_size=3).map(tuple),
    kept=st.lists(texts, max_size=3).map(tuple),
    around=st.lists(texts, max_size=3).map(tuple),
    directory=st.none() | paths.map(str),
    meaning=texts,
)


@st.composite
def family_patterns(draw: st.DrawFn) -> FamilyPattern:
    chosen = tuple(draw(st.lists(families, max_size=2)))
    count = max(len(chosen), 1)
    return FamilyPattern(
        server=draw(names),
        tool=draw(names),
        definition=draw(names),
        workspace=draw(paths),
        families=chosen,
        phrases=tuple(draw(st.lists(lines, min_size=count, max_size=count))),
        beside=tuple(draw(st.lists(flags, max_size=2))),
        repository=draw(st.none() | paths),
        description=draw(lines),
    )


tools = st.builds(ToolPattern, server=names, tool=names, definition=names, description=lines)


@st.composite
def kept_grants(draw: st.DrawFn) -> KeptGrant:
    created = draw(moments)
    grant = Grant(
        id=GrantId(draw(names)),
        pattern=draw(patterns | tools | family_patterns()),
        created=created,
        source=draw(names),
        reason=draw(texts),
        expires=created + timedelta(seconds=draw(st.integers(0, 10**8))),
    )
    uses = draw(st.integers(0, 3))
    workspace = draw(st.none() | paths)
    return KeptGrant(
        remembered=Remembered(grant=grant, uses=uses, last_used=draw(moments) if uses else None),
        scope="user" if workspace is None else "project",
        workspace=workspace,
        policy_version=draw(names),
        server_digest=draw(names),
        basis=draw(texts),
    )


several = st.lists(kept_grants(), max_size=4, unique_by=lambda kept: kept.id)
