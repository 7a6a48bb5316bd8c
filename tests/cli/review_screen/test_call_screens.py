"""What the live screen shows in the place of a call: keys there answer nothing."""

from collections.abc import Callable
from pathlib import Path

import anyio
import pytest
from textual.pilot import Pilot
from textual.widgets import OptionList, Static
from textual.widgets._footer import FooterKey

from ironcurtain_proxy.audit.calls import CallHistory
from ironcurtain_proxy.audit.known_logs import family
from ironcurtain_proxy.audit.log import AuditLog
from ironcurtain_proxy.audit.writer import LogSettings
from ironcurtain_proxy.cli.review_screen import review_screen
from ironcurtain_proxy.cli.review_screen.plain_review import OfferedRule, ScreenSources
from ironcurtain_proxy.cli.review_screen.review_screen import ReviewScreen
from ironcurtain_proxy.mailbox.mailboxes import Mailboxes
from ironcurtain_proxy.model.reply import ResultSummary
from tests.audit.specimens import record
from tests.cli.review_screen.test_review_screen import ready, shown, status_of, text_of
from tests.mailbox.mailbox_fixture import a_box, escalation

pytestmark = pytest.mark.anyio


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Two allowed calls, and one that a person denied with a word."""
    one = AuditLog.open(tmp_path / "audit.jsonl", LogSettings())
    denied: dict[str, object] = {
        "effect": "escalate",
        "result": ResultSummary(status="denied", error="no"),
        "decided_by": "human",
        "context": (("refusedBy", "declined"),),
        "arguments": {"path": "/srv/secret\x1b.txt"},
    }

    async def write() -> None:
        for call in (record(1), record(2, denied), record(3)):
            await one.record(call)

    anyio.run(write)
    one.close()
    return one.path


def listed(screen: ReviewScreen) -> list[str]:
    options = screen.screen.query_one("#past", OptionList)
    return [str(options.get_option_at_index(n).prompt) for n in range(options.option_count)]


def titled(screen: ReviewScreen, words: str) -> Callable[[], bool]:
    return lambda: any(words in str(one.render()) for one in screen.screen.query(Static))


async def opened(pilot: Pilot[None], screen: ReviewScreen, key: str, words: str) -> None:
    await pilot.press(key)
    await shown(pilot, titled(screen, words))


async def test_past_calls_are_chosen_searched_and_opened(tmp_path: Path, log: Path) -> None:
    around = ScreenSources(history=CallHistory(lambda: family(log), str))
    async with a_box(tmp_path / "box") as box:
        asked = escalation()
        screen = ReviewScreen(Mailboxes([box.path], None), None, around)
        async with box.asked(asked), screen.run_test(size=(60, 15)) as pilot:
            await ready(screen, pilot, asked)
            await opened(pilot, screen, "h", "answered by a person: 1")
            assert ["REFUSED" in line for line in listed(screen)] == [True]
            assert all(len(line) <= 60 for line in listed(screen))
            await pilot.press("f", "f")
            await shown(pilot, titled(screen, "all calls: 3"))
            await pilot.press("slash", *"SECRET", "enter")
            await shown(pilot, titled(screen, 'with "SECRET": 1'))
            await opened(pilot, screen, "enter", "\\u001b.txt")
            await pilot.press("a", "d", "r", "escape")
            await shown(pilot, titled(screen, 'with "SECRET": 1'))
            await pilot.press("a", "d", "r", "escape")
            await ready(screen, pilot, asked)
            assert box.rulings == {}
            await pilot.press("d")
            await shown(pilot, lambda: asked.id in box.rulings)
        screen._mailboxes.stop_listening()


async def test_an_explanation_is_shown_and_answers_nothing(tmp_path: Path) -> None:
    around = ScreenSources(explain=lambda one: [f"{one.request.tool}\x1b: escalate", "arguments"])
    async with a_box(tmp_path / "box") as box:
        asked = escalation()
        screen = ReviewScreen(Mailboxes([box.path], None), None, around)
        async with box.asked(asked), screen.run_test(size=(60, 15)) as pilot:
            await ready(screen, pilot, asked)
            await opened(pilot, screen, "e", "read_file\\x1b: escalate")
            await pilot.press("a", "r", "d", "q")
            await shown(pilot, lambda: len(screen.screen_stack) == 1)
            assert box.rulings == {}
            await ready(screen, pilot, asked)
            await pilot.press("d")
            await shown(pilot, lambda: asked.id in box.rulings)
        screen._mailboxes.stop_listening()


async def test_a_key_pressed_on_the_way_back_answers_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(review_screen, "GUARD_SECONDS", 60)
    async with a_box(tmp_path / "box") as box:
        asked = escalation()
        screen = ReviewScreen(Mailboxes([box.path], None))
        async with box.asked(asked), screen.run_test(size=(60, 15)) as pilot:
            await ready(screen, pilot, asked)
            await opened(pilot, screen, "question_mark", "approve this call")
            await pilot.press("escape", "d", "a")
            assert "too soon" in status_of(screen)
            assert box.rulings == {}
            screen._ready_at = 0.001
            await pilot.press("d")
            await shown(pilot, lambda: asked.id in box.rulings)
        screen._mailboxes.stop_listening()


async def test_a_rule_is_written_only_once_its_end_was_on_the_screen(tmp_path: Path) -> None:
    written: list[str] = []
    rule = OfferedRule("policy allow x", ["+line"] * 40, lambda: written.append("rule"))
    around = ScreenSources(rule=lambda _one: rule)
    async with a_box(tmp_path / "box") as box:
        asked = escalation()
        screen = ReviewScreen(Mailboxes([box.path], None), None, around)
        async with box.asked(asked), screen.run_test(size=(60, 15)) as pilot:
            await ready(screen, pilot, asked)
            await opened(pilot, screen, "p", "policy allow x")
            await pilot.press("y")
            await shown(pilot, titled(screen, "there is more below"))
            assert written == []
            while not written:
                await pilot.press("space", "y")
            await shown(pilot, lambda: "the rule is written" in status_of(screen))
            await ready(screen, pilot, asked)
            await pilot.press("d")
        screen._mailboxes.stop_listening()


async def test_a_search_leaves_the_calls_that_hold_its_words(tmp_path: Path) -> None:
    async with a_box(tmp_path / "box") as box:
        first, second = escalation(), escalation(arguments={"path": "/srv/Notes.txt"})
        screen = ReviewScreen(Mailboxes([box.path], None))
        async with box.asked(first), box.asked(second), screen.run_test(size=(60, 15)) as pilot:
            await ready(screen, pilot, first)
            await shown(pilot, lambda: len(screen._waiting) == 2)
            await pilot.press("slash", *"outside notes", "enter")
            await shown(pilot, titled(screen, '1 of 2 waiting, with "outside notes"'))
            assert "/srv/Notes.txt" in text_of(screen)
            # Only what is shown goes together.
            screen._ready_at = 0.001
            await pilot.press("A", "A")
            await shown(pilot, lambda: second.id in box.rulings)
            assert first.id not in box.rulings
            await shown(pilot, lambda: "No call that waits" in text_of(screen))
            await pilot.press("escape")
            await ready(screen, pilot, first)
            await pilot.press("d")
            await shown(pilot, lambda: first.id in box.rulings)
        screen._mailboxes.stop_listening()


async def test_words_of_a_field_are_never_wrapped_below_its_name(tmp_path: Path) -> None:
    """What begins a line would look like a field of the screen's own."""
    async with a_box(tmp_path / "box") as box:
        asked = escalation(arguments={"path": "x" * 95 + "why"})
        screen = ReviewScreen(Mailboxes([box.path], None))
        async with box.asked(asked), screen.run_test(size=(120, 40)) as pilot:
            await ready(screen, pilot, asked)
            lines = text_of(screen).splitlines()
            begins = [line for line in lines[3:] if line.startswith(("x", "why"))]
            assert begins == []
            await pilot.press("d")
        screen._mailboxes.stop_listening()


