# ruff: noqa: ASYNC240  the files are local and small
"""A mailbox that is one reviewer's: what others put there settles nothing and blocks nothing."""

import logging
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import anyio
import pytest

from ironcurtain_proxy.mailbox.messages import (
    Credential,
    proved_response_bytes,
    read_request,
    request_name,
    response_name,
)
from ironcurtain_proxy.mailbox.reviewer import Mailbox, MailboxSettings
from ironcurtain_proxy.model.decision import TIMEOUT, Program
from ironcurtain_proxy.model.escalation import Approved, Declined, Escalation, Unreachable
from ironcurtain_proxy.model.values import Json
from tests.mailbox.mailbox_fixture import APPROVED, CLOCK, Box, a_box, an_id, escalation, within
from tests.program import until

pytestmark = pytest.mark.anyio

TOKEN = "s3cret-" * 6
OWN = Credential("night-shift", TOKEN)
OTHER = Credential("day-shift", "0ther-" * 6)
WORD = "0123456789abcdef"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "escalations"


@asynccontextmanager
async def an_own_box(path: Path) -> AsyncIterator[Box]:
    async with a_box(path, credential=OWN) as box:
        yield box


def proved(
    box: Box, asked: Escalation, credential: Credential = OWN, *, approved: bool = True
) -> bytes:
    name = request_name(asked.id)
    request = read_request(name, (box.path / name).read_bytes())
    assert request is not None
    return proved_response_bytes(
        approved=approved, request=request, note=f"by {TOKEN}", credential=credential
    )


def plain(box: Box, asked: Escalation, **more: Json) -> Mapping[str, Json]:
    """An answer as one writes it by hand."""
    name = request_name(asked.id)
    request = read_request(name, (box.path / name).read_bytes())
    assert request is not None
    return {
        "decision": "approved",
        "escalationId": asked.id,
        "requestDigest": request.digest,
        "reviewer": "night-shift",
        "token": TOKEN,
        **more,
    }


@pytest.mark.requirement("X-8", "X-16")
async def test_the_reviewer_s_own_answer_counts_and_leaves_nothing_behind(path: Path) -> None:
    async with an_own_box(path) as box:
        for word, approved in (("approved", True), ("denied", False)):
            by_hand, by_command = escalation(), escalation()
            async with box.asked(by_hand):
                assert box.fields(by_hand)["reviewer"] == "night-shift"
                assert TOKEN not in box.request(by_hand).read_text()
                box.answer(by_hand, plain(box, by_hand, decision=word))
            async with box.asked(by_command):
                raw = proved(box, by_command, approved=approved)
                assert TOKEN.encode() not in raw
                box.answer(by_command, raw)
            for asked in (by_hand, by_command):
                ruling = box.rulings[asked.id]
                assert isinstance(ruling, Approved) == approved
                assert getattr(ruling, "by", None) == Program("night-shift", "session")
        assert box.names() == []


async def test_an_answer_counts_under_a_name_that_nobody_could_foresee(path: Path) -> None:
    async with an_own_box(path) as box:
        asked = escalation()
        async with box.asked(asked):
            (path / response_name(asked.id, WORD)).write_bytes(b"")
            raw = proved(box, asked)
            (path / "x").write_bytes(raw)
            (path / "x").rename(path / response_name(asked.id, "f" * 16))
        assert isinstance(box.rulings[asked.id], Approved)
        assert box.names() == []


async def test_in_a_person_s_mailbox_there_is_but_one_name(path: Path) -> None:
    async with a_box(path) as box:
        asked, other = escalation(), escalation()
        async with box.asked(asked), box.asked(other):
            assert "reviewer" not in box.fields(asked)
            (path / response_name(asked.id, WORD)).write_bytes(APPROVED)
            # When this one was seen, the one before it was as well.
            box.answer(other, APPROVED)
            await until(lambda: other.id in box.rulings)
            assert asked.id not in box.rulings
            box.answer(asked, {"decision": "denied"})
        assert isinstance(box.rulings[asked.id], Declined)


async def test_what_is_not_a_person_has_nothing_remembered(path: Path) -> None:
    async with an_own_box(path) as box:
        asked = escalation(candidates=(within("/etc"),))
        async with box.asked(asked):
            box.answer(asked, plain(box, asked, whitelistSelection=0))
        assert box.rulings[asked.id] == Approved(by=Program("night-shift", "session"))


async def test_the_token_is_taken_out_of_the_note(path: Path) -> None:
    async with an_own_box(path) as box:
        asked = escalation()
        async with box.asked(asked):
            box.answer(asked, plain(box, asked, note=f"mine is {TOKEN[:9]}\u200b{TOKEN[9:]}"))
        assert box.rulings[asked.id] == Approved(
            by=Program("night-shift", "session"), note="mine is ***"
        )


