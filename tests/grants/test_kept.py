# ruff: noqa: ASYNC240  the files are local and small
"""What of a session's grants is kept, and where it counts again."""

import logging
import threading
import time
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

import anyio
import pytest
from msgspec.structs import replace

from ironcurtain_proxy.grants import kept as persisted_grants
from ironcurtain_proxy.grants.book import GrantBook
from ironcurtain_proxy.grants.format import KeptGrant
from ironcurtain_proxy.grants.grant_settlement import capability_pattern
from ironcurtain_proxy.grants.kept import (
    Circumstances,
    GrantsContent,
    GrantsFile,
    GrantsUpdate,
    PersistedGrants,
)
from ironcurtain_proxy.model.grant import GrantId, ToolPattern
from ironcurtain_proxy.model.values import RealPath
from tests.grants.kept_grants import NOW, PROJECT, a_grant

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("X-12")]

HERE = Circumstances(
    scope="project",
    workspace=PROJECT,
    policy_version="p1",
    basis=lambda server, tool: f"rules about {server}/{tool}",
    servers={"files": "s1"},
    lifetime=timedelta(days=30),
)
USER = replace(HERE, scope="user")
ELSEWHERE = RealPath.from_text("/work/two")


@dataclass
class Hands:
    """A clock that stands still unless it is turned."""

    time: datetime = NOW
    seconds: float = 0.0

    def now(self) -> datetime:
        return self.time

    def steady(self) -> datetime:
        return self.time

    def monotonic(self) -> float:
        return self.seconds


@dataclass
class Session:
    """A session's book with what keeps it."""

    path: Path
    here: Circumstances = HERE
    clock: Hands = field(default_factory=Hands)
    book: GrantBook = field(default_factory=GrantBook)
    persisted: PersistedGrants = field(init=False)

    def __post_init__(self) -> None:
        file = GrantsFile(self.path, lock_seconds=0.05)
        self.persisted = PersistedGrants(file, self.here, self.clock)
        for remembered in self.persisted.load():
            self.book.restore(remembered)

    async def keep(self, *, at_once: bool = False) -> None:
        for gone in await self.persisted.keep(self.book.list(), at_once=at_once):
            self.book.revoke(gone)

    def take_back(self) -> None:
        for gone in self.persisted.withdrawn():
            self.book.revoke(gone)

    def ids(self) -> list[str]:
        return [remembered.grant.id for remembered in self.book.list()]

    def use(self, identifier: str = "g1", times: int = 1) -> None:
        for _ in range(times):
            self.book.note_use(GrantId(identifier), self.clock.now())

    def kept(self) -> tuple[KeptGrant, ...]:
        return GrantsFile(self.path).read().grants


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "grants.json"


async def after_one_grant(path: Path, here: Circumstances = HERE) -> Session:
    session = Session(path, here)
    session.book.add(a_grant())
    await session.keep()
    return session


@pytest.mark.parametrize(
    ("given", "later", "counts"),
    [
        pytest.param(HERE, HERE, True, id="the same project"),
        pytest.param(HERE, replace(HERE, workspace=ELSEWHERE), False, id="another project"),
        pytest.param(HERE, replace(HERE, workspace=None), False, id="no project"),
        pytest.param(HERE, USER, True, id="this project's among the user's"),
        pytest.param(
            HERE, replace(USER, workspace=ELSEWHERE), False, id="this project's in another"
        ),
        pytest.param(USER, replace(USER, workspace=ELSEWHERE), True, id="the user's, anywhere"),
        pytest.param(USER, replace(USER, workspace=None), True, id="the user's, nowhere"),
        pytest.param(USER, HERE, False, id="the user's, where only the project's count"),
        pytest.param(HERE, replace(HERE, policy_version="p2"), True, id="other rules elsewhere"),
        pytest.param(
            HERE, replace(HERE, basis=lambda _server, _tool: "others"), False, id="other rules here"
        ),
        pytest.param(
            replace(HERE, basis=lambda _server, _tool: ""),
            HERE,
            True,
            id="kept before, same policy",
        ),
        pytest.param(
            replace(HERE, basis=lambda _server, _tool: ""),
            replace(HERE, policy_version="p2"),
            False,
            id="kept before, another policy",
        ),
        pytest.param(HERE, replace(HERE, servers={"files": "s2"}), False, id="another server"),
        pytest.param(HERE, replace(HERE, servers={}), False, id="no such server"),
    ],
)
async def test_a_kept_grant_counts_where_all_is_as_it_was(
    path: Path, given: Circumstances, later: Circumstances, *, counts: bool
) -> None:
    await after_one_grant(path, given)
    assert Session(path, later).ids() == (["g1"] if counts else [])
    assert len(GrantsFile(path).read().grants) == 1


