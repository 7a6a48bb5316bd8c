"""Makes the pictures of what people look at: `review`, `audit tail`, the page and the report.

The programs are the real ones, over a mailbox and an audit log that this script fills; nothing is
drawn by hand. Needs Chromium for the pictures of pages.
"""

import argparse
import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import anyio
from playwright.async_api import async_playwright
from rich.console import Console
from rich.text import Text

from ironcurtain_proxy.audit.calls import last_calls
from ironcurtain_proxy.audit.display import CallTable
from ironcurtain_proxy.audit.known_logs import family
from ironcurtain_proxy.audit.log import AuditLog
from ironcurtain_proxy.audit.writer import LogSettings
from ironcurtain_proxy.cli.audit_whole import local_time
from ironcurtain_proxy.cli.review_screen.review_screen import ReviewScreen
from ironcurtain_proxy.mailbox.mailboxes import Mailboxes, this_process
from ironcurtain_proxy.mailbox.messages import Owner, request_bytes, request_name
from ironcurtain_proxy.model.decision import CONTAINMENT, HUMAN, KERNEL, Ground
from ironcurtain_proxy.model.escalation import Escalation, EscalationId, OriginReason
from ironcurtain_proxy.model.grant import GrantPattern
from ironcurtain_proxy.model.operation import RequestId
from ironcurtain_proxy.model.reply import AuditRecord, ResultSummary
from ironcurtain_proxy.model.request import AccessRequest
from ironcurtain_proxy.model.values import Json

PICTURES: Final = Path(__file__).parent.parent / "docs" / "pictures"
NOON: Final = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
BROWSER: Final = ("--no-sandbox", "--disable-gpu", "--disable-background-networking")
COLUMNS: Final = 118


def main() -> int:
    """Make all pictures. Returns the exit code."""
    argparse.ArgumentParser(prog="scripts/screens", description=__doc__).parse_args()
    program = shutil.which("chromium")
    if program is None:
        sys.stderr.write("screens: Chromium is not installed: apt-get install chromium\n")
        return 1
    # A short name: it stands in the pictures.
    home = Path(tempfile.gettempdir()) / "demo"
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(mode=0o700)
    os.environ |= {"HOME": str(home), "TZ": "UTC"}
    time.tzset()
    try:
        stage = Stage(home, program)
        stage.furnish()
        anyio.run(stage.review)
        stage.tail()
        anyio.run(stage.pages)
    finally:
        shutil.rmtree(home, ignore_errors=True)
    return 0


