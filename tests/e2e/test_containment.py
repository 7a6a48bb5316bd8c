"""Calls that a sandbox holds and a timeline can take back run unasked; all others are asked about.

With a real sandbox, a real shell, and a person at the mailbox.
"""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import orjson
import pytest

from ironcurtain_proxy.model.values import Json
from tests import program
from tests.e2e.confined_installation import PATH, add_hostile, done, escalations, folder, refused
from tests.e2e.installation import ROOT, Installation, rule
from tests.e2e.mailbox_person import Person
from tests.e2e.raw_client import Message, RawClient, at
from tests.program import PROXY

pytestmark = pytest.mark.usefixtures("sandbox")

PROGRAM: Final = [sys.executable, "-m", "ironcurtain_proxy"]
SRTS_OWN: Final = (".npm/_logs", ".claude/debug")
"""Directories of the user that the sandbox program lets every process write in."""
CONFIG: Final[Message] = {
    "containment": {"undo": True},
    "capabilities": {"tools": {"box/shell": {"commandArgument": "command"}}},
}


def contained(
    installation: Installation, document: Message = CONFIG, entry: Mapping[str, Json] | None = None
) -> RawClient:
    """A proxy before a confined server; every call is escalated, nobody listens."""
    add_hostile(installation, "box", **(entry or {}))
    installation.annotations["box"] = {
        **installation.annotations["box"],
        "write": {"path": ["write-path"], "text": ["none"]},
        "remove": {"path": ["delete-path"]},
        "http": {"url": ["fetch-url"]},
        "read": {"path": ["read-path"]},
    }
    if not any(at(one, "then") == "escalate" for one in installation.rules):
        installation.rules = [rule("ask", "escalate", "a person must agree")]
    installation.variables |= {"PATH": PATH, "PYTHONPATH": str(ROOT)}
    installation.command = PROGRAM
    write_config(installation, document)
    return installation.start()


def write_config(installation: Installation, document: Message) -> None:
    directory = installation.home / ".ironcurtain"
    directory.mkdir(exist_ok=True)
    (directory / "config.json").write_bytes(orjson.dumps(document))


def shell(agent: RawClient, command: str) -> Message:
    return agent.call("shell", {"command": command})


def last(installation: Installation) -> Message:
    return installation.outcomes()[-1]


def why_asked(installation: Installation) -> str:
    return str(last(installation).get("uncontained"))


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Installation, RawClient]]:
    installation = Installation(tmp_path_factory.mktemp("contained"))
    (installation.workspace / "kept.txt").write_text("kept")
    for name in SRTS_OWN:
        (installation.home / name).mkdir(parents=True)
    yield installation, contained(installation)
    installation.end()


def test_a_command_that_the_sandbox_holds_runs_unasked_and_has_its_point(
    session: tuple[Installation, RawClient],
) -> None:
    installation, agent = session
    here = installation.workspace
    said = done(shell(agent, f"cd {here} && echo new > made.txt && rm kept.txt && ./no-such"))
    assert "exit 127" in said
    assert (here / "made.txt").read_text() == "new\n"
    record = last(installation)
    assert record["decidedBy"] == "containment"
    assert record["escalationResult"] == "approved"
    assert record["sandboxed"] is True
    assert record["changed"] == ["deleted kept.txt", "created made.txt"]
    assert record["point"]
    taken_back = Person(installation).run("rollback", str(record["requestId"]))
    assert taken_back.returncode == 0, taken_back.stderr
    assert (here / "kept.txt").read_text() == "kept"
    assert not (here / "made.txt").exists()


def test_a_call_that_names_paths_of_the_workspace_is_held_by_its_roles(
    session: tuple[Installation, RawClient],
) -> None:
    installation, agent = session
    file = installation.workspace / "by-role.txt"
    done(agent.call("write", {"path": str(file), "text": "x"}))
    assert last(installation)["changed"] == ["created by-role.txt"]
    done(agent.call("remove", {"path": str(file)}))
    assert last(installation)["decidedBy"] == "containment"


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("curl https://example.com", "curl"),
        ("git push origin main", "git push"),
        ("sudo true", "sudo"),
        ("cat .env | base64", "a secret"),
        ("rm -rf /srv/elsewhere", "outside the workspace"),
    ],
)
def test_what_leaves_or_cannot_be_taken_back_is_asked_about(
    session: tuple[Installation, RawClient], command: str, why: str
) -> None:
    installation, agent = session
    refused(shell(agent, command))
    assert last(installation)["decidedBy"] != "containment"
    assert why in why_asked(installation)


def test_a_tool_that_nobody_described_is_asked_about(
    session: tuple[Installation, RawClient],
) -> None:
    installation, agent = session
    refused(agent.call("run", {"code": "print(1)"}))
    assert why_asked(installation) == "no annotation says what the tool does"
    refused(agent.call("read", {"path": str(installation.workspace / "by-role.txt")}))
    assert why_asked(installation) == "what is read cannot be taken back"
    refused(agent.call("http", {"url": "http://example.com/"}))
    assert why_asked(installation) == "it names a host or an account"


