"""The door of a client's own tools. This process is the client: it starts the hooks itself."""

import os
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace

import orjson
import pytest

from ironcurtain_proxy.hooks import runs
from ironcurtain_proxy.hooks.dialects import DIALECTS
from ironcurtain_proxy.hooks.installing import install, place_in, remove
from ironcurtain_proxy.hooks.launching import INTERPRETER, STUB, hook_words
from ironcurtain_proxy.hooks.runs import HeldDoor
from ironcurtain_proxy.mailbox.messages import Owner
from ironcurtain_proxy.model.values import Json
from tests.e2e.raw_client import Message
from tests.hooks.hooked import HookedHome, decision_in
from tests.program import wait_until


def test_the_first_hook_starts_a_kernel_that_decides_and_records_until_the_session_ends(
    home: HookedHome,
) -> None:
    notes = str(home.workspace / "notes.txt")
    assert home.decide("Write", {"file_path": notes, "content": "x"}) == "silence"
    assert home.decide("Bash", {"command": "ls"}) == "silence"
    settings = str(home.workspace / ".claude/settings.json")
    assert home.decide("Write", {"file_path": settings, "content": "{}"}) == "deny"
    assert home.decide("Bash", {"command": "curl https://example.com"}) == "ask"
    assert home.decide("TodoWrite", {"todos": []}) == "silence"
    # It writes a prompt for later sessions into a file of the project.
    assert home.decide("CronCreate", {"prompt": "x", "durable": True}) == "ask"
    assert home.decide("Teleport", {"where": "/"}) == "ask"
    for tool, words in (
        ("EnterWorktree", "the client's tool EnterWorktree, which makes or removes a work tree"),
        ("Read\u200b", "what the tool Read\\u200b does. Look at its arguments"),
    ):
        asked = home.fire("PreToolUse", home.call(tool, {}))
        inner = orjson.loads(asked.stdout)["hookSpecificOutput"]
        assert (inner["permissionDecision"], words in inner["permissionDecisionReason"]) == (
            "ask",
            True,
        )
    kernel = home.kernel()
    home.end_session()
    wait_until(lambda: not Path(f"/proc/{kernel}").exists())
    assert [one.name for one in (home.state / "doors").iterdir()] == ["claude.fired"]
    intents = [one for one in home.records() if "result" not in one]
    assert [(one["door"], one["hookTool"], one["decidedBy"]) for one in intents] == [
        ("hook", "Write", "kernel"),
        ("hook", "Bash", "kernel"),
        ("hook", "Bash", "client"),
        ("hook", "TodoWrite", "kernel"),
        ("hook", "CronCreate", "client"),
        ("hook", "Teleport", "client"),
        ("hook", "EnterWorktree", "client"),
        ("hook", "Read\u200b", "client"),
    ]


def test_a_home_that_lies_deeper_than_the_path_of_a_socket_may_be_is_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = HookedHome(tmp_path / ("deep" * 30))
    monkeypatch.chdir(home.workspace)
    assert home.decide("Bash", {"command": "ls"}) == "silence"
    home.end_session()


def test_the_end_of_a_client_below_the_client_ends_that_one_alone(
    home: HookedHome, tmp_path: Path
) -> None:
    assert home.decide("Bash", {"command": "ls"}) == "silence"
    below = tmp_path / "claude"
    below.symlink_to("/bin/bash")
    words = [str(below), "-c", '"$0" "$@"; exit $?']
    words += hook_words(DIALECTS["claude"], "SessionEnd", home.state)
    subprocess.run(words, input=b'{"reason": "other"}', env=home.environment(), check=True)
    assert home.decide("Bash", {"command": "ls"}) == "silence"
    assert len({str(one["session"]) for one in home.records()}) == 1


def test_settings_of_the_client_that_lie_where_its_agent_writes_deny_every_call_and_say_so(
    home: HookedHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, decision in {"settings": "deny", ".claude": "silence"}.items():
        monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(home.workspace / name))
        place = place_in("claude", home.home, home.state)
        install(place)
        assert home.decide("Bash", {"command": "ls"}) == decision
        said = home.command("hooks", "status").stdout
        assert ("is in the workspace, where agents write" in said) == (decision == "deny")
        assert remove(place) == "restored"


