"""The whole proxy is killed at each step of a contained call: all came in, or nothing.

With the real sandbox. Each start finds what the killed one before it left.
"""

import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest

from tests.e2e.confined_installation import done
from tests.e2e.installation import Installation
from tests.e2e.killed_at import MODULE, MOMENTS, moment_file
from tests.e2e.mailbox_person import Person
from tests.e2e.process_tree import Watch, marked
from tests.e2e.raw_client import RawClient
from tests.e2e.test_own_shell import run, shelled
from tests.program import PATIENCE

pytestmark = pytest.mark.usefixtures("sandbox")

DEEDS: Final = "echo new > changed; rm gone; mkdir made; echo x > made/x; mv tree/a tree/b"
COMPLETE: Final = frozenset({"commit ended", "outcome due", "outcome written"})
ALONE: Final = frozenset({"running", "point made", "step 4 done", "commit ended"})
"""When the proxy is killed without what it started, which has to end by itself."""
SAID: Final = {
    **dict.fromkeys(("compared", "point made"), "none of them came in"),
    **dict.fromkeys(("journal written", "step 2 done", "step 4 done"), "were taken back"),
}
"""What the next start says."""


def content(top: Path) -> dict[str, str]:
    """What each file of a workspace holds."""
    return {str(one.relative_to(top)): one.read_text() for one in top.rglob("*") if one.is_file()}


def in_views(installation: Installation) -> set[int]:
    """The processes that see a view of a workspace. Its mounts end with them."""
    found: set[int] = set()
    for mounts in Path("/proc").glob("[0-9]*/mountinfo"):
        with suppress(OSError):
            lines = mounts.read_text().splitlines()
            if any("overlay" in one and str(installation.root) in one for one in lines):
                found.add(int(mounts.parent.name))
    return found


def killed_call(installation: Installation, agent: RawClient, moment: str) -> str:
    """Kill the proxy at a moment of a call. Nothing of it lives on.

    Return the id of the call. It is empty if the proxy has not heard of it: a view is also made
    before the first call, which on a busy machine may come later.
    """
    before = len([one for one in installation.records() if "phase" in one])
    moment_file(installation.home / ".ironcurtain").write_text(
        f"{moment}\n{'' if moment in ALONE else 'all'}"
    )
    watch = Watch(installation.processes(agent))
    agent.start_call("run_command", {"command": DEEDS})
    agent.process.wait(PATIENCE)
    assert not moment_file(installation.home / ".ironcurtain").exists(), moment
    assert watch.survivors() == set(), moment
    assert marked(installation.mark) == set(), moment
    assert Watch(in_views(installation)).survivors() == set(), moment
    intents = [str(one["requestId"]) for one in installation.records() if "phase" in one]
    assert intents[before:] or moment == "view made"
    return "".join(intents[before:][:1])


def recorded(installation: Installation) -> list[object]:
    """The calls whose commits the audit log says were taken back; empty: it had not begun."""
    found: list[object] = []
    for one in installation.records():
        given = one["arguments"]
        if one["toolName"] == "commit_taken_back" and isinstance(given, dict):
            found.append(given["call"])
    return found


@pytest.mark.requirement("T-22")
def test_a_killed_proxy_leaves_a_call_done_or_not_begun_and_its_changes_can_be_undone(
    installation: Installation,
) -> None:
    here, views = installation.workspace, installation.home / ".ironcurtain/views"
    for name in ("changed", "gone", "tree/a", "kept"):
        (here / name).parent.mkdir(exist_ok=True)
        (here / name).write_text(f"old {name}")
    before = content(here)
    after = {"changed": "new\n", "made/x": "x\n", "tree/b": before["tree/a"], "kept": "old kept"}
    agent = shelled(installation)
    agent.close()
    installation.command = [sys.executable, "-m", MODULE]
    killed, expected = dict[str, str](), list[str]()
    for number, moment in enumerate((*MOMENTS, ""), 1):
        agent = installation.start()
        assert content(here) == before, f"before {moment!r}"
        said = (installation.root / f"stderr-{number}.txt").read_text()
        assert [one for one in {*SAID.values()} if one in said] == expected, f"before {moment!r}"
        expected = [SAID[moment]] if moment in SAID else []
        assert len([*views.iterdir()]) == 1
        if not moment:
            break
        killed[moment] = killed_call(installation, agent, moment)
        if moment in COMPLETE:
            assert content(here) == after, moment
            taken_back = Person(installation).run("rollback", killed[moment])
            assert taken_back.returncode == 0, (moment, taken_back.stderr)
    assert done(run(agent, DEEDS)) == "[no output]"
    assert content(here) == after
    agent.close()
    assert recorded(installation) == [
        killed[moment] if SAID[moment] == "were taken back" else ""
        for moment in MOMENTS
        if moment in SAID
    ]
    verified = installation.verify_audit()
    assert verified.returncode == 0, verified.stdout
    # The log has an intent without an outcome, and says so.
    told = [moment for moment, call in killed.items() if not call or call in verified.stdout]
    assert told == [moment for moment in MOMENTS if moment != "outcome written"]
