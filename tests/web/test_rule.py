"""The page tells the command that adds a rule, and writes none: in a real browser."""

from dataclasses import replace
from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from tests.mailbox.mailbox_fixture import escalation
from tests.sessions.session_fixture import a_session
from tests.web.test_page import PATIENCE, a_page, press

pytestmark = pytest.mark.anyio


async def test_a_key_shows_the_command_for_a_rule_and_nothing_is_written(
    browser: Browser, tmp_path: Path
) -> None:
    (tmp_path / "notes").mkdir()
    path = str(tmp_path / "notes/a.txt")
    asked = replace(escalation(seconds=PATIENCE, arguments={"path": path}), server="filesystem")
    async with a_page(browser, tmp_path) as (box, page), box.asked(asked, PATIENCE):
        a_session(tmp_path, box.path)
        await expect(page.locator("#headline")).to_contain_text("filesystem/read_file")
        await page.keyboard.press("p")
        await expect(page.locator("#lines")).to_contain_text(
            f"ironcurtain-proxy policy allow filesystem/read_file --path {tmp_path}/notes"
        )
        await page.keyboard.press("a")
        assert asked.id not in box.rulings
        await page.keyboard.press("Escape")
        await page.keyboard.press("e")
        await expect(page.locator("#lines")).to_contain_text("escalate by escalate-read")
        await page.keyboard.press("a")
        assert asked.id not in box.rulings
        await page.keyboard.press("Escape")
        await press(page, "d", asked, box)
    assert not (tmp_path / ".ironcurtain/policy.yaml").exists()
