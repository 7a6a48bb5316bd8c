"""The page's questions: what is read before an answer, and what is shown after it."""

from pathlib import Path

import pytest
from msgspec.structs import replace
from playwright.async_api import BrowserContext, expect

from ironcurtain_proxy.model.values import Json
from tests.mailbox.mailbox_fixture import escalation
from tests.program import PATIENCE
from tests.questions import ETC, FIVE_REASONS, SRV
from tests.web.test_page import a_page, press

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(("width", "height"), [(390, 844), (1280, 800)])
async def test_an_edit_with_five_reasons_is_approved_without_a_scroll(
    browser: BrowserContext, tmp_path: Path, width: int, height: int
) -> None:
    target = tmp_path / "a.sh"
    target.write_text("\n".join(f"line {number}" for number in range(9)))
    edits: Json = [{"oldText": "line 4", "newText": "line 4\nrsync -a out/ live:"}]
    asked = replace(
        escalation(
            seconds=PATIENCE,
            tool="edit_file",
            arguments={"path": str(target), "edits": edits},
            candidates=(ETC, SRV),
        ),
        told=("Changes a.sh, outside the workspace.",),
        reasons=FIVE_REASONS,
        context=(("Named by", f"{target}: no message of yours and no result that the proxy saw"),),
    )
    async with (
        a_page(browser, tmp_path, width=width, height=height) as (box, page),
        box.asked(asked),
    ):
        await expect(page.locator("#reason")).to_have_text(asked.told[0])
        await expect(page.locator("#body")).to_contain_text("reason 4 to ask")
        await expect(page.locator("#approve")).to_be_enabled()
        assert await page.evaluate("scrollY + document.querySelector('#question').scrollTop") == 0
        await expect(page.locator("#remembered")).to_contain_text("reason 3 to ask")
        await press(page, "d", asked, box)


async def test_who_answers_in_the_middle_of_a_list_stays_there(
    browser: BrowserContext, tmp_path: Path
) -> None:
    asked = [
        escalation(seconds=PATIENCE, tool="run_command", arguments={"command": f"do {number} x"})
        for number in range(4)
    ]
    async with (
        a_page(browser, tmp_path) as (box, page),
        box.asked(asked[0]),
        box.asked(asked[1]),
        box.asked(asked[2]),
        box.asked(asked[3]),
    ):
        rows = page.locator("#waiting button")
        await expect(rows).to_have_count(4)
        names = [(await row.inner_text()).split("\n")[0] for row in await rows.all()]
        await rows.nth(1).click()
        chosen = next(one for one in asked if f"do {asked.index(one)} x" in names[1])
        await press(page, "d", chosen, box)
        await expect(rows).to_have_count(3)
        await expect(page.locator("#headline")).to_have_text(names[2])
        for one in asked:
            if one is not chosen:
                await press(page, "d", one, box)


@pytest.mark.parametrize(("width", "height"), [(320, 640), (768, 1024), (1440, 900)])
async def test_a_long_command_stands_once(
    browser: BrowserContext, tmp_path: Path, width: int, height: int
) -> None:
    command = " && ".join(f"make --directory deploy/{number} all" for number in range(40))
    asked = [
        escalation(
            seconds=PATIENCE,
            tool="run_command",
            arguments={"command": f"{command} {number}"},
            candidates=(ETC,),
        )
        for number in range(2)
    ]
    async with (
        a_page(browser, tmp_path, width=width, height=height) as (box, page),
        box.asked(asked[0]),
        box.asked(asked[1]),
    ):
        # What comes to a card that is shown gets a card of its own.
        await expect(page.locator("#count")).to_have_text("2")
        await page.reload()
        await expect(page.locator("#body")).to_contain_text("And 2 of 2: files/run_command")
        for heading in ("#headline", "#body h3:last-of-type"):
            lines = await page.locator(heading).evaluate(
                "one => one.offsetHeight / parseFloat(getComputedStyle(one).lineHeight)"
            )
            assert 1 <= lines < 3, heading
        await expect(page.locator("#body dd").first).to_contain_text(f"{command} 0")
        await press(page, "d", asked[0], box)
        told = "denied 2 of 2 calls: files/run_command"
        await expect(page.locator("#told")).to_contain_text(told)


async def test_a_phone_shows_the_whole_name_that_a_server_gave_its_tool(
    browser: BrowserContext, tmp_path: Path
) -> None:
    asked = escalation(seconds=PATIENCE, tool="W" * 250 + "_and_delete", arguments={"x": "y"})
    async with (
        a_page(browser, tmp_path, width=320, height=640) as (box, page),
        box.asked(asked),
    ):
        heading = page.locator("#headline")
        await expect(heading).to_contain_text("_and_delete")
        assert await heading.evaluate("one => one.scrollHeight - one.clientHeight") <= 1
