"""Our own shell and a shell server of somebody else's in one session, in the same workspace.

The one changes the workspace when its command has ended, the other at once. With a real sandbox.
"""

import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from tests.e2e.confined_installation import done, refused
from tests.e2e.installation import Installation
from tests.e2e.mailbox_person import Person
from tests.e2e.raw_client import Message, RawClient, texts
from tests.e2e.test_containment import contained, last, why_asked
from tests.program import wait_until

pytestmark = pytest.mark.usefixtures("sandbox")

OWN: Final = "own__run_command"
THEIRS: Final = "box__shell"


class Both:
    """A session with both shells, in a repository of the user's."""

    def __init__(self, root: Path) -> None:
        self.installation = Installation(root)
        self.here = self.installation.workspace
        self.installation.servers["own"] = {"builtin": "shell"}
        self.agent: RawClient = contained(self.installation)
        self.agent.until_listed(OWN, THEIRS)

    def own(self, command: str) -> str:
        return done(self.agent.call(OWN, {"command": command}))

    def theirs(self, command: str) -> str:
        answer = self.agent.call(THEIRS, {"command": f"cd {self.here}; {command}"})
        done(answer)
        return "\n".join(texts(answer))

    def last(self) -> Message:
        return last(self.installation)


@pytest.fixture
def both(tmp_path: Path) -> Iterator[Both]:
    made = Both(tmp_path)
    yield made
    made.installation.end()


def test_each_sees_what_the_other_has_done_and_each_record_has_its_own_changes(both: Both) -> None:
    both.own("echo mine > a.txt")
    assert (both.last()["decidedBy"], both.last()["changed"]) == ("containment", ["created a.txt"])
    assert "mine" in both.theirs("cat a.txt; echo theirs >> a.txt")
    assert both.last()["changed"] == ["changed a.txt"]
    assert both.own("cat a.txt; rm a.txt") == "mine\ntheirs"
    assert both.last()["changed"] == ["deleted a.txt"]
    assert not (both.here / "a.txt").exists()


def test_what_the_other_changed_meanwhile_stays_and_is_said(both: Both) -> None:
    (both.here / "shared.txt").write_text("first\n")
    wrote = "echo mine > shared.txt; echo mine > alone.txt"
    serve = f"{sys.executable} -m http.server 8736 --bind 127.0.0.1"
    started = both.agent.call(OWN, {"command": f"{wrote}; {serve}", "background": True})
    number = int(done(started).split("[job ")[1].split()[0])
    code = "import urllib.request as u; o = u.build_opener(u.ProxyHandler({}))"
    fetch = f"{code}; print(o.open('http://127.0.0.1:8736/alone.txt').read())"
    both.own(f'until {sys.executable} -c "{fetch}" 2> /dev/null; do sleep 0.1; done')
    both.theirs("echo theirs > shared.txt")
    told = "\n".join(texts(both.agent.call("own__stop_job", {"job": number})))
    assert "[CONFLICT" in told, told
    assert "shared.txt" in told
    assert (both.here / "shared.txt").read_text() == "theirs\n"
    assert (both.here / "alone.txt").read_text() == "mine\n"


def test_a_control_place_is_kept_back_of_one_and_put_back_of_the_other(both: Both) -> None:
    script = both.here / "leave.sh"
    script.write_text("mkdir -p $1; echo x > $1/.mcp.json; echo ok > $1/ok\n")
    assert "[KEPT BACK" in both.own("sh leave.sh mine")
    assert "keptBack" in both.last()
    assert "putBack" not in both.last()
    assert "was removed" in both.theirs("sh leave.sh theirs")
    assert "theirs/.mcp.json" in str(both.last()["putBack"])
    for name in ("mine", "theirs"):
        assert [one.name for one in (both.here / name).iterdir()] == ["ok"]
    # Neither ended anything for the other.
    both.own("touch one")
    both.theirs("touch two")
    assert both.last()["decidedBy"] == "containment"


def test_a_race_of_the_one_that_writes_at_once_leaves_our_own_shell_contained(both: Both) -> None:
    script = both.here / "race.sh"
    script.write_text("while :; do mkdir -p a; echo x > a/.mcp.json; done 2> /dev/null\n")
    raced = both.agent.start_call(THEIRS, {"command": f"cd {both.here}; sh race.sh"})
    assert "more than 3 times" in "\n".join(texts(both.agent.result(raced)))
    assert not (both.here / "a/.mcp.json").exists()
    made = both.agent.call(OWN, {"command": "touch made.txt"})
    assert not made.get("isError"), why_asked(both.installation)
    assert both.last()["decidedBy"] == "containment"
    refused(both.agent.call(THEIRS, {"command": "touch more.txt"}))
    assert "containment has ended" in why_asked(both.installation)
    assert Person(both.installation).run("containment", "resume").returncode == 0
    call = partial(both.agent.call, THEIRS, {"command": "touch more.txt"})
    wait_until(lambda: not call().get("isError"), pause=0.2)


def test_a_rollback_names_the_other_who_touched_the_file_later(both: Both) -> None:
    both.own("echo mine > a.txt")
    mine = str(both.last()["requestId"])
    both.theirs("echo theirs > a.txt")
    theirs = str(both.last()["requestId"])
    person = Person(both.installation)
    kept = person.run("rollback", mine)
    assert kept.returncode == 1
    assert theirs[:4] in kept.stdout + kept.stderr
    assert person.run("rollback", theirs).returncode == 0
    assert (both.here / "a.txt").read_text() == "mine\n"
    assert person.run("rollback", mine, "--force").returncode == 0
    assert not (both.here / "a.txt").exists()
