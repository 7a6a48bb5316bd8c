# ruff: noqa: ASYNC240  the files are local and small
"""Questions and answers through files, with real files and a real watch."""

import os
from pathlib import Path

import anyio
import orjson
import pytest

from ironcurtain_proxy.errors import KernelError
from ironcurtain_proxy.mailbox.mailboxes import ListenerLock
from ironcurtain_proxy.mailbox.reviewer import Mailbox, MailboxSettings
from ironcurtain_proxy.model.decision import HUMAN, TIMEOUT
from ironcurtain_proxy.model.escalation import Approved, Declined, Unreachable
from tests.mailbox.mailbox_fixture import APPROVED, CLOCK, a_box, an_id, escalation, within
from tests.program import until

pytestmark = pytest.mark.anyio


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "escalations"


@pytest.mark.requirement("C-6", "A-46", "X-16")
async def test_an_approval_approves_and_leaves_nothing_behind(path: Path) -> None:
    async with a_box(path) as box:
        asked = escalation(candidates=(within("/etc"),))
        ruling = await box.ruling(asked, {"decision": "approved", "whitelistSelection": 0})
        assert ruling == Approved(by=HUMAN, remember=0)
        assert box.names() == []


@pytest.mark.requirement("C-6", "X-16")
async def test_a_denial_with_a_word_reaches_the_caller(path: Path) -> None:
    async with a_box(path) as box:
        asked = escalation()
        ruling = await box.ruling(asked, {"decision": "denied", "note": "use /tmp"})
        assert ruling == Declined(by=HUMAN, kind="denied", note="use /tmp")
        assert box.names() == []


@pytest.mark.parametrize(("there", "mode"), [(None, 0o700), (0o755, 0o755), (0o700, 0o700)])
async def test_the_files_are_private_and_so_is_a_directory_that_we_made(
    path: Path, there: int | None, mode: int
) -> None:
    """G18. One that was there may be anybody's, such as `/tmp`: its mode is not ours to change."""
    if there is not None:
        path.mkdir()
        path.chmod(there)
    async with a_box(path) as box:
        asked = escalation()
        async with box.asked(asked):
            assert path.stat().st_mode & 0o777 == mode
            assert box.request(asked).stat().st_mode & 0o777 == 0o600
            box.answer(asked, APPROVED)


@pytest.mark.requirement("X-8", "X-16")
async def test_a_deadline_that_passes_refuses_and_leaves_nothing_behind(path: Path) -> None:
    async with a_box(path) as box:
        asked = escalation(seconds=0.2)
        async with box.asked(asked):
            pass
        assert box.rulings[asked.id] == Declined(by=TIMEOUT, kind="expired")
        assert box.names() == []


@pytest.mark.requirement("X-8")
async def test_a_late_answer_is_never_honoured_and_is_removed(path: Path) -> None:
    async with a_box(path) as box:
        asked = escalation(seconds=0.2)
        async with box.asked(asked):
            pass
        box.answer(asked, APPROVED)
        await until(lambda: box.names() == [])
        assert isinstance(box.rulings[asked.id], Declined)


async def test_a_question_whose_time_is_over_is_not_even_asked(path: Path) -> None:
    async with a_box(path) as box:
        ruling = await box.mailbox.ask(escalation(seconds=-1))
        assert ruling == Declined(by=TIMEOUT, kind="expired")


async def test_a_cancelled_call_withdraws_its_question(path: Path) -> None:
    async with a_box(path) as box:
        asked = escalation()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(box.ask, asked)
            await until(box.request(asked).exists)
            tasks.cancel_scope.cancel()
        assert box.names() == []
        assert box.rulings == {}


@pytest.mark.requirement("X-16")
async def test_an_answer_that_lay_there_before_the_question_does_not_count(path: Path) -> None:
    async with a_box(path) as box:
        asked = escalation(seconds=0.5)
        box.answer(asked, APPROVED)
        async with box.asked(asked):
            assert not box.response(asked).exists()
        assert box.rulings[asked.id] == Declined(by=TIMEOUT, kind="expired")


