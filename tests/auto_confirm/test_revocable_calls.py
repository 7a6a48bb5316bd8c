"""Which calls the timeline can take back, so that the engine may approve them on condition."""

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from ironcurtain_proxy.auto_confirm.engine_memory import RevocableCalls
from ironcurtain_proxy.model.annotation import ArgumentRole, ToolEffect
from ironcurtain_proxy.model.escalation import Escalation
from ironcurtain_proxy.model.request import ArgumentFact, PathValue
from ironcurtain_proxy.model.values import RealPath
from ironcurtain_proxy.own_process import SystemClock
from ironcurtain_proxy.snapshots.keeper import Limits
from ironcurtain_proxy.snapshots.workspace_timeline import WorkspaceTimeline
from tests.questions import a_question

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("B-62")]


def real(path: Path) -> RealPath:
    return RealPath.from_text(str(path))


def about(
    *paths: Path,
    roles: tuple[ArgumentRole, ...] = ("write-path",),
    repository: Path | None = None,
    effect: ToolEffect | None = None,
) -> Escalation:
    values = tuple([PathValue(text=str(path), path=real(path)) for path in paths])
    fact = ArgumentFact(name="path", roles=roles, values=values)
    asked = a_question()
    request = replace(
        asked.request,
        arguments=(fact,),
        repository=None if repository is None else real(repository),
        effect=effect,
    )
    return replace(asked, request=request, sandboxed=True)


@pytest.fixture
def top(tmp_path: Path) -> Path:
    made = tmp_path.resolve() / "work"
    made.mkdir()
    return made


@asynccontextmanager
async def revocable(top: Path, limits: Limits | None = None) -> AsyncIterator[RevocableCalls]:
    timeline = WorkspaceTimeline(
        top.parent / "timeline", real(top), limits or Limits(), session="s", now=SystemClock().now
    )
    try:
        yield RevocableCalls(workspace=real(top), timeline=timeline)
    finally:
        timeline.close()


async def test_only_a_confined_call_that_names_what_it_changes_in_the_workspace_can_be_held(
    top: Path,
) -> None:
    async with revocable(top) as calls:
        inside = about(top / "a")
        assert calls.can_hold(inside)
        refused = [
            replace(inside, sandboxed=False),
            about(top.parent / "a"),
            about(top.parent),
            about(top / "a", top.parent / "b"),
            about(),
            about(top / "a", roles=("read-path",)),
            about(top / "a", roles=("write-path", "delete-history")),
            about(top / "a", effect="reads"),
            about(top / "a", roles=("write-history",), repository=top.parent),
        ]
        assert [call for call in refused if calls.can_hold(call)] == []


async def test_what_is_too_large_or_a_cache_is_not_held(top: Path) -> None:
    (top / "large").write_bytes(bytes(range(256)) * 4096)
    (top / "node_modules").mkdir()
    (top / "small").write_text("x")
    limits = Limits(max_bytes=2 << 20, caches=frozenset({"node_modules"}))
    async with revocable(top, limits) as calls:
        assert await calls.holds(about(top / "small", top / "new"))
        assert not await calls.holds(about(top / "small", top / "large"))
        assert not await calls.holds(about(top / "node_modules"))


async def test_a_repository_whose_history_lies_elsewhere_is_not_held(top: Path) -> None:
    for name in ("own", "linked", "file", "shared"):
        (top / name).mkdir()
    (top / "own/.git").mkdir()
    (top / "linked/.git").symlink_to(top / "own/.git")
    (top / "file/.git").write_text(f"gitdir: {top.parent}")
    (top / "shared/.git").mkdir()
    (top / "shared/.git/commondir").write_text(str(top.parent))
    async with revocable(top) as calls:
        held = [
            name
            for name in ("own", "linked", "file", "shared", "none")
            if await calls.holds(about(top / name, roles=("write-history",), repository=top / name))
        ]
    assert held == ["own"]


async def test_a_timeline_that_fails_holds_nothing(top: Path) -> None:
    async with revocable(top) as calls:
        pass
    shutil.rmtree(top)
    assert not await calls.holds(about(top / "a"))
