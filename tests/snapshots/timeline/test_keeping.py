"""The timeline through crashes, full disks, other processes and the bounds of what is kept."""

import os
import random
import resource
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from ironcurtain_proxy.model.operation import RequestId
from ironcurtain_proxy.model.reply import Change, NotHeld
from ironcurtain_proxy.model.values import RealPath
from ironcurtain_proxy.own_process import SystemClock
from ironcurtain_proxy.snapshots import workspace_timeline
from ironcurtain_proxy.snapshots.history import Difference
from ironcurtain_proxy.snapshots.keeper import Keeper, Limits
from ironcurtain_proxy.snapshots.opening import claim, remove_old
from ironcurtain_proxy.snapshots.rewinding import kept
from ironcurtain_proxy.snapshots.workspace_timeline import WorkspaceTimeline
from tests.program import until
from tests.snapshots.timeline.workspace_fixture import Timelined, Vandal

ROOT = Path(__file__).parents[3]


@pytest.fixture
def w(tmp_path: Path) -> Timelined:
    return Timelined(tmp_path / "w", tmp_path / "s")


@pytest.mark.parametrize("seed", range(6))
def test_a_proxy_that_is_killed_at_any_moment_leaves_points_that_can_be_gone_back_to(
    w: Timelined, seed: int
) -> None:
    w("counter").write_text("0")
    chance = random.Random(seed)  # noqa: S311  repeatable chance
    told: list[tuple[str, str]] = []
    with subprocess.Popen(
        [sys.executable, "-m", "tests.snapshots.timeline.dying_proxy", w.store, w.top],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    ) as proxy:
        assert proxy.stdout is not None
        for _ in range(chance.randrange(1, 40)):
            point, counter = proxy.stdout.readline().split()
            told.append((point, counter))
        timer = threading.Timer(chance.random() / 100, proxy.kill)
        timer.start()
        rest = [line.split() for line in proxy.stdout if line.endswith("\n")]
        told += [(point, counter) for point, counter in rest]
        timer.join()
    w.reopen()
    _, changes = w.call(lambda: w("after").touch())
    assert changes == ["created after"]
    point, counter = chance.choice(told)
    w.back(point, rewind=True)
    assert w("counter").read_text() == counter
    assert not list(w.store.rglob("*.new"))


def test_what_a_killed_proxy_left_unnoted_is_noted_by_the_next(w: Timelined) -> None:
    w("a").write_text("before")
    point = w.mark()
    w("a").write_text("by the call")
    w.keeper.close()
    w.reopen()
    w.keeper.begin()
    assert w.keeper.history.changes(int(point)) == (Change("a", "changed"),)
    w.back(point)
    assert w("a").read_text() == "before"


def test_a_torn_line_is_taken_away(w: Timelined) -> None:
    w("a").write_text("before")
    point, _ = w.call(lambda: w("a").write_text("after"))
    with (w.store / "log").open("ab") as file:
        file.write(b'["changed",[1],[["a"')
    w.reopen()
    w.call(lambda: w("b").touch())
    w.back(point, rewind=True)
    assert (w("a").read_text(), w("b").exists()) == ("before", False)


def test_a_log_that_says_nothing_is_begun_anew(w: Timelined) -> None:
    w.call(lambda: w("a").touch())
    (w.store / "log").write_bytes(b"\x00\x01garbage\n")
    w.reopen()
    point, changes = w.call(w("a").unlink)
    assert changes == ["deleted a"]
    w.back(point)
    assert w("a").exists()