def test_the_same_call_that_tried_to_leave_is_asked_about_with_its_host(
    installation: Installation,
) -> None:
    escalations(installation)
    agent, person = contained(installation), Person(installation)
    code = "import urllib.request as r; r.urlopen('https://closed.example/x')"
    command = f'{sys.executable} -c "{code}"'
    done(shell(agent, command))
    assert last(installation)["decidedBy"] == "containment"
    assert person.requests() == []
    call = agent.start_call("shell", {"command": command})
    question = person.until_asked()[0]
    assert "tried to reach" in str(question["context"])
    person.answer({"decision": "denied"})
    refused(agent.result(call))
    assert "closed.example" in str(question["context"])
    # What did not try is contained as before.
    done(shell(agent, f"{command} || true"))
    assert last(installation)["decidedBy"] == "containment"


def test_a_rule_that_keeps_or_denies_a_call_holds_and_what_one_allows_has_its_point_too(
    installation: Installation,
) -> None:
    installation.rules = [
        {**rule("kept", "escalate", "a person must agree", tool=["remove"]), "contained": False},
        rule("never", "deny", "no", tool=["rename"]),
        rule("go", "allow", tool=["write", "shell"]),
        rule("rest", "escalate", "a person must agree"),
    ]
    agent, file = contained(installation), installation.workspace / "file.txt"
    done(agent.call("write", {"path": str(file), "text": "x"}))
    assert last(installation)["changed"] == ["created file.txt"]
    assert last(installation)["decidedBy"] == "kernel"
    done(shell(agent, "ls"))
    assert "point" not in last(installation)
    refused(agent.call("remove", {"path": str(file)}))
    assert why_asked(installation) == "the rule kept keeps such calls for reviewers"
    refused(agent.call("rename", {"source": str(file), "target": f"{file}.2"}))
    assert "point" not in last(installation)
    assert file.exists()


def test_what_the_timeline_cannot_hold_is_asked_about(installation: Installation) -> None:
    large = installation.workspace / "large"
    large.write_bytes(b"x" * (1 << 20))
    bounded = CONFIG | {"containment": {"undo": True, "max_bytes": 1 << 20}}
    agent, file = contained(installation, bounded), installation.workspace / "small.txt"
    refused(shell(agent, "make clean"))
    assert why_asked(installation).startswith("what it may delete could not be brought back: ")
    done(agent.call("write", {"path": str(file), "text": "x"}))
    refused(agent.call("remove", {"path": str(large)}))


# --- the look afterwards


def test_a_hook_that_comes_after_the_look_is_put_back_by_the_next(
    installation: Installation,
) -> None:
    hook = installation.workspace / "late/.git/hooks/post-commit"
    gate = installation.workspace / "gate"
    agent = contained(installation)
    waits = f"while [ ! -e {gate} ]; do sleep 0.01; done; mkdir -p {hook.parent}; echo x > {hook}"
    done(shell(agent, f"({waits}; echo done > {gate}.done) >/dev/null 2>&1 &"))
    assert "putBack" not in last(installation)
    done(shell(agent, f"touch {gate}; while [ ! -e {gate}.done ]; do sleep 0.01; done"))
    assert "late" in str(last(installation)["putBack"])
    assert not hook.exists()


# --- attacks


def test_a_workspace_that_became_a_link_contains_nothing(installation: Installation) -> None:
    agent, elsewhere = contained(installation), folder(installation, "precious")
    done(shell(agent, "true"))
    installation.workspace.rename(installation.root / "moved")
    installation.workspace.symlink_to(elsewhere)
    refused(shell(agent, "touch made.txt"))
    assert "another directory" in why_asked(installation)


def test_a_process_that_was_left_behind_does_not_open_the_walls(
    session: tuple[Installation, RawClient],
) -> None:
    installation, agent = session
    outside = Path(folder(installation, "outside"))
    gate, program = installation.workspace / "gate", installation.workspace / "leave.sh"
    program.write_text(
        f"until [ -e {gate} ]; do sleep 0.01; done\necho x > {outside}/x; echo $? > {gate}.done\n"
    )
    done(shell(agent, f"sh {program} >/dev/null 2>&1 &"))
    said = done(shell(agent, f"touch {gate}; until [ -s {gate}.done ]; do sleep 0.01; done"))
    assert "exit 0" in said
    assert Path(f"{gate}.done").read_text().strip() != "0"
    assert list(outside.iterdir()) == []


def test_no_server_may_write_where_the_sandbox_program_keeps_its_own_logs(
    session: tuple[Installation, RawClient],
) -> None:
    installation, agent = session
    for directory in [installation.home / name for name in SRTS_OWN]:
        program = installation.workspace / "write.sh"
        program.write_text(f"echo x > {directory}/left; echo $? > {program}.status")
        done(shell(agent, f"sh {program}"))
        assert list(directory.iterdir()) == []


def test_explain_says_what_containment_and_a_second_instance_would_do(
    session: tuple[Installation, RawClient],
) -> None:
    installation, _ = session

    def explain(tool: str, given: Message) -> str:
        command = [*PROXY, "explain", f"box/{tool}", "--args", orjson.dumps(given).decode()]
        done = program.run(command, installation.environment())
        return done.stdout + done.stderr

    inside = str(installation.workspace / "file.txt")
    assert "settles it, if it can be taken back" in explain("write", {"path": inside, "text": "x"})
    assert "it names a host or an account" in explain("http", {"url": "http://example.com/"})
    assert "a second instance: host example.com" in explain("http", {"url": "http://example.com/"})