@dataclass(frozen=True)
class Stage:
    """A home with a mailbox, a project and an audit log."""

    home: Path
    browser: str

    @property
    def box(self) -> Path:
        """The mailbox."""
        return self.home / "box"

    @property
    def log(self) -> Path:
        """The audit log."""
        return self.home / "audit.jsonl"

    def furnish(self) -> None:
        """Write the project, the questions and the log."""
        project = self.home / "shop"
        project.mkdir()
        (project / "deploy.sh").write_text("set -e\nmake build\nrsync -a out/ staging:/srv/shop\n")
        self.box.mkdir(mode=0o700)
        session = b'{"client": "an-agent 2.1", "workspace": "%s"}' % str(project).encode()
        (self.box / "session.json").write_bytes(session)
        said = b'{"userMessage": "publish the shop once the tests pass"}'
        (self.box / "user-context.json").write_bytes(said)
        edits: Json = [{"oldText": "staging:", "newText": "production:"}]
        edit: dict[str, Json] = {"path": str(project / "deploy.sh"), "edits": edits}
        why = "This file is run outside the sandbox: a change of it is asked about"
        self._ask("filesystem", "edit_file", edit, why, "Allow edit_file within ~/shop")
        push: dict[str, Json] = {"command": "git push origin release", "cwd": str(project)}
        kind = "`git push` of branch release to origin, in ~/shop"
        self._ask("shell", "run_command", push, "It reaches github.com", kind)
        anyio.run(self._record)

    def _ask(self, server: str, tool: str, given: dict[str, Json], why: str, kind: str) -> None:
        now = datetime.now(UTC)  # noqa: TID251  the deadline of a question is a real one
        identity = f"4f1c2a7e-0000-4000-8000-{len(list(self.box.iterdir())):012x}"
        pattern = GrantPattern(
            server=server, tool=tool, definition="", constraints=(), description=kind
        )
        ground = Ground(f"ask-{tool}".replace("_", "-"), why)
        asked = Escalation(
            id=EscalationId(identity),
            session="3ac5",
            server=server,
            tool=tool,
            exposed_name=f"{server}__{tool}",
            arguments=given,
            request=AccessRequest(
                server=server, tool=tool, annotated=True, has_arguments=True, arguments=()
            ),
            ground=ground,
            reasons=(OriginReason(origin="policy", ground=ground),),
            candidates=(pattern,),
            fingerprint="0" * 64,
            policy_version="",
            created=now,
            deadline=now + timedelta(minutes=4, seconds=41),
        )
        owner: Owner = this_process()
        (self.box / request_name(identity)).write_bytes(request_bytes(asked, owner))

    async def _record(self) -> None:
        log = AuditLog.open(self.log, LogSettings())
        moment = NOON
        for number in range(240):
            moment += timedelta(seconds=90 - number % 7 * 8)
            await log.record(_recorded(number, moment))
        log.close()

    async def review(self) -> None:
        """The live screen, as Textual itself exports it."""
        mailboxes = Mailboxes([self.box], None)
        screen = ReviewScreen(mailboxes)
        async with screen.run_test(size=(COLUMNS, 36)) as pilot:
            while "deploy.sh" not in screen.export_screenshot():
                await pilot.pause(0.1)
            await pilot.pause(1)  # the keys are drawn last
            svg = screen.export_screenshot(title="ironcurtain-proxy review")
        mailboxes.stop_listening()
        self._write("review.svg", svg)

    def tail(self) -> None:
        """The table of `audit tail`, in the colours of a terminal."""
        table = CallTable(width=COLUMNS, when=local_time, zone="UTC", is_colourful=True)
        calls = last_calls(family(self.log), 14)
        lines = [table.header(), *[table.row(entry) for entry in calls]]
        console = Console(record=True, width=COLUMNS + 2, file=io.StringIO())
        # The picture cuts the foot of its last line, so that the last one is empty.
        console.print(Text.from_ansi("\n".join([*lines, ""])))
        self._write("tail.svg", console.export_svg(title="ironcurtain-proxy audit tail"))

    def _write(self, name: str, svg: str) -> None:
        # Pictures load nothing from elsewhere: the terminal's own font will do.
        alone = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)
        (PICTURES / name).write_text(alone, "utf-8")
        sys.stdout.write(f"{PICTURES / name}\n")

    async def pages(self) -> None:
        """The page in a browser, its record and its day; wide, and one as on a phone."""
        environ = {**os.environ, "AUDIT_LOG_PATH": str(self.log)}
        command = [sys.executable, "-m", "ironcurtain_proxy", "web", "--dir", str(self.box)]
        served = subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True)  # noqa: ASYNC220
        if served.stdout is None:
            raise RuntimeError("the command's output is not read")
        async with async_playwright() as driver:
            browser = await driver.chromium.launch(executable_path=self.browser, args=[*BROWSER])
            for name, key, wide, high in (
                ("web.png", "q", 1100, 760),
                ("web-day.png", "y", 1100, 760),
                ("web-phone.png", "q", 390, 780),
            ):
                link = served.stdout.readline().strip()
                page = await browser.new_page(viewport={"width": wide, "height": high})
                await page.goto(link)
                await page.wait_for_selector("#question:not([hidden])")
                await page.keyboard.press(key)
                if key == "y":
                    await page.select_option("#span", "")
                    await page.wait_for_selector("#plots rect")
                await page.screenshot(path=str(PICTURES / name))
                sys.stdout.write(f"{PICTURES / name}\n")
                await page.close()
            await browser.close()
        served.terminate()
        served.wait(10)


_TOOLS: Final = (
    ("filesystem", "read_text_file", {"path": "~/shop/src/cart.py"}),
    ("shell", "run_command", {"command": "make test"}),
    ("filesystem", "edit_file", {"path": "~/shop/src/cart.py"}),
    ("git", "git_status", {"repo_path": "~/shop"}),
    ("filesystem", "search_files", {"path": "~/shop", "pattern": "*.py"}),
)


def _recorded(number: int, moment: datetime) -> AuditRecord:
    server, tool, given = _TOOLS[number * number % len(_TOOLS)]
    how: dict[str, object] = {"effect": "allow", "rule": "structural-sandbox-allow"}
    status, reason = "success", "within the workspace"
    if server == "shell":
        how = {"effect": "escalate", "rule": "shell-command", "escalation_result": "approved"}
        how["decided_by"] = CONTAINMENT
    if number % 23 == 9:  # noqa: PLR2004
        how = {"effect": "deny", "rule": "structural-protected-path"}
        given, status, reason = {"path": "~/.ssh/id_rsa"}, "denied", "a protected path"
    if number % 31 == 20:  # noqa: PLR2004
        server, tool, given = "shell", "run_command", {"command": "git push origin release"}
        how = {"effect": "escalate", "rule": "shell-command", "escalation_result": "approved"}
        how |= {"decided_by": HUMAN, "context": (("waitedMs", 6000 + number * 10),)}
        how["duration_ms"] = 7400 + number * 10
    fields: dict[str, object] = {
        "timestamp": moment,
        "request_id": RequestId(f"75b32e3b-0000-4000-8000-{number:012x}"),
        "server": server,
        "tool": tool,
        "arguments": given,
        "reason": reason,
        "result": ResultSummary(status=status, error=reason if status == "denied" else None),  # type: ignore[arg-type]
        "duration_ms": 3 + number % 9,
        "session": "3ac5" if number % 3 else "91b0",
        "client": "an-agent 2.1" if number % 3 else "an-editor 1.9",
        "decided_by": KERNEL,
        "policy_version": "",
        **how,
    }
    return AuditRecord(**fields)  # type: ignore[arg-type]


if __name__ == "__main__":
    started = time.monotonic()
    code = main()
    sys.stderr.write(f"screens: {time.monotonic() - started:.0f} s\n")
    raise SystemExit(code)
