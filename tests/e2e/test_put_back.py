"""One file that was put back ruins no session; a race, and many files, end containment.

With a real sandbox and a shell server of somebody else's, which writes in the workspace at once.
"""

from typing import Final

import pytest

from tests.e2e.confined_installation import done, escalations, refused
from tests.e2e.installation import Installation
from tests.e2e.mailbox_person import Person
from tests.e2e.raw_client import Message, texts
from tests.e2e.test_containment import contained, last, shell, why_asked
from tests.program import wait_until

pytestmark = pytest.mark.usefixtures("sandbox")

HOOK: Final = "{d}/.git/hooks/post-commit"


def leaves(installation: Installation, name: str) -> str:
    """A command with a hook as its side effect: no word of it names one."""
    script = installation.workspace / f"{name}.sh"
    hook = installation.workspace / HOOK.format(d=name)
    script.write_text(f"mkdir -p {hook.parent}; echo evil > {hook}\n")
    return f"sh {script}"


def said(answer: Message) -> str:
    return "\n".join(texts(answer))


def test_after_a_hook_all_go_on_but_the_same_call_which_is_asked_about(
    installation: Installation,
) -> None:
    escalations(installation)
    agent, person = contained(installation), Person(installation)
    command = leaves(installation, "deep")
    assert "was removed" in said(shell(agent, command))
    assert not (installation.workspace / HOOK.format(d="deep")).exists()
    assert "containmentEnded" not in last(installation)
    done(shell(agent, "touch made.txt"))
    assert last(installation)["decidedBy"] == "containment"
    assert "in no session" in person.run("containment").stdout
    call = agent.start_call("shell", {"command": command})
    question = person.until_asked()[0]
    assert "after the same call, " in str(question["context"])
    assert "deep/.git" in str(question["context"])
    person.answer({"decision": "denied"})
    refused(agent.result(call))


def test_a_call_that_races_the_look_is_ended_while_it_runs_and_containment_with_it(
    installation: Installation,
) -> None:
    agent, person = contained(installation), Person(installation)
    script = installation.workspace / "race.sh"
    hook = installation.workspace / HOOK.format(d="deep")
    # It ends by nobody's will but the proxy's.
    script.write_text(
        f"exec 2> /dev/null; while :; do mkdir -p {hook.parent}; echo x > {hook}; done"
    )
    answer = shell(agent, f"sh {script}")
    assert "was put back more than 3 times" in said(answer)
    assert last(installation)["containmentEnded"] is True
    assert not hook.exists()
    refused(shell(agent, "touch made.txt"))
    assert "containment has ended" in why_asked(installation)
    shown = person.run("containment").stdout
    assert "more than 3 times" in shown
    assert "but for our own shell" in shown
    status = person.run("status")
    assert "Containment:     on, ended in 1" in status.stdout
    assert "but for our own shell" in status.stderr
    assert person.run("containment", "resume").returncode == 0
    wait_until(lambda: not shell(agent, "touch made.txt").get("isError"), pause=0.2)


def test_ten_hooks_of_ten_calls_are_the_most_of_a_session(installation: Installation) -> None:
    agent = contained(installation)
    commands = [leaves(installation, f"d{number}") for number in range(12)]
    for command in commands[:10]:
        assert "was removed" in said(shell(agent, command))
        assert "containmentEnded" not in last(installation)
    assert "was removed" in said(shell(agent, commands[10]))
    assert last(installation)["containmentEnded"] is True
    refused(shell(agent, commands[11]))
    assert "more than 10 times in this session" in why_asked(installation)


def test_a_tool_that_names_what_the_users_settings_start_is_asked_about_first(
    installation: Installation,
) -> None:
    escalations(installation)
    here = installation.workspace
    (here / "tools").mkdir()
    (here / "tools/closed.js").write_text("mine")
    (here / ".mcp.json").write_text(
        '{"mcpServers": {"a": {"args": ["tools/server.js", "tools/closed.js"]}}}'
    )
    agent, person = contained(installation), Person(installation)
    started = here / "tools/server.js"
    call = agent.start_call("write", {"path": str(started), "text": "x"})
    question = person.until_asked()[0]
    assert "programs act by themselves" in str(question["context"])
    assert not started.exists()
    person.answer({"decision": "approved"})
    done(agent.result(call))
    assert started.read_text() == "x"
    assert "putBack" not in last(installation)
    closed = agent.call("write", {"path": str(here / "tools/closed.js"), "text": "x"})
    assert "closed.js is closed to all calls" in refused(closed)
    done(agent.call("write", {"path": str(here / "tools/other.js"), "text": "x"}))
    assert last(installation)["decidedBy"] == "containment"


def test_what_an_approved_command_names_stays_and_nothing_else_does(
    installation: Installation,
) -> None:
    escalations(installation)
    here = installation.workspace
    agent, person = contained(installation), Person(installation)
    script = here / "more.sh"
    script.write_text("echo x > lefthook.yml\n")
    command = f"cd {here}; echo node 20 > .tool-versions; sh more.sh"
    assert "was removed" in said(shell(agent, command))
    assert not (here / ".tool-versions").exists()
    call = agent.start_call("shell", {"command": command})
    assert ".tool-versions" in str(person.until_asked()[0]["context"])
    person.answer({"decision": "approved"})
    done(agent.result(call))
    assert (here / ".tool-versions").read_text() == "node 20\n"
    assert not (here / "lefthook.yml").exists()