@pytest.mark.parametrize(
    ("after", "counts"),
    [
        (timedelta(0), True),
        (timedelta(days=30, seconds=-1), True),
        (timedelta(days=30), False),
        (timedelta(seconds=-1), False),
    ],
)
async def test_a_kept_grant_counts_from_its_approval_until_it_expires(
    path: Path, after: timedelta, *, counts: bool
) -> None:
    await after_one_grant(path)
    assert Session(path, clock=Hands(NOW + after)).ids() == (["g1"] if counts else [])


async def test_the_shorter_of_two_lifetimes_holds(path: Path) -> None:
    session = Session(path)
    session.book.add(replace(a_grant("brief"), expires=NOW + timedelta(hours=1)))
    session.book.add(a_grant("long"))
    await session.keep()
    assert Session(path, clock=Hands(NOW + timedelta(hours=1))).ids() == ["long"]
    impatient = replace(HERE, lifetime=timedelta(days=2))
    (restored,) = Session(path, impatient, Hands(NOW + timedelta(days=1))).book.list()
    assert restored.grant.expires == NOW + timedelta(days=2)
    assert Session(path, impatient, Hands(NOW + timedelta(days=2))).ids() == []


@pytest.mark.requirement("D-29", "D-30")
async def test_a_capability_ends_with_its_session_and_always_allow_does_not(path: Path) -> None:
    session = Session(path, USER)
    tool = ToolPattern(server="files", tool="read", definition="d", description="d")
    session.book.add(replace(a_grant("c"), pattern=capability_pattern("fs.write")))
    session.book.add(replace(a_grant("t"), pattern=tool))
    await session.keep()
    assert session.ids() == ["c", "t"]
    assert Session(path, USER).ids() == ["t"]


async def test_without_a_policy_version_nothing_is_kept(path: Path) -> None:
    session = await after_one_grant(path, replace(HERE, policy_version=""))
    assert session.ids() == ["g1"]
    assert not path.exists()


async def test_a_restored_grant_is_the_one_that_was_given_with_its_uses(path: Path) -> None:
    session = await after_one_grant(path)
    session.use(times=2)
    await session.keep(at_once=True)
    (restored,) = Session(path).book.list()
    assert restored.grant == replace(a_grant(), expires=NOW + timedelta(days=30))
    assert (restored.uses, restored.last_used) == (2, NOW)


async def test_uses_wait_a_minute_or_for_the_end_and_what_was_given_does_not(path: Path) -> None:
    session = await after_one_grant(path)
    session.use()
    await session.keep()
    assert session.kept()[0].remembered.uses == 0
    session.clock.seconds = 60
    await session.keep()
    assert session.kept()[0].remembered.uses == 1
    session.use()
    session.book.add(a_grant("g2"))
    await session.keep()
    assert [kept.remembered.uses for kept in session.kept()] == [2, 0]


async def test_uses_of_sessions_at_once_add_up_and_the_last_one_is_kept(path: Path) -> None:
    await after_one_grant(path)
    one, two = Session(path), Session(path, clock=Hands(NOW + timedelta(days=1)))
    one.use(times=2)
    two.use(times=3)
    await two.keep(at_once=True)
    await one.keep(at_once=True)
    one.use()
    await one.keep(at_once=True)
    (kept,) = one.kept()
    assert (kept.remembered.uses, kept.remembered.last_used) == (6, NOW + timedelta(days=1))


async def test_nothing_is_locked_or_written_where_nothing_changed(path: Path) -> None:
    await after_one_grant(path)
    session = Session(path)
    lock = path.with_name("grants.json.lock")
    lock.unlink()
    await session.keep(at_once=True)
    session.book.add(replace(a_grant("c"), pattern=capability_pattern("fs.write")))
    session.take_back()
    await session.keep(at_once=True)
    assert not lock.exists()
    session.use()
    await session.keep(at_once=True)
    assert lock.exists()


@pytest.mark.requirement("D-31")
async def test_what_a_session_takes_back_is_gone_for_the_next_and_the_rest_is_not(
    path: Path,
) -> None:
    await after_one_grant(path, replace(USER, workspace=ELSEWHERE))
    session = Session(path, HERE)
    session.book.add(a_grant("g2"))
    session.book.add(a_grant("g3"))
    await session.keep()
    session.book.revoke(GrantId("g2"))
    await session.keep()
    assert [kept.id for kept in session.kept()] == ["g1", "g3"]
    session.book.clear()
    await session.keep()
    assert [kept.id for kept in session.kept()] == ["g1"]