def test_an_event_at_the_end_of_a_turn_starts_no_kernel(home: HookedHome) -> None:
    # The client may have gone.
    assert home.fire("Stop", {"session_id": "s"}).returncode == 0
    doors = home.state / "doors"
    assert not doors.exists() or not [*doors.iterdir()]


def test_a_mode_in_which_the_client_asks_nobody_gets_a_denial(home: HookedHome) -> None:
    for mode, expected in {
        "default": "ask",
        "acceptEdits": "ask",
        "bypassPermissions": "deny",
        "auto": "deny",
        "of next year": "deny",
    }.items():
        for tool, given in (("Bash", {"command": "curl https://a.b"}), ("Teleport", {})):
            assert home.decide(tool, dict(given), permission_mode=mode) == expected, (mode, tool)


ACTED_ON = {
    "silence": """
        src/main.py CLAUDE.md a/CLAUDE.md CLAUDE.local.md AGENTS.md GEMINI.md bin/tool
        .github/workflows/ci.yml .claude/worktrees/a/b.py
    """,
    "ask": """
        bin/git .venv/bin/git .claude/agents/a.md .claude/commands/a.md .claude/skills/a/SKILL.md
        .codex/prompts/a.md .gemini/commands/a.toml .cursor/rules/a.mdc .opencode/agent/a.md
        .github/agents/a.md .husky/pre-commit .envrc .claude/worktrees/a/.husky/pre-push
        .claude-plugin/plugin.json .vscode/launch.json .claude/CLAUDE.md .claude/rules/a.md
        .claude/scheduled_tasks.json .github/copilot-instructions.md
    """,
    "deny": ".mcp.json opencode.json .codex/config.toml .cursor/hooks.json .opencode/plugin/a.ts"
    " .github/copilot/settings.local.json",
}


def test_what_clients_shells_and_editors_act_on_by_itself_is_changed_only_when_asked(
    home: HookedHome,
) -> None:
    def found(place: str) -> str:
        return home.decide("Write", {"file_path": str(home.workspace / place), "content": "x"})

    for decision, places in ACTED_ON.items():
        assert {one: found(one) for one in places.split()} == dict.fromkeys(
            places.split(), decision
        )


def test_settings_that_switch_the_hooks_off_meanwhile_are_not_obeyed(home: HookedHome) -> None:
    file = home.workspace / ".claude/settings.local.json"
    file.parent.mkdir()
    event: Message = {"source": "local_settings", "file_path": str(file)}
    file.write_text('{"model": "x"}')
    assert "block" in home.fire("ConfigChange", event).stdout, "there is no kernel yet"
    home.fire("SessionStart", {"source": "startup"})
    assert home.fire("ConfigChange", event).stdout == "{}\n"
    for text in ('{"disableAllHooks": true}', '{"env": {"LD_TRACE_LOADED_OBJECTS": ""}}', "{"):
        file.write_text(text)
        answer = orjson.loads(home.fire("ConfigChange", event).stdout)
        assert answer.keys() == {"decision", "reason"}
        assert (answer["decision"], str(file) in answer["reason"]) == ("block", True)
    assert "block" in home.fire("ConfigChange", "{").stdout


def test_a_sub_agent_is_named_in_the_record(home: HookedHome) -> None:
    more: dict[str, Json] = {"agent_id": "a1", "agent_type": "Explore"}
    assert home.decide("Bash", {"command": "ls"}, **more) == "silence"
    assert (home.records()[0]["agent"], home.records()[0]["agentType"]) == ("a1", "Explore")


