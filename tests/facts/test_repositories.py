"""A push has its repository for itself."""

import anyio
import pytest

from ironcurtain_proxy.errors import BusyError
from ironcurtain_proxy.facts.repositories import Repositories
from ironcurtain_proxy.model.values import RealPath

pytestmark = pytest.mark.anyio

REPO = RealPath.from_text("/srv/repo")


class Call:
    """A call that is under way until it is told to end."""

    def __init__(self) -> None:
        self.entered = anyio.Event()
        self.end = anyio.Event()

    async def work(self, repositories: Repositories, where: RealPath = REPO) -> None:
        async with repositories.undisturbed(where, push=False):
            self.entered.set()
            await self.end.wait()

    async def push(self, repositories: Repositories, where: RealPath = REPO) -> None:
        async with repositories.undisturbed(where, push=True):
            self.entered.set()
            await self.end.wait()


async def settled() -> None:
    for _ in range(5):
        await anyio.lowlevel.checkpoint()


async def test_calls_that_do_not_push_work_side_by_side() -> None:
    repositories = Repositories()
    one, two = Call(), Call()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(one.work, repositories)
        tasks.start_soon(two.work, repositories)
        await one.entered.wait()
        await two.entered.wait()
        one.end.set()
        two.end.set()


async def test_a_push_waits_for_calls_under_way_and_later_calls_wait_for_it() -> None:
    """G8: `git_remote set-url` beside a push."""
    repositories = Repositories()
    first, push, later = Call(), Call(), Call()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(first.work, repositories)
        await first.entered.wait()
        tasks.start_soon(push.push, repositories)
        await settled()
        tasks.start_soon(later.work, repositories)
        await settled()
        assert not push.entered.is_set()
        assert not later.entered.is_set()
        first.end.set()
        await push.entered.wait()
        await settled()
        assert not later.entered.is_set()
        push.end.set()
        await later.entered.wait()
        later.end.set()


async def test_another_repository_is_not_affected() -> None:
    repositories = Repositories()
    push, other = Call(), Call()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(push.push, repositories)
        await push.entered.wait()
        tasks.start_soon(other.push, repositories, RealPath.from_text("/srv/other"))
        await other.entered.wait()
        push.end.set()
        other.end.set()


async def test_a_push_that_never_gets_its_turn_is_refused_and_leaves_no_trace() -> None:
    repositories = Repositories(deadline=0.01)
    first = Call()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(first.work, repositories)
        await first.entered.wait()
        with pytest.raises(BusyError):
            async with repositories.undisturbed(REPO, push=True):
                pytest.fail("it got in")
        async with repositories.undisturbed(REPO, push=False):
            pass
        first.end.set()
    assert repositories._traffic == {}


async def test_a_cancelled_push_gives_its_place_back() -> None:
    repositories = Repositories()
    push = Call()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(push.push, repositories)
        await push.entered.wait()
        tasks.cancel_scope.cancel()
    async with repositories.undisturbed(REPO, push=True):
        pass
    assert repositories._traffic == {}