async def test_what_is_taken_out_of_the_file_is_gone_in_every_running_session(path: Path) -> None:
    first = await after_one_grant(path)
    first.book.add(a_grant("g2"))
    await first.keep()
    second = Session(path)
    GrantsFile(path).remove({"g1"})
    for session in (first, second):
        session.take_back()
        assert session.ids() == ["g2"]
    path.unlink()
    for session in (first, second):
        session.take_back()
        assert session.ids() == []
        await session.keep(at_once=True)
    assert not path.exists()


async def test_what_was_taken_back_by_others_is_not_written_again(path: Path) -> None:
    session = await after_one_grant(path)
    GrantsFile(path).remove({"g1"})
    session.use()
    await session.keep(at_once=True)
    assert session.ids() == []
    assert session.kept() == ()


async def test_what_was_taken_back_is_not_written_again_by_a_call_that_still_knew_it(
    path: Path,
) -> None:
    session = await after_one_grant(path)
    session.use()
    known = session.book.list()
    GrantsFile(path).remove({"g1"})
    session.take_back()
    await session.persisted.keep(known, at_once=True)
    assert session.kept() == ()


async def test_what_has_expired_leaves_the_file_with_the_next_change(path: Path) -> None:
    await after_one_grant(path, replace(USER, workspace=ELSEWHERE))
    later = Session(path, clock=Hands(NOW + timedelta(days=31)))
    later.book.add(a_grant("g2", created=NOW + timedelta(days=31)))
    await later.keep()
    assert [kept.id for kept in later.kept()] == ["g2"]


async def test_a_broken_file_is_told_once_and_the_session_remembers_by_itself(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path.symlink_to(path.with_name("other.json"))
    with caplog.at_level(logging.WARNING):
        session = Session(path)
        for number in range(3):
            session.book.add(a_grant(f"g{number}"))
            session.clock.seconds += 100
            await session.keep()
            session.take_back()
    assert session.ids() == ["g0", "g1", "g2"]
    (said,) = [record.getMessage() for record in caplog.records]
    assert "is a symbolic link; remembered approvals hold for this session only" in said


async def test_a_disk_that_failed_is_left_alone_for_a_minute_and_then_tried_again(
    path: Path,
) -> None:
    path.mkdir()
    session = await after_one_grant(path)
    path.rmdir()
    session.clock.seconds = 59
    await session.keep()
    assert not path.exists()
    session.clock.seconds = 60
    await session.keep()
    assert [kept.id for kept in session.kept()] == ["g1"]
    session.book.add(a_grant("g2"))
    await session.keep()
    assert [kept.id for kept in session.kept()] == ["g1", "g2"]


async def test_a_disk_that_hangs_holds_no_call_up_for_ever(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    released = threading.Event()

    class Hanging(GrantsFile):
        def update(self, change: GrantsUpdate) -> GrantsContent:
            released.wait()
            return super().update(change)

    monkeypatch.setattr(persisted_grants, "_DEADLINE", 0.05)
    session = Session(path)
    session.persisted = PersistedGrants(Hanging(path), HERE, session.clock)
    session.book.add(a_grant())
    await session.keep()
    await session.keep()
    released.set()
    assert session.ids() == ["g1"]
    (said,) = [record.getMessage() for record in caplog.records]
    assert "the disk does not answer" in said


async def test_garbled_entries_are_told_and_the_others_count(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    session = await after_one_grant(path)
    session.book.add(a_grant("g2"))
    await session.keep()
    path.write_bytes(path.read_bytes().replace(b'"g1"', b'"g9"'))
    with caplog.at_level(logging.WARNING):
        assert Session(path).ids() == ["g2"]
    (said,) = [record.getMessage() for record in caplog.records]
    assert said == f"remembered approvals: {path}: grant 1 is ignored: it was changed"


async def test_calls_that_end_at_once_are_each_counted_once(path: Path) -> None:
    session = await after_one_grant(path)
    async with anyio.create_task_group() as tasks:
        for number in range(5):
            session.use()
            session.book.add(a_grant(f"h{number}"))
            tasks.start_soon(lambda: session.keep(at_once=True))
    assert {kept.id: kept.remembered.uses for kept in session.kept()} == {
        "g1": 5,
        **{f"h{number}": 0 for number in range(5)},
    }
    assert len(session.ids()) == 6


async def test_a_clock_that_is_set_back_does_not_bring_a_grant_back(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = await after_one_grant(path)
    assert len(Session(path).book) == 1
    monkeypatch.setattr(
        "ironcurtain_proxy.steady_clock.seconds_since_boot",
        lambda: 31 * 86400 + time.clock_gettime(time.CLOCK_BOOTTIME),
    )
    # The clock says that no time has gone by.
    assert session.clock.now() == NOW
    assert len(Session(path).book) == 0