def test_once_its_kernel_is_killed_every_call_is_denied_with_a_sentence(home: HookedHome) -> None:
    assert home.decide("Bash", {"command": "ls"}) == "silence"
    os.kill(home.kernel(), signal.SIGKILL)
    calls = (("Bash", {"command": "ls"}), ("Read", {"file_path": "notes.txt"}))
    for tool, given in calls:
        found = home.fire("PreToolUse", home.call(tool, dict(given)))
        assert decision_in(found.stdout) == "deny"
        assert "the kernel of this session has ended" in found.stdout
    asked = orjson.loads(home.fire("PermissionRequest", home.call("Bash", {})).stdout)
    assert asked["hookSpecificOutput"]["decision"]["behavior"] == "deny"
    # What cannot be denied stops nobody, and a new session begins with a new kernel.
    assert home.fire("UserPromptSubmit", {"prompt": "x"}).returncode == 0
    assert home.fire("SessionStart", {"source": "startup"}).returncode == 0
    assert home.decide("Bash", {"command": "ls"}) == "silence"


@pytest.mark.parametrize("broken", ["interpreter", "stub", "killed"])
def test_a_hook_that_cannot_run_denies_by_its_exit_code(broken: str, tmp_path: Path) -> None:
    words = hook_words(DIALECTS["claude"], "PreToolUse", tmp_path)
    place = words.index(INTERPRETER if broken != "stub" else str(STUB))
    words[place] = str(tmp_path / "gone")
    if broken == "killed":
        script = tmp_path / "gone"
        script.write_text("#!/bin/sh\nkill -9 $$\n")
        script.chmod(0o755)
    found = subprocess.run(words, capture_output=True, text=True, check=False, input="{}")
    assert found.returncode == 2
    assert "IronCurtain: its hook cannot run, so nothing was run." in found.stderr
    after = [
        one.replace("exit 2", "exit 0") for one in hook_words(DIALECTS["claude"], "Stop", tmp_path)
    ]
    after[after.index(INTERPRETER)] = "/gone"
    assert subprocess.run(after, capture_output=True, check=False, input=b"{}").returncode == 0


def broken_events(home: HookedHome) -> dict[str, Json]:
    whole = home.call("Bash", {"command": "ls"})
    return {
        "nothing": "",
        "no JSON": "{",
        "twice the same name": '{"tool_name": "Read", "tool_name": "Bash"}',
        "a list": [],
        "nested without end": "[" * 100_000,
        "no tool": {**whole, "tool_name": None},
        "a tool that is no text": {**whole, "tool_name": ["Bash"]},
        "no arguments": {**whole, "tool_input": "ls"},
        "arguments in a text": {**whole, "tool_input": '{"command": "ls"}'},
        "a command that is no text": {**whole, "tool_input": {"command": ["ls"]}},
        "no directory": {**whole, "cwd": None},
        "a relative directory": {**whole, "cwd": "project"},
        "a path that is no text": {**whole, "tool_name": "Read", "tool_input": {"file_path": 1}},
        "an agent that is no text": {**whole, "agent_id": {}},
        "more than is read": {**whole, "tool_input": {"command": "ls", "x": "y" * (17 << 20)}},
    }


def test_an_event_that_cannot_be_read_is_denied_whatever_is_wrong_with_it(home: HookedHome) -> None:
    broken = broken_events(home)
    for what, payload in broken.items():
        assert decision_in(home.fire("PreToolUse", payload).stdout) == "deny", what
    # Each is in the log, with the beginning of what came.
    assert len(home.records()) == len(broken)
    for record in home.records():
        assert (record["door"], record["hookClient"]) == ("hook", "claude")
        assert len(orjson.dumps(record)) < 16_000
    large: Message = {"file_path": str(home.workspace / "x"), "content": "y" * (10 << 20)}
    assert home.decide("Write", large) == "silence"


def test_a_call_of_a_tool_that_the_client_has_for_itself_is_recorded_with_its_end(
    home: HookedHome,
) -> None:
    key = "sk-ant-api03-" + "a1B2" * 20
    for tool, mode in (("WebSearch", "plan"), ("Teleport", "plan"), ("Teleport", "auto")):
        call = home.call(tool, {"query": f"use {key}"}, permission_mode=mode)
        home.fire("PreToolUse", call)
        home.fire("PostToolUse", {**call, "tool_response": {}})
    left = home.call("TodoWrite", {"todos": []})
    home.fire("PreToolUse", left)
    home.end_session()
    ended = [
        (one["toolName"], one["decidedBy"], one["result"]["status"])
        for one in home.outcomes()
        if isinstance(one["result"], dict)
    ]
    assert ended == [
        ("WebSearch", "kernel", "success"),
        ("Teleport", "client", "success"),
        ("Teleport", "kernel", "denied"),
        ("TodoWrite", "kernel", "error"),
    ]
    assert {one["serverName"] for one in home.outcomes()} == {"client", "unknown"}
    assert key not in (home.state / "audit.jsonl").read_text()


