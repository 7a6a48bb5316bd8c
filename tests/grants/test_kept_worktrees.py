"""Families that are kept, in the worktrees of their repository."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from ironcurtain_proxy.grants.format import KeptScope
from ironcurtain_proxy.model.grant import FamilyPattern, Grant, GrantId
from ironcurtain_proxy.model.request import Family
from ironcurtain_proxy.model.values import RealPath
from tests.grants.kept_grants import NOW, PROJECT, a_grant
from tests.grants.test_kept import ELSEWHERE, HERE, Session

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("X-12")]


def a_family(repository: str | None) -> Grant:
    return Grant(
        id=GrantId("family"),
        pattern=FamilyPattern(
            server="files",
            tool="run",
            definition="d",
            workspace=PROJECT,
            families=(Family(program=("go", "test")),),
            phrases=("`go test`",),
            description="`go test`",
            repository=None if repository is None else RealPath.from_text(repository),
        ),
        created=NOW,
        source="e1",
        reason="",
    )


@pytest.mark.parametrize("scope", ["project", "user"])
@pytest.mark.parametrize(
    ("given_in", "repository", "counts"),
    [
        ("/work/one/.git", "/work/one/.git", True),
        ("/work/one/.git", "/work/three/.git", False),
        ("/work/one/.git", None, False),
        (None, "/work/one/.git", False),
        (None, None, False),
    ],
)
async def test_a_family_is_kept_for_the_worktrees_of_its_repository(
    tmp_path: Path, scope: KeptScope, given_in: str | None, repository: str | None, *, counts: bool
) -> None:
    first = Session(tmp_path / "grants.json", here=replace(HERE, scope=scope))
    first.book.add(a_family(given_in))
    first.book.add(a_grant("directory"))
    await first.keep()
    shared = None if repository is None else RealPath.from_text(repository)
    there = replace(HERE, scope=scope, workspace=ELSEWHERE, repository=shared)
    found = Session(tmp_path / "grants.json", here=there).ids()
    assert ("family" in found) is counts
    # A grant of a directory is for one workspace, if the operator says so.
    assert ("directory" in found) is (scope == "user")
