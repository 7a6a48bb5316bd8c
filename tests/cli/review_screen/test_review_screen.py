"""The live screen, driven by its library's own pilot over a real mailbox."""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import orjson
import pytest
from msgspec.structs import replace
from textual.pilot import Pilot
from textual.widgets import DataTable, Input, RichLog, Static

from ironcurtain_proxy.cli.review_screen import review_screen
from ironcurtain_proxy.cli.review_screen.review_screen import ReviewScreen
from ironcurtain_proxy.mailbox.mailboxes import Mailboxes
from ironcurtain_proxy.model.decision import HUMAN, Ground
from ironcurtain_proxy.model.escalation import Approved, Declined, Escalation, OriginReason
from ironcurtain_proxy.model.values import Json
from tests.mailbox.mailbox_fixture import Box, a_box, escalation, within
from tests.program import until
from tests.questions import ETC, FIVE_REASONS, SRV

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("C-6", "C-31")]


@asynccontextmanager
async def a_screen(path: Path) -> AsyncIterator[tuple[ReviewScreen, Pilot[None]]]:
    mailboxes = Mailboxes([path], None)
    screen = ReviewScreen(mailboxes)
    async with screen.run_test(size=(100, 40)) as pilot:
        yield screen, pilot
    mailboxes.stop_listening()


def text_of(screen: ReviewScreen) -> str:
    log = screen.query_one("#detail", RichLog)
    return "\n".join(strip.text.rstrip() for strip in log.lines)


def status_of(screen: ReviewScreen) -> str:
    return str(screen.query_one("#status", Static).render())


async def shown(pilot: Pilot[None], condition: Callable[[], bool]) -> None:
    while not condition():
        await pilot.pause(0.02)


async def ready(screen: ReviewScreen, pilot: Pilot[None], asked: Escalation) -> None:
    """The request is shown, and for long enough to be answered."""
    await shown(pilot, lambda: asked.id in text_of(screen))
    screen._ready_at = 0.001


async def test_a_request_is_shown_in_full(tmp_path: Path) -> None:
    async with a_box(tmp_path / "box") as box:
        edits = [{"oldText": "a = 1", "newText": "a = 2\u202e"}]
        asked = escalation(
            tool="edit_file",
            arguments={"path": "/srv/x.py", "edits": edits, "note": "\x1b[2Jx"},  # type: ignore[dict-item]
            candidates=(within("/srv"),),
        )
        async with box.asked(asked), a_screen(box.path) as (screen, pilot):
            await ready(screen, pilot, asked)
            text = text_of(screen)
            for words in (
                "files/edit_file",
                "Reads outside the workspace",
                "outside-workspace",
                "policy",
                "session-1",
                "/srv/x.py",
                "\\x1b[2Jx",
                "-a = 1",
                "+a = 2\\u202e",
                "Allow files/read_file read-path within /srv",
            ):
                assert words in text
            await pilot.press("d")


KEYS = {
    "a approves": (["a"], Approved(by=HUMAN)),
    "r approves and remembers": (["r"], Approved(by=HUMAN, remember=0)),
    "d denies": (["d"], Declined(by=HUMAN, kind="denied")),
    "n denies with a word": (
        ["n", *"use x", "enter"],
        Declined(by=HUMAN, kind="denied", note="use x"),
    ),
}


async def test_a_key_answers(tmp_path: Path) -> None:
    async with a_box(tmp_path / "box") as box, a_screen(box.path) as (screen, pilot):
        for what, (keys, ruling) in KEYS.items():
            asked = escalation(candidates=(within("/etc"),))
            async with box.asked(asked):
                await ready(screen, pilot, asked)
                await pilot.press(*["space" if key == " " else key for key in keys])
                await shown(pilot, lambda: "Nothing is waiting" in text_of(screen))
                assert "files/read_file" in status_of(screen)
            assert box.rulings[asked.id] == ruling, what