# --- what is no answer ---------------------------------------------------------------------------


def _as_a_person(box: Box, asked: Escalation) -> object:
    return {"decision": "denied"}


def _without_a_token(box: Box, asked: Escalation) -> object:
    return {key: value for key, value in plain(box, asked).items() if key != "token"}


def _wrong_token(box: Box, asked: Escalation) -> object:
    return plain(box, asked, token="s3cret-" * 5 + "x" * 7)


def _token_of_another(box: Box, asked: Escalation) -> object:
    return plain(box, asked, token=OTHER.token)


def _another_by_its_own_token(box: Box, asked: Escalation) -> object:
    return proved(box, asked, OTHER)


def _another_name(box: Box, asked: Escalation) -> object:
    return plain(box, asked, reviewer="day-shift")


def _wrong_digest(box: Box, asked: Escalation) -> object:
    return plain(box, asked, requestDigest="0" * 64)


def _wrong_digest_in_a_denial(box: Box, asked: Escalation) -> object:
    return plain(box, asked, requestDigest="0" * 64, decision="denied")


def _no_digest(box: Box, asked: Escalation) -> object:
    return {key: value for key, value in plain(box, asked).items() if key != "requestDigest"}


def _no_id(box: Box, asked: Escalation) -> object:
    return {key: value for key, value in plain(box, asked).items() if key != "escalationId"}


def _other_word(box: Box, asked: Escalation) -> object:
    return plain(box, asked, decision="maybe")


def _turned_round(box: Box, asked: Escalation) -> object:
    return proved(box, asked, approved=False).replace(b"denied", b"approved")


def _no_json(box: Box, asked: Escalation) -> object:
    return b"approved " + TOKEN.encode()


def _cut(box: Box, asked: Escalation) -> object:
    return proved(box, asked)[:-1]


def _link(box: Box, asked: Escalation) -> object:
    (box.path / "elsewhere").write_bytes(proved(box, asked))
    box.response(asked).symlink_to("elsewhere")
    return None


def _pipe(box: Box, asked: Escalation) -> object:
    os.mkfifo(box.response(asked))
    return None


def _huge(box: Box, asked: Escalation) -> object:
    return proved(box, asked) + b" " * 65536


def _empty(box: Box, asked: Escalation) -> object:
    return b""


def _directory(box: Box, asked: Escalation) -> object:
    box.response(asked).mkdir()
    return None


def _full_directory(box: Box, asked: Escalation) -> object:
    box.response(asked).mkdir()
    (box.response(asked) / "in the way").touch()
    return None


NO_ANSWERS = [
    *(_as_a_person, _without_a_token, _wrong_token, _token_of_another, _another_by_its_own_token),
    *(_another_name, _wrong_digest, _wrong_digest_in_a_denial, _no_digest, _no_id, _other_word),
    *(_turned_round, _no_json, _cut, _link, _pipe, _huge, _empty, _directory, _full_directory),
]


@pytest.mark.requirement("X-8", "X-16")
@pytest.mark.parametrize("attack", NO_ANSWERS)
async def test_what_is_no_answer_settles_nothing_and_the_real_one_still_counts(
    path: Path, attack: Callable[[Box, Escalation], object], caplog: pytest.LogCaptureFixture
) -> None:
    async with an_own_box(path) as box:
        asked = escalation()
        with caplog.at_level(logging.DEBUG):
            async with box.asked(asked):
                content = attack(box, asked)
                if isinstance(content, bytes | Mapping):
                    box.answer(asked, content)
                await until(lambda: not os.path.lexists(box.response(asked)))
                assert box.rulings == {}
                assert box.request(asked).exists()
                box.answer(asked, proved(box, asked, approved=False))
        ruling = box.rulings[asked.id]
        assert isinstance(ruling, Declined)
        assert (ruling.by, ruling.kind) == (Program("night-shift", "session"), "denied")
        assert "does not count" in caplog.text
        assert "s3cret" not in caplog.text
        assert "0ther" not in caplog.text


@pytest.mark.requirement("X-8")
async def test_without_a_real_answer_the_time_runs_out(path: Path) -> None:
    async with an_own_box(path) as box:
        asked = escalation(seconds=0.4)
        async with box.asked(asked):
            box.answer(asked, {"decision": "denied"})
        assert box.rulings[asked.id] == Declined(by=TIMEOUT, kind="expired")
        assert box.names() == []