@pytest.mark.requirement("X-8")
async def test_an_answer_to_another_id_settles_nothing_and_is_removed(path: Path) -> None:
    async with a_box(path) as box:
        asked, other = escalation(), escalation()
        async with box.asked(asked):
            box.answer(other, APPROVED)
            await until(lambda: not box.response(other).exists())
            assert asked.id not in box.rulings
            box.answer(asked, {"decision": "denied"})
        assert box.names() == []


@pytest.mark.requirement("X-8")
async def test_of_two_answers_the_first_counts(path: Path) -> None:
    async with a_box(path) as box:
        asked = escalation()
        ruling = await box.ruling(asked, {"decision": "denied"})
        box.answer(asked, APPROVED)
        await until(lambda: box.names() == [])
        assert isinstance(ruling, Declined)


async def test_an_id_is_not_asked_twice_at_once(path: Path) -> None:
    async with a_box(path) as box:
        asked = escalation()
        async with box.asked(asked):
            with pytest.raises(KernelError):
                await box.mailbox.ask(asked)
            assert box.request(asked).exists()
            box.answer(asked, APPROVED)


ID = "25174eed-4dc6-49b6-a0ab-e4984f43988e"


@pytest.mark.parametrize("identity", ["../x", "a", "", ID.upper(), f"{ID}/.."])
async def test_an_id_that_could_name_another_file_is_refused(path: Path, identity: str) -> None:
    async with a_box(path) as box:
        asked = escalation(identity=identity or "/")
        with pytest.raises(KernelError):
            await box.mailbox.ask(asked)
        assert box.names() == []


async def test_an_answer_written_as_a_shell_does_it_counts(path: Path) -> None:
    """Opened empty, then written."""
    async with a_box(path) as box:
        asked = escalation()
        async with box.asked(asked):
            with box.response(asked).open("wb", buffering=0) as response:
                await anyio.sleep(0.02)
                response.write(APPROVED)
        assert isinstance(box.rulings[asked.id], Approved)


async def test_an_answer_that_stays_empty_is_refused(path: Path) -> None:
    async with a_box(path) as box:
        assert isinstance(await box.ruling(escalation(), b""), Declined)


async def test_ten_questions_do_not_wait_for_each_other(path: Path) -> None:
    """G28."""
    async with a_box(path) as box:
        questions = [escalation() for _ in range(10)]
        async with anyio.create_task_group() as tasks:
            for asked in questions:
                tasks.start_soon(box.ask, asked)
            await until(lambda: len(box.names()) == 10)
            for asked in reversed(questions):
                box.answer(asked, APPROVED)
                await until(lambda asked=asked: asked.id in box.rulings)  # type: ignore[misc]
        assert box.names() == []


async def test_a_thousand_questions_at_once_are_all_answered(path: Path) -> None:
    async with a_box(path) as box:
        questions = [escalation() for _ in range(1000)]
        async with anyio.create_task_group() as tasks:
            for asked in questions:
                tasks.start_soon(box.ask, asked)
            await until(lambda: len(box.names()) == 1000)
            for number, asked in enumerate(questions):
                box.answer(asked, APPROVED if number % 2 else {"decision": "denied"})
        approved = [isinstance(box.rulings[asked.id], Approved) for asked in questions]
        assert approved == [bool(number % 2) for number in range(1000)]
        assert box.names() == []


async def test_two_proxies_on_one_directory_leave_each_other_alone(path: Path) -> None:
    async with a_box(path) as one, a_box(path) as other:
        asked, others = escalation(), escalation()
        async with one.asked(asked), other.asked(others):
            async with a_box(path):
                assert len(one.names()) == 2
            one.answer(asked, APPROVED)
            await until(lambda: asked.id in one.rulings)
            assert other.rulings == {}
            other.answer(others, {"decision": "denied"})
        assert isinstance(one.rulings[asked.id], Approved)
        assert isinstance(other.rulings[others.id], Declined)
        assert one.names() == []


def _request(path: Path, pid: int, start: str) -> str:
    identity = an_id()
    fields = {
        "escalationId": identity,
        "serverName": "s",
        "toolName": "t",
        "arguments": {},
        "reason": "r",
        "owner": {"pid": pid, "startTime": start},
    }
    name = f"request-{identity}.json"
    (path / name).write_bytes(orjson.dumps(fields))
    (path / f"response-{identity}.json").write_bytes(APPROVED)
    return name


