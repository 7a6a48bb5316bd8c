"""The key that offers a rule: what it shows, what it writes, and that it answers nothing."""

from pathlib import Path

import pytest
from msgspec.structs import replace
from textual.widgets import Static

from ironcurtain_proxy.cli.explain import rule_for
from ironcurtain_proxy.cli.review_screen.plain_review import ScreenSources
from ironcurtain_proxy.cli.review_screen.review_screen import ReviewScreen
from ironcurtain_proxy.mailbox.mailboxes import Mailboxes
from tests.cli.review_screen.test_review_screen import ready, shown, status_of
from tests.mailbox.mailbox_fixture import a_box, escalation
from tests.sessions.session_fixture import a_session

pytestmark = pytest.mark.anyio


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "work").mkdir()
    (tmp_path / "notes").mkdir()
    for name, value in {"HOME": tmp_path, "ALLOWED_DIRECTORY": tmp_path}.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.delenv("GENERATED_DIR", raising=False)
    return tmp_path


async def test_a_rule_is_shown_first_written_by_a_second_key_and_answers_nothing(
    home: Path,
) -> None:
    async with a_box(home / "box") as box:
        a_session(home, box.path, ALLOWED_DIRECTORY=str(home / "work"))
        path = str(home / "notes/a.txt")
        asked = replace(escalation(arguments={"path": path}), server="filesystem")
        screen = ReviewScreen(Mailboxes([box.path], None), None, ScreenSources(rule=rule_for))
        async with box.asked(asked), screen.run_test(size=(100, 40)) as pilot:
            await ready(screen, pilot, asked)
            await pilot.press("p")
            await shown(pilot, lambda: bool(screen.screen.query("#lines")))
            shown_lines = screen.screen.query_one("#lines", Static)
            await shown(pilot, lambda: "policy allow" in str(shown_lines.render()))
            text = str(shown_lines.render()).replace("\n  : ", "")
            assert f"policy allow filesystem/read_file --path {home}/notes" in text
            await pilot.press("a", "d", "r")
            assert not (home / ".ironcurtain/policy.yaml").exists()
            await pilot.press("y")
            await shown(pilot, lambda: "the rule is written" in status_of(screen))
            assert asked.id not in box.rulings
            await ready(screen, pilot, asked)
            await pilot.press("d")
            await shown(pilot, lambda: asked.id in box.rulings)
        screen._mailboxes.stop_listening()
    assert f"within: {home}/notes" in (home / ".ironcurtain/policy.yaml").read_text()


async def test_no_rule_is_offered_for_what_is_always_asked_about(home: Path) -> None:
    async with a_box(home / "box") as box:
        a_session(home, box.path, ALLOWED_DIRECTORY=str(home / "work"))
        asked = replace(
            escalation(tool="git_push", arguments={"repo_path": "/srv/x"}), server="git"
        )
        screen = ReviewScreen(Mailboxes([box.path], None), None, ScreenSources(rule=rule_for))
        async with box.asked(asked), screen.run_test(size=(100, 40)) as pilot:
            await ready(screen, pilot, asked)
            await pilot.press("p")
            await shown(pilot, lambda: "there is no rule to offer" in status_of(screen))
            await pilot.press("d")
        screen._mailboxes.stop_listening()
    assert not (home / ".ironcurtain/policy.yaml").exists()