@pytest.mark.requirement("X-8")
async def test_an_answer_after_the_deadline_is_never_honoured_and_is_removed(path: Path) -> None:
    async with an_own_box(path) as box:
        asked = escalation(seconds=0.3)
        async with box.asked(asked):
            raw = proved(box, asked)
        (path / response_name(asked.id, WORD)).write_bytes(raw)
        box.answer(asked, raw)
        await until(lambda: box.names() == [])
        assert box.rulings[asked.id] == Declined(by=TIMEOUT, kind="expired")


@dataclass
class Slept:
    """The real time, and what the machine slept of it."""

    seconds: float = 0.0

    def now(self) -> datetime:
        return CLOCK.now() + timedelta(seconds=self.seconds)

    def steady(self) -> datetime:
        return self.now()

    def monotonic(self) -> float:
        return CLOCK.monotonic()


@pytest.mark.requirement("X-8")
async def test_an_answer_that_a_sleeping_machine_finds_after_the_deadline_is_late(
    path: Path,
) -> None:
    clock = Slept()
    settings = MailboxSettings(directory=path, assume_listener=True, credential=OWN)
    mailbox = Mailbox(settings, clock)
    async with anyio.create_task_group() as tasks:
        await tasks.start(mailbox.run)
        box, asked = Box(path, mailbox), escalation()
        async with box.asked(asked):
            clock.seconds = 3600
            box.answer(asked, proved(box, asked))
        assert box.rulings[asked.id] == Declined(by=TIMEOUT, kind="expired")
        tasks.cancel_scope.cancel()


@pytest.mark.requirement("X-8")
@pytest.mark.parametrize("by_hand", [True, False])
async def test_an_earlier_answer_does_not_do_for_another_question(
    path: Path, by_hand: bool
) -> None:
    async with an_own_box(path) as box:
        first, second = escalation(), escalation()
        async with box.asked(first):
            earlier = plain(box, first) if by_hand else proved(box, first)
            box.answer(first, earlier)
        async with box.asked(second):
            box.answer(second, earlier)
            await until(lambda: not box.response(second).exists())
            assert second.id not in box.rulings
            box.answer(second, proved(box, second, approved=False))
        assert isinstance(box.rulings[second.id], Declined)


@pytest.mark.requirement("X-8")
async def test_the_same_call_asked_again_needs_an_answer_of_its_own(path: Path) -> None:
    async with an_own_box(path) as box:
        identity = an_id()
        first = escalation(identity=identity)
        async with box.asked(first):
            earlier = proved(box, first)
            box.answer(first, earlier)
        second = escalation(identity=identity, seconds=0.4)
        async with box.asked(second):
            box.answer(second, earlier)
        assert box.rulings[identity] == Declined(by=TIMEOUT, kind="expired")


@pytest.mark.parametrize("word", ["", WORD])
async def test_an_answer_that_lay_there_before_the_question_does_not_count(
    path: Path, word: str
) -> None:
    async with an_own_box(path) as box:
        asked = escalation(seconds=0.5)
        fields = b'{"decision":"approved","reviewer":"night-shift","token":"' + TOKEN.encode()
        (path / response_name(asked.id, word)).write_bytes(fields + b'"}')
        async with box.asked(asked):
            pass
        assert box.rulings[asked.id] == Declined(by=TIMEOUT, kind="expired")
        assert box.names() == []


@pytest.mark.parametrize("name", [request_name, response_name])
async def test_names_that_are_taken_beforehand_do_not_keep_the_question_out(
    path: Path, name: Callable[[str], str]
) -> None:
    """The id is known to whoever can read the mailbox of the reviewer who was asked first."""
    async with an_own_box(path) as box:
        asked = escalation()
        (path / name(asked.id) / "in the way").mkdir(parents=True)
        async with box.asked(asked):
            await until(box.request(asked).is_file)
            box.answer(asked, proved(box, asked))
        assert isinstance(box.rulings[asked.id], Approved)


async def test_somebody_who_never_stops_does_not_hold_the_answer_up_nor_fill_the_log(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with an_own_box(path) as box:
        asked = escalation()
        async with box.asked(asked):
            for _ in range(150):
                box.answer(asked, {"decision": "denied"})
                await until(lambda: not box.response(asked).exists())
            box.response(asked).mkdir()
            (path / "x").write_bytes(proved(box, asked))
            (path / "x").rename(path / response_name(asked.id, WORD))
        assert isinstance(box.rulings[asked.id], Approved)
        assert 90 < caplog.text.count("does not count") <= 100


async def test_whoever_moves_the_directory_away_does_not_deny(path: Path, tmp_path: Path) -> None:
    async with an_own_box(path) as box:
        asked = escalation()
        async with box.asked(asked):
            path.rename(tmp_path / "elsewhere")
        assert isinstance(box.rulings[asked.id], Unreachable)