async def test_what_dead_proxies_left_is_removed_at_start_and_what_living_ones_wait_for_is_not(
    path: Path,
) -> None:
    path.mkdir()
    _request(path, 2**22 + 1, "1")
    _request(path, os.getpid(), "1")
    living = _request(path, 1, "")
    (path / ".request-x.json.4194999.aabb.tmp").touch()
    (path / f"response-{an_id()}.json").write_bytes(APPROVED)
    (path / "grants.json").write_bytes(b'{"grants":[],"owner":{"pid":4194999,"startTime":"1"}}')
    (path / "user-context.json").touch()
    (path / "session.log").touch()
    async with a_box(path) as box:
        assert box.names() == sorted(
            ["session.log", "user-context.json", living, living.replace("request", "response")]
        )


async def test_arguments_that_cannot_be_shown_are_refused(path: Path) -> None:
    deep: list[object] = []
    for _ in range(400):
        deep = [deep]
    async with a_box(path) as box:
        ruling = await box.mailbox.ask(escalation(arguments={"x": deep}))  # type: ignore[dict-item]
        assert isinstance(ruling, Declined)
        assert box.names() == []


async def test_without_a_listener_nobody_is_reached_and_nothing_is_made(path: Path) -> None:
    """R-34."""
    async with a_box(path, assume_listener=False) as box:
        assert isinstance(await box.mailbox.ask(escalation()), Unreachable)
        assert not path.exists()


@pytest.mark.parametrize("everywhere", [True, False])
async def test_a_listener_is_asked_while_it_listens(path: Path, everywhere: bool) -> None:
    """R-34."""
    if not everywhere:
        path.mkdir(mode=0o700)
    async with a_box(path, assume_listener=False) as box:
        lock = ListenerLock.acquire(path.parent if everywhere else path)
        assert lock is not None
        with lock:
            assert isinstance(await box.ruling(escalation(), APPROVED), Approved)
        assert isinstance(await box.mailbox.ask(escalation()), Unreachable)


async def test_a_mailbox_that_does_not_run_reaches_nobody(path: Path) -> None:
    mailbox = Mailbox(MailboxSettings(directory=path, assume_listener=True), CLOCK)
    assert isinstance(await mailbox.ask(escalation()), Unreachable)


async def test_what_is_remembered_is_shown_and_commands_about_it_arrive(path: Path) -> None:
    heard: list[tuple[str, str | None]] = []

    async def on_command(action: str, grant: str | None) -> None:
        heard.append((action, grant))

    settings = MailboxSettings(directory=path, assume_listener=True)
    mailbox = Mailbox(settings, CLOCK, on_command)
    async with anyio.create_task_group() as tasks:
        await tasks.start(mailbox.run)
        mailbox.publish_grants("session-1", [{"id": "g1", "description": "d"}])
        shown = orjson.loads((path / "grants.json").read_bytes())
        assert shown["grants"] == [{"id": "g1", "description": "d"}]
        (path / "grants-command-1.json").write_bytes(b'{"action":"revoke","id":"g1"}')
        (path / "grants-command-2.json").write_bytes(b'{"action":"grant","id":"g1"}')
        (path / "grants-command-3.json").write_bytes(b'{"action":"clear"}')
        (path / "grants-command-4.json").symlink_to("/etc/hosts")
        await until(lambda: len(heard) == 2)
        assert sorted(heard) == [("clear", None), ("revoke", "g1")]
        assert [entry.name for entry in path.iterdir()] == ["grants.json"]
        tasks.cancel_scope.cancel()
    assert list(path.iterdir()) == []


async def test_what_could_not_be_removed_is_removed_when_that_can_be_done(path: Path) -> None:
    async with a_box(path) as box:
        asked = escalation()
        name = box.request(asked)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(box.ask, asked)
            await until(name.exists)
            # A full directory in its place cannot be removed, as nothing can where all is
            # read-only.
            name.unlink()
            name.mkdir()
            (name / "full").touch()
            tasks.cancel_scope.cancel()
        assert name.exists()
        (name / "full").unlink()
        await until(lambda: not name.exists())