@pytest.mark.parametrize("client", ["cursor", "codex", "gemini"])
def test_a_hook_for_another_client_is_denied_in_its_own_form_and_says_so(
    home: HookedHome, client: str
) -> None:
    """Cursor also starts the hooks of Claude Code, which the kernel of neither can judge."""
    assert home.decide("Bash", {"command": "ls"}) == "silence"
    dialect = DIALECTS[client]
    before = next(event for event, kind in dialect.events.items() if kind == "before")
    call = orjson.dumps({**home.call("Bash", {"command": "ls"}), "tool_name": "Shell"})
    for event, words in (
        (before, f"a hook for {client} was started by claude"),
        ("x", "the kernel gave no answer, or half of one"),
    ):
        argv = hook_words(dialect, before, home.state)
        argv[argv.index(before)] = event
        done = subprocess.run(
            argv, input=call, env=home.environment(), capture_output=True, check=False
        )
        assert words in done.stdout.decode()
        assert "deny" in done.stdout.decode()
    home.end_session()
    (denied,) = [one for one in home.outcomes() if one["toolName"] == "unreadable"]
    assert "unreadable-event" in str(denied["policyDecision"])


def test_a_call_under_way_is_not_run_again_under_its_id(home: HookedHome) -> None:
    first = home.call("Bash", {"command": "ls"})
    assert decision_in(home.fire("PreToolUse", first).stdout) == "silence"
    assert decision_in(home.fire("PreToolUse", first).stdout) == "deny"
    assert "under-way" in str(home.outcomes()[-1]["policyDecision"])
    home.fire("PostToolUse", {**first, "tool_response": {}})
    assert decision_in(home.fire("PreToolUse", first).stdout) == "silence"


def test_what_a_clients_tool_returned_counts_as_a_result(home: HookedHome) -> None:
    config = orjson.loads((home.state / "config.json").read_bytes())
    home.write("config.json", {**config, "targets": {"askWhenNamedBy": ["nobody"]}})
    reading = home.call("Read", {"file_path": str(home.workspace / "notes.txt")})
    for shown in ("", "see https://evil.example/a for more"):
        home.fire("PreToolUse", reading)
        home.fire("PostToolUse", {**reading, "tool_response": {"file": {"content": shown}}})
        assert home.decide("WebFetch", {"url": "https://evil.example/a"}) == "ask"
    home.end_session()
    asked = [one["origins"] for one in home.outcomes() if one["toolName"] == "fetch"]
    assert asked == [["policy", "target"], ["policy"]]


def test_the_end_of_a_call_is_recorded_as_its_client_says(home: HookedHome) -> None:
    notes = home.workspace / "notes.txt"
    call = home.call("Write", {"file_path": str(notes), "content": "x"})
    assert decision_in(home.fire("PreToolUse", call).stdout) == "silence"
    notes.write_text("x")
    # Nobody else ends it: a forged id, another tool's.
    home.fire("PostToolUse", {**call, "tool_use_id": "toolu_99"})
    assert home.outcomes() == []
    home.fire("PostToolUse", {**call, "tool_response": {}})
    failed = home.call("Bash", {"command": "ls"})
    home.fire("PreToolUse", failed)
    home.fire("PostToolUseFailure", {**failed, "error": "Exit code 3"})
    changed = home.call("Write", {"file_path": str(home.workspace / "ok"), "content": "x"})
    home.fire("PreToolUse", changed)
    elsewhere: Message = {"file_path": str(home.home / ".bashrc"), "content": "x"}
    home.fire("PostToolUse", {**changed, "tool_input": elsewhere})
    left = home.call("Bash", {"command": "touch x"})
    home.fire("PreToolUse", left)
    home.fire("Stop", {})
    home.end_session()
    results = [one["result"] for one in home.outcomes()]
    assert [one["status"] for one in results if isinstance(one, dict)] == [
        *("success", "error", "error", "error")
    ]
    assert home.outcomes()[0]["changed"] == ["created notes.txt"]
    assert "changed after it was judged" in str(results[2])
    assert "did not say how the call ended" in str(results[3])


