"""The inbox and the screen in a mailbox that is one reviewer's."""

from pathlib import Path

import anyio.to_thread
import pytest

from ironcurtain_proxy.cli.review_screen.review_screen import ReviewScreen
from ironcurtain_proxy.errors import ConfigurationError
from ironcurtain_proxy.inbox import EscalationInbox
from ironcurtain_proxy.mailbox.answering import NotTheReviewerError, ReviewerAnswer, post
from ironcurtain_proxy.mailbox.mailboxes import Mailboxes, this_process
from ironcurtain_proxy.mailbox.messages import Credential, read_request, request_bytes, request_name
from ironcurtain_proxy.model.decision import Program
from ironcurtain_proxy.model.escalation import Approved, Declined, Escalation
from ironcurtain_proxy.private_directory import MailboxDirectory
from tests.cli.review_screen.test_review_screen import ready, shown, status_of
from tests.mailbox.mailbox_fixture import Box, a_box, escalation
from tests.program import until

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("C-6")]

TOKEN = "s3cret-" * 6
OWN = Credential("night-shift", TOKEN)
OTHER = Credential("night-shift", "0ther-" * 6)


@pytest.fixture
def token(tmp_path: Path) -> Path:
    file = tmp_path / "token"
    file.touch(mode=0o600)
    file.write_text(TOKEN)
    return file


async def approved_with_the_token(box: Box, asked: Escalation, token: Path) -> None:
    """The question still waits, and this answer is the first that counts."""
    assert box.rulings == {}
    async with EscalationInbox(box.path, reviewer="night-shift", token_file=token) as inbox:
        assert await inbox.approve(asked.id) is True
    await until(lambda: asked.id in box.rulings)
    assert box.rulings[asked.id] == Approved(by=Program("night-shift", "session"))


async def test_an_inbox_answers_with_its_token(tmp_path: Path, token: Path) -> None:
    async with a_box(tmp_path / "box", credential=OWN) as box:
        first, second = escalation(), escalation()
        inbox = EscalationInbox(box.path, reviewer="night-shift", token_file=token)
        async with inbox, box.asked(first), box.asked(second):
            assert await inbox.approve(first.id) is True
            assert await anyio.to_thread.run_sync(inbox.deny_now, second.id) is True
        assert box.rulings[first.id] == Approved(by=Program("night-shift", "session"))
        assert box.rulings[second.id] == Declined(
            by=Program("night-shift", "session"), kind="denied"
        )
        assert box.names() == []


def test_an_answer_that_nobody_waits_for_any_more_is_taken_back(tmp_path: Path) -> None:
    place, asked = MailboxDirectory.open(tmp_path / "box", create=True), escalation()
    name = request_name(asked.id)
    place.write(name, request_bytes(asked, this_process(), "night-shift"))
    request = read_request(name, (place.path / name).read_bytes())
    assert request is not None
    posted = post(place, request, ReviewerAnswer(approved=True, credential=OWN))
    assert posted is not None
    assert len(place.names()) == 2
    place.discard(name)
    posted.close()
    assert place.names() == []


async def test_an_inbox_without_the_token_is_told_so(tmp_path: Path, token: Path) -> None:
    with pytest.raises(ConfigurationError, match="whose token"):
        EscalationInbox(tmp_path / "box", token_file=token)
    async with a_box(tmp_path / "box", credential=OWN) as box:
        asked = escalation()
        async with EscalationInbox(box.path, reviewer="night-shift") as inbox, box.asked(asked):
            with pytest.raises(NotTheReviewerError, match=r"only .* may answer"):
                await inbox.approve(asked.id)
            await approved_with_the_token(box, asked, token)


@pytest.mark.parametrize(
    ("credential", "words"),
    [(None, 'only "night-shift" may answer'), (OTHER, "the answer did not count")],
    ids=["none", "a wrong one"],
)
async def test_the_screen_says_why_a_key_answers_nothing(
    tmp_path: Path, token: Path, credential: Credential | None, words: str
) -> None:
    async with a_box(tmp_path / "box", credential=OWN) as box:
        asked = escalation()
        mailboxes = Mailboxes([box.path], None)
        screen = ReviewScreen(mailboxes, credential)
        async with box.asked(asked), screen.run_test(size=(120, 40)) as pilot:
            await ready(screen, pilot, asked)
            await pilot.press("a")
            await shown(pilot, lambda: words in status_of(screen))
            await ready(screen, pilot, asked)
            await approved_with_the_token(box, asked, token)
        mailboxes.stop_listening()


async def test_the_screen_answers_with_the_token(tmp_path: Path) -> None:
    async with a_box(tmp_path / "box", credential=OWN) as box:
        asked = escalation()
        mailboxes = Mailboxes([box.path], None)
        screen = ReviewScreen(mailboxes, OWN)
        async with box.asked(asked), screen.run_test(size=(120, 40)) as pilot:
            await ready(screen, pilot, asked)
            await pilot.press("a")
            await shown(pilot, lambda: asked.id in box.rulings)
        mailboxes.stop_listening()
        assert box.rulings[asked.id] == Approved(by=Program("night-shift", "session"))
