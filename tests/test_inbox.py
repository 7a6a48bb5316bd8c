# ruff: noqa: ASYNC240  the files are local and small
"""The session's side of the mailbox, against a real proxy's side."""

import os
from pathlib import Path

import anyio
import anyio.to_thread
import orjson
import pytest

from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.inbox import EscalationInbox, NotOfferedError
from ironcurtain_proxy.mailbox.mailboxes import LOCK_NAME, ListenerLock, is_listened_to
from ironcurtain_proxy.model.decision import HUMAN, Program
from ironcurtain_proxy.model.escalation import Approved, Declined
from tests.mailbox.mailbox_fixture import APPROVED, a_box, an_id, escalation, within
from tests.program import until

pytestmark = pytest.mark.anyio


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "escalations"


@pytest.mark.requirement("C-6")
async def test_an_approval_is_taken_and_remembers_what_was_chosen(path: Path) -> None:
    async with a_box(path, require_digest=True) as box:
        asked = escalation(candidates=(within("/etc"), within("/")))
        async with EscalationInbox(path) as inbox, box.asked(asked):
            assert await inbox.approve(asked.id, remember=1, note="fine") is True
        assert box.rulings[asked.id] == Approved(by=HUMAN, remember=1, note="fine")
        assert box.names() == []


async def test_what_is_remembered_is_a_candidate_of_that_very_request(path: Path) -> None:
    async with a_box(path) as box:
        first = escalation(candidates=(within("/etc"), within("/")))
        other = escalation(candidates=(within("/etc"), within("/")))
        async with EscalationInbox(path) as inbox, box.asked(first), box.asked(other):
            offered = {one.id: one.candidates for one in inbox.pending()}
            assert [one.description for one in offered[first.id]] == [
                "Allow files/read_file read-path within /etc",
                "Allow files/read_file read-path within /",
            ]
            with pytest.raises(NotOfferedError):
                await inbox.approve(first.id, remember=offered[other.id][0])
            with pytest.raises(NotOfferedError):
                await inbox.approve(first.id, remember=within("/etc"))
            assert await inbox.approve(first.id, remember=offered[first.id][1]) is True
            assert await inbox.approve(other.id, remember=None) is True
        assert box.rulings[first.id] == Approved(by=HUMAN, remember=1)
        assert box.rulings[other.id] == Approved(by=HUMAN)


@pytest.mark.requirement("C-6")
async def test_a_denial_carries_a_word(path: Path) -> None:
    async with a_box(path) as box:
        asked = escalation()
        async with EscalationInbox(path, reviewer="manager-1") as inbox, box.asked(asked):
            assert await inbox.deny(asked.id, note="use\n/tmp") is True
        ruling = Declined(by=Program("manager-1", "named"), kind="denied", note="use /tmp")
        assert box.rulings[asked.id] == ruling


async def test_programs_that_are_not_async_answer_as_well(path: Path) -> None:
    async with a_box(path) as box:
        first, second = escalation(), escalation()
        inbox = EscalationInbox(path)
        async with box.asked(first), box.asked(second):
            assert await anyio.to_thread.run_sync(inbox.approve_now, first.id) is True
            assert await anyio.to_thread.run_sync(inbox.deny_now, second.id) is True
        assert isinstance(box.rulings[first.id], Approved)
        assert isinstance(box.rulings[second.id], Declined)


async def test_an_answer_that_comes_too_late_is_said_to_be(path: Path) -> None:
    async with a_box(path) as box:
        asked = escalation(seconds=0.3)
        async with EscalationInbox(path) as inbox:
            async with box.asked(asked):
                assert [one.id for one in inbox.pending()] == [asked.id]
            assert await inbox.approve(asked.id) is False
            assert await inbox.approve(an_id()) is False
            assert await inbox.approve("../../etc/passwd") is False
        assert box.names() == []


async def test_an_answer_is_never_overwritten(path: Path) -> None:
    async with EscalationInbox(path) as inbox:
        identity = _original_request(path)
        response = path / f"response-{identity}.json"
        assert [one.id for one in inbox.pending()] == [identity]
        response.write_bytes(b'{"decision":"denied"}')
        assert await inbox.approve(identity) is False
        assert response.read_bytes() == b'{"decision":"denied"}'
        assert sorted(entry.name for entry in path.iterdir()) == [
            f"request-{identity}.json",
            response.name,
        ]


async def test_a_proxy_of_the_original_is_answered(path: Path) -> None:
    """It does not mark what it takes: a request that still lies there has to do."""
    async with EscalationInbox(path) as inbox:
        identity = _original_request(path)
        assert await inbox.approve(identity, remember=True) is True
        fields = orjson.loads((path / f"response-{identity}.json").read_bytes())
        assert fields["decision"] == "approved"
        assert fields["whitelistSelection"] == 0


async def test_a_request_changed_after_it_was_shown_is_not_approved(path: Path) -> None:
    """R-37: whoever looked saw other bytes than those that lie there now."""
    async with a_box(path) as box:
        asked = escalation()
        async with EscalationInbox(path) as inbox, box.asked(asked):
            genuine = box.request(asked).read_bytes()
            box.request(asked).write_bytes(genuine.replace(b"/etc/hosts", b"/tmp/harmless"))
            assert inbox.pending()[0].request.arguments == {"path": "/tmp/harmless"}
            assert await inbox.approve(asked.id) is False
        ruling = box.rulings[asked.id]
        assert isinstance(ruling, Declined)
        assert ruling.kind == "invalid"


async def test_what_was_shown_first_is_what_is_answered(path: Path) -> None:
    async with a_box(path) as box:
        asked = escalation()
        async with EscalationInbox(path) as inbox, box.asked(asked):
            inbox.pending()
            changed = box.request(asked).read_bytes().replace(b"hosts", b"shadow")
            box.request(asked).write_bytes(changed)
            assert await inbox.approve(asked.id) is True
        assert isinstance(box.rulings[asked.id], Approved)


