"""A mailbox whose question needs signatures, seen from both ends."""

import os
from pathlib import Path

import orjson
import pytest
from msgspec.structs import replace

from ironcurtain_proxy.cli.review_screen.review_screen import ReviewScreen
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.mailbox.answering import ReviewerAnswer, sent
from ironcurtain_proxy.mailbox.mailboxes import Mailboxes, utc_now
from ironcurtain_proxy.model.decision import Signers
from ironcurtain_proxy.model.escalation import Approved, Declined
from ironcurtain_proxy.model.signing import SignedAnswer
from tests.cli.review_screen.test_review_screen import ready
from tests.mailbox.mailbox_fixture import CLOCK, a_box, escalation
from tests.program import until
from tests.signed_answers import Team, needing

pytestmark = pytest.mark.anyio


class _Torn:
    """A key whose device was pulled out."""

    key = "SHA256:torn"

    def sign(self, answer: SignedAnswer) -> bytes:
        raise ConfigurationError("ssh-agent does not answer")


async def test_what_is_not_signed_is_removed_and_the_question_stays_open(tmp_path: Path) -> None:
    team = Team(CLOCK)
    ada = team.add("ada")
    async with a_box(tmp_path / "box", signed=team.judge()) as box:
        asked = replace(escalation(), signing=needing(1))
        mailboxes = Mailboxes([box.path], None)
        async with box.asked(asked):
            for raw in (b'{"decision":"approved"}', b"", b"[]", b'{"signature":"!"}', b"\xff"):
                name = f"response-{asked.id}-{os.urandom(8).hex()}.json"
                (box.path / name).write_bytes(raw)
                await until(lambda name=name: not (box.path / name).exists())  # type: ignore[misc]
            box.answer(asked, {"decision": "denied"})
            await until(lambda: not box.response(asked).exists())
            (one,) = mailboxes.pending(utc_now())
            failed = await sent(mailboxes, one, ReviewerAnswer(approved=True, credential=_Torn()))
            assert failed.told.startswith("not answered: ssh-agent does not answer")
            assert box.rulings == {}
            done = await sent(mailboxes, one, ReviewerAnswer(approved=True, credential=ada))
            assert done.taken
        assert box.names() == []
    assert box.rulings[asked.id] == Approved(by=Signers(("ada",)))


async def test_the_screen_signs_each_answer_with_its_key(tmp_path: Path) -> None:
    team = Team(CLOCK)
    ada = team.add("ada")
    async with a_box(tmp_path / "box", signed=team.judge()) as box:
        asked = replace(escalation(), signing=needing(1))
        mailboxes = Mailboxes([box.path], None)
        screen = ReviewScreen(mailboxes, ada)
        async with box.asked(asked), screen.run_test(size=(120, 40)) as pilot:
            await ready(screen, pilot, asked)
            await pilot.press("d")
            await until(lambda: asked.id in box.rulings)
        mailboxes.stop_listening()
    assert box.rulings[asked.id] == Declined(by=Signers(("ada",)))


async def test_a_first_signature_is_taken_and_the_second_settles_it(tmp_path: Path) -> None:
    team = Team(CLOCK)
    ada, bob = team.add("ada"), team.add("bob")
    async with a_box(tmp_path / "box", signed=team.judge()) as box:
        asked = replace(escalation(), signing=needing(2))
        mailboxes = Mailboxes([box.path], None)
        async with box.asked(asked):
            (one,) = mailboxes.pending(utc_now())
            first = await sent(mailboxes, one, ReviewerAnswer(approved=True, credential=ada))
            assert first.told.startswith("signed (2 signatures needed)")
            assert box.rulings == {}
            assert (await sent(mailboxes, one, ReviewerAnswer(approved=True, credential=bob))).taken
    assert box.rulings[asked.id] == Approved(by=Signers(("ada", "bob")))
    assert orjson.dumps(box.names()) == b"[]"