async def test_a_long_line_of_a_rule_is_marked_where_it_goes_on(tmp_path: Path) -> None:
    forged = "x" * 55 + "from now on: deny everything"
    around = ScreenSources(rule=lambda _one: OfferedRule(forged, [], lambda: None))
    async with a_box(tmp_path / "box") as box:
        asked = escalation()
        screen = ReviewScreen(Mailboxes([box.path], None), None, around)
        async with box.asked(asked), screen.run_test(size=(60, 15)) as pilot:
            await ready(screen, pilot, asked)
            await opened(pilot, screen, "p", "What it changes")
            lines = str(screen.screen.query_one("#lines", Static).render()).splitlines()
            assert [line for line in lines if line.startswith(("from", "x"))] == []
            assert any(line.startswith("  : ") for line in lines)
            await pilot.press("escape")
            await ready(screen, pilot, asked)
            await pilot.press("d")
        screen._mailboxes.stop_listening()


@pytest.mark.parametrize("width", [40, 60, 80, 120])
async def test_a_narrow_screen_shows_whole_keys_and_the_one_that_lists_all(
    tmp_path: Path, width: int
) -> None:
    screen = ReviewScreen(Mailboxes([tmp_path / "box"], None))
    async with screen.run_test(size=(120, 20)) as pilot:
        await pilot.resize_terminal(width, 20)
        await shown(pilot, lambda: screen.size.width == width and bool(screen.query(FooterKey)))
        await pilot.pause()
        keys = list(screen.query(FooterKey))
        assert all(0 < key.region.right <= width for key in keys)
        assert all(key.region.width > len(key.description) for key in keys)
        names = [key.description for key in keys]
        assert names[:3] == ["approve", "remember", "deny"]
        assert ("keys" in names) == (width >= 60)
        assert ("quit" in names) == (width >= 120)
