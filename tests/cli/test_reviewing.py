"""`pending`, `approve` and `deny` against a mailbox that waits."""

import os
from collections.abc import Sequence
from pathlib import Path

import anyio.to_thread
import orjson
import pytest
from msgspec.structs import replace

from ironcurtain_proxy.cli import parser_of
from ironcurtain_proxy.cli.reviewing import answer_several, run_approve, run_deny, run_pending
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.mailbox import answering
from ironcurtain_proxy.mailbox.answering import ReviewerAnswer, post
from ironcurtain_proxy.mailbox.mailboxes import (
    Mailboxes,
    NotPendingError,
    PendingRequest,
    find,
    keep_numbers,
    this_process,
)
from ironcurtain_proxy.mailbox.messages import request_bytes, request_name, response_name
from ironcurtain_proxy.model.decision import HUMAN
from ironcurtain_proxy.model.escalation import Approved, Declined, Escalation
from ironcurtain_proxy.private_directory import MailboxDirectory, is_marked_taken, mark_taken
from tests.mailbox.mailbox_fixture import CLOCK, a_box, escalation, within
from tests.program import until

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("C-6", "C-31")]


@pytest.fixture
def box_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("ESCALATION_DIR", raising=False)
    return tmp_path / ".ironcurtain" / "sessions" / "s1"


async def command(*words: str) -> int:
    options = parser_of([words[0]]).parse_args(words)
    run = {"pending": run_pending, "approve": run_approve, "deny": run_deny}[words[0]]
    return await anyio.to_thread.run_sync(run, options)