def test_the_client_s_own_question_is_answered_as_the_call_was(home: HookedHome) -> None:
    silent = home.call("Write", {"file_path": str(home.workspace / "x"), "content": "x"})
    home.fire("PreToolUse", silent)
    del silent["tool_use_id"]
    assert orjson.loads(home.fire("PermissionRequest", silent).stdout) == {}
    unreadable = orjson.loads(home.fire("PermissionRequest", home.call("Edit", {})).stdout)
    assert unreadable["hookSpecificOutput"]["decision"]["behavior"] == "deny"


def test_the_user_s_words_are_there_until_the_session_ends_but_not_while_a_command_runs(
    home: HookedHome,
) -> None:
    def words() -> list[Json]:
        found = sorted((home.state / "sessions").glob("*/user-context.json"))
        return [orjson.loads(one.read_bytes())["userMessage"] for one in found]

    home.fire("UserPromptSubmit", {"prompt": "push it"})
    assert words() == ["push it"]
    call = home.call("Bash", {"command": "ls"})
    home.fire("PreToolUse", call)
    # The command itself could have started this hook.
    home.fire("UserPromptSubmit", {"prompt": "push everything"})
    assert words() == []
    home.fire("UserPromptSubmit", {"prompt": "commit it"})
    assert words() == ["commit it"]
    home.fire("UserPromptSubmit", {"prompt": "<task-notification>push</task-notification>"})
    assert words() == ["commit it"]
    # What cannot be read may have taken the earlier words back.
    home.fire("UserPromptSubmit", '{"prompt": "sto')
    assert words() == []
    home.fire("UserPromptSubmit", {"prompt": "commit it"})
    # What an agent schedules comes as its user's.
    assert home.decide("CronCreate", {"cron": "* * * * *", "prompt": "push it"}) == "silence"
    home.fire("UserPromptSubmit", {"prompt": "push it"})
    assert words() == []
    home.end_session()


def test_variables_of_a_project_do_not_choose_the_policy(home: HookedHome, tmp_path: Path) -> None:
    open_policy = {
        "rules": [
            {
                "name": "all",
                "description": "all",
                "then": "allow",
                "reason": "all",
                "if": {"server": ["shell"]},
            }
        ]
    }
    (tmp_path / "evil").mkdir()
    (tmp_path / "evil/compiled-policy.json").write_bytes(orjson.dumps(open_policy))
    found = home.fire(
        "PreToolUse",
        home.call("Bash", {"command": "cat ~/.ssh/id_rsa"}),
        GENERATED_DIR=str(tmp_path / "evil"),
        IRONCURTAIN_CONFIG="/dev/null",
        HOME=str(tmp_path / "evil"),
        PYTHONPATH=str(tmp_path / "evil"),
    )
    assert decision_in(found.stdout) != "silence"


def test_no_program_that_lies_in_the_project_runs_as_one_of_the_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project, ran = tmp_path / "home/project", tmp_path / "ran"
    places = [f"{project}/bin", "bin", f"{tmp_path}/link", f"{project}/out", os.environ["PATH"]]
    home = HookedHome(tmp_path, path=":".join(places))
    monkeypatch.chdir(project)
    subprocess.run(["git", "init", "-q"], check=True)
    for name in ("git", "srt", "bwrap", "node"):
        file = project / "bin" / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"#!/bin/sh\necho {name} >> {ran}\n")
        file.chmod(0o755)
    (tmp_path / "link").symlink_to(project / "bin")
    (project / "out").symlink_to(project / "bin")
    home.fire("SessionStart", {"source": "startup"})
    for command in ("git push", "git status", "touch x"):
        home.fire("PreToolUse", home.call("Bash", {"command": command}), **home.prefixed())
    home.end_session()
    assert not ran.exists(), ran.read_text()