async def test_a_key_does_not_answer_what_just_came_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The finger was on its way for the request before, or the key is held down."""
    monkeypatch.setattr(review_screen, "GUARD_SECONDS", 60)
    async with a_box(tmp_path / "box") as box:
        first, second = escalation(), escalation()
        async with box.asked(first), box.asked(second), a_screen(box.path) as (screen, pilot):
            await ready(screen, pilot, first)
            await pilot.press("a", "a", "a", "r", "n", "d")
            await shown(pilot, lambda: first.id in box.rulings)
            assert second.id not in box.rulings
            await ready(screen, pilot, second)
            await pilot.press("d")
        assert isinstance(box.rulings[first.id], Approved)
        assert isinstance(box.rulings[second.id], Declined)


async def test_an_edit_that_fits_a_small_screen_is_approved_without_scrolling(
    tmp_path: Path,
) -> None:
    file = tmp_path / "calc.py"
    file.write_text("a = 1\nb = 2\n")
    edits: Json = [{"oldText": "a = 1", "newText": "a = 2"}]
    async with a_box(tmp_path / "box") as box:
        asked = replace(
            escalation(arguments={"path": str(file), "edits": edits}, candidates=(ETC, SRV)),
            tool="edit_file",
            told=("Changes calc.py, outside the workspace.",),
            reasons=FIVE_REASONS,
        )
        async with box.asked(asked), a_screen(box.path) as (screen, pilot):
            await pilot.resize_terminal(80, 24)
            await ready(screen, pilot, asked)
            assert "-a = 1" in text_of(screen)
            assert "oldText" not in text_of(screen)
            for reason in FIVE_REASONS:
                assert reason.ground.reason in text_of(screen)
            await pilot.press("a")
            await shown(pilot, lambda: asked.id in box.rulings)
        assert isinstance(box.rulings[asked.id], Approved)


async def test_a_long_path_stands_once_in_full_and_its_headline_in_two_lines(
    tmp_path: Path,
) -> None:
    async with a_box(tmp_path / "box") as box:
        asked = escalation(arguments={"path": f"/srv/{'long-name/' * 40}end"})
        async with box.asked(asked), a_screen(box.path) as (screen, pilot):
            await ready(screen, pilot, asked)
            first, second, third, *_ = text_of(screen).splitlines()
            assert first.lstrip().startswith("files/read_file")
            assert second.endswith("…")
            assert "long-name" not in third
            assert text_of(screen).count("/end") == 1
            await pilot.press("d")
            await shown(pilot, lambda: asked.id in box.rulings)


async def test_what_would_be_remembered_must_be_seen_only_by_who_remembers_it(
    tmp_path: Path,
) -> None:
    async with a_box(tmp_path / "box") as box:
        lines = "\n".join(f"line {number}" for number in range(30))
        asked = escalation(arguments={"content": lines}, candidates=(ETC, SRV))
        async with box.asked(asked), a_screen(box.path) as (screen, pilot):
            await ready(screen, pilot, asked)
            # So high that the last argument is on the screen, and the lines below it are not.
            shown_rows = screen.query_one("#detail", RichLog)
            last = next(
                row
                for row, line in enumerate(shown_rows.lines)
                if line.text.rstrip().endswith("line 29")
            )
            other = screen.size.height - shown_rows.scrollable_content_region.height
            await pilot.resize_terminal(screen.size.width, other + last + 1)
            for key in ("r", "2"):
                await pilot.press(key)
                assert "then it can be remembered" in status_of(screen)
            assert asked.id not in box.rulings
            await pilot.press("a")
            await shown(pilot, lambda: asked.id in box.rulings)
        assert isinstance(box.rulings[asked.id], Approved)


async def test_nothing_is_approved_before_its_end_was_on_the_screen(tmp_path: Path) -> None:
    async with a_box(tmp_path / "box") as box:
        lines = "\n".join(f"line {number}" for number in range(200))
        asked = escalation(arguments={"content": lines}, candidates=(within("/etc"),))
        async with box.asked(asked), a_screen(box.path) as (screen, pilot):
            await ready(screen, pilot, asked)
            await pilot.press("a", "r", "2")
            assert "there is more below" in status_of(screen)
            assert asked.id not in box.rulings
            while "there is more below" in status_of(screen):
                await pilot.press("space", "a")
            await shown(pilot, lambda: asked.id in box.rulings)
        assert isinstance(box.rulings[asked.id], Approved)


async def test_what_cannot_be_read_to_its_end_can_be_denied(tmp_path: Path) -> None:
    async with a_box(tmp_path / "box") as box:
        asked = escalation(arguments={"content": "x\n" * 200})
        async with box.asked(asked), a_screen(box.path) as (screen, pilot):
            await ready(screen, pilot, asked)
            await pilot.press("d")
            await shown(pilot, lambda: asked.id in box.rulings)
        assert isinstance(box.rulings[asked.id], Declined)


async def test_who_asks_stands_below_the_call(tmp_path: Path) -> None:
    async with a_box(tmp_path / "box") as box:
        asked = escalation()
        session = {"client": "an-agent 1.0\x1b", "workspace": "/srv/app"}
        (box.path / "session.json").write_bytes(orjson.dumps(session))
        words = {"userMessage": "fix\nthe tests"}
        (box.path / "user-context.json").write_bytes(orjson.dumps(words))
        async with box.asked(asked), a_screen(box.path) as (screen, pilot):
            await ready(screen, pilot, asked)
            assert 'an-agent 1.0\\x1b · /srv/app · "fix the tests"' in text_of(screen)
            await pilot.press("d")


async def test_what_arrives_does_not_move_what_is_shown(tmp_path: Path) -> None:
    async with a_box(tmp_path / "box") as box:
        older = escalation()
        shown_one = escalation()
        async with box.asked(shown_one), a_screen(box.path) as (screen, pilot):
            await ready(screen, pilot, shown_one)
            async with box.asked(older):
                table = screen.query_one("#list", DataTable)
                await shown(pilot, lambda: table.row_count == 2)
                assert shown_one.id in text_of(screen)
                await pilot.press("d")
                await shown(pilot, lambda: shown_one.id in box.rulings)
                assert older.id not in box.rulings
                await ready(screen, pilot, older)
                await pilot.press("d")


async def test_a_request_whose_bytes_change_holds_the_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(review_screen, "GUARD_SECONDS", 60)
    async with a_box(tmp_path / "box") as box:
        asked = escalation()
        async with box.asked(asked), a_screen(box.path) as (screen, pilot):
            await ready(screen, pilot, asked)
            changed = box.request(asked).read_bytes().replace(b"/etc/hosts", b"/etc/shadow")
            box.request(asked).write_bytes(changed)
            await shown(pilot, lambda: "/etc/shadow" in text_of(screen))
            await pilot.press("a")
            assert "too soon" in status_of(screen)
            screen._ready_at = 0.001
            await pilot.press("a")
            await shown(pilot, lambda: asked.id in box.rulings)
        assert isinstance(box.rulings[asked.id], Declined)


async def test_arrows_choose_and_escape_takes_a_word_back(tmp_path: Path) -> None:
    async with a_box(tmp_path / "box") as box:
        first, second = escalation(), escalation()
        async with box.asked(first), box.asked(second), a_screen(box.path) as (screen, pilot):
            await ready(screen, pilot, first)
            await pilot.press("down", "n", "a", "d", "escape")
            assert not screen.query_one("#note", Input).display
            assert box.rulings == {}
            await pilot.press("d")
            await shown(pilot, lambda: second.id in box.rulings)
            assert first.id not in box.rulings
            await ready(screen, pilot, first)
            await pilot.press("d")


async def test_a_number_remembers_another_kind(tmp_path: Path) -> None:
    async with a_box(tmp_path / "box") as box:
        asked = escalation(candidates=(ETC, SRV))
        async with box.asked(asked), a_screen(box.path) as (screen, pilot):
            await ready(screen, pilot, asked)
            assert f"r: {ETC.description}" in text_of(screen)
            assert f"2: {SRV.description}" in text_of(screen)
            await pilot.press("3")
            assert "there is no 3" in status_of(screen)
            assert asked.id not in box.rulings
            await pilot.press("2")
            await shown(pilot, lambda: asked.id in box.rulings)
        assert box.rulings[asked.id] == Approved(by=HUMAN, remember=1)


async def test_nothing_to_remember_is_said_and_not_approved(tmp_path: Path) -> None:
    async with a_box(tmp_path / "box") as box:
        asked = escalation()
        async with box.asked(asked), a_screen(box.path) as (screen, pilot):
            await ready(screen, pilot, asked)
            await pilot.press("r")
            assert "nothing of this call" in status_of(screen)
            assert asked.id not in box.rulings
            await pilot.press("d")


async def test_an_answer_that_is_too_late_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with a_box(tmp_path / "box") as box:
        asked = escalation()
        async with a_screen(box.path) as (screen, pilot):
            async with box.asked(asked):
                await ready(screen, pilot, asked)
                monkeypatch.setattr(review_screen, "_POLL_SECONDS", 60)
                box.answer(asked, {"decision": "denied"})
                await pilot.press("a")
            await shown(pilot, lambda: "too late" in status_of(screen) or _over(screen, box))
        assert isinstance(box.rulings[asked.id], Declined)


def _over(screen: ReviewScreen, box: Box) -> bool:
    return "Nothing is waiting" in text_of(screen) and box.names() == ["escalation-listener.lock"]


async def test_the_screen_listens_while_it_is_open_and_no_longer(tmp_path: Path) -> None:
    async with a_box(tmp_path / "box", assume_listener=False) as box:
        async with a_screen(box.path):
            await until(box.mailbox.is_reachable)
        assert not box.mailbox.is_reachable()


def sending() -> Escalation:
    """A call that sends data, which is approved by itself."""
    ground = Ground("capability:net.egress", "it sends data")
    reason = OriginReason(origin="capability", ground=ground, capabilities=("net.egress",))
    return replace(escalation(), reasons=(reason,), alone=("it sends",))


async def test_calls_that_may_go_together_are_approved_together_once_they_were_named(
    tmp_path: Path,
) -> None:
    async with a_box(tmp_path / "box") as box:
        first, second, alone = escalation(), escalation(), sending()
        async with AsyncExitStack() as questions:
            for one in (first, second, alone):
                await questions.enter_async_context(box.asked(one))
            screen, pilot = await questions.enter_async_context(a_screen(box.path))
            table = screen.query_one("#list", DataTable)
            await shown(pilot, lambda: table.row_count == 3)
            await ready(screen, pilot, first)
            await pilot.press("A")
            assert "A again approves 2 of 3 together" in status_of(screen)
            assert box.rulings == {}
            await pilot.press("A")
            await shown(pilot, lambda: {first.id, second.id} <= box.rulings.keys())
            assert alone.id not in box.rulings
            await ready(screen, pilot, alone)
            await pilot.press("A")
            assert "one by one" in status_of(screen)
            await pilot.press("d")
        assert isinstance(box.rulings[first.id], Approved)
        assert isinstance(box.rulings[second.id], Approved)
        assert isinstance(box.rulings[alone.id], Declined)


async def test_what_came_after_the_first_key_is_named_before_it_goes_together(
    tmp_path: Path,
) -> None:
    async with a_box(tmp_path / "box") as box:
        first, later = escalation(), escalation()
        async with box.asked(first), a_screen(box.path) as (screen, pilot):
            await ready(screen, pilot, first)
            await pilot.press("A")
            async with box.asked(later):
                table = screen.query_one("#list", DataTable)
                await shown(pilot, lambda: table.row_count == 2)
                await pilot.press("A")
                assert "A again approves 2 of 2" in status_of(screen)
                assert box.rulings == {}
                await pilot.press("A")
                await shown(pilot, lambda: {first.id, later.id} <= box.rulings.keys())
                await shown(pilot, lambda: "approved 2 of 2 calls: " in status_of(screen))


async def test_calls_of_one_kind_share_a_card_and_one_key_answers_what_was_on_it(
    tmp_path: Path,
) -> None:
    def asking(path: str) -> Escalation:
        return escalation(arguments={"path": path}, candidates=(within("/etc"),))

    first, second, late = asking("/etc/one"), asking("/etc/two"), asking("/etc/late")
    async with (
        a_box(tmp_path / "box") as box,
        box.asked(first),
        box.asked(second),
        a_screen(box.path) as (screen, pilot),
    ):
        await ready(screen, pilot, first)
        assert "And 2 of 2: files/read_file path=/etc/two" in text_of(screen)
        assert screen.query_one(DataTable).row_count == 1
        async with box.asked(late):
            await shown(pilot, lambda: screen.query_one(DataTable).row_count == 2)
            assert "/etc/late" not in text_of(screen)
            await pilot.press("r")
            await shown(pilot, lambda: len(box.rulings) == 2)
            both = "files/read_file path=/etc/one; files/read_file path=/etc/two"
            say = f"approved and remembered 2 of 2 calls: {both}"
            await shown(pilot, lambda: say in status_of(screen))
            assert box.rulings == {
                first.id: Approved(by=HUMAN, remember=0),
                second.id: Approved(by=HUMAN),
            }
            await ready(screen, pilot, late)
            await pilot.press("d")


async def test_arguments_are_changed_before_the_call_is_approved(tmp_path: Path) -> None:
    asked = replace(escalation(arguments={"path": "/etc/a\u202e"}), editable=True)
    async with (
        a_box(tmp_path / "box") as box,
        box.asked(asked),
        a_screen(box.path) as (screen, pilot),
    ):
        await ready(screen, pilot, asked)
        await pilot.press("c")
        line = screen.query_one("#change", Input)
        assert line.value == '{"path": "/etc/a\\u202e"}'
        await pilot.press("enter")
        assert "nothing is changed" in status_of(screen)
        line.value = '{"path": "/etc/b"'
        await pilot.press("enter")
        assert "not JSON" in status_of(screen)
        line.value = '{"path": "/etc/b"}'
        await pilot.press("enter")
        await shown(pilot, lambda: asked.id in box.rulings)
    ruling = box.rulings[asked.id]
    assert isinstance(ruling, Approved)
    assert ruling.changed == {"path": "/etc/b"}