async def test_a_session_is_found_shown_and_answered_by_number(
    box_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with a_box(box_path) as box:
        asked = escalation(candidates=(within("/etc"),))
        async with box.asked(asked):
            assert await command("pending") == 0
            assert "[1] files/read_file path=/etc/hosts" in capsys.readouterr().out
            assert await command("approve", "1", "--remember") == 0
            assert f"approved {asked.id[:8]}" in capsys.readouterr().out
        assert box.rulings[asked.id] == Approved(by=HUMAN, remember=0)


async def test_a_named_directory_is_answered_by_the_beginning_of_an_id(tmp_path: Path) -> None:
    async with a_box(tmp_path / "box") as box:
        asked = escalation()
        async with box.asked(asked):
            words = ("deny", asked.id[:6], "--note", "no", "--dir", str(box.path))
            assert await command(*words) == 0
        assert box.rulings[asked.id] == Declined(by=HUMAN, kind="denied", note="no")


async def test_the_environments_directory_is_looked_into(
    box_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ESCALATION_DIR", str(tmp_path / "box"))
    async with a_box(tmp_path / "box") as box:
        asked = escalation()
        async with box.asked(asked):
            assert await command("approve", asked.id) == 0


async def test_a_number_never_moves_to_another_request(
    box_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What was shown as 1 has ended: 1 must not approve what has moved up."""
    async with a_box(box_path) as box:
        first, second = escalation(), escalation()
        async with box.asked(second):
            async with box.asked(first):
                first_id = await _first_shown(capsys)
                assert await command("approve", first_id) == 0
            assert await command("approve", "1") == 1
            assert "no longer pending" in capsys.readouterr().err
            assert box.rulings.keys() == {first.id} or box.rulings.keys() == {second.id}
            assert await command("deny", "all") == 0


async def _first_shown(capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    await command("pending", "--json")
    listed = orjson.loads(capsys.readouterr().out)
    assert [one["number"] for one in listed] == [1, 2]
    return str(listed[0]["id"])


async def test_all_approves_together_only_what_may_be(
    box_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """R-28."""
    async with a_box(box_path) as box:
        harmless, deletes = escalation(), replace(escalation(), alone=("it deletes",))
        async with box.asked(harmless), box.asked(deletes):
            assert await command("approve", "all") == 0
            assert "left out of all: it deletes; approve it by its id" in capsys.readouterr().err
            assert await command("approve", "all") == 1
            assert await command("deny", "all") == 0
        assert isinstance(box.rulings[harmless.id], Approved)
        assert isinstance(box.rulings[deletes.id], Declined)


async def test_all_approves_nothing_that_came_after_the_last_look(
    box_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An agent could ask between a person's look and a person's word."""
    async with a_box(box_path) as box:
        shown, later = escalation(), escalation()
        async with box.asked(shown):
            assert await command("pending") == 0
            async with box.asked(later):
                assert await command("approve", "all") == 0
                said = capsys.readouterr().err
                assert f"{later.id[:8]} files/read_file path=" in said
                assert "left out of all: it came after `pending`, look again" in said
                assert box.rulings.keys() == {shown.id}
                assert await command("pending") == 0
                assert await command("approve", "all") == 0
        assert isinstance(box.rulings[later.id], Approved)


async def test_what_is_not_pending_is_an_error(
    box_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await command("approve", "7db5443e") == 1
    assert await command("approve", "1") == 1
    assert await command("approve", "ab") == 1
    assert await command("deny", "all") == 1
    assert await command("pending") == 0
    assert capsys.readouterr().out == "nothing is pending\n"


async def test_what_cannot_be_remembered_is_not_approved_in_its_place(box_path: Path) -> None:
    async with a_box(box_path) as box:
        asked = escalation()
        async with box.asked(asked):
            assert await command("approve", asked.id, "--remember") == 1
            assert asked.id not in box.rulings
            assert await command("approve", asked.id) == 0


async def test_a_named_directory_that_is_not_there_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no such directory"):
        await command("pending", "--dir", str(tmp_path / "typo"))


def _descriptors() -> int:
    return len(list(Path("/dev/fd").iterdir()))


async def test_old_sessions_cost_nothing_and_a_new_request_in_one_is_found(tmp_path: Path) -> None:
    sessions = tmp_path / "sessions"
    for number in range(300):
        (sessions / str(number)).mkdir(parents=True)
        os.utime(sessions / str(number), (1, 1))
    mailboxes = Mailboxes([], sessions)
    descriptors = _descriptors()
    for _ in range(2):
        assert mailboxes.pending(CLOCK.now()) == []
    assert _descriptors() <= descriptors
    async with a_box(sessions / "7") as box:
        asked = escalation()
        async with box.asked(asked):
            assert [one.id for one in mailboxes.pending(CLOCK.now())] == [asked.id]
            box.answer(asked, {"decision": "denied"})


async def test_answers_to_many_are_put_down_before_the_first_is_waited_for(
    box_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Five hundred questions that are waited for one after the other keep a person for minutes."""
    asked = [escalation() for _ in range(5)]
    place = MailboxDirectory.open(box_path, create=True)
    for one in asked:
        place.write(request_name(one.id), request_bytes(one, this_process()))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(command, "approve", "all")
        await until(lambda: all(place.has(response_name(one.id)) for one in asked))
        assert "approved" not in capsys.readouterr().out
        for one in asked:
            with place.opened(response_name(one.id), 1 << 16) as descriptor:
                mark_taken(descriptor)
            place.discard(request_name(one.id))
    out = capsys.readouterr().out
    assert all(f"approved {one.id[:8]}" in out for one in asked)


async def test_one_of_many_that_is_over_leaves_the_others_answered(
    box_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with a_box(box_path) as box:
        asked = [escalation() for _ in range(3)]
        gone = escalation()
        MailboxDirectory.open(box_path, create=True).write(
            request_name(gone.id), request_bytes(gone, this_process())
        )
        async with box.asked(asked[0]), box.asked(asked[1]), box.asked(asked[2]):
            waiting = Mailboxes([box_path], None)
            pending = waiting.pending(CLOCK.now())
            assert len(pending) == 4
            box.request(gone).unlink()
            taken = await anyio.to_thread.run_sync(
                answer_several, waiting, pending, ReviewerAnswer(approved=True)
            )
        assert {one.id for one in taken} == {one.id for one in asked}
        assert f"{gone.id[:8]} files/read_file path=/etc/hosts: too late" in capsys.readouterr().err


def test_an_answer_that_is_taken_and_removed_between_two_looks_was_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = listed(tmp_path, [an_id_of(1)])[0]
    place = MailboxDirectory.open(one.directory, create=False)
    posted = post(place, one.request, ReviewerAnswer(approved=True))
    assert posted is not None
    look = is_marked_taken

    def and_then_the_proxy_takes_it(descriptor: int) -> bool:
        before = look(descriptor)
        os.fchmod(descriptor, 0o400)
        place.discard(response_name(one.id))
        return before

    monkeypatch.setattr(answering, "is_marked_taken", and_then_the_proxy_takes_it)
    assert posted.outcome() is True
    posted.close()


def listed(tmp_path: Path, ids: Sequence[str]) -> list[PendingRequest]:
    """Requests of these ids, shown by a list in this order."""
    place = MailboxDirectory.open(tmp_path / "box", create=True)
    for identity in ids:
        one = escalation(identity=identity)
        place.write(request_name(identity), request_bytes(one, this_process()))
    found = {one.id: one for one in Mailboxes([place.path], None).pending(CLOCK.now())}
    waiting = [found[identity] for identity in ids]
    keep_numbers(waiting, tmp_path / "state")
    return waiting


def an_id_of(number: int, start: str = "a0000000") -> str:
    return f"{start}-0000-4000-8000-{number:012x}"


def test_a_number_above_999_means_the_call_that_was_shown_under_it(tmp_path: Path) -> None:
    waiting = listed(tmp_path, [an_id_of(number) for number in range(1200)])
    for number in (1, 999, 1000, 1001, 1200):
        assert find(str(number), waiting, tmp_path / "state") is waiting[number - 1]
    with pytest.raises(NotPendingError, match=r"no number 1201 was shown"):
        find("1201", waiting, tmp_path / "state")


def test_digits_that_are_a_number_and_begin_an_id_name_nothing(tmp_path: Path) -> None:
    """Either reading would approve what the person may not have meant."""
    ids = [an_id_of(number) for number in range(1100)]
    ids[5] = an_id_of(5, "10501111")
    ids[6] = an_id_of(6, "12341111")
    waiting = listed(tmp_path, ids)
    with pytest.raises(NotPendingError, match="1050 is the number of a0000000 and begins the id"):
        find("1050", waiting, tmp_path / "state")
    assert find("10501111", waiting, tmp_path / "state") is waiting[5]
    assert find("1234", waiting, tmp_path / "state") is waiting[6], "no number 1234 was shown"
    assert find("1051", waiting, tmp_path / "state") is waiting[1050]


def test_a_number_that_is_over_is_never_read_as_the_beginning_of_an_id(tmp_path: Path) -> None:
    ids = [an_id_of(number) for number in range(1100)]
    ids[5] = an_id_of(5, "10501111")
    waiting = listed(tmp_path, ids)
    del waiting[1049]
    with pytest.raises(NotPendingError, match=r"number 1050 \(a0000000\) is no longer pending"):
        find("1050", waiting, tmp_path / "state")


def test_eight_digits_are_the_beginning_of_an_id(tmp_path: Path) -> None:
    waiting = listed(tmp_path, [an_id_of(1, "00000002"), an_id_of(2)])
    assert find("00000002", waiting, tmp_path / "state") is waiting[0]
    assert find("0000", waiting, tmp_path / "state") is waiting[0]
    with pytest.raises(NotPendingError):
        find("02", waiting, tmp_path / "state")


async def test_the_numbers_of_ten_thousand_calls_are_kept(tmp_path: Path) -> None:
    """The file of the numbers was read only up to a size that seven thousand exceed."""
    one = listed(tmp_path, [an_id_of(1)])[0]
    many = [
        replace(one, request=replace(one.request, id=an_id_of(number))) for number in range(10_000)
    ]
    keep_numbers(many, tmp_path / "state")
    assert find("9999", many, tmp_path / "state") is many[9998]


async def test_a_person_approves_the_call_with_other_arguments(
    box_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with a_box(box_path) as box:
        asked = replace(escalation(candidates=(within("/etc"),)), editable=True)
        async with box.asked(asked):
            for words, said in (
                (("--args", '{"path": "/etc/hosts"}'), "nothing is changed"),
                (("--args", "[1]"), "not a JSON object"),
                (("--args", '{"path": 1, "path": 2}'), "not JSON"),
                (("--args", '{"path": "/b"}', "--remember"), "goes with no --remember"),
                (("--args", '{"path": "%s"}' % ("x" * 60_000)), "have more than"),
            ):
                with pytest.raises(ConfigurationError, match=said):
                    await command("approve", asked.id, *words)
            assert await command("approve", asked.id, "--args", '{"path": "/b", "n": true}') == 0
            assert "if the policy does not deny" in capsys.readouterr().out
        ruling = box.rulings[asked.id]
        assert isinstance(ruling, Approved)
        assert (ruling.by, ruling.remember) == (HUMAN, None)
        assert ruling.changed == {"path": "/b", "n": True}


async def test_arguments_that_nobody_may_change_are_not_changed(box_path: Path) -> None:
    async with a_box(box_path) as box:
        asked = escalation()
        async with box.asked(asked):
            with pytest.raises(ConfigurationError, match="cannot be changed"):
                await command("approve", asked.id, "--args", '{"path": "/b"}')
            assert await command("deny", asked.id) == 0


async def test_calls_of_one_kind_are_answered_together_unless_they_came_later(
    box_path: Path,
) -> None:
    def asking(path: str, *, kind: str = "/etc") -> Escalation:
        return escalation(arguments={"path": path}, candidates=(within(kind),))

    first, second, other, late = asking("a"), asking("b"), asking("c", kind="/srv"), asking("d")
    async with a_box(box_path) as box, box.asked(other), box.asked(first), box.asked(second):
        assert await command("pending") == 0
        async with box.asked(late):
            assert await command("approve", first.id, "--remember", "--equal") == 0
            assert box.rulings == {
                first.id: Approved(by=HUMAN, remember=0),
                second.id: Approved(by=HUMAN),
            }
            assert await command("deny", other.id) == 0
            assert await command("deny", late.id, "--equal") == 0