def test_where_no_copy_can_be_written_no_point_is_made(w: Timelined) -> None:
    script = (
        "import resource, sys\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        "sys.argv[:] = sys.argv[1:]\n"
        "from pathlib import Path\n"
        "from ironcurtain_proxy.own_process import SystemClock\n"
        "from ironcurtain_proxy.model.values import RealPath\n"
        "from ironcurtain_proxy.snapshots.keeper import Keeper, Limits\n"
        "k = Keeper(Path(sys.argv[0]), RealPath.from_text(sys.argv[1]), Limits(), session='s',"
        " now=SystemClock().now)\n"
        "print(k.mark('c', 's', 't'))\n"
        "print(not k.unheld(RealPath.from_text(sys.argv[1] + '/large')))\n"
    )
    w("large").write_bytes(b"x" * 100_000)
    done = subprocess.run(
        [sys.executable, "-c", script, w.store, w.top],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "NotHeld(reason='no space is left for copies of files')\nFalse\n"
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 4096
    w.reopen()
    point, _ = w.call(w("large").unlink)
    w.back(point)
    assert w("large").stat().st_size == 100_000


def test_a_rollback_by_another_process_is_known_to_the_proxy(w: Timelined) -> None:
    w("a").write_text("before")
    point, _ = w.call(lambda: w("a").write_text("after"))
    w.back(point)
    second, changes = w.call(lambda: w("b").touch())
    assert (changes, int(second)) == (["created b"], 3)
    points = w.keeper.history.points()
    assert [(one.kind, one.tool) for one in points][1] == ("rollback", points[0].call)


def test_calls_at_the_same_time_are_both_held_to_account(w: Timelined) -> None:
    w("a").write_text("before")
    first = w.mark()
    second = w.mark()
    w("a").write_text("by one of them")
    assert w.keeper.end_call(first) == w.keeper.end_call(second) == (Change("a", "changed"),)


def test_what_a_person_changed_after_a_call_is_not_on_the_account_of_the_call(w: Timelined) -> None:
    w("a").write_text("before")
    point, _ = w.call(lambda: w("a").write_text("by the call"))
    w("b").write_text("by a person")
    w.keeper.verify()
    assert w.keeper.history.changes(int(point)) == (Change("a", "changed"),)
    w.back(point)
    assert (w("a").read_text(), w("b").exists()) == ("before", True)


def test_what_nobody_was_told_of_is_on_the_account_of_the_calls_since(tmp_path: Path) -> None:
    w = Timelined(tmp_path / "w", tmp_path / "s", Limits(caches=frozenset({"cache"})))
    w("cache").mkdir()
    for number in range(600):
        w(f"{number}").write_text("before")

    def hide() -> None:
        w("cache/x").hardlink_to(w("7"))
        w("cache/x").write_text("by the call")

    point, changes = w.call(hide)
    assert changes == []
    w.keeper.verify()
    assert w.keeper.history.changes(int(point)) == (Change("7", "changed"),)
    w.back(point)
    assert w("7").read_text() == "before"


def test_a_change_that_nobody_was_told_of_is_taken_back_with_its_call_at_once(
    tmp_path: Path,
) -> None:
    w = Timelined(tmp_path / "w", tmp_path / "s", Limits(caches=frozenset({"cache"})))
    w("cache").mkdir()
    w("deep").mkdir()
    for name in ("deep/in-place", "beside"):
        w(name).write_text("before")

    def hide() -> None:
        w("cache/x").hardlink_to(w("deep/in-place"))
        w("cache/x").write_text("by the call")

    # Directories of recent changes are scanned without an event, unless they are large.
    for number in range(600):
        w(f"deep/{number}").touch()
    while w("deep/in-place").stat().st_ctime_ns > time.time_ns() - 50_000_000:
        w.call(lambda: None)
    w.call(lambda: None)
    point, changes = w.call(hide)
    assert changes == []
    w("beside").write_text("by a person")
    w.back(point)
    assert (w("deep/in-place").read_text(), w("beside").read_text()) == ("before", "by a person")


def test_what_a_call_does_while_everything_is_scanned_is_on_no_other_account(
    w: Timelined, monkeypatch: pytest.MonkeyPatch
) -> None:
    w("a").write_text("before")
    ended, _ = w.call(lambda: w("b").touch())
    under_way = w.mark()
    look = w.keeper.look

    def late(*, everything: bool = False, contents: bool = False) -> list[Difference]:
        if everything:
            w("a").write_text("by the call that is under way")
        return look(everything=everything)

    monkeypatch.setattr(w.keeper, "look", late)
    w.keeper.verify()
    assert w.keeper.history.changes(int(ended)) == (Change("b", "created"),)
    assert w.keeper.history.changes(int(under_way)) == (Change("a", "changed"),)


def test_a_call_that_could_not_be_settled_is_not_blamed_for_what_comes_later(
    tmp_path: Path,
) -> None:
    w = Timelined(tmp_path / "w", tmp_path / "s", Limits(max_files=20))
    w("kept").write_text("before")

    def flood() -> None:
        w("kept").unlink()
        for number in range(30):
            w(f"{number}").touch()

    point, changes = w.call(flood)
    assert changes == ["the workspace has more than 20 files and directories"]
    for number in range(30):
        w(f"{number}").unlink()
    w.call(lambda: None)
    assert w.keeper.history.changes(int(point)) == (Change("kept", "deleted"),)
    w.call(lambda: w("later").touch())
    assert w.keeper.history.changes(int(point)) == (Change("kept", "deleted"),)


def test_the_oldest_points_go_first_and_what_stays_can_be_gone_back_to(tmp_path: Path) -> None:
    w = Timelined(tmp_path / "w", tmp_path / "s", Limits(max_bytes=200_000))
    points = []
    for number in range(20):
        points.append((w.mark(), w.picture()))
        w("a").write_bytes(b"%02d" % number * 10_000)
        w.keeper.end_call(points[-1][0])
    # What the last call wrote goes with the next.
    w.mark()
    held = sum(one.stat().st_size for one in (w.store / "copies").rglob("*") if one.is_file())
    assert held <= 200_000
    assert w.keeper.history.dropped.points > 0
    first = w.keeper.history.points()[0].number
    w.back(str(first), rewind=True)
    assert w.picture() == dict(points)[str(first)]  # type: ignore[index]


def test_points_that_are_too_old_are_dropped_and_old_timelines_removed(tmp_path: Path) -> None:
    now = [datetime(2026, 1, 1, tzinfo=UTC)]
    (tmp_path / "w").mkdir()
    workspace = RealPath.from_text(str(tmp_path / "w"))
    claimed = claim(tmp_path / "t", workspace)
    limits = Limits(keep=timedelta(days=14))
    for _ in range(2):
        keeper = Keeper(claimed.directory, workspace, limits, session="s", now=lambda: now[0])
        point = keeper.mark("c", "s", "t")
        assert not isinstance(point, NotHeld)
        keeper.end_call(point)
        keeper.close()
        now[0] += timedelta(days=15)
    found = kept(tmp_path / "t")[0]
    assert (len(found.points), found.dropped.points) == (1, 1)
    future = SystemClock().now().timestamp() + 15 * 86400
    remove_old(tmp_path / "t", limits.keep, future)
    assert claimed.directory.exists()
    claimed.release()
    remove_old(tmp_path / "t", limits.keep, future)
    assert not claimed.directory.exists()


def test_two_proxies_on_one_workspace_keep_a_timeline_each(tmp_path: Path) -> None:
    workspace = RealPath.from_text(str(tmp_path))
    first, second = claim(tmp_path / "t", workspace), claim(tmp_path / "t", workspace)
    assert first.directory != second.directory
    first.release()
    again = claim(tmp_path / "t", workspace)
    assert again.directory == first.directory
    assert again.directory.stat().st_mode & 0o777 == 0o700
    for one in (second, again):
        one.release()


def test_where_the_workspace_cannot_be_noted_the_old_note_stays_and_the_place_is_free(
    tmp_path: Path,
) -> None:
    workspace = RealPath.from_text(str(tmp_path))
    first = claim(tmp_path / "t", workspace)
    first.release()
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (3, usual[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            claim(tmp_path / "t", workspace)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)
    assert (first.directory / "workspace").read_text() == str(tmp_path)
    again = claim(tmp_path / "t", workspace)
    assert again.directory == first.directory
    again.release()


def test_the_state_of_the_proxy_is_left_alone_in_a_workspace_around_it(tmp_path: Path) -> None:
    state = tmp_path / "home" / ".ironcurtain"
    workspace = RealPath.from_text(str(tmp_path / "home"))
    claimed = claim(state / "timeline", workspace)
    keeper = Keeper(claimed.directory, workspace, Limits(), session="s", now=SystemClock().now)
    point = keeper.mark("c", "s", "t")
    assert not isinstance(point, NotHeld)
    (state / "audit.jsonl").write_text("a record")
    assert keeper.end_call(point) == ()
    assert keeper.unheld(RealPath.from_text(str(state / "audit.jsonl")))
    claimed.release()


def test_the_port_makes_points_while_it_looks_and_settles_what_was_cancelled(
    tmp_path: Path,
) -> None:
    top = tmp_path / "w"
    top.mkdir()
    Vandal(top, 1).run(40)
    (top / "a-file").write_text("before")

    async def session() -> None:
        timeline = WorkspaceTimeline(
            tmp_path / "t",
            RealPath.from_text(str(top)),
            Limits(),
            session="s",
            now=SystemClock().now,
        )
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(timeline.run)
            point = await timeline.mark(RequestId("c"), "s", "t", may_drop=False)
            assert not isinstance(point, NotHeld)
            assert not await timeline.unheld(RealPath.from_text(str(top / "a-file")))
            (top / "a-file").write_text("after")
            with anyio.CancelScope() as scope:
                scope.cancel()
                changes = await timeline.end_call(point)
            assert changes == (Change("a-file", "changed"),)
            tasks.cancel_scope.cancel()
        timeline.close()

    anyio.run(session)


def test_a_long_first_look_says_how_far_it_has_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(workspace_timeline, "_PATIENCE", 0.001)
    (tmp_path / "w").mkdir()

    async def session() -> None:
        timeline = WorkspaceTimeline(
            tmp_path / "t",
            RealPath.from_text(str(tmp_path / "w")),
            Limits(),
            session="s",
            now=SystemClock().now,
        )
        async with anyio.create_task_group() as tasks:
            async with timeline._lock:
                tasks.start_soon(timeline.run)
                await until(lambda: caplog.messages)
            await timeline.mark(RequestId("c"), "s", "t", may_drop=False)
            tasks.cancel_scope.cancel()
        timeline.close()

    anyio.run(session)
    assert "files and directories so far" in caplog.messages[0]


@pytest.mark.parametrize("is_approved", [False, True])
def test_a_call_that_nobody_approved_opens_nothing_to_other_users(
    tmp_path: Path, is_approved: bool
) -> None:
    limits = Limits(caches=frozenset({"node_modules"}))
    w = Timelined(tmp_path / "w", tmp_path / "s", limits)
    program = "node_modules/.bin/x"
    w(program).parent.mkdir(parents=True)
    for name, mode in (("own", 0o666), ("a", 0o644), (program, 0o755)):
        w(name).write_text("x")
        w(name).chmod(mode)
    point = w.keeper.mark("call", "shell", "run", may_drop=is_approved)
    assert isinstance(point, str)
    names = ["a", "new", "pipe", "directory", program]
    for name in ("own", "a", "new"):
        w(name).write_text("y")
    os.mkfifo(w("pipe"))
    w("directory").mkdir()
    for name in names:
        w(name).chmod(0o777)
    w.keeper.end_call(point)
    assert [n for n in names if w(n).stat().st_mode & 0o2] == (names if is_approved else [])
    assert w("own").stat().st_mode & 0o777 == 0o666
