"""The reviewer's page in a real browser, over a real mailbox and a real audit log."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import httpx
import orjson
import pytest
from msgspec.structs import replace
from playwright.async_api import BrowserContext, Page, Route, expect

from ironcurtain_proxy.audit.log import AuditLog
from ironcurtain_proxy.audit.writer import LogSettings
from ironcurtain_proxy.mailbox.messages import Credential
from ironcurtain_proxy.model.decision import Program
from ironcurtain_proxy.model.escalation import Approved, Declined, Escalation
from ironcurtain_proxy.model.reply import ResultSummary
from tests.audit.specimens import record
from tests.fakes import NO_TLS
from tests.mailbox.mailbox_fixture import APPROVED, Box, a_box, escalation
from tests.program import PATIENCE, until
from tests.questions import ETC, SRV
from tests.sessions.session_fixture import a_session
from tests.web.page_process import a_command, a_tab

pytestmark = pytest.mark.anyio
AXE = Path(__file__).parents[2] / "node_modules/axe-core/axe.min.js"
"""Seconds: a browser on a busy machine is slow."""
EVIL = "<img src=x onerror=document.title='evil'>"


@asynccontextmanager
async def a_page(
    browser: BrowserContext,
    tmp_path: Path,
    *,
    width: int = 1200,
    height: int = 900,
    log: Path | None = None,
) -> AsyncIterator[tuple[Box, Page]]:
    async with (
        a_box(tmp_path / "box", assume_listener=False) as box,
        a_command(box.path, tmp_path, log=log) as command,
        a_tab(browser, await command.link(), width, height) as page,
    ):
        await expect(page.locator("#link")).to_have_text("listening")
        await until(box.mailbox.is_reachable)
        yield box, page


async def press(page: Page, key: str, asked: Escalation, box: Box) -> None:
    """Press a key until the call is answered.

    A key that comes too soon holds all keys for a moment, so each has that moment to itself.
    """
    while asked.id not in box.rulings:
        await page.keyboard.press(key)
        with anyio.move_on_after(1):
            await until(lambda: asked.id in box.rulings)


async def test_a_person_reads_a_call_and_answers_by_key(
    browser: BrowserContext, tmp_path: Path
) -> None:
    target = tmp_path / "calc.py"
    target.write_text("def add(a, b):\n    return a - b\n")
    edits = [{"oldText": "a - b", "newText": "a + b"}]
    first = escalation(
        seconds=PATIENCE,
        tool="edit_file",
        arguments={
            "path": str(target),
            "edits": edits,  # type: ignore[dict-item]
            "note": EVIL,
            "hebrew": "\u05d0 > \u05d1",
        },
        candidates=(ETC, SRV),
    )
    async with a_page(browser, tmp_path) as (box, page):
        async with box.asked(first):
            await expect(page.locator("#headline")).to_contain_text("files/edit_file")
            text = await page.locator("#question").inner_text()
            for words in (EVIL, "-    return a - b", "+    return a + b", ETC.description):
                assert words in text
            # Each word that runs from right to left stands alone, and turns no sign around.
            await expect(page.locator("dd bdi")).to_have_text(["\u05d0", "\u05d1"])
            assert await page.title() == "(1) ironcurtain-proxy"
            await page.locator("#end").scroll_into_view_if_needed()
            await page.select_option("#kind", "1")
            await press(page, "r", first, box)
        ruling = box.rulings[first.id]
        assert isinstance(ruling, Approved)
        assert ruling.remember == 1
        assert any("in a browser" in str(value) for _, value in ruling.details)


async def test_a_long_call_is_read_to_its_end_and_denied_with_a_word(
    browser: BrowserContext, tmp_path: Path
) -> None:
    command = "make\n" + "x\n" * 100
    second = escalation(seconds=PATIENCE, tool="run_command", arguments={"command": command})
    async with a_page(browser, tmp_path) as (box, page):
        async with box.asked(second):
            await expect(page.locator("#headline")).to_contain_text("command=make")
            await expect(page.locator("#approve")).to_be_disabled()
            await expect(page.locator("#hint")).to_contain_text("Read to the end")
            await page.locator("#end").scroll_into_view_if_needed()
            await expect(page.locator("#approve")).to_be_enabled()
            await page.keyboard.press("n")
            await expect(page.locator("#note")).to_be_focused()
            await page.keyboard.type("use tox")
            await expect(page.locator("#note")).to_have_value("use tox")
            await page.keyboard.press("Escape")
            await press(page, "d", second, box)
        ruling = box.rulings[second.id]
        assert isinstance(ruling, Declined), ruling
        assert ruling.note == "use tox", ruling
        await expect(page.locator("#empty")).to_be_visible()


async def test_a_row_keeps_focus_and_click_while_the_list_refreshes(
    browser: BrowserContext, tmp_path: Path
) -> None:
    first = escalation(seconds=PATIENCE, tool="run_command", arguments={"command": "make one"})
    second = escalation(seconds=PATIENCE, tool="run_command", arguments={"command": "make two"})
    row = "#waiting li:has-text('make two') button"
    async with (
        a_page(browser, tmp_path) as (box, page),
        box.asked(first),
        box.asked(second),
    ):
        await expect(page.locator("#waiting button")).to_have_count(2)
        await page.locator(row).focus()
        await page.locator(row).hover()
        await page.mouse.down()
        # Until the time that is left has changed twice, the list was refreshed as often.
        for _ in range(2):
            shown = await page.locator(f"{row} small").inner_text()
            await expect(page.locator(f"{row} small")).not_to_have_text(shown)
        await expect(page.locator(row)).to_be_focused()
        await page.mouse.up()
        await expect(page.locator("#headline")).to_contain_text("make two")
        await expect(page.locator(row)).to_have_attribute("aria-current", "true")
        await expect(page.locator("#waiting button[aria-current]")).to_have_count(1)
        await press(page, "d", second, box)
        await expect(page.locator("#headline")).to_contain_text("make one")
        await press(page, "d", first, box)


async def test_a_clock_that_is_set_meanwhile_moves_no_countdown_and_holds_no_key_up(
    browser: BrowserContext, tmp_path: Path
) -> None:
    asked = escalation(seconds=PATIENCE)
    set_clock = "hours => { const now = Date.now; Date.now = () => now() + hours * 3600e3; }"
    async with a_page(browser, tmp_path) as (box, page), box.asked(asked):
        await expect(page.locator("#headline")).to_contain_text("files/read_file")
        await page.evaluate(set_clock, 1)
        shown = "() => { drawList(); return document.querySelector('#waiting small').textContent }"
        assert await page.evaluate(shown) in {
            f"{at // 60}:{at % 60:02} left" for at in range(1, int(PATIENCE) + 1)
        }
        await page.evaluate(set_clock, -2)
        assert await page.evaluate("() => state.readyAt - performance.now()") <= 400
        await press(page, "d", asked, box)


async def test_a_phone_has_room_for_the_call_and_the_keys(
    browser: BrowserContext, tmp_path: Path
) -> None:
    asked = escalation(seconds=PATIENCE, arguments={"content": "a word " * 60})
    async with a_page(browser, tmp_path, width=390, height=800) as (box, page):
        async with box.asked(asked):
            await expect(page.locator("#headline")).to_contain_text("files/read_file")
            wide = await page.evaluate("document.documentElement.scrollWidth")
            assert wide <= 390
            await page.evaluate("scrollTo(0, document.body.scrollHeight)")
            await expect(page.locator("#approve")).to_be_enabled()
            await expect(page.locator("#approve")).to_be_in_viewport()
            while asked.id not in box.rulings:
                await page.locator("#approve").click()
                with anyio.move_on_after(1):
                    await until(lambda: asked.id in box.rulings)
        assert isinstance(box.rulings[asked.id], Approved)


async def test_a_phone_shows_the_reason_first_and_a_short_edit_without_a_scroll(
    browser: BrowserContext, tmp_path: Path
) -> None:
    target = tmp_path / "a.sh"
    target.write_text("set -e\nrsync -a out/ staging:\n")
    asked = escalation(
        seconds=PATIENCE,
        tool="edit_file",
        arguments={
            "path": str(target),
            "edits": [{"oldText": "staging", "newText": "live"}],
        },
        candidates=(replace(ETC, description="files below /srv; " * 40),),
    )
    long = escalation(seconds=PATIENCE, tool="run_command", arguments={"command": "x " * 3000})
    async with (
        a_page(browser, tmp_path, width=390, height=844) as (box, page),
        box.asked(asked),
        box.asked(long),
    ):
        await expect(page.locator("#waiting button")).to_have_count(2)
        await page.click("#waiting button:has-text('edit_file')")
        await expect(page.locator("#headline")).to_contain_text("files/edit_file")
        said = await page.locator("#question").inner_text()
        assert said.index(asked.ground.reason) < said.index("files/edit_file")
        assert said.count("staging") == 1, said
        # What can be remembered does not fit, and so cannot be remembered yet.
        await expect(page.locator("#approve")).to_be_enabled()
        assert await page.evaluate("scrollY") == 0
        await expect(page.locator("#remember")).to_be_disabled()
        for row in await page.locator("#waiting button").all():
            place = await row.bounding_box()
            assert place is not None
            assert 44 <= place["height"] <= 60
        await page.evaluate("scrollTo(0, document.body.scrollHeight)")
        await expect(page.locator("#remember")).to_be_enabled()
        await press(page, "d", asked, box)
        await press(page, "d", long, box)


SEND = "curl -d @README.md https://example.com/upload"


@pytest.mark.parametrize(("width", "height"), [(320, 640), (390, 844), (1440, 900)])
async def test_a_command_that_fits_is_approved_without_a_scroll_on_every_screen(
    browser: BrowserContext, tmp_path: Path, width: int, height: int
) -> None:
    asked = replace(
        escalation(
            seconds=PATIENCE, tool="run_command", arguments={"command": SEND}, candidates=(ETC, SRV)
        ),
        told=("Sends data to example.com: curl.",),
        context=(
            ("Not contained", "curl reaches something outside"),
            ("It reaches", "example.com"),
            ("An approval opens for this call", "host example.com"),
        ),
    )
    long = escalation(seconds=PATIENCE, tool="run_command", arguments={"command": "x " * 4000})
    async with (
        a_page(browser, tmp_path, width=width, height=height) as (box, page),
        box.asked(asked),
        box.asked(long),
    ):
        await expect(page.locator("#waiting button")).to_have_count(2)
        await page.click("#waiting button:has-text('curl')")
        await expect(page.locator("#reason")).to_have_text("Sends data to example.com: curl.")
        await expect(page.locator("#approve")).to_be_enabled()
        assert await page.evaluate("[scrollY, document.querySelector('#question').scrollTop]") == [
            0,
            0,
        ]
        assert await page.evaluate("document.documentElement.scrollWidth") <= width
        await page.click("#waiting button:has-text('x x x')")
        await expect(page.locator("#approve")).to_be_disabled()
        await press(page, "d", long, box)
        await press(page, "d", asked, box)


FRAMES = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"


async def test_what_the_buttons_cover_was_not_on_the_screen(
    browser: BrowserContext, tmp_path: Path
) -> None:
    """The fields below the call are opened, and so cover what was free when it was chosen."""
    lines = "\n".join(f"line {number}" for number in range(80))
    asked = escalation(seconds=PATIENCE, tool="write", arguments={"content": lines})
    async with (
        a_page(browser, tmp_path, width=390, height=844) as (box, page),
        box.asked(asked),
    ):
        await expect(page.locator("#headline")).to_contain_text("files/write")
        await page.evaluate("document.querySelector('#more').open = true")
        await page.evaluate(FRAMES)
        buttons = await page.locator("#actions").bounding_box()
        end = await page.locator("#end").bounding_box()
        assert buttons is not None
        assert end is not None
        await page.evaluate("(by) => scrollBy(0, by)", end["y"] - buttons["y"] - 60)
        for _ in range(5):
            await page.evaluate(FRAMES)
        await expect(page.locator("#approve")).to_be_disabled()
        await page.evaluate("scrollTo(0, document.body.scrollHeight)")
        await expect(page.locator("#approve")).to_be_enabled()
        # On a wide screen the fields are always open; a phone folds them again.
        await page.set_viewport_size({"width": 1200, "height": 900})
        await page.set_viewport_size({"width": 390, "height": 844})
        await expect(page.locator("#more")).not_to_have_attribute("open", "")
        await press(page, "d", asked, box)


async def test_a_long_choice_of_what_to_remember_leaves_each_key_on_the_page(
    browser: BrowserContext, tmp_path: Path
) -> None:
    choice = replace(ETC, description="Let write_file change files below ~/notes; " * 6)
    asked = escalation(seconds=PATIENCE, candidates=(choice,))
    async with a_page(browser, tmp_path) as (box, page), box.asked(asked):
        await expect(page.locator("#headline")).to_contain_text("files/read_file")
        for width in (1280, 390):
            await page.set_viewport_size({"width": width, "height": 800})
            if width == 390:
                # Where the page becomes narrow, it folds.
                await expect(page.locator("#more")).not_to_have_attribute("open", "")
            await page.evaluate("document.querySelector('#more').open = true")
            for key in await page.locator("#actions button:visible, #actions select").all():
                place = await key.bounding_box()
                assert place is not None
                assert place["x"] + place["width"] <= width, (width, await key.inner_text())
        await press(page, "d", asked, box)


@pytest.fixture
async def log(tmp_path: Path) -> Path:
    """An audit log with an attempt at markup."""
    one = AuditLog.open(tmp_path / "audit.jsonl", LogSettings())
    denied = ResultSummary(status="denied", error=EVIL)
    refused = {"effect": "deny", "rule": EVIL, "reason": EVIL, "result": denied}
    for call in (record(1), record(2, refused)):
        await one.record(call)
    one.close()
    return one.path


def old_calls() -> bytes:
    allowed = b'{"timestamp":"2026-01-01T12:00:00.%03dZ","policyDecision":{"status":"allow"}}\n'
    return b"".join([allowed % number for number in range(200)])


async def show_older_calls(page: Page) -> None:
    """The page lists 200 calls, and at the press of a button older ones."""
    await expect(page.locator("#calls tr")).to_have_count(200)
    await page.click("#older")
    await expect(page.locator("#calls tr")).to_have_count(202)
    await expect(page.locator("#older")).to_be_hidden()
    await page.select_option("#decision", "none")


async def test_the_record_and_the_day_show_words_and_no_markup(
    browser: BrowserContext, tmp_path: Path, log: Path
) -> None:
    log.write_bytes(old_calls() + log.read_bytes())  # noqa: ASYNC240  returns at once
    async with a_page(browser, tmp_path, log=log) as (_, page):
        await page.keyboard.press("l")
        await show_older_calls(page)
        await expect(page.locator("#calls tr")).to_have_count(1)
        assert EVIL in await page.locator("#calls").inner_text()
        await page.locator("#calls button").click()
        await expect(page.locator("#lines")).to_contain_text("policyDecision")
        await page.keyboard.press("Escape")
        late, go = anyio.Event(), anyio.Event()

        async def last(route: Route) -> None:
            answer = await route.fetch()
            await go.wait()
            await route.fulfill(response=answer)
            late.set()

        await page.route("**/api/day?*", last, times=1)
        async with page.expect_request("**/api/day?*"):
            await page.keyboard.press("y")
        await page.select_option("#span", "")
        await expect(page.locator("#plots > p")).to_contain_text("202 calls of 2 sessions")
        # What was asked for first is answered last, and changes nothing.
        async with page.expect_response("**/api/day?*"):
            go.set()
        await late.wait()
        await page.evaluate("fetch('/').then((answer) => answer.text())")
        await expect(page.locator("#plots > p")).to_contain_text("202 calls of 2 sessions")
        assert EVIL in await page.locator("#plots").inner_text()
        assert await page.locator("img").count() == 0
        assert await page.title() == "ironcurtain-proxy"


async def test_no_view_has_a_serious_barrier(
    browser: BrowserContext, tmp_path: Path, log: Path
) -> None:
    if not AXE.exists():
        pytest.skip("axe-core is not installed: scripts/setup")
    asked = escalation(seconds=PATIENCE, arguments={"path": "/etc/hosts"}, candidates=(ETC,))
    async with a_page(browser, tmp_path, log=log) as (box, page), box.asked(asked):
        await expect(page.locator("#headline")).to_contain_text("files/read_file")
        for key, width in (
            ("q", 1200),
            ("l", 1200),
            ("y", 1200),
            ("q", 390),
            ("l", 390),
            ("?", 390),
        ):
            await page.set_viewport_size({"width": width, "height": 800})
            await page.keyboard.press(key)
            if key == "l":
                await expect(page.locator("#calls tr")).to_have_count(2)
            await page.evaluate(AXE.read_text("utf-8"))
            found = await page.evaluate("axe.run()")
            serious = [
                (one["id"], one["nodes"][0]["html"])
                for one in found["violations"]
                if one["impact"] in {"serious", "critical"}
            ]
            assert serious == [], (key, width)
        box.answer(asked, {"decision": "denied"})


async def _shown_digest(client: httpx.AsyncClient, key: dict[str, str]) -> str:
    """The digest of the first question that the page is told of."""
    async with client.stream("GET", "/api/questions", headers=key) as lines:
        async for line in lines.aiter_lines():
            for one in orjson.loads(line)["questions"]:
                return str(one["digest"])
    raise AssertionError("no question")


async def test_an_answer_is_bound_to_what_was_shown(tmp_path: Path) -> None:
    async with a_box(tmp_path / "box") as box, a_command(box.path, tmp_path) as command:
        origin, _, ticket = (await command.link()).partition("/#")
        asked = escalation(seconds=PATIENCE, candidates=(ETC,))
        async with (
            httpx.AsyncClient(base_url=origin, verify=NO_TLS) as client,
            box.asked(asked),
        ):
            opened = await client.post("/api/page", json={"ticket": ticket})
            key = {"authorization": f"Bearer {opened.json()['key']}"}
            fields = {"id": asked.id, "digest": await _shown_digest(client, key), "approve": True}
            for wrong, status in (
                ({"digest": "0" * 64}, 409),
                ({"id": "nothing"}, 409),
                ({"approve": "yes"}, 400),
                ({"remember": 7}, 400),
                ({"remember": True}, 400),
                ({"approve": False, "remember": 0}, 400),
            ):
                answer = await client.post("/api/answers", json={**fields, **wrong}, headers=key)
                assert answer.status_code == status, wrong
            # Who writes to the page by a program is told what is wrong, and not "too late".
            for sent, kind, status, words in (
                (fields, "text/plain", 415, "Content-Type"),
                (fields, "", 415, "Content-Type"),
                ([fields], "application/json", 400, "no JSON object"),
                ({**fields, "id": None}, "application/json", 409, "its id is missing"),
                ({**fields, "digest": "0"}, "Application/JSON ; charset=utf-8", 409, "changed"),
            ):
                said = {**key, "content-type": kind}
                body = orjson.dumps(sent)
                answer = await client.post("/api/answers", content=body, headers=said)
                assert (answer.status_code, words in answer.json()["problem"]) == (status, True)
            assert asked.id not in box.rulings
            # Two tabs answer at once: one counts, and the other is told that it came late.
            told: list[int] = []

            async def answer_in_a_tab(approve: bool) -> None:
                sent = {**fields, "approve": approve}
                told.append(
                    (await client.post("/api/answers", json=sent, headers=key)).status_code
                    + approve
                )

            async with anyio.create_task_group() as tabs:
                tabs.start_soon(answer_in_a_tab, True)
                tabs.start_soon(answer_in_a_tab, False)
            assert sorted(told) in ([200, 410], [201, 409])
        assert isinstance(box.rulings[asked.id], Approved) is (201 in told)


async def test_an_answer_as_a_reviewer_carries_a_proof(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("0123456789abcdef0123456789abcdef\n")
    token.chmod(0o600)
    credential = Credential("ops", token.read_text().strip())
    async with (
        a_box(tmp_path / "box", credential=credential) as box,
        a_command(box.path, tmp_path, ["--as", "ops", "--token-file", str(token)]) as command,
    ):
        origin, _, ticket = (await command.link()).partition("/#")
        asked = escalation(seconds=PATIENCE)
        async with (
            httpx.AsyncClient(base_url=origin, verify=NO_TLS) as client,
            box.asked(asked),
        ):
            opened = await client.post("/api/page", json={"ticket": ticket})
            key = {"authorization": f"Bearer {opened.json()['key']}"}
            fields = {"id": asked.id, "digest": await _shown_digest(client, key), "approve": True}
            answer = await client.post("/api/answers", json=fields, headers=key)
            assert answer.status_code == 200, answer.text
        ruling = box.rulings[asked.id]
        assert isinstance(ruling, Approved)
        assert ruling.by == Program("ops", "session")


async def test_a_key_shows_the_command_for_a_rule_and_nothing_is_written(
    browser: BrowserContext, tmp_path: Path
) -> None:
    (tmp_path / "notes").mkdir()
    path = str(tmp_path / "notes/a.txt")
    asked = replace(escalation(seconds=PATIENCE, arguments={"path": path}), server="filesystem")
    async with a_page(browser, tmp_path) as (box, page), box.asked(asked):
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


async def test_equal_calls_share_a_card_and_arguments_can_be_changed(
    browser: BrowserContext, tmp_path: Path
) -> None:
    def asking(path: str) -> Escalation:
        made = escalation(seconds=PATIENCE, arguments={"path": path}, candidates=(ETC,))
        return replace(made, editable=True)

    first, second = asking("/etc/one"), asking("/etc/two")
    async with (
        a_page(browser, tmp_path) as (box, page),
        box.asked(first),
        box.asked(second),
    ):
        # What joins a card that is shown gets one of its own: the page opens when both wait.
        await page.reload()
        await expect(page.locator("#waiting button")).to_have_count(1)
        await expect(page.locator("#body")).to_contain_text("And 2 of 2: files/read_file")
        await page.locator("#end").scroll_into_view_if_needed()
        await press(page, "a", second, box)
        await until(lambda: first.id in box.rulings)
        third = asking("/etc/three")
        async with box.asked(third):
            await expect(page.locator("#headline")).to_contain_text("/etc/three")
            await page.locator("#end").scroll_into_view_if_needed()
            await page.locator("#edited").fill('{"path": "/etc/four"}')
            await expect(page.locator("#edit")).to_be_enabled()
            while third.id not in box.rulings:
                await page.locator("#edit").click()
                with anyio.move_on_after(1):
                    await until(lambda: third.id in box.rulings)
    ruling = box.rulings[third.id]
    assert isinstance(ruling, Approved)
    assert ruling.changed == {"path": "/etc/four"}


async def test_a_page_that_hears_nothing_does_not_say_that_nothing_waits_and_answers_nothing(
    browser: BrowserContext, tmp_path: Path
) -> None:
    asked = escalation(seconds=PATIENCE)
    async with (
        a_box(tmp_path / "box", assume_listener=False) as box,
        a_command(box.path, tmp_path) as command,
    ):
        link = await command.link()
        async with a_tab(browser, link[:-6] + "wrong!") as stranger:
            await expect(stranger.locator("#empty")).to_contain_text("open the one it shows")
        async with a_tab(browser, link) as page:
            await expect(page.locator("#link")).to_have_text("listening")
            await until(box.mailbox.is_reachable)
            async with box.asked(asked):
                await expect(page.locator("#approve")).to_be_enabled()
                command.process.terminate()
                await expect(page.locator("#hint")).to_contain_text("has ended")
                for name in ("#approve", "#deny"):
                    await expect(page.locator(name)).to_be_disabled()
                box.answer(asked, APPROVED)


async def test_a_call_that_is_answered_elsewhere_does_not_go_without_a_word(
    browser: BrowserContext, tmp_path: Path
) -> None:
    asked = escalation(seconds=PATIENCE, arguments={"path": "/etc/shells"})
    async with a_page(browser, tmp_path) as (box, page):
        async with box.asked(asked):
            await expect(page.locator("#headline")).to_contain_text("/etc/shells")
            box.answer(asked, APPROVED)
        await expect(page.locator("#told")).to_contain_text("answered elsewhere: files/read_file")
        await expect(page.locator("#empty")).to_contain_text("Nothing is waiting")