async def test_every_request_comes_once_those_already_there_first(path: Path) -> None:
    async with a_box(path) as box:
        questions = [escalation() for _ in range(5)]
        seen: list[str] = []

        async def review() -> None:
            async with EscalationInbox(path) as inbox:
                async for one in inbox:
                    seen.append(one.id)
                    if len(seen) > 2:
                        await inbox.approve(one.id)
                    if len(seen) == 5:
                        return

        async with anyio.create_task_group() as tasks:
            for asked in questions[:2]:
                tasks.start_soon(box.ask, asked)
                await until(box.request(asked).exists)
            tasks.start_soon(review)
            await until(lambda: len(seen) == 2)
            for asked in questions[2:]:
                tasks.start_soon(box.ask, asked)
            await until(lambda: len(seen) == 5)
            for asked in questions[:2]:
                box.answer(asked, APPROVED)
        assert seen[:2] == [asked.id for asked in questions[:2]]
        assert sorted(seen) == sorted(asked.id for asked in questions)


async def test_closing_the_inbox_ends_the_iteration(path: Path) -> None:
    inbox = EscalationInbox(path)
    ended = anyio.Event()

    async def review() -> None:
        async for _ in inbox:
            pass
        ended.set()

    async with anyio.create_task_group() as tasks:
        async with inbox:
            tasks.start_soon(review)
            await anyio.wait_all_tasks_blocked()
        await ended.wait()


async def test_dead_and_lapsed_requests_are_not_shown(path: Path) -> None:
    async with EscalationInbox(path) as inbox:
        _original_request(path, owner={"pid": 2**22 + 1, "startTime": "1"})
        _original_request(path, expiresAt="2020-01-01T00:00:00.000Z")
        living = _original_request(path, owner={"pid": os.getpid(), "startTime": ""})
        (path / f"request-{an_id()}.json").write_bytes(b"{")
        (path / f"request-{an_id()}.json").symlink_to(path / f"request-{living}.json")
        assert [one.id for one in inbox.pending()] == [living]


async def test_a_listener_is_alone_and_gives_the_lock_back(path: Path) -> None:
    """R-34."""
    async with EscalationInbox(path, listen=True):
        assert is_listened_to(path)
        assert (path / LOCK_NAME).read_bytes() == b"%d\n" % os.getpid()
        assert (path / LOCK_NAME).stat().st_mode & 0o777 == 0o600
        with pytest.raises(ConfigurationError, match=f"process {os.getpid()}"):
            await EscalationInbox(path, listen=True).__aenter__()
    assert not is_listened_to(path)
    assert list(path.iterdir()) == []


def test_the_lock_of_a_dead_listener_counts_as_free(tmp_path: Path) -> None:
    (tmp_path / LOCK_NAME).write_bytes(b"4194999\n")
    assert not is_listened_to(tmp_path)
    lock = ListenerLock.acquire(tmp_path)
    assert lock is not None
    assert is_listened_to(tmp_path)
    lock.release()


def test_a_lock_that_is_a_link_says_nothing(tmp_path: Path) -> None:
    with ListenerLock.acquire(tmp_path) or pytest.fail("the lock is taken"):
        (tmp_path / "box").mkdir()
        (tmp_path / "box" / LOCK_NAME).symlink_to(tmp_path / LOCK_NAME)
        assert not is_listened_to(tmp_path / "box")


# --- the user's words ----------------------------------------------------------------------------


@pytest.mark.requirement("A-44", "A-45", "A-46")
def test_the_users_message_stands_alone_in_its_file(path: Path) -> None:
    message = 'push "my branch"\n\u202eto origin'
    EscalationInbox(path).write_user_message(message)
    file = path / "user-context.json"
    assert orjson.loads(file.read_bytes()) == {"userMessage": message}
    assert file.stat().st_mode & 0o777 == 0o600


@pytest.mark.requirement("A-47")
def test_a_new_turn_leaves_nothing_of_the_old_message(path: Path) -> None:
    inbox = EscalationInbox(path)
    inbox.write_user_message("delete everything in /srv", trusted_source=True)
    inbox.write_user_message("thanks")
    assert orjson.loads((path / "user-context.json").read_bytes()) == {"userMessage": "thanks"}
    assert len(list(path.iterdir())) == 1


def test_a_trusted_host_says_so_and_when(path: Path) -> None:
    EscalationInbox(path).write_user_message("hello", trusted_source=True)
    fields = orjson.loads((path / "user-context.json").read_bytes())
    assert fields["source"] == "mux-trusted-input"
    assert fields["timestamp"].endswith("Z")
    assert list(fields) == ["userMessage", "timestamp", "source"]


def test_a_link_in_place_of_the_message_is_replaced_not_followed(path: Path) -> None:
    inbox = EscalationInbox(path)
    elsewhere = path.parent / "elsewhere"
    elsewhere.write_bytes(b"mine")
    (path / "user-context.json").symlink_to(elsewhere)
    inbox.write_user_message("hello")
    assert elsewhere.read_bytes() == b"mine"
    assert not (path / "user-context.json").is_symlink()


def _original_request(path: Path, **more: object) -> str:
    identity = an_id()
    fields = {
        "escalationId": identity,
        "serverName": "filesystem",
        "toolName": "read_file",
        "arguments": {"path": "/etc/hosts"},
        "reason": "Reads outside",
        "whitelistCandidates": [{"description": "Allow it"}],
        **more,
    }
    (path / f"request-{identity}.json").write_bytes(orjson.dumps(fields))
    return identity