def test_a_call_of_ten_megabytes_is_judged_and_a_larger_event_is_denied(home: HookedHome) -> None:
    place = str(home.workspace / "large.txt")
    for size, expected in ((10 << 20, "silence"), (17 << 20, "deny")):
        call = home.call("Write", {"file_path": place, "content": "x" * size})
        assert decision_in(home.fire("PreToolUse", call).stdout) == expected


def test_the_end_of_an_edit_is_known_that_is_four_times_as_large_as_the_edit(
    home: HookedHome,
) -> None:
    place = home.workspace / "large.txt"
    call = home.call("Write", {"file_path": str(place), "content": "x" * (10 << 20)})
    assert decision_in(home.fire("PreToolUse", call).stdout) == "silence"
    shown: Message = dict.fromkeys(("content", "originalFile", "patch"), "x" * (10 << 20))
    home.fire("PostToolUse", {**call, "tool_response": shown})
    # The beginning of one that is larger still is read, and nothing else of it.
    more: Message = dict.fromkeys(("a", "b", "c", "d"), "x" * (20 << 20))
    assert home.fire("PostToolUse", {**call, "tool_response": more}).stdout == "{}\n"
    (ended,) = home.outcomes()
    assert isinstance(ended["result"], dict)
    assert ended["result"]["status"] == "success"


def test_large_calls_are_refused_while_those_under_way_fill_the_memory(home: HookedHome) -> None:
    decided = [
        home.decide("Write", {"file_path": str(home.workspace / f"{one}"), "content": "x" * size})
        for one, size in enumerate([15 << 20] * 7)
    ]
    assert decided == [*["silence"] * 6, "deny"]
    assert "too-many-calls" in str(home.outcomes()[-1]["policyDecision"])
    home.fire("Stop", {})
    assert home.decide("Bash", {"command": "ls"}) == "silence"


def test_fifty_sessions_at_once_get_each_answer_and_lose_no_record(home: HookedHome) -> None:
    """Four hooks of each, and garbage among them."""
    assert home.decide("Bash", {"command": "ls"}) == "silence"
    settings = str(home.workspace / ".claude/settings.json")
    payloads: list[tuple[bytes, str]] = []
    for number in range(50):
        read: Message = {"file_path": str(home.workspace / f"{number}")}
        written: Message = {"file_path": settings, "content": "x" * 1000 * number}
        for tool, given, expected in (("Read", read, "silence"), ("Write", written, "deny")):
            call = home.call(tool, given, session_id=f"s{number}", agent_id=f"a{number}")
            again = {**call, "tool_use_id": f"again_{number}_{tool}"}
            payloads += [(orjson.dumps(one), expected) for one in (call, again)]
        payloads += [(b"\xff{" * number, "deny")] if number % 10 == 0 else []
    running = [
        subprocess.Popen(
            hook_words(DIALECTS["claude"], "PreToolUse", home.state),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=home.environment(),
        )
        for _ in payloads
    ]
    for process, (raw, _) in zip(running, payloads, strict=True):
        assert process.stdin is not None
        process.stdin.write(raw)
        process.stdin.close()
    for process, (_, expected) in zip(running, payloads, strict=True):
        assert process.stdout is not None
        assert decision_in(process.stdout.read().decode()) == expected
        process.stdout.close()
        assert process.wait() == 0
    home.end_session()
    noted = [str(one.get("agent", "")) for one in home.outcomes()]
    # Of the first call and the five that cannot be read, nobody knows an agent.
    known = [f"a{number}" for number in range(50) for _ in range(4)]
    assert sorted(noted) == sorted([*[""] * 6, *known])


def test_a_kernel_that_cannot_start_denies_and_the_status_says_why(home: HookedHome) -> None:
    home.write("config.json", {"allowedDirectory": str(home.workspace), "unknownTools": "perhaps"})
    found = home.fire("PreToolUse", home.call("Bash", {"command": "ls"}))
    assert decision_in(found.stdout) == "deny"
    assert "the kernel does not start" in found.stdout
    said = home.command("hooks", "status").stdout
    assert "claude: EVERY CALL IS DENIED, its kernel does not start: " in said
    assert "unknownTools" in said


def test_gemini_cli_writes_the_plans_of_its_project_alone(home: HookedHome) -> None:
    home.client, own = "gemini", home.home / ".gemini"
    own.mkdir()
    known: Json = {"projects": {str(home.workspace): "project", "/other": "other"}}
    (own / "projects.json").write_bytes(orjson.dumps(known))

    def decided(tool: str, name: str) -> str:
        given: dict[str, Json] = {"file_path": str(own / name), "content": "x"}
        found = orjson.loads(home.fire("BeforeTool", home.call(tool, given)).stdout)
        return str(found.get("decision", "silence"))

    plans = "tmp/project/0c6d71e0/plans/a.md"
    assert [decided(one, plans) for one in ("write_file", "read_file")] == ["silence"] * 2
    assert decided("read_file", "tmp/project/tool-outputs/a.txt") == "silence"
    for name in (
        *("tmp/other/0c6d71e0/plans/a.md", "tmp/project/chats/a.json", "tmp/project/plans/a.sh"),
        *("settings.json", "projects.json", "tmp/project/plans/../../../a/plans/a.md"),
    ):
        assert decided("write_file", name) == "deny", name
    assert decided("read_file", "tmp/other/chats/a.json") == "deny"
    home.fire("SessionEnd", {"reason": "exit"})
    home.client = "claude"


def test_the_client_s_own_plans_and_notes_need_no_question_but_its_settings_do(
    home: HookedHome, tmp_path: Path
) -> None:
    own = home.home / ".claude"
    project = own / "projects" / str(home.workspace).replace("/", "-").replace("_", "-")
    (own / "plans").mkdir(parents=True)
    (own / "skills").symlink_to(tmp_path)
    plan, note = str(own / "plans/a.md"), str(project / "memory/a.md")
    for file in (plan, note):
        assert home.decide("Read", {"file_path": file}) == "silence"
        assert home.decide("Write", {"file_path": file, "content": ""}) == "silence"
    assert home.decide("Read", {"file_path": str(project / "s/tool-results/1.txt")}) == "silence"
    written = [project / "s.jsonl", own / "agents/a.md", own / "commands/a.md", own / "CLAUDE.md"]
    for file in map(str, [*written, own / "projects/other/memory/a.md", own / "skills/a/SKILL.md"]):
        assert home.decide("Write", {"file_path": file, "content": ""}) == "ask", file
    for name in ("settings.json", "settings.local.json", "hooks/x"):
        assert home.decide("Write", {"file_path": str(own / name), "content": ""}) == "deny"
    for file in map(str, [own / ".credentials.json", own / "skills/secret", own / "history.jsonl"]):
        assert home.decide("Read", {"file_path": file}) in {"ask", "deny"}, file


def test_a_proxy_for_servers_loads_nothing_of_hooks() -> None:
    script = (
        "import sys, ironcurtain_proxy.wiring.serving\n"
        "print([one for one in sys.modules if one.startswith('ironcurtain_proxy.hooks')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


def test_the_home_is_no_workspace_though_the_client_runs_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = HookedHome(tmp_path)
    document: Message = orjson.loads((home.state / "config.json").read_bytes())
    del document["allowedDirectory"]
    home.write("config.json", document)
    monkeypatch.chdir(home.home)
    assert home.decide("Write", {"file_path": str(home.home / "x"), "content": ""}) == "ask"
    home.end_session()


def test_a_kernel_that_a_busy_machine_starts_slowly_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its door is held, but nobody listens there for half a minute."""
    now = [0.0]

    def wait(_seconds: float) -> None:
        now[0] += 1
        if now[0] == 30:
            listener.bind(str(place.path))

    place = HeldDoor.of(Owner(1, "1"), tmp_path)
    monkeypatch.setattr(runs, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=wait))
    with ExitStack() as exits, socket.socket(socket.AF_UNIX) as listener:
        assert place.hold(exits)
        assert not HeldDoor.of(Owner(1, "1"), tmp_path).hold_next(exits)
    assert now[0] == 30
